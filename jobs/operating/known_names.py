"""Names that somebody asks for: one that nobody has is an error, never an empty answer.

Decides who has a name: the tables' newest rows.
"""

import difflib

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError

_COLUMNS = {"broker": "brokers", "namespace": "namespaces"}


def require_known(reader: TableReader, **asked: str) -> None:
    """Raise CommandError for a broker or namespace ("" = none is asked for) that is not there."""
    for column, name in asked.items():
        if not name:
            continue
        rows = reader.rows(_COLUMNS[column], (column,))
        known = sorted(str(row[column]) for row in rows)
        if name in known:
            continue
        near = difflib.get_close_matches(name, known, n=1)
        raise CommandError(
            f"there is no {column} {name}",
            why=f"cluster {reader.cluster} has {len(known)} {column}s, none of this name",
            next_step=(f"did you mean {near[0]}? " if near else "") + _LISTS[column],
        )


_LISTS = {
    "broker": "`ballast status` lists the brokers",
    "namespace": "`ballast ownership` lists the bundles of all namespaces",
}

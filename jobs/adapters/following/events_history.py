"""Follower of ownership_events for the judge of lookups.

It has each transition, and when it became readable. It is a second reader on purpose: what rows
mean it has from nobody, only how log and files are read is `table_tail`'s and `table_scan`'s, as
for every reader. When a commit became readable is taken from its log file, in a store to the
second. What was committed while the log could not be followed became readable at some moment since
the last look.
"""

from collections.abc import Sequence

import pyarrow as pa

from jobs.adapters.delta.commits import Commit
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_scan import open_delta, scan
from jobs.adapters.delta.table_tail import LostError, TableTail, read_added, written_ms
from jobs.adapters.processes.clocks import wall_ms
from lbcore.ownership.records import State
from lbcore.sim.judge.judge import LONG_AGO, JudgedEvent

_COLUMNS = ("bundle", "version_id", "state", "source", "destination", "at_ms")


class EventsHistory:
    """The transitions in the table: commit by commit, and within one by version."""

    def __init__(self, table_path: TablePlace) -> None:
        """Reads what is there, all at once; its commits count as long ago."""
        self._path = table_path
        self._known: dict[str, int] = {}
        self._table_id = ""
        self._looked_at_ms = 0
        self._rest = self._load(version=LONG_AGO)

    @property
    def table_version(self) -> int:
        """The version of the table up to which all is told."""
        return self._tail.version

    def poll(self) -> tuple[list[JudgedEvent], int]:
        """The new transitions, and a wall time up to which nothing more can turn up.

        Costs one look at the file system when nothing is new.
        """
        found, self._rest = self._rest, []
        looked_at_ms = wall_ms()
        try:
            for commit in self._tail.new_commits():
                found += self._commit(commit)
        except (LostError, FileNotFoundError):
            found += self._load(version=None)
        for one in found:
            self._known[one.bundle] = max(one.version_id, self._known.get(one.bundle, 0))
        self._looked_at_ms = looked_at_ms
        return found, looked_at_ms

    def _load(self, version: int | None) -> list[JudgedEvent]:
        """Load the whole table and return the transitions not yet known.

        version: the one that they count as, None = the newest.
        """
        table = open_delta(self._path)
        self._tail = TableTail(self._path, table)
        table_id = str(table.metadata().id)
        known = self._known if table_id == self._table_id else {}
        self._table_id = table_id
        is_first = version is not None
        rows = _transitions(
            scan(table, _COLUMNS),
            version=table.version() if version is None else version,
            from_ms=0 if is_first else self._looked_at_ms,
            to_ms=0 if is_first else wall_ms(),
        )
        return [row for row in rows if row.version_id > known.get(row.bundle, 0)]

    def _commit(self, commit: Commit) -> Sequence[JudgedEvent]:
        files = read_added(self._path, commit, _COLUMNS)
        if not files:
            return []
        to_ms = written_ms(self._path, commit.version)
        # The log file is written under another name and then linked, so it may have become
        # readable a moment after its time stamp: the judge's allowance covers that moment.
        return _transitions(
            pa.concat_tables(files),
            version=commit.version,
            from_ms=min(commit.info.get("timestamp") or to_ms, to_ms),
            to_ms=to_ms,
        )


def _transitions(rows: pa.Table, *, version: int, from_ms: int, to_ms: int) -> list[JudgedEvent]:
    ordered = rows.sort_by([("version_id", "ascending"), ("at_ms", "ascending")])
    return [
        JudgedEvent(
            bundle=row["bundle"],
            version_id=row["version_id"],
            state=State(row["state"]),
            source=row["source"],
            destination=row["destination"],
            decided_at_ms=row["at_ms"],
            table_version=version,
            committed_from_ms=from_ms,
            committed_to_ms=to_ms,
        )
        for row in ordered.to_pylist()
    ]

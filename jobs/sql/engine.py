"""Runs SQL on the Delta tables in this process, without a JVM; it only reads.

Decides which statements are let through, and that all of one engine's answers are of the same
versions of the tables. The engine is DataFusion as the package deltalake carries it: what the
lookup service and the verbs read with anyway, so no other package is needed and files are skipped
by their statistics. Source: ours.
"""

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.table_mending import check_complete
from jobs.adapters.delta.table_place import TablePlace
from jobs.adapters.delta.table_scan import SqlTables, open_delta
from jobs.adapters.delta.table_tail import is_delta
from jobs.adapters.delta.tables import lacking_columns, table_path
from jobs.console import CommandError, MisuseError
from jobs.sql.views import VIEWS, SqlRunner, whole_table, with_nulls
from lbcore.model.archives import ARCHIVES, Archive
from lbcore.model.table import Table
from lbcore.model.tables import OWNERSHIP_EVENTS, TABLES, declared

_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_READING = re.compile(r"\s*[(\s]*(select|with|values)\b", re.IGNORECASE)


class SqlEngine:
    """Tables under `root`, as they are now, and the views over them.

    names: of the tables, None = all. Raises CommandError where there are none.
    """

    def __init__(self, root: TablePlace, names: Collection[str] | None = None) -> None:
        if not is_delta(table_path(root, OWNERSHIP_EVENTS.name)):
            raise CommandError(
                f"there are no tables in {root}",
                why="balance_cluster has never run with this folder",
                next_step="start it (`ballast run-local`), or name the folder with --tables or"
                " --state-dir",
            )
        check_complete(root, names)
        self._tables = SqlTables()
        wanted = {table.name for table in TABLES} if names is None else set(names)
        known = {name for name in sorted(wanted) if self._know(root, name)}
        for view in VIEWS:
            if known.issuperset(view.reads):
                # tables of another version may lack a column: then this view alone is missing
                with suppress(MisuseError):
                    self._run(view.statement(SqlRunner.DATAFUSION))
                    known.add(view.name)

    def query(self, text: str) -> pa.Table:
        """The rows of one SELECT; raises MisuseError for any other statement or a wrong one."""
        if not _READING.match(_COMMENTS.sub(" ", text)):
            raise MisuseError(
                "only SELECT can be asked",
                why="the tables have one writer, the streaming job",
                next_step="begin with SELECT or WITH; `ballast --help` lists what changes things",
            )
        return self._run(text)

    def _know(self, root: TablePlace, name: str) -> bool:
        """Give a table its name, which means it and its archive where it has one."""
        archive = ARCHIVES.get(name)
        if archive is None or not is_delta(table_path(root, archive.name)):
            return self._register(root, declared(name), name)
        if not self._register(root, archive.table, archive.live_name):  # before what takes its rows
            return False
        self._register(root, archive, archive.name)
        text = whole_table(archive, archive.live_name, archive.name)
        self._run(f"CREATE VIEW {name} AS {text}")
        return True

    def _register(self, root: TablePlace, table: Table | Archive, called: str) -> bool:
        path = table_path(root, table.name)
        if not is_delta(path):
            return False
        handle = open_delta(path)
        lacking = lacking_columns(handle, table.columns)
        if not lacking:
            self._tables.add(called, handle)
            return True
        self._tables.add(f"{called}_as_it_is", handle)  # of an older version
        self._run(f"CREATE VIEW {called} AS {with_nulls(f'{called}_as_it_is', lacking)}")
        return True

    def _run(self, statement: str) -> pa.Table:
        try:
            return self._tables.run(statement)
        except (DeltaError, pa.ArrowException, ValueError) as error:
            raise MisuseError(
                "this SQL can't be carried out",
                why=str(error).partition("\nbacktrace")[0],
                next_step="docs/sql.md lists the views, docs/tables.md the tables; the dialect is "
                "DataFusion's",
            ) from None


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """The rows as JSON-able values: instants and days as ISO text, what is no number as None."""
    names: Sequence[str] = rows.column_names
    columns = [[_plain(value) for value in _values(column)] for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms"), safe=False)
    found: list[Any] = column.to_pylist()
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if value - value == 0.0 else None  # infinite and NaN give NaN
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, bool | int | str) else value.isoformat()

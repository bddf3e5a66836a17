"""Runs SQL on the Delta tables in this process, without a JVM; it only reads.

A statement runs only if its plan consists of reading steps. All answers of one engine are of the
same versions of the tables. The engine is DataFusion, which the package deltalake carries: no other
package is needed, and files are skipped by their statistics.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyarrow import types

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_repair import check_present
from jobs.adapters.delta.table_scan import SqlTables, is_delta, open_delta
from jobs.adapters.delta.tables import table_path
from jobs.console import MisuseError
from jobs.sql.queries import VIEWS, whole_table, with_nulls
from lbcore.model.tables import ARCHIVES, TABLES, Archive, Table, declared

# EXPLAIN plans a statement without carrying it out. This format gives the plan as JSON, so no text
# of the statement is taken for a step; and behind a format a leading ANALYZE is not obeyed.
_EXPLAIN = "EXPLAIN FORMAT PGJSON "
_READING_STEPS = {
    *("Aggregate", "DescribeTable", "Distinct", "EmptyRelation", "Filter", "Limit", "Projection"),
    *("RecursiveQuery", "Repartition", "Sort", "Subquery", "SubqueryAlias", "TableScan", "Union"),
    *("Unnest", "Values", "WindowAggr", "Window"),
}
_JOIN = " Join"
_WRITES_ROWS = "Operation"  # INSERT, UPDATE, DELETE, MERGE are projections with this entry
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (an instant without a zone is printed without one)


class SqlEngine:
    """Tables under `root`, as they are now, and the views over them.

    names: of the tables, None = all. Raises CommandError where there are none.
    """

    def __init__(self, root: TablePlace, names: Collection[str] | None = None) -> None:
        check_present(root, names)
        self._tables = SqlTables()
        wanted = {table.name for table in TABLES} if names is None else set(names)
        known = {name for name in sorted(wanted) if self._add_table(root, name)}
        for view in VIEWS:
            if known.issuperset(view.reads):
                # tables of another version may lack a column: then this view alone is missing
                with suppress(MisuseError):
                    self._run(f"CREATE VIEW {view.name} AS {view.datafusion}")
                    known.add(view.name)

    def query(self, text: str) -> pa.Table:
        """Return the rows of one SELECT; raises MisuseError for any other statement.

        A second column of one name gets "_2" behind it.
        """
        rows = self._run(_EXPLAIN + text).to_pylist()
        plan = next((row["plan"] for row in rows if row["plan_type"] == "logical_plan"), None)
        if plan is None:  # the last row says why the optimizer gave up
            raise _sql_error(str(rows[-1]["plan"]))
        for step in _steps(json.loads(plan)):
            kind = step["Node Type"]
            if _WRITES_ROWS in step or not (kind in _READING_STEPS or kind.endswith(_JOIN)):
                raise MisuseError(
                    "only SELECT can be asked",
                    why="the tables have one writer, the streaming job, and this statement would "
                    f"do more than read ({step.get(_WRITES_ROWS, kind)})",
                    next_step="write one SELECT, WITH or DESCRIBE; `ballast --help` lists what "
                    "changes things",
                )
        found = self._run(text)
        return found.rename_columns(list(_unique(found.column_names)))

    def _add_table(self, root: TablePlace, name: str) -> bool:
        """Register a table under its name, with its archive; False if it is missing."""
        archive = ARCHIVES.get(name)
        if archive is None or not is_delta(table_path(root, archive.name)):
            return self._register(root, declared(name), name)
        # the live table first: its rows move to the archive
        if not self._register(root, archive.table, archive.live_name):
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
        there = {field.name for field in handle.schema().fields}
        lacking = [one for one in table.columns if one.is_nullable and one.name not in there]
        if not lacking:
            self._tables.add(called, handle)
            return True
        self._tables.add(f"{called}_as_it_is", handle)  # of an older version
        self._run(f"CREATE VIEW {called} AS {with_nulls(f'{called}_as_it_is', lacking)}")
        return True

    def _run(self, statement: str) -> pa.Table:
        try:
            return self._tables.run(statement)
        except Exception as error:  # noqa: BLE001 (delta-rs raises it for a division by zero)
            raise _sql_error(str(error)) from None


def plain_rows(rows: pa.Table) -> list[dict[str, Any]]:
    """Return the rows as values that JSON can hold, whatever their Arrow type.

    Instants, days and times as ISO text (UTC; those of a zone end in +00:00), durations and
    intervals as ISO 8601 durations, decimals as text with all digits, bytes as text where they are
    UTF-8 and as 0x... elsewhere, infinite numbers and NaN as None.
    """
    names: Sequence[str] = rows.column_names
    columns = [[_plain(value) for value in column] for column in rows.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _sql_error(why: str) -> MisuseError:
    return MisuseError(
        "this SQL can't be carried out",
        why=": ".join(why.partition("\nbacktrace")[0].split("\ncaused by\n")),
        next_step="docs/sql.md lists the views, docs/tables.md the tables; the dialect is "
        "DataFusion's",
    )


def _steps(plan: Any) -> Iterator[Mapping[str, Any]]:
    """Yield each step of a plan, from the last one carried out to the scans."""
    for tree in plan:
        step = tree.get("Plan", tree)
        yield step
        yield from _steps(step.get("Plans", ()))


def _unique(names: Iterable[str]) -> Iterator[str]:
    taken: set[str] = set()
    for name in names:
        number, one = 1, name
        while one in taken:
            number += 1
            one = f"{name}_{number}"
        taken.add(one)
        yield one


def _plain(scalar: Any) -> Any:
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if types.is_floating(kind):
        value = float(scalar.as_py())
        return value if value - value == 0.0 else None  # infinite and NaN give NaN
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind) or types.is_union(kind):
        return _plain(scalar.value)
    if types.is_nested(kind):
        return _plain_nested(scalar)
    plain = next((plain for is_kind, plain in _PLAIN if is_kind(kind)), None)
    return plain(scalar) if plain else scalar.as_py()  # integers, texts, truth values


def _plain_nested(scalar: Any) -> Any:
    kind = scalar.type
    if types.is_struct(kind):
        names = _unique(field.name for field in kind)
        return {name: _plain(scalar[at]) for at, name in enumerate(names)}
    if types.is_map(kind):
        pairs = [(_plain(pair[0]), _plain(pair[1])) for pair in scalar.values]
        return {key if isinstance(key, str) else json.dumps(key): value for key, value in pairs}
    return [_plain(one) for one in scalar.values]


def _instant(scalar: Any) -> str:
    unit, zone = scalar.type.unit, "+00:00" if scalar.type.tz else ""
    seconds, rest = divmod(scalar.value, _PER_SECOND[unit])
    try:
        whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError:  # before year 1 or after 9999
        return f"{scalar.value} {unit} since 1970"
    return f"{whole}{_fraction(rest, _PER_SECOND[unit])}{zone}"


def _day(scalar: Any) -> str:
    days = scalar.value if types.is_date32(scalar.type) else scalar.value // 86_400_000
    try:
        return date.fromordinal(_EPOCH.toordinal() + days).isoformat()
    except (OverflowError, ValueError):
        return f"{days} days since 1970"


def _time(scalar: Any) -> str:
    per_s = _PER_SECOND[scalar.type.unit]
    seconds, rest = divmod(scalar.value, per_s)
    minutes, second = divmod(seconds, 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{second:02}{_fraction(rest, per_s)}"


def _interval(scalar: Any) -> str:
    months, days, nanoseconds = scalar.as_py()
    text = f"{f'{months}M' if months else ''}{f'{days}D' if days else ''}"
    if nanoseconds or not text:
        text += f"T{_seconds(nanoseconds, _PER_SECOND['ns'])}S"
    return f"P{text}"


def _seconds(value: int, per_s: int) -> str:
    whole, rest = divmod(abs(value), per_s)
    return f"{'-' if value < 0 else ''}{whole}{_fraction(rest, per_s)}"


def _fraction(part: int, per_s: int) -> str:
    digits = len(str(per_s)) - 1
    return f".{part:0{digits}}".rstrip("0") if part else ""


def _text_of_bytes(scalar: Any) -> str:
    value: bytes = scalar.as_py()
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"0x{value.hex()}"


_PLAIN: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (types.is_timestamp, _instant),
    (types.is_date, _day),
    (types.is_time, _time),
    (
        types.is_duration,
        lambda scalar: f"PT{_seconds(scalar.value, _PER_SECOND[scalar.type.unit])}S",
    ),
    (types.is_interval, _interval),
    (types.is_decimal, lambda scalar: format(scalar.as_py(), "f")),
    (types.is_binary, _text_of_bytes),
    (types.is_large_binary, _text_of_bytes),
    (types.is_fixed_size_binary, _text_of_bytes),
    (types.is_binary_view, _text_of_bytes),
)

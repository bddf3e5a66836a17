"""Reads of a table's rows at a version, with a condition that skips files.

Decides how delta-rs and Arrow are asked, so that a folder and a store are read alike and other
threads run meanwhile; not what rows mean. Used by every reader of tables in Python, the writer's
upkeep included.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder

from jobs.adapters.delta.table_location import (
    TablePlace,
    delta_options,
    store_errors,
    table_place,
)
from jobs.adapters.delta.table_log import naming_damaged_file, open_on_disk

_AT_ONCE = 1_000


def open_delta(place: str | TablePlace, version: int | None = None) -> DeltaTable:
    """A table at a version, None = the newest that is whole.

    Raises StoreError, DamagedTableError, TableNotFoundError.
    """
    folder = table_place(place)
    if isinstance(folder, Path):
        return open_on_disk(folder, version)
    with store_errors(place):
        return DeltaTable(str(place), version=version, storage_options=delta_options(place))


def scan(
    table: DeltaTable, columns: Iterable[str] | None = None, condition: str | None = None
) -> pa.Table:
    """Return the rows that meet an SQL condition, None = all.

    Statistics let files be skipped. columns: None = all. delta-rs's own read_all would hold all
    threads up until the store answers. Raises DamagedTableError, OSError, DeltaError,
    ArrowException for one that can't be read.
    """
    wanted = None if columns is None else list(columns)
    with naming_damaged_file(table):
        found = table.scan(columns=wanted, predicate=condition)
        return _plain(pa.RecordBatchReader.from_stream(found).read_all())


def read_file(file: TablePlace, columns: Iterable[str], cluster: str = "") -> pa.Table:
    """The rows of one cluster, "" = of all, in one data file, appended or merged."""
    source = file if isinstance(file, Path) else pa.BufferReader(file.read_bytes())
    rows = _plain(pq.read_table(source, columns=["cluster", *columns]))
    return rows.filter(pc.equal(rows["cluster"], cluster)) if cluster else rows


def oldest_ms(table: DeltaTable, condition: str = "") -> int | None:
    """The time of a table's oldest row, of any cluster; None when it has none.

    From the statistics of its log, as `newest_ms`; no data file is read, unless only rows count
    that meet a condition.
    """
    if condition:
        met: int | None = pc.min(scan(table, ["at_ms"], condition)["at_ms"]).as_py()
        return met
    files = pa.table(table.get_add_actions(flatten=True))
    if "min.at_ms" not in files.column_names:
        return None
    found: int | None = pc.min(files["min.at_ms"]).as_py()
    return found


def newest_ms(table: DeltaTable) -> int:
    """The time of a table's newest row, -1 while it has none."""
    files = pa.table(table.get_add_actions(flatten=True))
    return -1 if not len(files) else int(pc.max(files["max.at_ms"]).as_py())


def file_sizes(table: DeltaTable, month: str = "") -> list[int]:
    """Return the bytes of each data file by its log, unordered.

    month: of an archive, "" = all.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    if month:
        files = files.filter(pc.equal(files["partition.month"], month))
    sizes: list[int] = files["size_bytes"].to_pylist()
    return sizes


def rows_in(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows one by one.

    Other threads run in between, which Arrow itself does not let them.
    """
    for batch in rows.to_batches(max_chunksize=_AT_ONCE):
        yield from batch.to_pylist()


class SqlTables:
    """Tables at their opened versions, under names for SQL (DataFusion's)."""

    def __init__(self) -> None:
        self._builder = QueryBuilder()
        self._handles: list[DeltaTable] = []

    def add(self, name: str, table: DeltaTable) -> None:
        """Give a table a name."""
        self._builder.register(name, table)
        self._handles.append(table)

    def run(self, statement: str) -> pa.Table:
        """The rows of a statement.

        Raises DamagedTableError, DeltaError, ArrowException, ValueError.
        """
        with naming_damaged_file(*self._handles):
            return pa.table(self._builder.execute(statement).read_all())


def _plain(rows: pa.Table) -> pa.Table:
    """Return plain texts.

    delta-rs gives and merges views of texts, which pyarrow can't filter or encode yet.
    """
    views = [column.name for column in rows.schema if column.type == pa.string_view()]
    if not views:
        return rows
    schema = rows.schema
    for name in views:
        schema = schema.set(schema.get_field_index(name), schema.field(name).with_type(pa.string()))
    return rows.cast(schema)


class _NoPandas(MetaPathFinder):
    """Says that there is no pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """As if it were not installed; others are found by others."""
        del path, target
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def block_pandas() -> None:
    """Hide pandas from pyarrow, in processes whose start and memory count.

    pyarrow imports it, where there is one, at the first value of Python's that it is given: 45 MiB
    and 0.24 s of CPU for a process that has no use for it. It looks once, so that others may import
    pandas afterwards. Call it before any thread may import something.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)

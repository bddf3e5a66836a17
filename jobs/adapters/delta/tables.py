"""Tables of `lbcore.model.tables` in Delta: creation, columns, rows as Arrow.

delta-rs makes and opens them, without a JVM. Decides which Delta properties each table has. Only
features that both engines read *and* write are used: CHECK and NOT NULL, no deletion vectors, row
tracking, in-commit timestamps, column defaults, clustering or type widening. The Delta protocol's
reader version 1 and writer version 3.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, Field, Schema
from deltalake.exceptions import CommitFailedError
from deltalake.schema import PrimitiveType

from jobs.adapters.delta.table_location import (
    TablePlace,
    delta_options,
    store_errors,
    table_place,
)
from jobs.adapters.delta.table_log import checkpoint_version, commit_path, sync_commits
from jobs.adapters.delta.table_scan import check_newest, is_delta, naming_damaged_file, open_delta
from jobs.console import CommandError
from lbcore.balancer.effects import table_of, unpack_columns
from lbcore.fault_isolation import Fault, fault_of
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS, TABLES, Table

_ATTEMPTS = 8
_SCALARS: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
FILE_RETENTION = "delta.deletedFileRetentionDuration"
"""Delta property: retention of files that were replaced."""

_UNITS_S = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400}
_PROPERTIES: Mapping[str, str] = {
    "delta.checkpointInterval": "100",
    "delta.logRetentionDuration": "interval 30 minutes",
    FILE_RETENTION: "interval 1 days",
    "delta.enableDeletionVectors": "false",
}
# Each commit lists its table's log, 20 µs a file: with two days of a commit a second it would take
# seconds. Time travel by version reaches back half an hour; as-of answers come from rows.
# Nearly every batch rewrites the current table: a file that was replaced is kept for an hour,
# far longer than any reader needs.
_PROPERTIES_OF: Mapping[str, Mapping[str, str]] = {
    OWNERSHIP_EVENTS.name: {"delta.appendOnly": "true"},
    BUNDLE_OWNERSHIP.name: {FILE_RETENTION: "interval 1 hours"},
}

PHASE = "sink_row"
"""Phase under which faults of `arrow_rows` are counted."""

_SHOWN_CHARS = 200
_NAMING = ("bundle", "broker", "namespace", "tenant", "topic", "name", "command_id", "decision_id")


class TableSchemaError(CommandError):
    """A table on disk does not have the columns that this code writes.

    difference: the columns that are extra, missing or of another type.
    """

    def __init__(self, table: str, uri: str, found: Schema, needed: Schema) -> None:
        there, wanted = _columns(found), _columns(needed)
        parts = [f"{one} is missing" for one in sorted({*wanted} - {*there})]
        parts += [f"{one} is not known here" for one in sorted({*there} - {*wanted})]
        self.difference = "; ".join(parts) or "its columns are in another order"
        super().__init__(
            f"the table {table} at {uri} has other columns than this version of the code writes",
            why=f"it was made by another version: {self.difference}",
            next_step="start the version that made it (ballast_job_info names it), or this one "
            "with an empty tables folder",
        )


def arrow_schema(table: Table) -> pa.Schema:
    """The Arrow schema of a declared table, in the order of its columns."""
    return pa.schema(
        [
            pa.field(column.name, _arrow_type(column.type), nullable=column.is_nullable)
            for column in table.columns
        ]
    )


def table_properties(table: Table) -> dict[str, str]:
    """The Delta properties that `ensure_table` gives a table when it makes it."""
    return {**_PROPERTIES, **_PROPERTIES_OF.get(table.name, {})}


def interval_s(text: str) -> int:
    """Seconds of a property like `interval 30 minutes`; 0 of any other form."""
    found = re.fullmatch(r"interval (\d+) (second|minute|hour|day)s?", text)
    return int(found[1]) * _UNITS_S[found[2]] if found else 0


def table_path(root: str | TablePlace, name: str) -> TablePlace:
    """Return the path of the table `name` under `root`."""
    return table_place(root) / name


def ensure_table(root: str | TablePlace, table: Table) -> DeltaTable:
    """The table under `root`, made first if it is missing, with its constraints.

    May be repeated, interrupted and called by two processes at once: each call does what is left. A
    table of an older version gets the nullable columns that it lacks, in which its rows are null.
    Raises TableSchemaError when a table of that name has other columns, DamagedTableError.
    """
    path = table_path(root, table.name)
    for _ in range(_ATTEMPTS - 1):
        with suppress(CommitFailedError):  # somebody else did the same
            return _ensured(path, table)
    return _ensured(path, table)


def _ensured(path: TablePlace, table: Table) -> DeltaTable:
    is_new = not is_delta(path)
    if is_new:
        with store_errors(path):
            DeltaTable.create(
                str(path),
                schema=Schema.from_arrow(arrow_schema(table)),
                mode="ignore",
                name=table.name,
                description=table.doc,
                configuration=table_properties(table),
                storage_options=delta_options(path),
            )
    check_newest(path, is_written=True)
    handle = open_delta(path)
    before = -1 if is_new else handle.version()
    missing = check_columns(handle, table)
    if missing:
        handle.alter.add_columns(missing)
    present = handle.metadata().configuration
    rules = {
        name: rule for name, rule in table.constraints if f"delta.constraints.{name}" not in present
    }
    if rules:
        handle.alter.add_constraint(rules)
    sync_commits(path, before, handle.version())
    return handle


def ensure_tables(root: str | TablePlace) -> dict[str, DeltaTable]:
    """Every declared table under `root` by name, made where it is missing."""
    return {table.name: ensure_table(root, table) for table in TABLES}


def open_table(root: str | TablePlace, name: str) -> DeltaTable:
    """The newest version of an existing table.

    Raises deltalake.exceptions.TableNotFoundError when it is not there, StoreError.
    """
    return open_delta(table_path(root, name))


def refresh(table: DeltaTable) -> None:
    """Bring a handle to the newest version.

    delta-rs lists the whole log for that, some 20 µs a file and commit. On a local file system the
    next commit is looked for by its name first: there is none, and no checkpoint past this version
    (before which commits may have been cleaned away), means that nothing is new. Raises
    DamagedTableError, also for a newest commit that is torn: nothing may be written after it.
    """
    path, version = table_place(table.table_uri), table.version()
    if isinstance(path, Path) and not (
        commit_path(path, version + 1).exists() or checkpoint_version(path) > version
    ):
        return
    check_newest(path, is_written=True)
    with store_errors(table.table_uri), naming_damaged_file(path):
        table.update_incremental()


def _arrow_type(logical: str) -> pa.DataType:
    if logical.startswith("list<"):
        return pa.list_(_arrow_type(logical[5:-1]))
    if logical.startswith("map<"):
        key, value = logical[4:-1].split(",")
        return pa.map_(_arrow_type(key.strip()), _arrow_type(value.strip()))
    return _SCALARS[logical]


def check_columns(handle: DeltaTable, table: Table) -> list[Field]:
    """Return the declared columns that the table lacks and may get; none if complete.

    Only nullable columns at the end may differ. An older version made a table that lacks some; a
    newer one added those that are not declared, and `with_all_columns` leaves them null. Raises
    TableSchemaError for anything else.
    """
    wanted = Schema.from_arrow(arrow_schema(table))
    found = handle.schema()
    common = min(len(found.fields), len(wanted.fields))
    rest = [*found.fields[common:], *wanted.fields[common:]]
    if found.fields[:common] != wanted.fields[:common] or not all(one.nullable for one in rest):
        raise TableSchemaError(table.name, handle.table_uri, found, wanted)
    return wanted.fields[common:]


def with_all_columns(handle: DeltaTable, rows: pa.Table) -> pa.Table:
    """Add the table's columns that the rows lack, with nulls."""
    for lacking in [one for one in pa.schema(handle.schema()) if one.name not in rows.schema.names]:
        rows = rows.append_column(lacking, pa.nulls(len(rows), lacking.type))
    return rows


def _columns(schema: Schema) -> list[str]:
    return [
        f"{field.name} {field.type.type if isinstance(field.type, PrimitiveType) else field.type}"
        f"{'' if field.nullable else ' not null'}"
        for field in schema.fields
    ]


# -- rows as Arrow


class UnfitValueError(ValueError):
    """A value that its column can't hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowRows:
    """Rows that fit.

    faults: one for each row left out. bundles: named by those rows.
    """

    table: pa.Table
    faults: Sequence[Fault] = ()
    bundles: frozenset[str] = field(default_factory=frozenset)


def arrow_rows(kind: str, blob: bytes, stamp: Mapping[str, int]) -> ArrowRows:
    """Return the rows of an effect, without those that no table can hold.

    Left out are rows that Arrow or the table's declaration refuses (a lone surrogate, an integer of
    more bits, another type, null). They are looked for only when Arrow refuses a whole column, so
    good rows cost nothing. The choice depends on the rows alone, so a repeated batch leaves out the
    same. stamp: integer columns with one value for all rows.
    """
    schema = arrow_schema(table_of(kind))
    columns = unpack_columns(kind, blob)
    count = len(columns["cluster"])
    columns |= {name: np.full(count, value, dtype=np.int64) for name, value in stamp.items()}
    arrays: list[pa.Array] = []
    unfit: dict[int, Fault] = {}
    for column in schema:
        array = _array_or_none(column, columns[column.name])
        if array is None:
            values = list(columns[column.name])
            for at, value in enumerate(columns[column.name]):
                try:
                    _check_fits(kind, column, value)
                except UnfitValueError as error:  # noqa: PERF203 one row's fault is no other's
                    name = next((columns[one][at] for one in _NAMING if one in columns), at)
                    where = f"row of {kind}: {ascii(name)[:_SHOWN_CHARS]}"
                    unfit.setdefault(at, fault_of(error, PHASE, where))
                    values[at] = None
            array = pa.array(values, type=column.type)
        arrays.append(array)
    if not unfit:
        return ArrowRows(table=pa.Table.from_arrays(arrays, schema=schema))
    left = pa.array([at for at in range(count) if at not in unfit], pa.int64())
    bundles = columns.get("bundle", ())
    named = [bundles[at] for at in unfit if len(bundles)]
    return ArrowRows(
        table=pa.Table.from_arrays([array.take(left) for array in arrays], schema=schema),
        faults=[unfit[at] for at in sorted(unfit)],
        bundles=frozenset(one for one in named if isinstance(one, str)),
    )


def without_bundles(table: pa.Table, bundles: frozenset[str]) -> pa.Table:
    """The rows of other bundles."""
    if not bundles:
        return table
    left_out = pa.array(sorted(bundles), pa.string())
    return table.filter(pc.invert(pc.is_in(table["bundle"], left_out)))


def _array_or_none(column: pa.Field, values: Any) -> pa.Array | None:
    """Return the values as a column; None when one does not fit."""
    try:
        array = pa.array(values, type=column.type)
    except MemoryError:
        raise  # the machine's, not the row's: Arrow's own error is one of these, too
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None
    return array if column.nullable or not array.null_count else None


def _check_fits(kind: str, column: pa.Field, value: Any) -> None:
    if _array_or_none(column, [value]) is None:
        nullable, shown = " or null" if column.nullable else "", ascii(value)[:_SHOWN_CHARS]
        message = f"{kind}.{column.name} must be {column.type}{nullable}, got {shown}"
        raise UnfitValueError(message)

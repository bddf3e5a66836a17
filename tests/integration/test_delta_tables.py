"""The declared tables as real Delta tables."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import (
    TableSchemaError,
    arrow_schema,
    ensure_table,
    ensure_tables,
    open_table,
    table_path,
    table_properties,
)
from lbcore.model.tables import LOAD_HISTORY, NAMESPACES, OWNERSHIP_EVENTS, TABLES, Column, Table

ZERO = {"string": "", "long": 1, "int": 1, "double": 0.0, "boolean": False, "binary": b""}


def _row(table: Table, **values: object) -> pa.Table:
    row = {column.name: ZERO.get(column.type, []) for column in table.columns} | values
    return pa.Table.from_pylist([row], schema=arrow_schema(table))


def test_ensure_tables_in_an_empty_folder_makes_every_declared_table(tmp_path: Path) -> None:
    assert sorted(ensure_tables(tmp_path)) == sorted(table.name for table in TABLES)
    for table in TABLES:
        handle = open_table(tmp_path, table.name)
        assert [field.name for field in handle.schema().fields] == [
            column.name for column in table.columns
        ]
        configuration = handle.metadata().configuration
        assert configuration.items() >= table_properties(table).items()
        for name, rule in table.constraints:
            assert configuration[f"delta.constraints.{name}"] == rule
        assert handle.protocol().min_reader_version == 1
        assert handle.protocol().min_writer_version <= 3


def test_ensure_table_interrupted_before_its_constraints_adds_them(tmp_path: Path) -> None:
    bare = Table(name="ownership_events", doc="", columns=OWNERSHIP_EVENTS.columns)
    ensure_table(tmp_path, bare)
    handle = ensure_table(tmp_path, OWNERSHIP_EVENTS)
    assert "delta.constraints.version_is_positive" in handle.metadata().configuration


def test_ensure_table_with_other_columns_on_disk_is_refused(tmp_path: Path) -> None:
    other = Table(name=OWNERSHIP_EVENTS.name, doc="", columns=NAMESPACES.columns)
    ensure_table(tmp_path, other)
    with pytest.raises(TableSchemaError, match="has other columns") as refused:
        ensure_table(tmp_path, OWNERSHIP_EVENTS)
    what, why, next_step = str(refused.value).splitlines()
    assert str(tmp_path) in what
    assert "version_id long not null is missing" in why
    assert "start the version that made it" in next_step


NEWER = replace(
    NAMESPACES,
    columns=(
        *NAMESPACES.columns,
        Column(name="owner", type="string", doc="", is_nullable=True),
        Column(name="limits", type="list<double>", doc="", is_nullable=True),
    ),
)


def test_ensure_table_of_an_older_version_adds_nullable_columns_in_which_its_rows_are_null(
    tmp_path: Path,
) -> None:
    write_deltalake(ensure_table(tmp_path, NAMESPACES), _row(NAMESPACES), mode="append")
    handle = ensure_table(tmp_path, NEWER)
    write_deltalake(handle, _row(NEWER, owner="me", limits=[1.0]), mode="append")
    rows = pa.table(open_table(tmp_path, NEWER.name).scan().read_all()).to_pylist()
    assert sorted((row["owner"], row["limits"]) for row in rows if row["owner"]) == [("me", [1.0])]
    assert [row for row in rows if row["owner"] is None and row["limits"] is None]
    version = handle.version()
    assert ensure_table(tmp_path, NEWER).version() == version
    assert handle.protocol().min_writer_version <= 3


@pytest.mark.parametrize(
    "columns",
    [
        pytest.param((Column(name="owner", type="string", doc=""),), id="not nullable"),
        pytest.param((), id="one too few"),
    ],
)
def test_ensure_table_with_a_column_that_old_rows_lack_is_refused(
    tmp_path: Path, columns: tuple[Column, ...]
) -> None:
    older = replace(NAMESPACES, columns=NAMESPACES.columns[:-1])
    ensure_table(tmp_path, older)
    with pytest.raises(TableSchemaError, match="has other columns"):
        ensure_table(tmp_path, replace(NAMESPACES, columns=(*NAMESPACES.columns, *columns)))


def test_writer_of_an_older_version_leaves_a_newer_column_null(tmp_path: Path) -> None:
    handle = ensure_table(tmp_path, NEWER)
    write_deltalake(handle, _row(NEWER, owner="me", limits=[1.0]), mode="append")
    writer = TableWriter(tmp_path)
    writer.claim()
    writer.use_query("older")
    known = _row(NAMESPACES)
    other = known.set_column(1, known.schema.field(1), pa.array(["other"]))
    writer.write(NAMESPACES.name, pa.concat_tables([known, other]), 1, {})
    writer.write(OWNERSHIP_EVENTS.name, _row(OWNERSHIP_EVENTS), 1, {})
    rows = pa.table(open_table(tmp_path, NEWER.name).scan().read_all()).to_pylist()
    assert [(row["owner"], row["limits"]) for row in rows] == [(None, None)] * 2
    assert ensure_table(tmp_path, NEWER).version() == writer.version(NAMESPACES.name)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_table_row_written_is_read_back_equal(tmp_path: Path, table: Table) -> None:
    handle = ensure_table(tmp_path, table)
    written = _row(table, **({"percent": [1.0, 2.5]} if table == LOAD_HISTORY else {}))
    write_deltalake(handle, written, mode="append")
    read = pa.table(open_table(tmp_path, table.name).scan().read_all()).cast(arrow_schema(table))
    assert read.equals(written)


def test_table_constraint_violated_is_refused(tmp_path: Path) -> None:
    handle = ensure_table(tmp_path, OWNERSHIP_EVENTS)
    ownerless = _row(OWNERSHIP_EVENTS, state="Owned", destination="")
    with pytest.raises(DeltaError):
        write_deltalake(handle, ownerless, mode="append")


def test_a_writer_sees_a_batch_that_another_handle_has_committed(tmp_path: Path) -> None:
    writer = TableWriter(tmp_path)
    writer.use_query("q")
    assert not writer.has_batch(NAMESPACES.name, 0)
    properties = CommitProperties(app_transactions=[Transaction("namespaces:q", 7)])
    fresh = DeltaTable(str(table_path(tmp_path, NAMESPACES.name)))
    write_deltalake(fresh, _row(NAMESPACES), mode="append", commit_properties=properties)
    assert writer.has_batch(NAMESPACES.name, 7)
    assert not writer.has_batch(NAMESPACES.name, 8)


def test_open_table_missing_raises(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        open_table(tmp_path, "ownership_events")

"""Packed columns and rewritten tables against dictionaries."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from jobs.adapters.delta.table_writer import with_changes
from jobs.adapters.delta.tables import arrow_schema
from lbcore.balancer.book import RowChunks, read, write_all_chunks, write_changes
from lbcore.model.tables import BUNDLE_OWNERSHIP
from lbcore.ownership.records import State
from lbcore.packing import MalformedBlobError

Columns = Mapping[str, NDArray[Any]]
SLICES = 12


def sliced(now: Columns) -> RowChunks:
    return write_all_chunks("rows", now, slices=SLICES, rows_to_slice=SLICES)


def columns(rows: int) -> dict[str, NDArray[Any]]:
    return {"count": np.arange(rows, dtype="<i4"), "rate": np.full((rows, 4), 0.5)}


def changed(before: Columns, rows: NDArray[np.int64], value: int) -> dict[str, NDArray[Any]]:
    after = {name: column.copy() for name, column in before.items()}
    after["count"][rows] = value
    after["rate"][rows] = value / 4
    return after


def assert_equal(found: Columns, wanted: Columns) -> None:
    assert found.keys() == wanted.keys()
    for name, column in wanted.items():
        assert found[name].dtype == column.dtype
        assert np.array_equal(found[name], column), name


@given(
    size=st.integers(SLICES, 70),
    batches=st.lists(st.lists(st.integers(0, 69), min_size=1, max_size=40), max_size=30),
    is_reread=st.booleans(),
)
def test_what_is_read_is_what_was_written(
    size: int, batches: list[list[int]], *, is_reread: bool
) -> None:
    now = columns(size)
    chunks = sliced(now)
    for number, batch in enumerate(batches):
        rows = np.array([row % size for row in batch])
        now = changed(now, rows, 100 + number)
        chunks = write_changes(chunks, now, rows)
        found, again = read("rows", {**chunks.blobs, "row": b"", "rows": b"", "other.slice.1": b""})
        assert_equal(found, now)
        assert again == chunks
        chunks = again if is_reread else chunks
        assert len(chunks.blobs) <= 2 * SLICES


def test_batch_with_few_changes_rewrites_one_slice() -> None:
    now = columns(80)
    chunks = sliced(now)
    for number in range(1, 3 * SLICES):
        after = write_changes(chunks, now, np.array([number]))
        new = {name for name, blob in after.blobs.items() if chunks.blobs.get(name) is not blob}
        assert len(new) == 2
        chunks = after


def test_batch_that_changes_most_leaves_nothing_older() -> None:
    now = columns(80)
    chunks = write_changes(sliced(now), now, np.array([3]))
    assert len(write_changes(chunks, now, np.arange(60)).blobs) == SLICES


def test_few_rows_are_one_chunk() -> None:
    chunks = write_all_chunks("rows", columns(80), slices=SLICES)
    assert len(chunks.blobs) == 1
    assert len(write_changes(chunks, columns(80), np.array([3])).blobs) == 1


def test_chunk_that_was_cut_is_refused() -> None:
    chunks = write_all_chunks("rows", columns(80), slices=SLICES)
    cut = {name: blob[:-9] for name, blob in chunks.blobs.items()}
    with pytest.raises(MalformedBlobError):
        read("rows", cut)


Row = dict[str, Any]
SCHEMA = arrow_schema(BUNDLE_OWNERSHIP)
EMPTY = {"string": "", "int64": 0, "int32": 0, "bool": False}
BLANK: Row = {field.name: EMPTY[str(field.type)] for field in SCHEMA}
records = st.builds(
    lambda cluster, bundle, state, version: {
        **BLANK,
        "cluster": cluster,
        "bundle": bundle,
        "state": state,
        "version_id": version,
    },
    st.sampled_from(["one", "two"]),
    st.sampled_from("abcdef"),
    st.sampled_from([State.INIT.value, State.FREE.value, State.OWNED.value]),
    st.integers(1, 5),
)
batches = st.lists(
    st.lists(records, max_size=5, unique_by=lambda row: (row["cluster"], row["bundle"])),
    max_size=60,
)


@given(batches)
def test_rows_are_those_of_a_dictionary(found: list[list[Row]]) -> None:
    table, model = SCHEMA.empty_table(), dict[tuple[str, str], Row]()
    for batch in found:
        table = with_changes(table, pa.Table.from_pylist(batch, schema=SCHEMA))
        for row in batch:
            key = row["cluster"], row["bundle"]
            if row["state"] == State.INIT.value:
                model.pop(key, None)
            elif key not in model or row["version_id"] > model[key]["version_id"]:
                model[key] = row
        assert table.schema == SCHEMA
        rows = {(row["cluster"], row["bundle"]): row for row in table.to_pylist()}
        assert rows == model
        assert len(rows) == len(table)
        assert table["bundle"].num_chunks <= 8

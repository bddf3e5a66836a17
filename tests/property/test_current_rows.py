"""The rewritten current table holds what a dictionary of the newest records would."""

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from jobs.adapters.delta.table_writer import with_changes
from jobs.adapters.delta.tables import arrow_schema
from lbcore.model.tables import BUNDLE_OWNERSHIP
from lbcore.ownership.records import State

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

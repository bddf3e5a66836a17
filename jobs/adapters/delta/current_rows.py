"""The rows of `bundle_ownership`, which its one writer keeps and writes anew when some change.

Decides which rows of a batch replace which of the table's. Nearly every batch has some, of bundles
anywhere: a MERGE reads, joins, checks and writes all 100,000 in 170 ms of CPU, this takes 49. The
constraints were checked already: each row is one of `ownership_events`, committed before.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, PostCommitHookProperties
from deltalake.transaction import AddAction

from jobs.adapters.delta.table_place import table_place
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.processes.clocks import wall_ms
from lbcore.ownership.records import State

_MAX_CHUNKS = 8
_REPEATED = (
    "cluster",
    "namespace",
    "state",
    "source",
    "source_incarnation",
    "destination",
    "destination_incarnation",
    "cause",
    "decision_id",
    "command_id",
)
"""Columns with few values among many rows, which Parquet's dictionaries make small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRows:
    """The table at one version. rows: one a (cluster, bundle), in no order."""

    version: int
    rows: pa.Table


def read_current(table: DeltaTable, schema: pa.Schema) -> CurrentRows:
    """The rows of the version that the handle stands at. schema: that of all its columns."""
    rows = scan(table, schema.names).cast(schema).combine_chunks()
    return CurrentRows(version=table.version(), rows=rows)


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows without those whose key comes again further down. O(rows).

    A batch may change a thing again and again; what it leaves is the last row of it. MERGE refuses
    two rows that match one, and inserts both where none is matched.
    """
    numbered = rows.select(keys).append_column("at", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([("at", "max")])["at_max"]
    return rows if len(last) == len(rows) else rows.take(last.take(pc.sort_indices(last)))


def with_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """The table's rows after a batch's records, of which each key has one at most.

    A record takes the place of one with a lower version; one in state Init is a bundle that is
    forgotten, and takes it away whatever its version. O(rows).
    """
    is_named = pc.is_in(rows["bundle"], value_set=changes["bundle"].combine_chunks())
    named = rows.filter(is_named)
    versions = dict(zip(_keys(named), named["version_id"].to_pylist(), strict=True))
    states, newer = changes["state"].to_pylist(), changes["version_id"].to_pylist()
    is_gone = [state == State.INIT.value for state in states]
    replaced, taken = set(), []
    for at, key in enumerate(_keys(changes)):
        if is_gone[at] or newer[at] > versions.get(key, -1):
            replaced.add(key)
            if not is_gone[at]:
                taken.append(at)
    kept = [at for at, key in enumerate(_keys(named)) if key not in replaced]
    parts = [
        rows.filter(pc.invert(is_named)),
        named.take(pa.array(kept, pa.int64())),
        changes.take(pa.array(taken, pa.int64())),
    ]
    found = pa.concat_tables([part for part in parts if len(part)] or parts[:1])
    return found.combine_chunks() if found["bundle"].num_chunks > _MAX_CHUNKS else found


def commit_current(
    table: DeltaTable,
    rows: pa.Table,
    properties: CommitProperties,
    hooks: PostCommitHookProperties,
) -> None:
    """Make `rows` all that the table has, as one file. Raises CommitFailedError, StoreError."""
    name = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    data = pa.BufferOutputStream()
    pq.write_table(rows, data, use_dictionary=list(_REPEATED), write_statistics=False)
    blob = data.getvalue().to_pybytes()
    (table_place(table.table_uri) / name).write_bytes(blob)
    file = AddAction(
        path=name,
        size=len(blob),
        partition_values={},
        modification_time=wall_ms(),
        data_change=True,
        stats=json.dumps({"numRecords": len(rows)}),
    )
    table.create_write_transaction(
        [file],
        "overwrite",
        rows.schema,
        commit_properties=properties,
        post_commithook_properties=hooks,
    )
    table.update_incremental()  # unlike after a write, the handle stands where it stood


def _keys(rows: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(rows["cluster"].to_pylist(), rows["bundle"].to_pylist(), strict=True)

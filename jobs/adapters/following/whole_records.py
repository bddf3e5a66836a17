"""The records of one cluster, read whole: what a follower begins with.

The current table and the events are two tables, so a load takes `bundle_ownership` first and then
every event that it may lack: those of a later writer's epoch, and those of the same epoch from the
first batch on that has an event of the ten minutes before its newest batch, or later. Too many do
no harm, because the highest version of a bundle wins, as long as all that came after them are read
too: so they are chosen by epoch and batch, and a time, which is a clock's, says how far back. The
newest batch alone would not do: a job that lost its checkpoint counts batches from 0 again. Used by
`delta_follower`.
"""

from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.adapters.delta.rows import ORDER_COLUMNS, ROUTE_COLUMNS, BadRow, of_cluster, routes_of
from jobs.adapters.delta.table_scan import scan
from lbcore.route.bundles import BundleRoute

Records: TypeAlias = tuple[list[BundleRoute], list[BadRow]]
"""Those of some rows, and the rows that can't be read."""

_OVERLAP_MS = 600_000


def read_records(
    ownership: DeltaTable, events: DeltaTable, cluster: str
) -> tuple[Records, Records]:
    """The records of the current table, and those of the events that it may lack.

    One table after the other: their rows are never in memory together.
    """
    current = scan(ownership, (*ROUTE_COLUMNS, *ORDER_COLUMNS), of_cluster(cluster))
    condition = _not_yet_in(current, events, cluster)
    found = routes_of(current)
    del current
    newer = routes_of(scan(events, ROUTE_COLUMNS, condition))
    # By itself Arrow keeps what it frees: at a million bundles a quarter of the process.
    pa.default_memory_pool().release_unused()
    return found, newer


def _not_yet_in(current: pa.Table, events: DeltaTable, cluster: str) -> str:
    """The condition for the events that the rows of the current table may lack.

    With any event, all that came after it, by epoch and batch: of one that a wrong clock put
    into the future, what it made may have been deleted since.
    """
    condition = of_cluster(cluster)
    if not len(current):
        return condition
    epoch = pc.max(current["writer_epoch"]).as_py()
    of_epoch = current.filter(pc.equal(current["writer_epoch"], epoch))
    batch_id = pc.max(of_epoch["batch_id"]).as_py()
    of_batch = of_epoch.filter(pc.equal(of_epoch["batch_id"], batch_id))
    since_ms = pc.max(of_batch["at_ms"]).as_py() - _OVERLAP_MS
    recent = f"{condition} AND writer_epoch = {epoch} AND at_ms > {since_ms}"
    first = pc.min(scan(events, ("batch_id",), recent)["batch_id"]).as_py()
    oldest = batch_id if first is None else min(first, batch_id)
    return (
        f"{condition} AND (writer_epoch > {epoch}"
        f" OR (writer_epoch = {epoch} AND batch_id >= {oldest}))"
    )

"""Rows for a rebuild: each cluster's, as of the last complete batch.

A batch takes effect with its commit of ownership_events. Rows of a batch without that commit are
undone; pending rows of the last batch with it are written first. Records restored from a backup
get new versions first (`raise_versions`): agents and stores have seen newer versions than the
backup has, and would ignore older ones.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.rows import of_cluster
from jobs.adapters.delta.table_repair import BEFORE_EVENTS
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_upkeep import remembered_since_ms
from jobs.adapters.delta.table_writer import PENDING, TableWriter, newest_batch
from jobs.adapters.delta.tables import arrow_schema
from jobs.adapters.kafka.connection import KafkaPlace
from jobs.adapters.kafka.ownership_publisher import OwnershipPublisher
from jobs.adapters.spark.batch_sink import EVENTS
from jobs.adapters.spark.checkpoint import LAYOUT, ClaimedTables, Manifest, code_version
from lbcore.balancer import balancer
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.book import ACCEPTED
from lbcore.balancer.effects import TOMBSTONE
from lbcore.balancer.rebuild import (
    RowReading,
    TableRows,
    raised_events,
    raised_namespaces,
    rebuild_state,
)
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.foresight.planning_memory import REMEMBERED_MS, with_recalled_plan
from lbcore.model.tables import (
    BROKERS,
    BUNDLE_OWNERSHIP,
    COMMANDS,
    DECISIONS,
    NAMESPACES,
    OWNERSHIP_EVENTS,
)
from lbcore.ownership.records import format_record, record_key
from lbcore.scorer import broker_states

_SENT_AT_ONCE = 5_000


def complete_last_batch(writer: TableWriter) -> None:
    """Complete or undo the last batch in the tables; repeatable.

    Pending rows of the last batch are written. Changes by a batch whose events were never committed
    are undone.
    """
    _undo_unfinished(writer)
    writer.write_pending_rows()


def raise_versions(writer: TableWriter, now_ms: int, read: Mapping[str, Any]) -> int:
    """Rewrite every bundle's record at an unseen version; return how many.

    Written as one batch of a query of its own, see `lbcore.balancer.rebuild`. now_ms: ms since
    1970. read: `offsets` and `topics` for the metadata of that batch. 0 if the tables have no
    batch.
    """
    last = writer.last_commit()
    if last is None:
        return 0
    metadata = {name: value for name, value in last.items() if name != PENDING}
    query = f"restored-{writer.epoch}"
    batch_metadata = {**metadata, "query_id": query, "batch_id": 0, "now_ms": now_ms}
    batch_metadata |= {"writer_epoch": writer.epoch, "effects_sha256": "", **read}
    namespace_rows = _rows(writer, NAMESPACES.name)
    clusters = (row["cluster"] for row in [*namespace_rows, *_rows(writer, BROKERS.name)])
    namespaces = raised_namespaces(namespace_rows, clusters, now_ms)
    raised = raised_events(_rows(writer, BUNDLE_OWNERSHIP.name), now_ms, writer.epoch)
    events = pa.Table.from_pylist(raised, arrow_schema(OWNERSHIP_EVENTS))
    pending_rows = {BUNDLE_OWNERSHIP.name: events.select(arrow_schema(BUNDLE_OWNERSHIP).names)}
    tombstones = writer.pending_of(last).get(TOMBSTONE)
    pending = writer.write_ahead(
        pending_rows if tombstones is None else {**pending_rows, TOMBSTONE: tombstones}
    )
    writer.use_query(query)
    named = pa.Table.from_pylist(namespaces, arrow_schema(NAMESPACES))
    writer.write(NAMESPACES.name, named, 0, batch_metadata)
    writer.write(EVENTS, events, 0, {**batch_metadata, **pending})
    complete_last_batch(writer)
    return len(events)


def rebuilt_states(config: Config, writer: TableWriter) -> Iterator[tuple[str, str, bytes]]:
    """Each cluster's rebuilt state: (cluster, chunk name, chunk)."""
    _undo_unfinished(writer)
    tables = {one.name: _rows(writer, one.name) for one in fields(TableRows)}
    last = writer.last_commit()
    now_ms = last["now_ms"] if last else 0
    decided = _rows(writer, DECISIONS.name, f"at_ms >= {now_ms - REMEMBERED_MS}")
    for cluster in config.pipeline.clusters:
        mine = {
            name: [row for row in rows if row["cluster"] == cluster]
            for name, rows in tables.items()
        }
        if not any(mine.values()):
            continue
        own = config.for_cluster(cluster)
        balancer = ClusterBalancer(cluster=cluster, config=own)
        decisions = [row for row in decided if row["cluster"] == cluster]
        state = rebuild_state(cluster, TableRows(**mine))
        state = with_recalled_plan(state, decisions, own, now_ms)
        for name, blob in sorted(balancer.pack(state).items()):
            yield cluster, name, blob


def claimed_tables(writer: TableWriter) -> ClaimedTables:
    """Return the facts that the choice of a checkpoint is based on."""
    return ClaimedTables(
        epoch=writer.epoch,
        claimed_by=writer.claimed_by,
        events_version=writer.version(EVENTS),
        knows=lambda cluster: any(
            len(scan(writer.table(one.name), ("cluster",), of_cluster(cluster)))
            for one in fields(TableRows)
        ),
        has_batch=lambda number, query: any(
            writer.has_batch(name, number, query) for name in (*BEFORE_EVENTS, EVENTS)
        ),
        last_commit=writer.last_commit,
    )


def send_all_records(writer: TableWriter, publisher: OwnershipPublisher) -> int:
    """Send brokers every current record again; return the number.

    Readers ignore versions that they have. The tombstones of the last batch come first, because it
    may have ended before it sent them.
    """
    last = writer.last_commit()
    tombstones = writer.pending_of(last).get(TOMBSTONE) if last else None
    if tombstones is not None:
        publisher.publish(
            [(record_key(r["cluster"], r["bundle"]), None) for r in tombstones.to_pylist()]
        )
    rows = _rows(writer, BUNDLE_OWNERSHIP.name)
    messages = [format_record(record) for record in RowReading().records(rows, writer.epoch)]
    for start in range(0, len(messages), _SENT_AT_ONCE):
        publisher.publish(messages[start : start + _SENT_AT_ONCE])
    return len(messages)


def _rows(writer: TableWriter, name: str, wanted: str | None = None) -> list[dict[str, Any]]:
    table = writer.table(name)
    table.update_incremental()
    if name == COMMANDS.name:
        wanted = needed_commands(table)
    return list(scan(table, None, wanted).to_pylist())


def needed_commands(table: DeltaTable) -> str:
    """Return the condition for the commands that a rebuild needs.

    These have not ended, or are the newest, which each cluster's balancer remembers. O(rows); reads
    two columns.
    """
    remembered = (
        f"({of_cluster(cluster)} AND at_ms >= {since_ms})"
        for cluster, since_ms in remembered_since_ms(table).items()
    )
    return " OR ".join((f"status = '{ACCEPTED}'", *remembered))


def _undo_unfinished(writer: TableWriter) -> None:
    """Undo what a batch wrote whose events were not committed.

    That batch is the newest of each table, as there is one writer.
    """
    for name in BEFORE_EVENTS:
        newest = newest_batch(writer.refreshed(name))
        metadata = newest.metadata if newest else {}
        if newest and not writer.has_batch(EVENTS, metadata["batch_id"], metadata["query_id"]):
            writer.undo(name, newest.version - 1)


STATE_SCHEMA = balancer.STATE_SCHEMA + broker_states.STATE_SCHEMA
"""Schema of the state that this version writes, and the newest that it reads."""


def present_manifest(
    config: Config, place: KafkaPlace, epoch: int, partitions: int = 0
) -> Manifest:
    """Return this start's manifest. epoch: the one that it is about to claim."""
    return Manifest(
        code_version=code_version(),
        config_version=digest(config),
        scorer_groups=config.pipeline.scorer_groups,
        state_schema=STATE_SCHEMA,
        layout=LAYOUT,
        partitions=partitions,
        clusters=tuple(config.pipeline.clusters),
        kafka_cluster=place.cluster_id,
        topics=place.topics,
        epoch=epoch,
        claim=uuid4().hex,
        origins=hashlib.sha256(json.dumps(sorted(config.origins.items())).encode()).hexdigest(),
        own={name: own.code for name, own in config.own.items()},
    )

"""Rows for a rebuild: each cluster's, as of the last complete batch.

Decides which version of a table belongs to the newest commit of ownership_events, which is where a
batch takes effect. Rows written before it, for a batch that never got there, do not count. Rows
that were to follow it are written first. Records restored from a backup get new versions first
(`raise_versions`). Agents and stores have seen newer versions than the backup has, and would take
nothing older.
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
from lbcore.scorer import tracks

_SENT_AT_ONCE = 5_000


def complete_last_batch(writer: TableWriter) -> None:
    """Complete or undo the last batch in the tables; repeatable.

    What the last batch owes is written; what was written before the events of a batch that never
    were committed is taken back.
    """
    _undo_unfinished(writer)
    writer.write_pending_rows()


def raise_versions(writer: TableWriter, now_ms: int, read: Mapping[str, Any]) -> int:
    """Rewrite every bundle's record at an unseen version; return how many.

    As one batch of a query of its own, see `lbcore.balancer.rebuild`; what it owes the current
    table, `complete_last_batch` writes. now_ms: the time, in ms since 1970. read: `offsets` and
    `topics` that it says it was read up to. Nothing is lifted while the tables know no batch.
    """
    last = writer.last_commit()
    if last is None:
        return 0
    said = {name: value for name, value in last.items() if name != PENDING}
    query = f"restored-{writer.epoch}"
    about = {**said, "query_id": query, "batch_id": 0, "now_ms": now_ms}
    about |= {"writer_epoch": writer.epoch, "effects_sha256": "", **read}
    spaces = _rows(writer, NAMESPACES.name)
    clusters = (row["cluster"] for row in [*spaces, *_rows(writer, BROKERS.name)])
    namespaces = raised_namespaces(spaces, clusters, now_ms)
    lifted = raised_events(_rows(writer, BUNDLE_OWNERSHIP.name), now_ms, writer.epoch)
    events = pa.Table.from_pylist(lifted, arrow_schema(OWNERSHIP_EVENTS))
    owed = {BUNDLE_OWNERSHIP.name: events.select(arrow_schema(BUNDLE_OWNERSHIP).names)}
    gone = writer.pending_of(last).get(TOMBSTONE)
    rest = writer.write_ahead(owed if gone is None else {**owed, TOMBSTONE: gone})
    writer.use_query(query)
    named = pa.Table.from_pylist(namespaces, arrow_schema(NAMESPACES))
    writer.write(NAMESPACES.name, named, 0, about)
    writer.write(EVENTS, events, 0, {**about, **rest})
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

    def knows(cluster: str) -> bool:
        return any(
            len(scan(writer.table(one.name), ("cluster",), of_cluster(cluster)))
            for one in fields(TableRows)
        )

    return ClaimedTables(
        epoch=writer.epoch,
        claimed_by=writer.claimed_by,
        events_version=writer.version(EVENTS),
        knows=knows,
        has_batch=lambda number, query: any(
            writer.has_batch(name, number, query) for name in (*BEFORE_EVENTS, EVENTS)
        ),
        last_commit=writer.last_commit,
    )


def send_all_records(writer: TableWriter, publisher: OwnershipPublisher) -> int:
    """Tell brokers every current record once more; how many. Readers fold by version.

    Before them the tombstones of the last batch, which may have ended before it sent them.
    """
    last = writer.last_commit()
    gone = writer.pending_of(last).get(TOMBSTONE) if last else None
    if gone is not None:
        publisher.publish([(record_key(r["cluster"], r["bundle"]), None) for r in gone.to_pylist()])
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
    rows: list[dict[str, Any]] = scan(table, None, wanted).to_pylist()
    return rows


def needed_commands(table: DeltaTable) -> str:
    """Return the condition for the commands that a rebuild needs.

    Those that have not ended, and of each cluster as many as a balancer remembers. O(rows), of
    which two columns are read.
    """
    remembered = (
        f"({of_cluster(cluster)} AND at_ms >= {since_ms})"
        for cluster, since_ms in remembered_since_ms(table).items()
    )
    return " OR ".join((f"status = '{ACCEPTED}'", *remembered))


def _undo_unfinished(writer: TableWriter) -> None:
    """Take back what a batch wrote whose events were not committed.

    Nobody else has written since: it is each table's newest batch.
    """
    for name in BEFORE_EVENTS:
        newest = newest_batch(writer.refreshed(name))
        about = newest.about if newest else {}
        if newest and not writer.has_batch(EVENTS, about["batch_id"], about["query_id"]):
            writer.undo(name, newest.version - 1)


STATE_SCHEMA = balancer.STATE_SCHEMA + tracks.STATE_SCHEMA
"""The newest schema of the state that this version reads, and the one that it writes."""


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

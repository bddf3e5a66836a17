"""Replays a run's recorded batches through the pure Machines, without Spark.

A batch is what Spark's own log says: the offsets it read and its time. The answer is what the
tables must hold, row by row.
"""

import json
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.stream import INPUT_TOPICS
from lbcore.config.tree import Config
from lbcore.machines.balancer import ClusterBalancer
from lbcore.machines.effects import REPORT, RESEND, TOMBSTONE, pack_effect, unpack_columns
from lbcore.machines.group_update import pack_update, unpack_update
from lbcore.machines.scoring import make_scorer
from lbcore.machines.tracks import RawMessage
from lbcore.wire.messages import Position

Log = dict[tuple[str, int], list[RawMessage]]
Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A recorded batch: its number, its time, and where each partition ended."""

    number: int
    now_ms: int
    ends: Mapping[tuple[str, int], int]


def replayed_rows(
    checkpoint: Path, bootstrap: str, config: Config
) -> tuple[int, dict[str, list[Row]]]:
    """The last batch that was ended, and what each table must have up to there."""
    batches = read_batches(checkpoint)
    expected: dict[str, list[Row]] = defaultdict(list)
    for number, table, rows in replay(batches, read_log(bootstrap), config):
        expected[table] += [{**row, "batch_id": number} for row in rows]
    return batches[-1].number, expected


def comparable(rows: Iterable[Row]) -> list[str]:
    """Rows in an order of their own, without what differs between attempts."""
    plain = [{k: v for k, v in row.items() if k != "writer_epoch"} for row in rows]
    return sorted(repr(sorted(row.items())) for row in plain)


def version_gaps(events: Iterable[Row]) -> list[str]:
    """Bundles whose events, in the order of their versions, are not 1, 2, 3, ..."""
    versions = defaultdict(list)
    for row in events:
        versions[row["bundle"]].append(row["version_id"])
    return [
        bundle
        for bundle, found in sorted(versions.items())
        if sorted(found) != list(range(1, len(found) + 1))
    ]


def read_log(bootstrap: str) -> Log:
    """Every message of the input topics, by partition."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    places = [
        TopicPartition(topic.value, partition)
        for topic in INPUT_TOPICS
        for partition in sorted(consumer.partitions_for_topic(topic.value))
    ]
    consumer.assign(places)
    ends = consumer.end_offsets(places)
    found: Log = {(place.topic, place.partition): [] for place in places}
    while any(consumer.position(place) < ends[place] for place in places):
        for place, messages in consumer.poll(1_000).items():
            found[place.topic, place.partition] += [_raw(message) for message in messages]
    consumer.close()
    return found


def read_batches(checkpoint: Path) -> list[Batch]:
    """The batches that Spark has begun and ended, in order."""
    ended = {int(p.name) for p in (checkpoint / "commits").iterdir() if p.name.isdigit()}
    batches = []
    for number in sorted(ended):
        lines = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        offsets = json.loads(lines[2])
        batches.append(
            Batch(
                number=number,
                now_ms=json.loads(lines[1])["batchTimestampMs"],
                ends={(t, int(p)): end for t, ps in offsets.items() for p, end in ps.items()},
            )
        )
    return batches


def replay(batches: list[Batch], log: Log, config: Config) -> Iterator[tuple[int, str, list[Row]]]:
    """(batch, table, rows) of each batch, as the pure Machines decide."""
    cluster = config.pipeline.clusters[0]
    groups = config.pipeline.scorer_groups
    scorers = {
        g: make_scorer(config, cluster=cluster, group=g, loads=json.loads) for g in range(groups)
    }
    balancer = ClusterBalancer(cluster=cluster, config=config.for_cluster(cluster))
    scored: dict[int, Any] = {}
    state = None
    begun: dict[tuple[str, int], int] = defaultdict(int)
    for batch in batches:
        messages: dict[int, list[RawMessage]] = defaultdict(list)
        for place, end in batch.ends.items():
            for message in log[place]:
                if begun[place] <= message.position.offset < end:
                    messages[zlib.crc32(message.key or b"") % groups].append(message)
            begun[place] = end
        updates = []
        for group in sorted(messages):
            step = scorers[group].step(scored.get(group), messages[group], batch.now_ms)
            scored[group] = step.state
            updates += [unpack_update(pack_update(update)) for update in step.effects]
        if not updates:
            continue
        answer = balancer.step(state, updates, batch.now_ms)
        state = answer.state
        for effect in answer.effects:
            if effect.kind not in (REPORT, RESEND, TOMBSTONE):
                yield batch.number, effect.kind, _rows(effect.kind, pack_effect(effect))


def _rows(kind: str, blob: bytes) -> list[Row]:
    columns = unpack_columns(kind, blob)
    names = list(columns)
    lists = [c.tolist() if hasattr(c, "tolist") else list(c) for c in columns.values()]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]


def _raw(message: Any) -> RawMessage:
    position = Position(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=message.timestamp,
    )
    return RawMessage(position=position, key=message.key, value=message.value)

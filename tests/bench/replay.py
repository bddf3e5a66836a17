"""Works a job's batches out once more, from Kafka and its checkpoint, without Spark.

Spark's checkpoint says what each batch read and when it began; Kafka still has the messages; each
commit says the digest of what the batch came to. The Machines, run again on that, must come to the
same, whatever the batches were cut into while the job caught up. Source: ours.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.batch_sink import EVENTS, effects_digest, read_effects
from jobs.adapters.delta_tables import open_table
from jobs.adapters.operators import balancer_operator, scorer_operator
from jobs.adapters.spark_machine import Operator
from jobs.adapters.stream import INPUT_TOPICS
from jobs.adapters.table_writer import METADATA_KEY
from lbcore.config.tree import Config
from lbcore.machines.effects import REPORT
from lbcore.machines.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.machines.tracks import RawMessage
from lbcore.wire.messages import Position

Ends = Mapping[str, Mapping[str, int]]


@dataclass(slots=True)
class Replayed:
    """What came of it: batches run again, those with a digest to compare, ids that differ."""

    batches: int = 0
    compared: int = 0
    messages: int = 0
    different: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Job:
    """The operators of a job, and their states by key."""

    config: Config
    states: dict[tuple[str, tuple[Any, ...]], Any] = field(default_factory=dict)

    def run(self, messages: list[RawMessage], now_ms: int) -> str:
        """One batch; the digest of its effects."""
        groups: dict[tuple[str, int], list[RawMessage]] = {}
        for message in messages:
            groups.setdefault(self._key(message), []).append(message)
        updates: dict[str, list[GroupUpdate]] = {}
        scorer, balancer = scorer_operator(self.config), balancer_operator(self.config)
        for key in sorted(groups):
            (update,) = self._step(scorer, key, groups[key], now_ms)
            updates.setdefault(key[0], []).append(unpack_update(pack_update(update)))
        frames = [
            balancer.encode((cluster,), self._step(balancer, (cluster,), updates[cluster], now_ms))
            for cluster in sorted(updates)
        ]
        tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in frames]
        effects = read_effects(pa.concat_tables(tables)) if tables else {}
        effects.pop(REPORT, None)
        return effects_digest(effects)

    def _key(self, message: RawMessage) -> tuple[str, int]:
        key = message.key or b""
        named, clusters = key.partition(b"/")[0].decode(errors="replace"), self.config.pipeline
        cluster = named if named in clusters.clusters else clusters.clusters[0]
        return cluster, zlib.crc32(key) % clusters.scorer_groups

    def _step(
        self, operator: Operator, key: tuple[Any, ...], events: list[Any], now_ms: int
    ) -> list[Any]:
        machine = operator.make_machine(key)
        step = machine.step(self.states.get((operator.name, key)), events, now_ms)
        self.states[operator.name, key] = step.state
        return list(step.effects)


def replay(bootstrap: str, checkpoint: Path, tables: Path, config: Config) -> Replayed:
    """Run every batch of the checkpoint again, from the first on, which must still be there."""
    found, job = Replayed(), _Job(config)
    said = {
        json.loads(commit[METADATA_KEY])["batch_id"]: json.loads(commit[METADATA_KEY])
        for commit in open_table(tables, EVENTS).history()
        if METADATA_KEY in commit
    }
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        before: Ends = {topic.value: {} for topic in INPUT_TOPICS}
        for number, now_ms, ends in _batches(checkpoint):
            messages = list(_messages(consumer, before, ends))
            digest = job.run(messages, now_ms)
            before = ends
            found.batches += 1
            found.messages += len(messages)
            if number in said:
                found.compared += 1
                if said[number]["effects_sha256"] != digest:
                    found.different.append(number)
    finally:
        consumer.close()
    return found


def _batches(checkpoint: Path) -> Iterator[tuple[int, int, Ends]]:
    """Number, timestamp in ms and ends of each batch that was finished."""
    done = (path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for number in sorted(map(int, done)):
        _, about, ends = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        yield number, int(json.loads(about)["batchTimestampMs"]), json.loads(ends)


def _messages(consumer: KafkaConsumer, start: Ends, ends: Ends) -> Iterator[RawMessage]:
    for topic in sorted(ends):
        for partition, end in sorted(ends[topic].items()):
            at = start.get(topic, {}).get(partition, 0)
            if at < end:
                yield from _partition(consumer, TopicPartition(topic, int(partition)), at, end)


def _partition(
    consumer: KafkaConsumer, partition: TopicPartition, at: int, end: int
) -> Iterator[RawMessage]:
    consumer.assign([partition])
    consumer.seek(partition, at)
    while at < end:
        for record in consumer.poll(timeout_ms=1_000).get(partition, ()):
            if record.offset >= end:
                return
            at = record.offset + 1
            place = Position(
                topic=record.topic,
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp,
            )
            yield RawMessage(position=place, key=record.key, value=record.value)

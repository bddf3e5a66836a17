"""Works a job's batches out once more, from Kafka and its checkpoint, without Spark.

Spark's checkpoint says what each batch read and when it began; Kafka still has the messages. The
Machines, run again on that, must come to the same, whatever the batches were cut into.

Source: ours.
"""

import json
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.spark.batch_sink import read_effects
from jobs.adapters.spark.operators import balancer_operator, scorer_operator
from jobs.adapters.spark.spark_machine import Operator
from jobs.adapters.spark.stream import INPUT_TOPICS
from lbcore.balancer.state.effects import REPORT
from lbcore.config.tree import Config
from lbcore.scorer.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.scorer.tracks import RawMessage
from lbcore.wire.messages import Position

Effects = dict[str, list[tuple[str, bytes]]]
"""Kind of effect → (cluster, blob), by cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedBatch:
    """A batch that Spark had ended, run again. messages: how many it read."""

    number: int
    messages: int
    effects: Effects


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    number: int
    now_ms: int
    ends: Mapping[TopicPartition, int]


def replay(bootstrap: str, checkpoint: Path, config: Config) -> Iterator[ReplayedBatch]:
    """Every ended batch of the checkpoint, from the first on, which must still be there."""
    job = _Job(config)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)) as consumer:
        log = _Log(consumer)
        for batch in _read_batches(checkpoint):
            messages = [_raw(record) for record in log.up_to(batch.ends)]
            effects = job.run(messages, batch.now_ms)
            yield ReplayedBatch(number=batch.number, messages=len(messages), effects=effects)


@dataclass(slots=True)
class _Job:
    """The operators of a job, and their states by key."""

    config: Config
    states: dict[tuple[str, tuple[Any, ...]], Any] = field(default_factory=dict)

    def run(self, messages: list[RawMessage], now_ms: int) -> Effects:
        """One batch; its effects but for the report on it."""
        groups: dict[tuple[str, int], list[RawMessage]] = {}
        for message in messages:
            groups.setdefault(self._key(message), []).append(message)
        updates: dict[str, list[GroupUpdate]] = {}
        scorer, balancer = scorer_operator(self.config), balancer_operator(self.config)
        for key in sorted(groups):
            (update,) = self._step(scorer, key, groups[key], now_ms)
            updates.setdefault(key[0], []).append(unpack_update(pack_update(update)))
        frames = [
            balancer.encode(
                (cluster,), self._step(balancer, (cluster,), updates[cluster], now_ms), now_ms
            )
            for cluster in sorted(updates)
        ]
        tables = [pa.Table.from_pandas(frame, preserve_index=False) for frame in frames]
        effects = read_effects(pa.concat_tables(tables)) if tables else {}
        effects.pop(REPORT, None)
        return effects

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


class _Log:
    """The input topics from their beginning, read little further than the batches."""

    def __init__(self, consumer: KafkaConsumer) -> None:
        self._consumer = consumer
        self._read: dict[TopicPartition, deque[Any]] = defaultdict(deque)
        places = [
            TopicPartition(topic.value, partition)
            for topic in INPUT_TOPICS
            for partition in sorted(consumer.partitions_for_topic(topic.value))
        ]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)

    def up_to(self, ends: Mapping[TopicPartition, int]) -> Iterator[Any]:
        """What no call before has given, up to the end of each partition (exclusive)."""
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            for place, records in self._consumer.poll(1_000).items():
                self._read[place] += records
        for place, end in sorted(ends.items()):
            waiting = self._read[place]
            while waiting and waiting[0].offset < end:
                yield waiting.popleft()


def _read_batches(checkpoint: Path) -> Iterator[_Recorded]:
    done = (path.name for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for number in sorted(map(int, done)):
        _, about, offsets = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        yield _Recorded(
            number=number,
            now_ms=json.loads(about)["batchTimestampMs"],
            ends={
                TopicPartition(topic, int(partition)): end
                for topic, partitions in json.loads(offsets).items()
                for partition, end in partitions.items()
            },
        )


def _raw(record: Any) -> RawMessage:
    place = Position(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
    )
    return RawMessage(position=place, key=record.key, value=record.value)

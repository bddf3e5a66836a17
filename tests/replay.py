"""Works a job's batches out once more, from Kafka and its checkpoint, without Spark.

Spark's checkpoint says what each batch read and when it began; Kafka still has the messages. The
Machines, run again on that, must come to the same, whatever the batches were cut into. They begin
with no state, so all of the past must be there: a run of which some is gone would come to other
effects batch after batch, by no fault of the code, and is refused.
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
from jobs.adapters.spark.kafka_source import FULL
from jobs.adapters.spark.operators import balancer_operator, scorer_operator
from jobs.adapters.spark.spark_machine import Operator
from jobs.adapters.spark.stream import INPUT_TOPICS
from jobs.console import CommandError
from lbcore.balancer.effects import REPORT
from lbcore.config.tree import Config
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.wire.messages import Position

KEEP_BATCHES = "spark.sql.streaming.minBatchesToRetain=100000"
"""Spark's setting for a job that is to be replayed: of a checkpoint no batch is taken away."""
Effects = dict[str, list[tuple[str, bytes]]]
"""Kind of effect → (cluster, blob), by cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedBatch:
    """A batch that Spark had ended, run again. messages: how many it read."""

    number: int
    messages: int
    effects: Effects


_FIRST = "epoch-0"
"""The checkpoint with which tables begin; all later ones go on from the tables."""


class NoBeginningError(CommandError):
    """The state that a recorded batch began with can't be had."""

    def __init__(self, checkpoint: Path, *, why: str, next_step: str) -> None:
        super().__init__(
            f"{checkpoint} can't be replayed from its beginning", why=why, next_step=next_step
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    number: int
    now_ms: int
    ends: Mapping[TopicPartition, int]
    is_full: bool


def replay(bootstrap: str, checkpoint: Path, config: Config) -> Iterator[ReplayedBatch]:
    """Every ended batch of the checkpoint, from the first on.

    Raises NoBeginningError when batches or messages of before are gone, or the job began with
    what its tables said.
    """
    _check_beginning(checkpoint)
    job = _Job(config)
    with closing(KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)) as consumer:
        log = _Log(consumer)
        log.check_whole(checkpoint)
        for batch in _read_batches(checkpoint):
            messages = [_raw(record, is_full=batch.is_full) for record in log.up_to(batch.ends)]
            effects = job.run(messages, batch.now_ms)
            yield ReplayedBatch(number=batch.number, messages=len(messages), effects=effects)


@dataclass(slots=True)
class _Job:
    """The operators of a job, and their states by key, packed as Spark's state store has them."""

    config: Config
    chunks: dict[tuple[str, tuple[Any, ...]], Mapping[str, bytes]] = field(default_factory=dict)

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
        machine, kept = operator.make_machine(key), self.chunks.get((operator.name, key))
        step = machine.step(kept and machine.unpack(kept), events, now_ms)
        self.chunks[operator.name, key] = machine.pack(step.state)
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
        self._places = places

    def check_whole(self, checkpoint: Path) -> None:
        """Raise NoBeginningError if Kafka has dropped messages that the checkpoint has read."""
        first = self._consumer.beginning_offsets(self._places)
        cut = sorted(f"{place.topic}-{place.partition}" for place in first if first[place])
        if cut:
            raise NoBeginningError(
                checkpoint,
                why=f"Kafka has dropped the first messages of {', '.join(cut)}",
                next_step="record a run that is shorter than the topics' retention, and replay it",
            )

    def up_to(self, ends: Mapping[TopicPartition, int]) -> Iterator[Any]:
        """What no call before has given, up to the end of each partition (exclusive)."""
        while any(self._consumer.position(place) < end for place, end in ends.items()):
            for place, records in self._consumer.poll(1_000).items():
                self._read[place] += records
        for place, end in sorted(ends.items()):
            waiting = self._read[place]
            while waiting and waiting[0].offset < end:
                yield waiting.popleft()


def _check_beginning(checkpoint: Path) -> None:
    numbers = _ended(checkpoint)
    if not numbers:
        raise NoBeginningError(
            checkpoint,
            why="its job has ended no batch, so there is nothing to hold a replay against",
            next_step="let the job run for some seconds, stop it, and replay it then",
        )
    if numbers != list(range(len(numbers))):
        there = set(numbers)
        lost = next(number for number in range(len(numbers)) if number not in there)
        raise NoBeginningError(
            checkpoint,
            why=f"it begins with batch {numbers[0]}, and batch {lost} is gone: Spark keeps the "
            "last 100 of a run, and the state before them is in no file that a replay reads",
            next_step=f"record a run with `--spark {KEEP_BATCHES}`, and replay that",
        )
    if checkpoint.name != _FIRST:
        raise NoBeginningError(
            checkpoint,
            why="its job read on from where the tables ended, with a state that was rebuilt from "
            "them as they were then",
            next_step="replay the checkpoint with which the tables began, or record a run on empty "
            "tables and topics",
        )


def _ended(checkpoint: Path) -> list[int]:
    names = (path.name for path in (checkpoint / "commits").iterdir())
    return sorted(int(name) for name in names if name.isdigit())


def _read_batches(checkpoint: Path) -> Iterator[_Recorded]:
    for number in _ended(checkpoint):
        _, about, ends = (checkpoint / "offsets" / str(number)).read_text().splitlines()
        offsets = json.loads(ends)
        yield _Recorded(
            number=number,
            now_ms=json.loads(about)["batchTimestampMs"],
            ends={
                TopicPartition(topic, int(partition)): end
                for topic, partitions in offsets.items()
                for partition, end in partitions.items()
            },
            is_full=FULL in offsets,
        )


def _raw(record: Any, *, is_full: bool) -> RawMessage:
    place = Position(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
    )
    return RawMessage(position=place, key=record.key, value=record.value, is_full=is_full)

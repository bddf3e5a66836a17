"""The source of the streaming query: Kafka's topics, in bounded memory.

Spark's own Kafka source allocates each record's plain size in the JVM: one record of 1 MB that
inflates to 700 MB ends it at every start. This Python data source reads raw batches (`raw_fetch`)
and inflates them by a bounded decoder (`record_batches`). A micro-batch's end is planned by plain
bytes as well as by records. A read is a pure function of the offsets and of Kafka's bytes, so a
repeated batch has the same rows.
"""

import heapq
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from kafka import TopicPartition
from kafka.errors import KafkaError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from jobs.adapters.kafka.connection import Ends
from jobs.adapters.kafka.raw_fetch import FetchedLog, OffsetsLostError, RawFetcher
from jobs.adapters.kafka.record_batches import (
    Row,
    plain_size,
    read_batch,
    split_batches,
)
from jobs.adapters.spark.checkpoint_damage import numbered

NAME = "ballast_kafka"
SCHEMA = (
    "topic string, partition int, offset long, timestamp_ms long, key binary, value binary,"
    " refusal string, is_full boolean"
)
_ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("refusal", pa.string()),
        ("is_full", pa.bool_()),
    ]
)
_PIECE_BYTES = 4 * 1024 * 1024
_PIECE_ROWS = 5_000
_WAIT_S = 60.0
FULL = "is_full/"
"""Key in a batch's end offsets, beside the topics, if the bound cut the batch off.

Its value is {}, as it has no partitions. No topic has the name: Kafka allows no "/". `latestOffset`
sets it. With nothing new it repeats a start that has it, or Spark would run an empty batch.
`partitions` reads it for the rows' `is_full`; Spark's offset log gives a repeated batch the same.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """Options of the source.

    connection: from `connection_text`. starting: JSON of `Ends`, of a new checkpoint.
    records, plain_bytes: of one micro-batch, which has one batch of Kafka more at most. tasks: that
    read it. value_bytes: the longest value. checkpoint: the query's folder.
    """

    connection: str
    topics: tuple[str, ...]
    starting: str
    records: int
    plain_bytes: int
    tasks: int
    value_bytes: int
    checkpoint: str

    def as_text(self) -> Mapping[str, str]:
        """Return Spark's options: one, which plans redact, because it holds the password."""
        return {"secret": json.dumps({name: getattr(self, name) for name in self.__slots__})}

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "SourceOptions":
        """The inverse of `as_text`."""
        found = json.loads(options["secret"])
        return cls(**{**found, "topics": tuple(found["topics"])})


class KafkaSource(DataSource):
    """Kafka's input topics as a Python data source."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> str:
        """Return the schema; a row is a record or a refusal."""
        return SCHEMA

    def streamReader(self, schema: Any) -> "KafkaReader":  # noqa: N802 Spark's name
        """The reader of a query."""
        del schema
        return KafkaReader(SourceOptions.of(self.options))


@dataclass
class Ranges(InputPartition):
    """Offset ranges that one task reads: (topic, partition, start, end) of each.

    is_full: the bound, one for all clusters, cut the batch off.
    """

    ranges: Sequence[tuple[str, int, int, int]]
    is_full: bool


_FETCHERS: dict[tuple[str, tuple[str, ...]], RawFetcher] = {}
"""Fetchers of this process, which reads one batch after another."""


def _fetcher(options: SourceOptions) -> RawFetcher:
    key = options.connection, options.topics
    if key not in _FETCHERS:
        _FETCHERS[key] = RawFetcher(*key)
    return _FETCHERS[key]


def _drop_fetcher(options: SourceOptions) -> None:
    found = _FETCHERS.pop((options.connection, options.topics), None)
    if found is not None:
        found.close()


class KafkaReader(DataSourceStreamReader):
    """Plans micro-batches in the driver's process, and reads them in the workers'."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._turn = 0
        self._planned: Ends | None = None

    def initialOffset(self) -> Ends:  # noqa: N802 Spark's name
        """Return the start offsets of a new checkpoint."""
        return dict(json.loads(self._options.starting))

    def latestOffset(  # noqa: N802 Spark's name
        self, start: Ends | None = None, limit: Any = None
    ) -> Ends:
        """Return the end of the next micro-batch.

        That is its start if Kafka doesn't answer or has nothing. start: None in Spark 4.0 and 4.1,
        where the reader keeps it. limit: Spark's, unused; the options have ours.
        """
        del limit
        if start is None:
            start = self._planned or self._resumed() or self.initialOffset()
        self._turn += 1
        try:
            fetcher = _fetcher(self._options)
            positions = _positions(start)
            for topic_partition in fetcher.partitions():
                positions.setdefault(topic_partition, 0)
            plan = _BatchPlan(self._options, fetcher, dict(positions), self._turn)
            found = plan.ends()
        except KafkaError:
            _drop_fetcher(self._options)
            return start
        if found == positions and FULL in start:
            return start  # another end would make an empty batch
        return _as_ends(found) | ({FULL: {}} if plan.is_full() else {})

    def partitions(self, start: Ends, end: Ends) -> list[InputPartition]:
        """Spread the ranges over the tasks; a partition is read by one task."""
        self._planned = end
        begins = _positions(start)
        ranges = [
            (topic_partition.topic, topic_partition.partition, begins.get(topic_partition, 0), last)
            for topic_partition, last in sorted(_positions(end).items())
            if last > begins.get(topic_partition, 0)
        ]
        tasks = [ranges[task :: self._options.tasks] for task in range(self._options.tasks)]
        return [Ranges(some, FULL in end) for some in tasks if some]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task's ranges, in pieces of bounded size."""
        if not isinstance(partition, Ranges):
            raise TypeError(f"partition must be Ranges, got {partition!r}")
        try:
            for topic, number, start, end in partition.ranges:
                topic_partition = TopicPartition(topic, number)
                rows = self._rows(topic_partition, start, end)
                yield from _pieces(topic_partition, rows, is_full=partition.is_full)
        except KafkaError:
            _drop_fetcher(self._options)
            raise

    def _resumed(self) -> Ends | None:
        """The end of the newest batch in the checkpoint's offset log; None in a new one."""
        begun = numbered(Path(self._options.checkpoint, "offsets"))
        if not begun:
            return None
        log = Path(self._options.checkpoint, "offsets", str(max(begun))).read_text(encoding="utf-8")
        return dict(json.loads(log.splitlines()[-1]))

    def _rows(self, topic_partition: TopicPartition, start: int, end: int) -> Iterator[Row]:
        parts = _fetcher(self._options).read(topic_partition, start, end, _WAIT_S)
        position = start
        try:
            log = next(parts)
            while True:
                for batch in split_batches(log, position):
                    if batch.first >= end:
                        return
                    yield from read_batch(batch, position, end, self._options.value_bytes)
                    position = max(position, batch.end)
                log = parts.send(position)
        except StopIteration:
            return


class _BatchPlan:
    """The end of one micro-batch, found by reading ahead in each partition.

    The partition of which least was taken comes next, so that one with large batches does not
    delay the others. Each is read up to its end or the bound.
    """

    def __init__(
        self,
        options: SourceOptions,
        fetcher: RawFetcher,
        positions: dict[TopicPartition, int],
        turn: int,
    ) -> None:
        self._options, self._fetcher, self._positions = options, fetcher, positions
        self._records = self._bytes = 0
        places = sorted(positions)
        begin = turn % max(len(places), 1)
        self._order = {place: n for n, place in enumerate([*places[begin:], *places[:begin]])}
        self._taken = dict.fromkeys(places, 0)

    def ends(self) -> Mapping[TopicPartition, int]:
        """Take batches until the bound is reached or there are none."""
        wanted = list(self._order)
        while wanted and not self.is_full():
            before = dict(self._positions)
            parts = self._fetcher.fetch({place: before[place] for place in wanted})
            for place, part in parts.items():
                if not part.begin <= before[place] <= part.end:
                    why = f"Kafka has offsets from {part.begin} to {part.end}"
                    raise OffsetsLostError(place, before[place], why)
            self._take(parts)
            if before == self._positions:
                break
            left = [
                place
                for place in wanted
                if place in parts and self._positions[place] < parts[place].end
            ]
            # Kafka fills an answer in the order of the request: partitions left out come first
            wanted = sorted(left, key=lambda place: before[place] != self._positions[place])
        return self._positions

    def _take(self, parts: Mapping[TopicPartition, FetchedLog]) -> None:
        waiting = [
            (
                self._taken[place],
                turn,
                place,
                split_batches(parts[place].log, self._positions[place]),
            )
            for place, turn in self._order.items()
            if place in parts
        ]
        heapq.heapify(waiting)
        while waiting and not self.is_full():
            _, turn, place, batches = heapq.heappop(waiting)
            begin = self._positions[place]
            batch = next((batch for batch in batches if batch.end > begin), None)
            if batch is not None:
                plain = plain_size(batch)
                self._taken[place] += plain
                self._records += batch.records
                self._bytes += plain
                self._positions[place] = batch.end
                heapq.heappush(waiting, (self._taken[place], turn, place, batches))

    def is_full(self) -> bool:
        """Return True if the bound is reached: more may wait in the log."""
        return self._records >= self._options.records or self._bytes >= self._options.plain_bytes


def _pieces(
    topic_partition: TopicPartition, rows: Iterator[Row], *, is_full: bool
) -> Iterator[pa.RecordBatch]:
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row.value or b"") + len(row.key or b"")
        if size >= _PIECE_BYTES or len(some) >= _PIECE_ROWS:
            yield _arrow(topic_partition, some, is_full=is_full)
            some, size = [], 0
    if some:
        yield _arrow(topic_partition, some, is_full=is_full)


def _arrow(
    topic_partition: TopicPartition, rows: Sequence[Row], *, is_full: bool
) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    names = [topic_partition.topic] * len(rows), [topic_partition.partition] * len(rows)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(values, kind.type)
            for values, kind in zip([*names, *columns, [is_full] * len(rows)], _ARROW, strict=True)
        ],
        schema=_ARROW,
    )


def _positions(ends: Ends) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, partitions in ends.items()
        for partition, offset in partitions.items()
    }


def _as_ends(positions: Mapping[TopicPartition, int]) -> Ends:
    found: Ends = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found

"""The bounded decoder: whatever bytes come, it gives rows or refusals, never an exception."""

import gzip
import json
import random
import struct
import tracemalloc
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from kafka import TopicPartition
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from jobs.adapters.kafka import record_batches
from jobs.adapters.kafka.connection import Ends
from jobs.adapters.kafka.raw_fetch import FetchedLog
from jobs.adapters.kafka.record_batches import (
    RECORDS_PER_BATCH,
    Row,
    plain_size,
    read_batch,
    split_batches,
)
from jobs.adapters.spark import kafka_source
from jobs.adapters.spark.kafka_source import KafkaReader, SourceOptions

VALUE_BYTES = 100_000
PLAIN_BATCH_BYTES = 4_194_304
END = 2**62
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "snappy-xerial": 2, "lz4": 3, "zstd": 4}


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """An eighth of the real bound, which takes as long to reach."""
    monkeypatch.setattr(record_batches, "PLAIN_BATCH_BYTES", PLAIN_BATCH_BYTES)


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def record(
    offset: int, key: bytes | None, value: bytes | None, headers: bytes = b"\0", claim: int = 0
) -> bytes:
    """claim: the length that it says, instead of its own."""
    body = b"\0" + varint(0) + varint(offset)
    for part in (key, value):
        body += varint(-1) if part is None else varint(len(part)) + part
    body += headers
    return varint(claim or len(body)) + body


def compressed(codec: str, plain: bytes) -> bytes:
    if codec == "none":
        return plain
    if codec == "gzip":
        return gzip.compress(plain, 1)
    if codec.startswith("snappy"):
        snappy = pa.Codec("snappy")
        if codec == "snappy":
            return bytes(snappy.compress(plain, asbytes=True))
        found = bytearray(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
        for at in range(0, len(plain), 32_768):
            block = snappy.compress(plain[at : at + 32_768], asbytes=True)
            found += struct.pack(">i", len(block)) + block
        return bytes(found)
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(plain)
    return bytes(sink.getvalue().to_pybytes())


def batch(  # noqa: PLR0913 (a batch has as many parts)
    plain: bytes, count: int, *, codec: str = "none", flags: int = 0, base: int = 7, last: int = -1
) -> bytes:
    """A batch of version 2 with LogAppendTime 5,000 (flag 8)."""
    delta = count - 1 if last < 0 else last
    attributes = CODECS[codec] | 8 | flags
    content = compressed(codec, plain)
    after = struct.pack(">ibIhiqqqhii", 0, 2, 0, attributes, delta, 1, 5_000, -1, -1, -1, count)
    return struct.pack(">qi", base, len(after) + len(content)) + after + content


def rows_of(log: bytes, start: int = 0, end: int = END) -> list[Row]:
    found = []
    for one in split_batches(log, start):
        assert plain_size(one) <= PLAIN_BATCH_BYTES + len(log)
        assert one.records >= 1
        found += read_batch(one, start, end, VALUE_BYTES)
    return found


def refusals(log: bytes) -> list[str]:
    return [row.refusal.split(" ", 1)[0] for row in rows_of(log) if row.refusal]


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_read_in_each_codec(codec: str) -> None:
    plain = record(0, b"c/a", b"one") + record(1, None, None) + record(3, b"", b"x" * 100_000)
    log = batch(plain, 3, codec=codec, last=4)
    assert rows_of(log) == [
        Row(7, 5_000, b"c/a", b"one"),
        Row(8, 5_000, None, None),
        Row(10, 5_000, b"", b"x" * 100_000),
    ]
    assert [row.offset for row in rows_of(log + batch(plain, 3, base=12, last=4), 8, 14)] == [
        8,
        10,
        12,
        13,
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_record_that_inflates_beyond_the_limit_is_named_and_its_neighbours_are_read(
    codec: str,
) -> None:
    large = record(1, b"c/evil", b"x" * (2 * VALUE_BYTES))
    log = batch(record(0, b"c/a", b"1") + large + record(2, b"c/a", b"3"), 3, codec=codec)
    first, refused, third = rows_of(log)
    assert (first.value, third.value) == (b"1", b"3")
    assert refused.offset == 8
    assert refused.key == b"c/evil"
    assert refused.value == b"x" * 256
    assert refused.refusal.startswith("too_large offset 8: the record has 2000")
    assert "c/evil" in refused.refusal


@pytest.mark.parametrize("codec", ["gzip", "snappy-xerial", "lz4", "zstd"])
@pytest.mark.parametrize("part", ["key", "value", "headers", "records"])
def test_batch_that_inflates_without_end_takes_bounded_memory(codec: str, part: str) -> None:
    huge = 4 * PLAIN_BATCH_BYTES
    plain = {
        "key": record(0, b"k" * huge, b""),
        "value": record(0, b"c/evil", b"v" * huge),
        "headers": record(0, b"c/evil", b"", varint(1) + varint(huge) + b"h" * huge),
        "records": b"".join(record(n, b"c/evil", b"v" * 90_000) for n in range(huge // 90_000)),
    }[part]
    count = huge // 90_000 if part == "records" else 1
    log = batch(plain, count, codec=codec)
    del plain
    tracemalloc.start()
    found = rows_of(log)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * PLAIN_BATCH_BYTES
    assert found[-1].refusal.startswith("too_large offset")
    assert found[-1].offset == 7 + count - 1
    assert len(found) == (PLAIN_BATCH_BYTES // 90_000 + 1 if part == "records" else 1)
    if part == "records":
        assert f"offsets {7 + len(found) - 1} to {7 + count - 1}" in found[-1].refusal


def test_many_tiny_records_of_one_batch_are_bounded_by_count() -> None:
    count = 3 * RECORDS_PER_BATCH
    found = rows_of(batch(b"".join(record(n, None, None) for n in range(count)), count))
    assert len(found) == RECORDS_PER_BATCH + 1
    assert found[-1].refusal.startswith("too_large offsets 50007 to 150006 ")


def test_snappy_block_that_claims_gigabytes_is_refused_before_it_is_allocated() -> None:
    log = batch(b"", 1)
    claim = b"\xff\xff\xff\xff\x0f" + b"abc"
    log = struct.pack(">qi", 7, len(log) - 12 + len(claim)) + log[12:] + claim
    log = log[:22] + b"\x0a" + log[23:]
    assert refusals(log) == ["too_large"]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_old_formats_are_refused(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 10_000)
    builder.append(5, timestamp=1, key=b"k", value=b"v")
    builder.append(6, timestamp=1, key=b"k", value=b"v")
    log = bytes(builder.build())
    found = rows_of(log, 5)
    assert [row.offset for row in found] == [5, 6]
    assert all(row.refusal.startswith("unreadable offset") for row in found)
    assert f"its format is {magic}" in found[0].refusal


def test_control_batches_are_no_messages_and_transactions_are_read() -> None:
    marker = batch(record(0, b"\0\0\0\1", b"\0\0\0\0\0\0"), 1, flags=0x20 | 0x10)
    assert rows_of(marker) == []
    assert [row.value for row in rows_of(batch(record(0, b"k", b"v"), 1, flags=0x10))] == [b"v"]


LIES = {
    "length is negative": batch(varint(-5) + b"\0" * 9, 1),
    "length is beyond the batch": batch(record(0, b"k", b"v", claim=1_000), 1),
    "length is large and the batch small": batch(record(0, b"k", b"v", claim=2**40), 2),
    "number has no end": batch(b"\xff" * 20, 1),
    "key ends beyond the record": batch(varint(8) + b"\0\0\0" + varint(99) + b"k" * 4, 1),
    "offset is outside": batch(record(9, b"k", b"v"), 1),
    "offset goes back": batch(record(1, b"k", b"v") + record(0, b"k", b"v"), 2),
    "more are claimed": batch(record(0, b"k", b"v"), 3),
    "count is negative": batch(b"", -4, last=2),
    "last offset is negative": batch(b"", 1, last=2)[:23] + b"\xff" * 4 + batch(b"", 1)[27:],
    "codec is unknown": batch(record(0, b"k", b"v"), 1, flags=7),
    "gzip is garbage": batch(b"", 1, flags=1),
    "format is to come": batch(b"", 1)[:16] + b"\x03" + batch(b"", 1)[17:],
    "header is cut": struct.pack(">qi", 7, 20) + b"\0\0\0\0\2" + b"\0" * 15,
}
FRAMES = {
    "frame is negative": struct.pack(">qi", 7, -9) + b"\0" * 60,
    "frame is tiny": struct.pack(">qi", 7, 3) + b"\0" * 60,
    "base is negative": struct.pack(">qi", -7, 60) + b"\0" * 60,
}


@pytest.mark.parametrize("log", LIES.values(), ids=LIES)
def test_lie_is_refused_with_its_reason_and_what_follows_is_read(log: bytes) -> None:
    found = refusals(log)
    assert found
    assert set(found) <= {"unreadable", "too_large"}
    assert rows_of(log + batch(record(0, b"k", b"after"), 1, base=90))[-1].value == b"after"


@pytest.mark.parametrize("log", FRAMES.values(), ids=FRAMES)
def test_frame_that_makes_no_sense_is_refused_at_the_offset_that_was_wanted(log: bytes) -> None:
    (found,) = rows_of(log, 7)
    assert (found.offset, found.refusal.split(" ")[0]) == (7, "unreadable")


def test_batch_that_is_cut_at_the_end_of_an_answer_is_left_for_the_next() -> None:
    log = batch(record(0, b"k", b"v"), 1)
    for size in range(len(log)):
        assert rows_of(log[:size]) == []


@pytest.mark.parametrize("seed", range(300))
def test_changed_bytes_never_raise(seed: int) -> None:
    dice = random.Random(seed)
    codec = dice.choice(sorted(CODECS))
    plain = b"".join(record(n, b"c/b", bytes(dice.randbytes(40))) for n in range(20))
    log = bytearray(batch(plain, 20, codec=codec) + batch(plain, 20, base=27))
    for _ in range(dice.randrange(1, 12)):
        log[dice.randrange(len(log))] = dice.randrange(256)
    offsets = [row.offset for row in rows_of(bytes(log))]
    assert all(0 <= offset < 2**63 for offset in offsets)


def test_what_kafkas_own_builder_makes_is_read() -> None:
    builder = DefaultRecordBatchBuilder(2, 1, 0, -1, -1, -1, 100_000)
    for number in range(50):
        builder.append(number, 1_000 + number, b"k%d" % number, b"v" * number, [("h", b"x")])
    found = rows_of(bytes(builder.build()))
    assert [(row.key, row.value) for row in found] == [
        (b"k%d" % number, b"v" * number) for number in range(50)
    ]
    assert found[3].timestamp_ms == 1_003


OPTIONS = SourceOptions(
    connection="{}", topics=("a", "b"), starting="{}", records=20, plain_bytes=1 << 20, tasks=3,
    value_bytes=1_000, checkpoint="c",
)  # fmt: skip


def test_options_of_the_source_are_one_text_whose_name_is_redacted() -> None:
    assert set(OPTIONS.as_text()) == {"secret"}
    assert SourceOptions.of(OPTIONS.as_text()) == OPTIONS


class FakeLog:
    """A RawFetcher of three partitions, each with 12 messages of three clusters in turn."""

    def __init__(self) -> None:
        self.batches = [
            batch(record(0, b"cluster-%d/b" % (offset % 3), b"v" * 100), 1, base=offset)
            for offset in range(12)
        ]

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition("a", number) for number in range(3)]

    def fetch(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, FetchedLog]:
        return {
            topic_partition: FetchedLog(
                log=b"".join(self.batches[offset:]), begin=0, end=len(self.batches)
            )
            for topic_partition, offset in offsets.items()
        }

    def read(
        self, _place: TopicPartition, start: int, _end: int, _wait_s: float
    ) -> Generator[bytes, int, None]:
        yield b"".join(self.batches[start:])


def batches_of(options: SourceOptions) -> list[dict[str, set[bool]]]:
    """Cluster → what its rows say of the batch; each batch is read by a reader that is new."""
    found: list[dict[str, set[bool]]] = []
    start: Ends = {}
    while start != (end := KafkaReader(options).latestOffset(start)):
        end = json.loads(json.dumps(end))
        reader = KafkaReader(options)
        said: dict[str, set[bool]] = defaultdict(set)
        for part in reader.partitions(start, end):
            for piece in reader.read(part):
                for row in piece.to_pylist():
                    said[row["key"].decode().split("/")[0]].add(row["is_full"])
        found.append(dict(said))
        start = end
    return found


@pytest.mark.parametrize("bound", [{"records": 20}, {"plain_bytes": 2_200}])
def test_every_cluster_is_told_that_the_bound_of_all_cut_a_batch_off(
    monkeypatch: pytest.MonkeyPatch, bound: dict[str, int]
) -> None:
    """A third of the messages is each one's, so that none can count it."""
    log = FakeLog()
    monkeypatch.setattr(kafka_source, "_fetcher", lambda _options: log)
    clusters = [f"cluster-{number}" for number in range(3)]
    full, rest = batches_of(replace(OPTIONS, **bound))
    assert full == {name: {True} for name in clusters}
    assert rest == {name: {False} for name in clusters}


def test_end_of_the_log_after_a_full_batch_makes_no_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = FakeLog()
    monkeypatch.setattr(kafka_source, "_fetcher", lambda _options: log)
    (whole,) = batches_of(replace(OPTIONS, records=36))
    assert set.union(*whole.values()) == {True}

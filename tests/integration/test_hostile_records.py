"""Records that inflate a thousandfold, on the real stack: memory is bounded, the job goes on.

Anybody who may write a topic can send them: Kafka's limits are of compressed sizes.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from kafka.errors import for_code
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.producer import ProduceRequest
from kafka.record.util import calc_crc32c

from lbcore.wire.messages import Topic
from tests.integration.stack import Cluster, Stack, running_stack
from tests.unit.jobs.test_record_batches import varint

pytestmark = pytest.mark.long

MEGABYTE = 1024 * 1024
HUGE = 700 * MEGABYTE
JVM_BYTES, WORKER_BYTES = 1_600 * MEGABYTE, 700 * MEGABYTE
"""Bounds of resident memory: the heap is 1 GB."""
MEDIUM, MEDIUM_BYTES = 600, 900_000
GZIP, ZSTD = 1, 4


def packed(codec: int, pieces: Iterator[bytes]) -> bytes:
    """The pieces, compressed one after another, so that this test takes no memory itself."""
    if codec == GZIP:
        stream = zlib.compressobj(6, wbits=31)
        return b"".join(map(stream.compress, pieces)) + stream.flush()
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        for piece in pieces:
            out.write(piece)
    return bytes(sink.getvalue().to_pybytes())


def record(key: bytes, size: int) -> Iterator[bytes]:
    head = b"\0\0\0" + varint(len(key)) + key + varint(size)
    yield varint(len(head) + size + 1) + head
    piece = b"x" * min(size, MEGABYTE)
    for at in range(0, size, len(piece)):
        yield piece[: size - at]
    yield b"\0"


def batch(codec: int, key: bytes, size: int) -> bytes:
    content = packed(codec, record(key, size))
    after = struct.pack(">hiqqqhii", codec, 0, 1, 1, -1, -1, -1, 1) + content
    head = struct.pack(">ibI", -1, 2, calc_crc32c(after))
    return struct.pack(">qi", 0, len(head) + len(after)) + head + after


class RawProducer:
    """Sends batches as they are to partition 0 of broker-load."""

    def __init__(self, stack: Stack) -> None:
        options = stack.address("hostile").client_options("hostile")
        self._net = NetworkSelector(**options)
        self._net.start()
        self._manager = KafkaConnectionManager(self._net, **options)
        self._manager.bootstrap(30_000)
        topic = stack.address("hostile").topic_name(Topic.BROKER_LOAD)
        self._topic = topic
        self._wait(self._manager.cluster.set_topics([topic]))

    def _wait(self, future: Any) -> Any:
        return self._net.run(self._manager.wait_for, future, 120_000)

    def send(self, raw: bytes) -> int:
        part = ProduceRequest.TopicProduceData.PartitionProduceData(index=0, records=raw)
        data = ProduceRequest.TopicProduceData(name=self._topic, partition_data=[part])
        request = ProduceRequest(
            transactional_id=None, acks=1, timeout_ms=60_000, topic_data=[data], max_version=9
        )
        (node,) = {broker.node_id for broker in self._manager.cluster.brokers()}
        answer = self._wait(self._manager.send(request, node_id=node, request_timeout_ms=120_000))
        (found,) = answer.responses[0].partition_responses
        if found.error_code:
            raise for_code(found.error_code)(str(found))
        return int(found.base_offset)

    def close(self) -> None:
        self._manager.close()
        self._net.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with running_stack(tmp_path_factory.mktemp("stack"), Cluster(brokers=3)) as running:
        yield running


@pytest.fixture
def producer(stack: Stack) -> Iterator[RawProducer]:
    found = RawProducer(stack)
    yield found
    found.close()


def peaks(stack: Stack) -> tuple[int, int]:
    """The most resident memory so far of the job's JVM, and of the largest Python beside it."""
    jvm = python = 0
    for one in psutil.Process(stack.children["job"].pid).children(recursive=True):
        try:
            lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
        except OSError:  # it has ended meanwhile
            continue
        peak = [1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")]
        if "java" in one.name():
            jvm = max(jvm, *peak)
        else:
            python = max([python, *peak])
    return jvm, python


def refused(stack: Stack, key: str) -> list[dict[str, Any]]:
    """Rows of the dead-letter table that name the key."""
    return [row for row in stack.rows("rejected_reports") if key in row["detail"]]


def check(stack: Stack) -> None:
    """The job is within its bounds, and does what it is told."""
    jvm, python = peaks(stack)
    assert 0 < jvm < JVM_BYTES
    assert 0 < python < WORKER_BYTES
    name = f"pause-{stack.batches_done()}"
    stack.command(name, "pause", {})
    stack.wait("the command", lambda: stack.outcome(name) == "done")


@pytest.mark.parametrize("codec", [GZIP, ZSTD], ids=["gzip", "zstd"])
def test_record_of_700_mb_is_named_in_the_table_and_the_job_goes_on(
    stack: Stack, producer: RawProducer, codec: int
) -> None:
    key = f"local/huge{codec}"
    offset = producer.send(batch(codec, key.encode(), HUGE))
    stack.wait("the dead letter", lambda: refused(stack, key))
    (row,) = refused(stack, key)
    assert (row["topic"], row["partition"], row["offset"]) == ("broker-load", 0, offset)
    assert (row["reason"], row["cluster"]) == ("too_large", "local")
    assert str(HUGE)[:3] in row["detail"]
    assert len(row["raw"]) == 256
    check(stack)


def test_many_medium_records_are_read_some_at_a_time_and_most_are_counted(
    stack: Stack, producer: RawProducer
) -> None:
    """540 MB in all, a kilobyte each in Kafka; the job is killed in between."""
    raw = batch(ZSTD, b"local/medium", MEDIUM_BYTES)
    offsets = [producer.send(raw) for _ in range(MEDIUM // 2)]
    stack.kill("job")
    offsets += [producer.send(raw) for _ in range(MEDIUM // 2)]
    stack.start_job()

    def found() -> list[dict[str, Any]]:
        sent = set(offsets)
        return [row for row in stack.rows("rejected_reports") if row["offset"] in sent]

    def missing() -> int:
        details = [row["detail"] for row in stack.rows("rejected_reports") if not row["topic"]]
        return sum(int(detail.split(" ", 1)[0]) for detail in details)

    stack.wait("all to be kept or counted", lambda: len(found()) + missing() >= MEDIUM)
    kept = [row["offset"] for row in found()]
    assert len(kept) == len(set(kept))
    assert 0 < len(kept) < MEDIUM == len(kept) + missing()
    assert max(len(row["raw"]) for row in found()) <= 16_384
    check(stack)

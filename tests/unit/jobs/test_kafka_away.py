"""Clients of a Kafka that is away: they end, and leave no thread and no socket behind."""

import threading
import time

from kafka import KafkaProducer
from kafka.structs import TopicPartition

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.adapters.kafka.ownership_publisher import Ticker
from jobs.adapters.processes.preflight import free_ports


def address() -> KafkaAddress:
    """Where nothing listens."""
    (port,) = free_ports(1)
    return KafkaAddress(
        bootstrap=f"127.0.0.1:{port}", security={"bootstrap_timeout_ms": 100, "api_version": (3, 9)}
    )


def threads_of_kafka() -> list[str]:
    """Those that kafka-python has now, after a moment in which they may end."""
    until_s = time.monotonic() + 2.0
    while (
        found := [
            one.name
            for one in threading.enumerate()
            if one.name.startswith("kafka-io-") or one.name.endswith("-network-thread")
        ]
    ) and time.monotonic() < until_s:
        time.sleep(0.05)
    return found


def queue_record(producer: KafkaProducer) -> None:
    """Queue what `send` would if it had seen the topic before Kafka went away."""
    producer._accumulator.append(TopicPartition("t", 0), 1, b"key", b"value", [])  # noqa: SLF001


def test_sender_that_can_not_flush_ends_with_its_thread() -> None:
    sender = Sender(address(), "test-away")
    queue_record(sender._producer)  # noqa: SLF001
    sender.close(100)
    assert threads_of_kafka() == []


def test_ticker_that_can_not_flush_ends_with_its_thread() -> None:
    producer = KafkaProducer(**address().producer_options("test-ticks"))
    ticker = Ticker(producer, "t", ["local"], 3_600_000)
    ticker.start()
    queue_record(producer)
    ticker.stop()
    assert threads_of_kafka() == []

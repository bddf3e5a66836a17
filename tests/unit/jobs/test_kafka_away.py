"""Clients of a Kafka that is away: they end, and leave no thread and no socket behind."""

import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.errors import UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

from jobs import agent
from jobs.adapters.kafka import connection
from jobs.adapters.kafka.clients import (
    Delivery,
    KafkaAddress,
    NotDelivered,
    Sender,
    Tail,
    close_producer,
)
from jobs.adapters.kafka.connection import TopicWatch, find_kafka, kafka_trouble
from jobs.adapters.kafka.ownership_publisher import Ticker
from jobs.adapters.kafka.topics import newest_record_ms
from jobs.adapters.processes.preflight import free_ports
from jobs.console import CommandError
from lbcore.wire.messages import Topic
from tests.support.processes.programs import until


def address(**more: Any) -> KafkaAddress:
    """Where nothing listens. more: options of the client."""
    (port,) = free_ports(1)
    return KafkaAddress(
        bootstrap=f"127.0.0.1:{port}", security={"bootstrap_timeout_ms": 100, **more}
    )


def address_of_old() -> KafkaAddress:
    """Address of a Kafka that producers take for one that was there before."""
    return address(api_version=(3, 9))


def threads_of_kafka() -> list[str]:
    """Those that kafka-python has now."""
    names = [one.name for one in threading.enumerate()]
    return [one for one in names if one.startswith("kafka-io-") or one.endswith("-network-thread")]


def expect_no_threads() -> None:
    """Kafka's threads may take a moment to end."""
    until(lambda: not threads_of_kafka(), 20.0, threads_of_kafka)


def queue_record(producer: KafkaProducer) -> None:
    """Queue what `send` would if it had seen the topic before Kafka went away."""
    queue = producer._accumulator  # noqa: SLF001 (`send` would wait for the topic)
    queue.append(TopicPartition("t", 0), 1, b"key", b"value", [])


def test_sender_that_can_not_flush_ends_with_its_thread() -> None:
    sender = Sender(address_of_old(), "test-away")
    queue_record(sender._producer)  # noqa: SLF001 (`send` would wait for the topic)
    sender.close(100)
    expect_no_threads()


def test_ticker_that_can_not_flush_ends_with_its_thread() -> None:
    producer = KafkaProducer(**address_of_old().producer_options("test-ticks"))
    ticker = Ticker(producer, "t", ["local"], 3_600_000)
    ticker.start()
    queue_record(producer)
    ticker.stop()
    expect_no_threads()


class TornProducer:
    """Knows no partition of its topic while that is deleted and made anew, as kafka-python."""

    def __init__(self) -> None:
        self.sent = 0

    def partitions_for(self, _topic: str) -> set[int]:
        return {0}

    def send(self, *_: object, **__: object) -> None:
        self.sent += 1
        raise ValueError("Unrecognized partition 0 for topic t")

    def close(self, **_: object) -> None:
        """Nothing is left."""


def test_ticker_goes_on_after_a_tick_that_its_client_refuses() -> None:
    producer = TornProducer()
    ticker = Ticker(producer, "t", ["local"], 1)
    ticker.start()
    until(lambda: producer.sent > 2, 20.0)
    ticker.stop()


@pytest.mark.parametrize(
    "form", ["PLAINTEXT://127.0.0.1:{}", " 127.0.0.1:{}", "[::1]:1,127.0.0.1:{}"]
)
def test_kafka_answers_under_each_form_of_its_address(form: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = threading.Thread(target=lambda: server.accept()[0].sendall(bytes(8)), daemon=True)
        answer.start()
        found = KafkaAddress(bootstrap=form.format(server.getsockname()[1]))
        assert not kafka_trouble(found)


def test_message_that_the_client_refuses_counts_as_not_delivered() -> None:
    sender = Sender(address_of_old(), "test-away")
    producer, sender._producer = sender._producer, TornProducer()  # noqa: SLF001 (its own, torn)
    told: list[Delivery] = []
    sender.send(Topic.ACKS, "key", b"value", on_delivery=told.append)
    close_producer(producer, 1)
    assert [type(one) for one in told] == [NotDelivered]


@pytest.mark.parametrize(
    "connect",
    [
        lambda where: Tail(where, Topic.OWNERSHIP, "test-away"),
        lambda where: find_kafka(where, ["t"], []),
        lambda where: newest_record_ms(where, 100),
    ],
)
def test_client_that_can_not_connect_ends_with_its_thread(
    connect: Callable[[KafkaAddress], object],
) -> None:
    with pytest.raises(CommandError):
        connect(address())
    expect_no_threads()


def test_watch_of_topics_leaves_no_thread_of_each_attempt_to_connect() -> None:
    watch = TopicWatch(address(), {"t": "1"})
    assert watch.check() is None
    expect_no_threads()


def test_watch_of_topics_asks_a_new_client_after_whatever_one_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed: list[bool] = []

    def fail(_names: object) -> None:
        raise RuntimeError("the loop is closed")

    def answer(_names: object) -> list[dict[str, object]]:
        return [{"name": "t", "error_code": UnknownTopicOrPartitionError.errno}]

    clients = [
        SimpleNamespace(describe_topics=one, close=lambda: closed.append(True))
        for one in (answer, fail)
    ]
    monkeypatch.setattr(connection, "open_client", lambda *_, **__: clients.pop())
    watch = TopicWatch(address(), {"t": "1"})
    assert watch.check() is None
    assert closed == [True]
    lost = watch.check()
    assert lost is not None
    assert "t was deleted" in lost.why


class FakeTail:
    """Counts those that are open."""

    open = 0

    def __init__(self, *_: object) -> None:
        FakeTail.open += 1

    def close(self) -> None:
        FakeTail.open -= 1


def test_agent_that_can_not_connect_to_send_reads_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "Tail", FakeTail)
    identity = agent.Identity(cluster="c", broker="b", incarnation="1")
    callbacks: Any = None  # none is called
    with pytest.raises(CommandError, match="can't be reached"):
        agent.Agent(identity, address(), callbacks)
    assert FakeTail.open == 0

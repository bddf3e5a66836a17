"""What ends a rest, heard on the real Kafka: nobody who has spoken before it, whoever is new."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

from jobs.adapters.kafka.clients import Delivered, Delivery, KafkaAddress, Sender
from jobs.adapters.kafka.place import Ends
from jobs.adapters.kafka.rest import Rest
from lbcore.config.tree import Config, changed
from lbcore.wire.format import format_message
from lbcore.wire.messages import Envelope, Heartbeat, Topic
from tests.support.processes.kafka_cluster import running_kafka

BROKERS = 300
WAITED_S = 2.0
CONFIG = changed(Config(), {"pipeline.clusters": ["c"]})


def beats(brokers: Iterable[int], start: str = "first") -> list[Heartbeat]:
    return [
        Heartbeat(
            envelope=Envelope(
                cluster="c", broker=f"b{number}:1", incarnation=start, seq=1, reported_at_ms=1
            )
        )
        for number in brokers
    ]


@pytest.fixture
def address(tmp_path: Path) -> Iterator[KafkaAddress]:
    with running_kafka(tmp_path) as kafka:
        yield KafkaAddress(bootstrap=kafka.bootstrap)


def say(address: KafkaAddress, said: Iterable[Heartbeat]) -> Ends:
    """Say it; returns where each partition of what brokers say ends then."""
    sender = Sender(address, "test")
    ends = {"0": 0, "1": 0}

    def note(delivery: Delivery) -> None:
        assert isinstance(delivery, Delivered)
        ends[str(delivery.partition)] = delivery.offset + 1

    for message in said:
        topic, key, value = format_message(message)
        sender.send(topic, key.decode(), value, on_delivery=note)
    assert sender.flush(30_000)
    sender.close()
    return {address.topic_name(Topic.BROKER_LOAD): ends}


def test_only_who_is_new_ends_a_rest(address: KafkaAddress) -> None:
    read = say(address, beats(range(BROKERS)))
    said_again = say(address, beats(range(BROKERS)))
    rest = Rest(address, CONFIG, Event())
    assert rest.wait(monotonic() + WAITED_S, read) >= WAITED_S, "batches had read them all"
    say(address, beats([7], start="second"))
    assert rest.wait(monotonic() + 30.0, said_again) < 15.0
    rest.close()


def test_start_that_no_batch_has_read_ends_the_first_rest(address: KafkaAddress) -> None:
    read = say(address, beats(range(BROKERS)))
    say(address, beats([7], start="second"))
    rest = Rest(address, CONFIG, Event())
    assert rest.wait(monotonic() + 30.0, read) < 15.0
    rest.close()

"""The embedded Kafka outlives stops and crashes; the thin clients lose nothing silently."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError

from jobs.adapters.delta.table_writer import FencedError
from jobs.adapters.kafka.clients import (
    Delivered,
    Delivery,
    KafkaAddress,
    NotDelivered,
    Received,
    Sender,
    Tail,
)
from jobs.adapters.kafka.connection import KafkaWatch, kafka_trouble
from jobs.adapters.kafka.embedded_kafka import KafkaOptions, read_properties
from jobs.adapters.kafka.ownership_publisher import OwnershipPublisher
from jobs.console import CommandError
from lbcore.wire.messages import Topic
from tests.support.processes.frozen import freeze
from tests.support.processes.kafka_cluster import KafkaNode, make_topics, running_kafka
from tests.support.processes.programs import until


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """One of this file's own, for it is stopped and killed."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def address(kafka: KafkaNode, tmp_path: Path) -> KafkaAddress:
    """Topics of its own for each test, told apart by the prefix."""
    made = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=f"{tmp_path.name}.")
    make_topics(kafka, made)
    return made


def read_until(tail: Tail, count: int) -> list[Received]:
    found: list[Received] = []
    until(lambda: found.extend(tail.poll(200)) or len(found) >= count, 60, lambda: len(found))
    return found


def send_again(sender: Sender, said: list[Delivery]) -> None:
    """Send until Kafka is found again."""

    def is_delivered() -> bool:
        sender.send(Topic.ACKS, "c/b", b"after", on_delivery=said.append)
        assert sender.flush(60_000)
        return isinstance(said[-1], Delivered)

    until(is_delivered, 60)
    sender.close()


def test_sender_says_where_each_message_went(address: KafkaAddress) -> None:
    sender = Sender(address, "test")
    said: list[Delivery] = []
    for number in range(50):
        sender.send(
            Topic.ACKS, "c/b", b"%d" % number, partition=number % 2, on_delivery=said.append
        )
    assert sender.flush(30_000)
    sender.close()
    assert sender.delivered == 50
    assert {(d.partition, d.offset) for d in said if isinstance(d, Delivered)} == {
        (partition, offset) for partition in (0, 1) for offset in range(25)
    }
    assert all(isinstance(d, Delivered) and d.timestamp_ms > 0 for d in said)


def test_sender_of_what_kafka_refuses_says_so(address: KafkaAddress) -> None:
    sender = Sender(address, "test")
    said: list[Delivery] = []
    sender.send(Topic.ACKS, "c/b", bytes(2_000_000), on_delivery=said.append)
    sender.flush(30_000)
    sender.close()
    assert isinstance(said[0], NotDelivered)
    assert "MessageSizeTooLarge" in said[0].reason or "RecordTooLarge" in said[0].reason
    assert (len(said), sender.not_delivered) == (1, 1)


@pytest.mark.long
def test_sender_with_kafka_away_gives_up_at_the_deadline(
    kafka: KafkaNode, address: KafkaAddress
) -> None:
    sender = Sender(address, "test", delivery_timeout_ms=2_000)
    sender.send(Topic.ACKS, "c/b", b"before")
    assert sender.flush(30_000)
    kafka.kill()
    given_up = threading.Event()
    said: list[Delivery] = []

    def note(delivery: Delivery) -> None:
        said.append(delivery)
        given_up.set()

    sender.send(Topic.ACKS, "c/b", b"while away", on_delivery=note)
    assert given_up.wait(60.0)
    assert isinstance(said[0], NotDelivered)
    kafka.start()
    send_again(sender, said)


@pytest.mark.long
def test_sender_goes_on_after_a_message_under_way_was_given_up(
    kafka: KafkaNode, address: KafkaAddress
) -> None:
    sender = Sender(address, "test", delivery_timeout_ms=3_000)
    sender.send(Topic.ACKS, "c/b", b"before")
    assert sender.flush(30_000)
    freeze(kafka.pid)
    said: list[Delivery] = []
    sender.send(Topic.ACKS, "c/b", b"under way", on_delivery=said.append)
    assert not sender.flush(500), said
    kafka.kill()  # the connection is lost, and the message is to be sent again
    assert sender.flush(60_000)
    assert isinstance(said[-1], NotDelivered)
    kafka.start()
    send_again(sender, said)


def test_tail_reads_from_the_beginning_and_only_what_was_committed(address: KafkaAddress) -> None:
    producer = KafkaProducer(bootstrap_servers=address.bootstrap, transactional_id="writer")
    producer.init_transactions()
    name = address.topic_name(Topic.OWNERSHIP)

    def transaction(*values: bytes | None, commit: bool) -> None:
        producer.begin_transaction()
        for value in values:
            producer.send(name, value, b"c/b", partition=0)
        producer.flush()
        (producer.commit_transaction if commit else producer.abort_transaction)()

    transaction(b"1", b"2", commit=True)
    transaction(b"never", commit=False)
    tail = Tail(address, Topic.OWNERSHIP, "test")
    assert [message.value for message in read_until(tail, 2)] == [b"1", b"2"]
    transaction(b"3", None, commit=True)
    found, rest = read_until(tail, 2), list[Received]()
    assert [(message.key, message.value) for message in found] == [("c/b", b"3"), ("c/b", None)]
    # the end is behind the transaction's marker
    until(lambda: tail.read_to_end(5_000) or rest.extend(tail.poll(100)), 30)
    assert rest == []
    fresh = Tail(address, Topic.OWNERSHIP, "test")
    assert not fresh.read_to_end(5_000)  # nothing polled yet
    fresh.close()
    tail.close()
    producer.close()


def test_tail_of_a_missing_topic_says_what_to_do(kafka: KafkaNode) -> None:
    nowhere = KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix="nowhere.")
    with pytest.raises(CommandError, match=r"topic nowhere.ownership is not in Kafka") as caught:
        Tail(nowhere, Topic.OWNERSHIP, "test")
    assert "topics ensure" in caught.value.next_step


def test_clients_without_kafka_say_what_to_do() -> None:
    address = KafkaAddress(bootstrap="127.0.0.1:9", security={"bootstrap_timeout_ms": 300})
    with pytest.raises(CommandError, match=r"Kafka at 127.0.0.1:9 can't be reached"):
        Tail(address, Topic.OWNERSHIP, "test")


class Tables:
    """Whose the tables are."""

    def __init__(self) -> None:
        self.owner = ""


def test_place_in_kafka_that_an_older_job_took_last_is_taken_back(address: KafkaAddress) -> None:
    """The tables say whose it is: the newer job goes on, the older one ends."""
    tables = Tables()
    topic = address.topic_name(Topic.OWNERSHIP)

    def publisher(name: str) -> OwnershipPublisher:
        options = address.client_options(name)
        return OwnershipPublisher(topic, lambda: tables.owner == name, lambda: False, **options)

    newer = publisher("newer")
    tables.owner = "newer"
    newer.publish([(b"key", b"1")])
    older = publisher("older")
    newer.publish([(b"key", b"2"), (b"gone", None)])
    with pytest.raises(FencedError, match="Kafka refused records"):
        older.publish([(b"key", b"older")])
    newer.publish([(b"key", b"3")])
    tail = Tail(address, Topic.OWNERSHIP, "test")
    found = [message.value for message in read_until(tail, 4)]
    for one in (newer, older, tail):
        one.close()
    assert sorted(value or b"" for value in found) == [b"", b"1", b"2", b"3"]


def test_records_of_a_topic_that_is_gone_are_given_up(address: KafkaAddress) -> None:
    """kafka-python alone would wait for their commit, and a job that ends would wait with it."""
    topic, options = address.topic_name(Topic.OWNERSHIP), address.client_options("test")
    publisher = OwnershipPublisher(topic, lambda: True, lambda: True, **options)
    publisher.publish([(b"key", b"1")])
    admin = KafkaAdminClient(**options)
    admin.delete_topics([topic])
    admin.close()
    with pytest.raises(KafkaError, match="wait no longer"):
        publisher.publish([(b"key", b"2")])
    publisher.close()


def test_kafka_that_hangs_or_is_gone_is_named_with_its_address(kafka: KafkaNode) -> None:
    told: list[str] = []
    address = KafkaAddress(bootstrap=kafka.bootstrap)
    watch = KafkaWatch(address, "agent of b1", tell=told.append)
    watch.check()
    assert (watch.trouble, told) == ("", [])
    freeze(kafka.pid)
    try:
        watch.check()
        watch.check()
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert watch.trouble == f"Kafka does not answer at {kafka.bootstrap} (no answer within 1 s)"
    watch.check()
    assert watch.trouble == ""
    assert [kafka.bootstrap in line for line in told] == [True, True]  # once away, once back
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = kafka_trouble(KafkaAddress(bootstrap=f"127.0.0.1:{port}"))
    assert gone == f"Kafka does not answer at 127.0.0.1:{port} (Connection refused)"
    one_of_two = KafkaAddress(bootstrap=f"127.0.0.1:{port},{kafka.bootstrap}")
    assert kafka_trouble(one_of_two) == ""


def test_embedded_kafka_keeps_data_over_stop_and_kill(
    kafka: KafkaNode, address: KafkaAddress
) -> None:
    sent: list[bytes] = []
    for end in (kafka.stop, kafka.kill):
        sender = Sender(address, "test")
        for _ in range(100):
            sent.append(b"%d" % len(sent))
            sender.send(Topic.ACKS, "c/b", sent[-1])
        assert sender.flush(30_000)
        sender.close()
        end()
        assert not kafka.answers()
        kafka.start()
        assert kafka.bootstrap == address.bootstrap
        tail = Tail(address, Topic.ACKS, "test")
        assert sorted(message.value or b"" for message in read_until(tail, len(sent))) == sorted(
            sent
        )
        tail.close()


def test_embedded_kafka_same_folder_finds_ports_again(kafka: KafkaNode) -> None:
    again = KafkaNode(kafka.folder)
    assert (again.port, again.controller_port) == (kafka.port, kafka.controller_port)
    until(again.answers, 60)


def test_embedded_kafka_misspelt_topic_is_not_made(kafka: KafkaNode) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    consumer = KafkaConsumer("misspelt", bootstrap_servers=kafka.bootstrap, group_id=None)
    consumer.poll(timeout_ms=500)
    consumer.close()
    assert "misspelt" not in admin.list_topics()
    admin.close()


def test_embedded_kafka_on_taken_port_says_which(tmp_path: Path) -> None:
    broker = KafkaNode(tmp_path / "kafka")
    with socket.socket() as other:
        other.bind(("127.0.0.1", broker.port))
        other.listen()
        with pytest.raises(CommandError) as caught:
            broker.start()
    assert str(broker.port) in caught.value.what
    assert "ports.json" in caught.value.next_step


def test_embedded_kafka_with_bad_property_reports_its_last_words(tmp_path: Path) -> None:
    options = KafkaOptions(properties={"broker.heartbeat.interval.ms": "soon"})
    with pytest.raises(CommandError) as caught:
        KafkaNode(tmp_path / "kafka", options).start()
    assert "soon" in caught.value.why


def test_read_properties_skips_comments_and_blank_lines() -> None:
    assert read_properties("# a=b\n\n c = d=e \n") == {"c": "d=e"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "-é 🙂 q'u\"o %x #a {x} $x*?",
        "x" * 200,
        "a:b",
    ],
)
def test_embedded_kafka_keeps_its_data_in_the_folder_that_was_named(
    tmp_path: Path, name: str
) -> None:
    broker = KafkaNode(tmp_path / name)
    broker.start()
    broker.stop()
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 (names as they are)
    assert (tmp_path / name / "data" / "meta.properties").exists()
    assert (tmp_path / name / "logs" / "kafka.log").exists()

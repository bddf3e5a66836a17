"""The embedded Kafka, the real one: its data outlive a stop, a crash and a restart."""

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import KafkaWatch, kafka_trouble
from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions, read_properties
from jobs.console import CommandError
from tests.integration.stack import wait_for
from tests.support.processes.frozen import freeze

_TOPIC = "kept"
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    broker = EmbeddedKafka(tmp_path_factory.mktemp("kafka"))
    broker.start()
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(_TOPIC, 2, 1)])
    admin.close()
    yield broker
    broker.stop()


def _produce(broker: EmbeddedKafka, first: int, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    for number in range(first, first + count):
        producer.send(_TOPIC, b"%d" % number)
    producer.flush()
    producer.close()


def _consume(broker: EmbeddedKafka, expected: int) -> list[int]:
    consumer = KafkaConsumer(
        _TOPIC, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    seen: list[int] = []
    deadline_s = monotonic() + _PATIENCE_S
    while len(seen) < expected and monotonic() < deadline_s:
        for records in consumer.poll(timeout_ms=200).values():
            seen.extend(int(record.value) for record in records)
    consumer.close()
    return sorted(seen)


def test_kafka_that_hangs_or_is_gone_is_named_with_its_address(kafka: EmbeddedKafka) -> None:
    told: list[str] = []
    address = KafkaAddress(bootstrap=kafka.bootstrap)
    watch = KafkaWatch(address, "agent of b1", tell=told.append)
    watch.look()
    assert (watch.trouble, told) == ("", [])
    freeze(kafka.pid)
    try:
        watch.look()
        watch.look()
    finally:
        os.kill(kafka.pid, signal.SIGCONT)
    assert watch.trouble == f"Kafka does not answer at {kafka.bootstrap} (no answer within 1 s)"
    watch.look()
    assert watch.trouble == ""
    assert [kafka.bootstrap in line for line in told] == [True, True]  # once away, once back
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gone = kafka_trouble(KafkaAddress(bootstrap=f"127.0.0.1:{port}"))
    assert gone == f"Kafka does not answer at 127.0.0.1:{port} (Connection refused)"
    one_of_two = KafkaAddress(bootstrap=f"127.0.0.1:{port},{kafka.bootstrap}")
    assert kafka_trouble(one_of_two) == ""


def test_embedded_kafka_keeps_data_over_stop_and_kill(kafka: EmbeddedKafka) -> None:
    bootstrap = kafka.bootstrap
    _produce(kafka, 0, 100)
    kafka.stop()
    assert not kafka.answers()
    kafka.start()
    assert _consume(kafka, 100) == list(range(100))
    _produce(kafka, 100, 100)
    kafka.kill()
    assert not kafka.answers()
    kafka.start()
    assert kafka.bootstrap == bootstrap
    assert _consume(kafka, 200) == list(range(200))


def test_embedded_kafka_same_folder_finds_ports_again(kafka: EmbeddedKafka) -> None:
    again = EmbeddedKafka(kafka.folder)
    assert (again.port, again.controller_port) == (kafka.port, kafka.controller_port)
    wait_for("an answer", again.answers, _PATIENCE_S)


def test_embedded_kafka_misspelt_topic_is_not_made(kafka: EmbeddedKafka) -> None:
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    consumer = KafkaConsumer("misspelt", bootstrap_servers=kafka.bootstrap, group_id=None)
    consumer.poll(timeout_ms=500)
    consumer.close()
    assert "misspelt" not in admin.list_topics()
    admin.close()


def test_embedded_kafka_on_taken_port_says_which(tmp_path: Path) -> None:
    broker = EmbeddedKafka(tmp_path / "kafka")
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
        EmbeddedKafka(tmp_path / "kafka", options).start()
    assert "soon" in caught.value.why


def test_read_properties_skips_comments_and_blank_lines() -> None:
    assert read_properties("# a=b\n\n c = d=e \n") == {"c": "d=e"}


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    [
        "-é 🙂 q'u\"o %x #a",
        "x" * 200,
        "a:b",
        "{x}",
        "$x*?",
    ],
)
def test_embedded_kafka_keeps_its_data_in_the_folder_that_was_named(
    tmp_path: Path, name: str
) -> None:
    broker = EmbeddedKafka(tmp_path / name)
    broker.start()
    broker.stop()
    assert os.listdir(tmp_path) == [name]  # noqa: PTH208 (names as they are)
    assert (tmp_path / name / "data" / "meta.properties").exists()
    assert (tmp_path / name / "logs" / "kafka.log").exists()

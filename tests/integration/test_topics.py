"""`ballast topics ensure` against the real Kafka: makes, checks, repairs, and says what it did."""

import json
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.connection import TopicWatch
from jobs.adapters.kafka.topics import TopicStatus, ensure_topics, wanted_topics
from jobs.adapters.processes.preflight import free_ports
from jobs.cli import main
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic
from tests.integration.stack import PATIENCE_S, wait_for
from tests.support.processes.kafka_cluster import KafkaNode


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Topics of its own for each test, told apart by the prefix."""
    return parse_config({"pipeline": {"topic_prefix": f"{tmp_path.name}."}})


@pytest.fixture
def address(kafka: KafkaNode, config: Config) -> KafkaAddress:
    return KafkaAddress(bootstrap=kafka.bootstrap, topic_prefix=config.pipeline.topic_prefix)


def statuses(address: KafkaAddress, config: Config, **how: bool) -> set[TopicStatus]:
    return {report.status for report in ensure_topics(address, wanted_topics(config), **how)}


def wait_for_difference(address: KafkaAddress, config: Config, keys: set[str]) -> None:
    """Wait until just these differ: Kafka's brokers show a change a moment after it was taken."""

    def differing() -> set[str]:
        reports = ensure_topics(address, wanted_topics(config))
        return {item.key for report in reports for item in report.differences}

    wait_for(f"{keys or 'nothing'} to differ", lambda: differing() == keys, PATIENCE_S)


def topics_of(address: KafkaAddress) -> set[str]:
    with KafkaAdminClient(bootstrap_servers=address.bootstrap) as admin:
        return {name for name in admin.list_topics() if name.startswith(address.topic_prefix)}


def changed(config: Config, **topics: Any) -> Config:
    return parse_config({"topics": topics}, config)


def test_ensure_makes_what_is_missing_and_then_finds_it_fine(
    address: KafkaAddress, config: Config
) -> None:
    assert statuses(address, config, dry_run=True) == {TopicStatus.WOULD_MAKE}
    assert topics_of(address) == set()
    assert statuses(address, config) == {TopicStatus.MADE}
    assert topics_of(address) == {address.topic_name(topic) for topic in Topic}
    assert statuses(address, config) == {TopicStatus.FINE}


def test_ensure_makes_topics_whose_messages_bear_the_brokers_time(
    address: KafkaAddress, config: Config
) -> None:
    ensure_topics(address, wanted_topics(config))
    producer = KafkaProducer(bootstrap_servers=address.bootstrap)
    sent = producer.send(address.topic_name(Topic.BROKER_LOAD), b"x", b"k", timestamp_ms=1_000)
    assert sent.get(timeout=60).timestamp > 1_600_000_000_000
    producer.close()


def test_ensure_reports_each_difference_and_changes_nothing_unasked(
    address: KafkaAddress, config: Config
) -> None:
    ensure_topics(address, wanted_topics(config))
    other = changed(config, report_partitions=5, report_retention_ms=7_200_000)
    for _ in range(2):
        reports = ensure_topics(address, wanted_topics(other))
        found = {report.name: report.differences for report in reports}
        acks = {
            (item.key, item.wanted, item.found) for item in found[address.topic_name(Topic.ACKS)]
        }
        assert acks == {
            ("partitions", "5", "2"),
            ("retention.ms", "7200000", "21600000"),
            ("segment.ms", "1200000", "3600000"),
        }
        assert found[address.topic_name(Topic.OWNERSHIP)] == ()


def test_ensure_repairs_configuration_but_never_partitions(
    address: KafkaAddress, config: Config
) -> None:
    ensure_topics(address, wanted_topics(config))
    kept_longer = changed(config, report_retention_ms=7_200_000)
    assert statuses(address, kept_longer, repair=True, dry_run=True) == {
        TopicStatus.FINE,
        TopicStatus.WOULD_REPAIR,
    }
    assert TopicStatus.DIFFERS in statuses(address, kept_longer)
    assert statuses(address, kept_longer, repair=True) == {TopicStatus.FINE, TopicStatus.REPAIRED}
    wait_for_difference(address, kept_longer, set())
    both = changed(kept_longer, report_partitions=5, report_retention_ms=10_800_000)
    assert TopicStatus.DIFFERS in statuses(address, both, repair=True)
    wait_for_difference(address, both, {"partitions"})


def test_ensure_that_kafka_refuses_says_why_and_is_not_good(
    address: KafkaAddress, config: Config
) -> None:
    copies = changed(config, replication_factor=3)
    reports = ensure_topics(address, wanted_topics(copies))
    assert {report.status for report in reports} == {TopicStatus.FAILED}
    assert all("InvalidReplicationFactor" in report.detail for report in reports)
    assert not any(report.is_good for report in reports)


def test_verb_makes_then_differs_with_the_exit_codes_of_every_verb(
    address: KafkaAddress, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        *("topics", "ensure", "--json", "--bootstrap", address.bootstrap),
        *("--set", f"pipeline.topic_prefix={address.topic_prefix}"),
    ]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["good"]
    assert {topic["status"] for topic in said["topics"]} == {"made"}
    assert main([*words, "--set", "topics.report_partitions=6"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["good"]
    found = [topic for topic in said["topics"] if topic["differences"]]
    assert len(found) == 4
    assert {
        "name": address.topic_name(Topic.BROKER_LOAD),
        "status": "differs",
        "detail": "",
        "differences": [{"key": "partitions", "wanted": "6", "found": "2"}],
    } in found


@pytest.mark.long
def test_verb_without_a_kafka_that_answers_fails_with_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (port,) = free_ports(1)
    words = ["topics", "ensure", "--bootstrap", f"127.0.0.1:{port}"]
    assert main(words) == 1
    said = capsys.readouterr().err
    assert f"Kafka at 127.0.0.1:{port} could not be asked" in said
    assert "next: check that it runs" in said


def test_watch_tells_a_topic_made_anew_and_a_deleted_one_from_those_that_stayed(
    kafka: KafkaNode, tmp_path: Path
) -> None:
    deleted, anew, stays = names = [f"{tmp_path.name}.{word}" for word in ("gone", "new", "same")]
    with KafkaAdminClient(bootstrap_servers=kafka.bootstrap) as admin:
        admin.create_topics([NewTopic(name, 1, 1) for name in names])
        wait_for("the topics", lambda: set(names) <= set(admin.list_topics()), 60)
        ids = {one["name"]: str(one["topic_id"]) for one in admin.describe_topics(names)}
        with TopicWatch(KafkaAddress(bootstrap=kafka.bootstrap), ids, check_s=0.1) as watch:
            assert (watch.check(), watch.loss()) == (None, None)
            admin.delete_topics([deleted, anew])
            wait_for(
                "both to be gone", lambda: {stays} == set(names) & set(admin.list_topics()), 60
            )
            admin.create_topics([NewTopic(anew, 1, 1)])
            wanted = f"{deleted} was deleted, {anew} was made anew in Kafka"
            wait_for("the loss", lambda: wanted in getattr(watch.loss(), "why", ""), 60)
            assert wanted in getattr(watch.check(), "why", "")


def test_watch_with_kafka_away_says_nothing() -> None:
    (port,) = free_ports(1)
    nowhere = KafkaAddress(bootstrap=f"127.0.0.1:{port}", security={"bootstrap_timeout_ms": 300})
    watch = TopicWatch(nowhere, {"acks": "an-id"})
    assert (watch.check(), watch.loss()) == (None, None)


def test_doctor_tells_missing_topics_and_kafkas_clock(
    address: KafkaAddress, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay = tmp_path / "overlay.toml"
    overlay.write_text(f'[pipeline]\ntopic_prefix = "{config.pipeline.topic_prefix}"\n')
    words = ["doctor", "--bootstrap", address.bootstrap, "--conf", str(overlay), "--json"]

    def findings() -> dict[str, Any]:
        main([*words, "--tables", str(tmp_path / "none")])
        return {one["subject"]: one for one in json.loads(capsys.readouterr().out)["findings"]}

    name = address.topic_name(Topic.ACKS)
    assert findings()[name]["verdict"] == "fail"
    ensure_topics(address, wanted_topics(config))
    found = findings()
    assert found["topics"]["verdict"] == "ok"
    assert found["ticks"]["what"] == "broker-load is empty"
    producer = KafkaProducer(bootstrap_servers=address.bootstrap)
    producer.send(address.topic_name(Topic.BROKER_LOAD), b"a tick").get(timeout=60)
    producer.close()
    found = findings()
    assert found["ticks"]["verdict"] == "ok"
    assert found["kafka clock"]["verdict"] == "ok"

"""What each topic must be follows from the settings, and Kafka's address from them and secrets."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import KafkaAddress, SecretToken
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.kafka.raw_fetch import connection_text
from jobs.adapters.kafka.topics import TopicSpec, kafka_acls_commands, rights_of, wanted_topics
from jobs.console import CommandError, MisuseError
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic


def specs_of(mapping: Any) -> dict[str, TopicSpec]:
    return {spec.name: spec for spec in wanted_topics(parse_config(mapping))}


def test_topics_wanted_are_all_of_the_wire_with_log_append_time() -> None:
    specs = specs_of({})
    assert list(specs) == [topic.value for topic in Topic]
    assert {spec.configs["message.timestamp.type"] for spec in specs.values()} == {"LogAppendTime"}
    policies = {name: spec.configs["cleanup.policy"] for name, spec in specs.items()}
    assert [name for name, policy in policies.items() if policy != "delete"] == ["ownership"]
    longest = int(specs["bundle-load"].configs["max.message.bytes"])
    assert longest > Config().wire.max_message_bytes
    assert "eu.broker-load" in specs_of({"pipeline": {"topic_prefix": "eu."}})


def test_topics_are_kept_and_copied_as_the_settings_say() -> None:
    topics = {"report_partitions": 7, "replication_factor": 3, "report_retention_ms": 3_600_000}
    specs = specs_of({"topics": topics})
    assert [specs[name].partitions for name in ("broker-load", "acks", "ownership")] == [7, 7, 4]
    assert [specs[name].partitions for name in ("commands", "audit")] == [1, 1]
    report = specs["broker-load"]
    assert report.replication_factor == 3
    assert report.configs["min.insync.replicas"] == "2"
    assert report.configs["retention.ms"] == "3600000"
    assert report.configs["segment.ms"] == "600000"


def test_address_with_sasl_takes_the_password_from_the_environment() -> None:
    kafka = {"security_protocol": "SASL_SSL", "sasl_username": "u", "ca_file": "/ca.pem"}
    config = parse_config({"kafka": {**kafka, "bootstrap_servers": ["a:1", "b:2"]}})
    address = kafka_address(config, "", {"BALLAST_KAFKA_PASSWORD": "hush"})
    assert address.bootstrap == "a:1,b:2"
    assert kafka_address(config, "c:3", {"BALLAST_KAFKA_PASSWORD": "x"}).bootstrap == "c:3"
    with pytest.raises(CommandError, match="BALLAST_KAFKA_PASSWORD"):
        kafka_address(config, "a:1", {})
    with pytest.raises(MisuseError, match="Kafka's address is not known"):
        kafka_address(Config())
    assert address.security == {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": "/ca.pem",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "hush",
    }


def test_token_is_read_again_at_each_login_also_by_another_machine(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    config = parse_config(
        {"kafka": {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}}
    )
    address = kafka_address(config, "a:1", {"BALLAST_KAFKA_PASSWORD_FILE": str(file)})
    provider = address.security["sasl_oauth_token_provider"]
    assert provider.token() == "first"
    file.write_text("second\n")
    assert provider.token() == "second"
    assert "first" not in repr(provider)
    text = connection_text(address)
    assert "second" not in text
    assert SecretToken(json.loads(text)["sasl_oauth_token_provider"]).token() == "second"


def test_connection_text_holds_certificates_and_no_paths(tmp_path: Path) -> None:
    authority = tmp_path / "ca.pem"
    authority.write_text("-----BEGIN CERTIFICATE-----\n")
    security = {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "job",
        "sasl_plain_password": 'with "quotes" and \\',
    }
    found = json.loads(connection_text(KafkaAddress(bootstrap="a:1", security=security)))
    assert found["ssl_cafile"] == "-----BEGIN CERTIFICATE-----\n"
    assert found["sasl_plain_password"] == security["sasl_plain_password"]
    assert str(tmp_path) not in json.dumps(found)
    absent = {"security_protocol": "SSL", "ssl_cafile": str(tmp_path / "none.pem")}
    with pytest.raises(CommandError, match=r"none\.pem could not be read"):
        connection_text(KafkaAddress(bootstrap="a:1", security=absent))


def test_rights_of_a_role_become_commands_of_kafkas_own_tool() -> None:
    commands = kafka_acls_commands(rights_of("job", "x-"), "User:j", "k:9092")
    assert (
        "kafka-acls.sh --bootstrap-server k:9092 --add --allow-principal User:j "
        "--operation Write --operation Describe --transactional-id ballast-x-ownership"
    ) in commands
    assert not any("--group" in line for line in commands)
    assert not any("x-ownership" in line and "topic" in line for line in _commands("service"))


def _commands(role: str) -> list[str]:
    return kafka_acls_commands(rights_of(role, "x-"), "User:p", "k:9092")

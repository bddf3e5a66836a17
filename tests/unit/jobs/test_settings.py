"""Configuration from files, environment and command line; topics and addresses by it."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.kafka.clients import KafkaAddress, SecretToken
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.kafka.raw_fetch import connection_text
from jobs.adapters.kafka.topics import TopicSpec, kafka_acls_commands, rights_of, wanted_topics
from jobs.adapters.processes.paths import CONF, shipped
from jobs.adapters.processes.settings import (
    describe_differences,
    load_settings,
    read_base,
    read_secret,
)
from jobs.console import CommandError, MisuseError
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic


def test_settings_take_the_overlays_that_the_environment_names() -> None:
    config = load_settings(environment={"BALLAST_CONF": " pulsar , demo "})
    assert config.cluster.authority == "external"
    assert config.pipeline.shed_interval_ms == 5_000
    instead = load_settings(["test"], environment={"BALLAST_CONF": "pulsar"})
    assert (instead.cluster.authority, instead.ownership.broker_timeout_ms) == ("ballast", 3_000)
    assert load_settings(environment={}) == read_base()


def test_settings_take_an_overlay_by_path_and_then_assignments(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[pipeline]\ntrigger_ms = 300\nscorer_groups = 7\n")
    config = load_settings([str(path)], ["pipeline.trigger_ms=400"])
    assert (config.pipeline.trigger_ms, config.pipeline.scorer_groups) == (400, 7)
    assert describe_differences(config, read_base()) == [
        "pipeline.scorer_groups = 7 (base: 2, from mine.toml)",
        "pipeline.trigger_ms = 400 (base: 1000, from --set)",
    ]


def test_settings_in_a_folder_without_a_base_lie_upon_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[lookup]\nport = 9\n")
    assert load_settings(["own"], conf=tmp_path).lookup.port == 9


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_settings_are_read_as_any_editor_writes_utf_8(
    tmp_path: Path, mark: bytes, end: bytes
) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(mark + end.join([b"# \xc3\xa9", b"[lookup]", b"port = 9", b""]))
    assert load_settings([str(path)]).lookup.port == 9


DEEP = 5_000
UNREADABLE = {
    "UTF-16, little": ("[lookup]\n".encode("utf-16"), "UTF-16"),
    "UTF-16, big": (b"\xfe\xff" + "[lookup]\n".encode("utf-16-be"), "UTF-16"),
    "UTF-16 without a mark": ("[lookup]\n".encode("utf-16-le"), "UTF-16"),
    "Latin-1": ("# a\n# é\n".encode("latin-1"), "line 2 has byte 0xe9"),
    "digits": (b"# 1\n[lookup]\nport = " + b"9" * DEEP, "line 3 has a number"),
    "digits of a float": (b"[lookup]\nport = " + b"9" * DEEP + b".5", "write a whole number"),
    "hexadecimal digits": (b"[lookup]\nport = 0x" + b"f" * DEEP, "20000 bits"),
    "digits in a list": (b"[lookup]\nport = [0x" + b"f" * DEEP + b"]", "too large to be shown"),
    "digits alone": (b"lookup = 0x" + b"f" * DEEP, "20000 bits"),
    "lists": (b"[lookup]\n# a\nport = " + b"[" * DEEP + b"]" * DEEP, "line 3 has lists"),
    "lists by the line": (b"a = 1\nport = " + b"[\n" * DEEP + b"]" * DEEP, "has lists"),
    "tables": (b"[lookup]\nport = " + b"{a=" * DEEP + b"1" + b"}" * DEEP, "line 2 has lists"),
    "open lists": (b"[lookup]\nport = " + b"[" * DEEP, "line 2 has lists"),
    "dotted key": (b"[lookup]\nport" + b".a" * DEEP + b" = 1", "can't be used here"),
    "table's name": (b"[lookup" + b".a" * DEEP + b"]\nport = 1", "there is no such setting"),
    "clusters": (b"[clusters" + b".a" * DEEP + b"]\nport = 1", "there is no such section"),
    "nothing but NUL": (b"\0" * 8, "UTF-16"),
    "folder": (None, "Is a directory"),
    "bytes": (b"\xff\xfe", ""),
    "half a line": (b"[pipeline\n", ""),
    "unknown": (b"[pipeline]\ntriger_ms = 3\n", "did you mean pipeline.trigger_ms?"),
    "one of two": (b"[placement]\nstrategy = 'round_robin'\n", "must be ballast or neither"),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_settings_that_no_parser_takes_are_misuse_with_their_place(
    tmp_path: Path, kind: str
) -> None:
    content, words = UNREADABLE[kind]
    path = tmp_path / "bad.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(MisuseError) as caught:
        load_settings([str(path)])
    assert str(path) in caught.value.what or words
    assert words in str(caught.value)
    assert len(str(caught.value)) < 1_000 + 2 * DEEP * kind.startswith(("dotted", "table", "clus"))


@pytest.mark.parametrize("text", ["9" * DEEP, "[" * DEEP, "{" * DEEP, "0x" + "f" * DEEP])
def test_assignment_of_any_size_is_misuse(text: str) -> None:
    for key in ("lookup.port", "shedding.strategy", "kafka.bootstrap_servers"):
        with contextlib.suppress(MisuseError):
            load_settings([], [f"{key}={text}"])
    with pytest.raises(MisuseError):
        load_settings([], [f"lookup.port={text}"])


def test_overlay_that_is_not_there_is_misuse_that_lists_those_that_are() -> None:
    with pytest.raises(MisuseError) as raised:
        load_settings(["prodution"])
    assert "demo, production, pulsar, pulsar-4.0-extensible" in raised.value.next_step
    assert str(CONF / "prodution.toml") in raised.value.why


def test_secret_comes_from_the_variable_or_the_file_it_names(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("hush\n")
    assert read_secret("X", {"X": "direct"}) == "direct"
    assert read_secret("X", {"X": "direct", "X_FILE": str(path)}) == "hush"
    assert read_secret("X", {}) == ""
    path.write_bytes(b"\xef\xbb\xbfhidden\r\n")
    assert read_secret("X", {"X_FILE": str(path)}) == "hidden"
    with pytest.raises(CommandError, match="the secret X can't be read"):
        read_secret("X", {"X_FILE": str(tmp_path / "none")})


def test_path_in_conf_is_the_users_own_or_what_came_with_ballast(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shipped(Path("conf/test.toml")) == CONF / "test.toml"
    assert load_settings(["conf/test.toml"]) == load_settings(["test"])
    assert shipped(Path("conf/none.toml")) == Path("conf/none.toml")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "test.toml").touch()
    assert shipped(Path("conf/test.toml")) == Path("conf/test.toml")


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


@pytest.mark.parametrize("servers", ["a:90x", "a:", "[::1", "a:1,b:port"])
def test_address_without_a_port_that_is_a_number_is_misuse(servers: str) -> None:
    with pytest.raises(MisuseError, match="Kafka's address can't be read"):
        kafka_address(Config(), servers)


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

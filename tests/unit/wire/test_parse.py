"""Each way in which bytes can fail to be a message has its reason, and good ones are read whole."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from lbcore.config.wire import Wire
from lbcore.model.resources import WIRE_NAMES
from lbcore.wire import envelope
from lbcore.wire.format import bundle_load_parts, format_message
from lbcore.wire.messages import (
    BrokerLoad,
    Heartbeat,
    Rejected,
    RejectReason,
    Tick,
    Topic,
)
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules
from tests.support.values.wire_messages import (
    BUNDLES,
    ENVELOPE,
    GOOD,
    RULES,
    STANDARD_RULES,
    TOPIC_OF,
    content,
)

Change = Callable[[dict[str, Any]], object]


def written(kind: str) -> tuple[Topic, bytes, dict[str, Any]]:
    topic, key, value = format_message(GOOD[kind])
    return topic, key, json.loads(value)


def changed(kind: str, change: Change) -> Any:
    """The good message of this kind, changed as JSON, and parsed again."""
    topic, key, fields = written(kind)
    change(fields)
    return parse(topic, key, json.dumps(fields).encode(), STANDARD_RULES)


def set_to(path: str, value: Any) -> Change:
    """Put a value at "a.b.0" of the JSON object."""

    def change(fields: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        place: Any = fields
        for name in parents:
            place = place[int(name) if isinstance(place, list) else name]
        place[int(last) if isinstance(place, list) else last] = value

    return change


def without(name: str) -> Change:
    return lambda fields: fields.pop(name)


@pytest.mark.parametrize("kind", GOOD)
@pytest.mark.parametrize("rules", [RULES, STANDARD_RULES], ids=["orjson", "json"])
def test_parse_of_a_formatted_message_gives_it_back(kind: str, rules: ParseRules) -> None:
    topic, key, value = format_message(GOOD[kind])
    assert topic is TOPIC_OF[kind]
    assert content(parse(topic, key, value, rules)) == content(GOOD[kind])


@pytest.mark.parametrize("kind", GOOD)
def test_parse_ignores_fields_that_it_does_not_know(kind: str) -> None:
    assert content(changed(kind, set_to("later", {"a": 1}))) == content(GOOD[kind])


def test_parse_of_an_envelope_alone_is_a_heartbeat() -> None:
    assert changed(
        "broker_load",
        lambda fields: [fields.pop(name) for name in set(fields) - set(written("heartbeat")[2])],
    ) == Heartbeat(envelope=ENVELOPE)


def test_parse_of_the_tick_key_is_a_tick() -> None:
    value = b'{"schema":1,"cluster":"east","tick":3}'
    assert parse(Topic.BROKER_LOAD, b"east/~tick", value, RULES) == Tick(cluster="east", number=3)


def test_parse_of_a_load_without_resources_leaves_them_unknown() -> None:
    def change(fields: dict[str, Any]) -> None:
        for name in WIRE_NAMES:
            fields.pop(name, None)

    load = changed("broker_load", change)
    assert isinstance(load, BrokerLoad)
    assert load.limit.tolist() == [-1.0] * len(WIRE_NAMES)


def test_parse_accepts_pulsars_unknown_resource() -> None:
    load = changed("broker_load", set_to("cpu", {"usage": -1.0, "limit": -1.0}))
    assert isinstance(load, BrokerLoad)
    assert (load.usage[0], load.limit[0]) == (-1.0, -1.0)


def test_parse_accepts_a_whole_number_with_a_decimal_point() -> None:
    assert content(changed("acks", set_to("seq", 7.0))) == content(GOOD["acks"])
    assert content(changed("bundle_load", set_to("bundles.topics", [3.0, 1.0]))) == content(
        GOOD["bundle_load"]
    )


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (b"local/b", None, RejectReason.NOT_JSON),
        (b"local/b", b"", RejectReason.NOT_JSON),
        (b"local/b", b"\xff\xfe{}", RejectReason.NOT_JSON),
        (b"local/b", '{"a":"\u00fc"}'.encode("latin-1"), RejectReason.NOT_JSON),
        (b"local/b", '{"schema":1}'.encode("utf-16"), RejectReason.NOT_JSON),
        (b"local/b", b"{", RejectReason.NOT_JSON),
        (b"local/b", b"[" * 100_000, RejectReason.NOT_JSON),
        (b"local/b", b"[]", RejectReason.NOT_AN_OBJECT),
        (b"local/b", b"null", RejectReason.NOT_AN_OBJECT),
        (b"local/b", b"3", RejectReason.NOT_AN_OBJECT),
        (b"local/b", b"{}", RejectReason.MISSING_FIELD),
        (b"local/b", b" " * 1_048_577, RejectReason.TOO_LARGE),
        (None, b'{"schema":1,"cluster":"local"}', RejectReason.KEY_MISMATCH),
        (b"", b'{"schema":1,"cluster":"local"}', RejectReason.KEY_MISMATCH),
        (b"\xff", b'{"schema":1,"cluster":"local"}', RejectReason.KEY_MISMATCH),
        (b"k" * 100_000, b'{"schema":1,"cluster":"local"}', RejectReason.TOO_LARGE),
    ],
)
def test_parse_of_bad_bytes_is_rejected(
    key: bytes | None, value: bytes | None, reason: RejectReason
) -> None:
    rejected = parse(Topic.BROKER_LOAD, key, value, STANDARD_RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail
    assert rejected.raw == (value or b"")
    assert rejected.detail


HUGE = 10**400

BAD: Mapping[str, list[tuple[Change, RejectReason]]] = {
    "heartbeat": [
        (set_to("schema", 0), RejectReason.UNKNOWN_SCHEMA),
        (set_to("schema", 2), RejectReason.UNKNOWN_SCHEMA),
        (set_to("schema", HUGE), RejectReason.OUT_OF_RANGE),
        (set_to("schema", value=True), RejectReason.WRONG_TYPE),
        (set_to("schema", "1"), RejectReason.WRONG_TYPE),
        (set_to("cluster", "west"), RejectReason.UNKNOWN_CLUSTER),
        (set_to("cluster", "east"), RejectReason.KEY_MISMATCH),
        (set_to("cluster", ["local"]), RejectReason.WRONG_TYPE),
        (set_to("cluster", ""), RejectReason.OUT_OF_RANGE),
        (set_to("broker", "other"), RejectReason.KEY_MISMATCH),
        (set_to("broker", "a/b"), RejectReason.OUT_OF_RANGE),
        (set_to("broker", "~tick"), RejectReason.OUT_OF_RANGE),
        (set_to("broker", "a b"), RejectReason.OUT_OF_RANGE),
        (set_to("broker", "b" * 513), RejectReason.TOO_LARGE),
        (set_to("broker", None), RejectReason.WRONG_TYPE),
        (without("broker"), RejectReason.MISSING_FIELD),
        (without("incarnation"), RejectReason.MISSING_FIELD),
        (set_to("incarnation", ""), RejectReason.OUT_OF_RANGE),
        (set_to("incarnation", 17), RejectReason.WRONG_TYPE),
        (set_to("incarnation", "\ud800"), RejectReason.WRONG_TYPE),
        (without("seq"), RejectReason.MISSING_FIELD),
        (set_to("seq", -1), RejectReason.NEGATIVE),
        (set_to("seq", 2**63), RejectReason.OUT_OF_RANGE),
        (set_to("seq", 1.5), RejectReason.WRONG_TYPE),
        (set_to("seq", float("nan")), RejectReason.NOT_FINITE),
        (set_to("seq", value=True), RejectReason.WRONG_TYPE),
        (without("reportedAt"), RejectReason.MISSING_FIELD),
    ],
    "tick": [
        (without("tick"), RejectReason.MISSING_FIELD),
        (set_to("tick", -1), RejectReason.NEGATIVE),
        (set_to("cluster", "east"), RejectReason.KEY_MISMATCH),
    ],
    "broker_load": [
        (without("msgRateIn"), RejectReason.MISSING_FIELD),
        (set_to("msgRateIn", -0.5), RejectReason.NEGATIVE),
        (set_to("msgRateIn", float("inf")), RejectReason.NOT_FINITE),
        (set_to("msgRateIn", float("nan")), RejectReason.NOT_FINITE),
        (set_to("msgRateIn", 1e19), RejectReason.OUT_OF_RANGE),
        (set_to("msgRateIn", HUGE), RejectReason.OUT_OF_RANGE),
        (set_to("msgRateIn", value=True), RejectReason.WRONG_TYPE),
        (set_to("msgRateIn", "1"), RejectReason.WRONG_TYPE),
        (set_to("msgRateIn", None), RejectReason.WRONG_TYPE),
        (set_to("cpu", 3), RejectReason.WRONG_TYPE),
        (set_to("cpu", {"usage": 1}), RejectReason.MISSING_FIELD),
        (set_to("cpu", {"limit": 1}), RejectReason.MISSING_FIELD),
        (set_to("cpu.usage", -1), RejectReason.NEGATIVE),
        (set_to("cpu.usage", value=False), RejectReason.WRONG_TYPE),
        (set_to("cpu.limit", float("nan")), RejectReason.NOT_FINITE),
        (set_to("cpu.limit", 1e-30), RejectReason.OUT_OF_RANGE),
        (set_to("numTopics", -1), RejectReason.NEGATIVE),
        (set_to("numTopics", 2**53 + 2), RejectReason.OUT_OF_RANGE),
        (set_to("webServiceUrl", 1), RejectReason.WRONG_TYPE),
        (set_to("webServiceUrl", "x" * 4_097), RejectReason.TOO_LARGE),
        (set_to("advertisedListeners", []), RejectReason.WRONG_TYPE),
        (set_to("advertisedListeners", {"a": 1}), RejectReason.WRONG_TYPE),
        (set_to("advertisedListeners", {"a": {"b": 1}}), RejectReason.WRONG_TYPE),
        (
            set_to("advertisedListeners", {str(n): {} for n in range(101)}),
            RejectReason.TOO_LARGE,
        ),
        (set_to("labels.capacity", 0), RejectReason.OUT_OF_RANGE),
        (set_to("labels.capacity", -1), RejectReason.NEGATIVE),
        (set_to("labels.failureDomain", 1), RejectReason.WRONG_TYPE),
        (set_to("draining", "yes"), RejectReason.WRONG_TYPE),
        (set_to("draining", 1), RejectReason.WRONG_TYPE),
        (set_to("msgRateOffered", -1), RejectReason.NEGATIVE),
        (set_to("msgRateOffered", float("nan")), RejectReason.NOT_FINITE),
        (set_to("msgRateOffered", float("inf")), RejectReason.NOT_FINITE),
        (set_to("msgRateOffered", 1e19), RejectReason.OUT_OF_RANGE),
        (set_to("msgRateOffered", None), RejectReason.WRONG_TYPE),
    ],
    "bundle_load": [
        (without("part"), RejectReason.MISSING_FIELD),
        (set_to("part", 2), RejectReason.BAD_PART),
        (set_to("parts", 0), RejectReason.BAD_PART),
        (set_to("parts", 1_001), RejectReason.BAD_PART),
        (set_to("part", -1), RejectReason.NEGATIVE),
        (without("bundles"), RejectReason.MISSING_FIELD),
        (set_to("bundles", []), RejectReason.WRONG_TYPE),
        (set_to("bundles.name", "x"), RejectReason.WRONG_TYPE),
        (set_to("bundles.name.0", 5), RejectReason.WRONG_TYPE),
        (set_to("bundles.name.0", ""), RejectReason.OUT_OF_RANGE),
        (set_to("bundles.name.0", "a/b/" + "0" * 600), RejectReason.TOO_LARGE),
        (set_to("bundles.name.0", BUNDLES[1]), RejectReason.DUPLICATE_BUNDLE),
        (set_to("bundles.name.0", "acme/orders"), RejectReason.MALFORMED_BUNDLE),
        (
            set_to("bundles.name.0", "acme/orders/0x80000000_0x80000000"),
            RejectReason.MALFORMED_BUNDLE,
        ),
        (
            set_to("bundles.name.0", "acme/orders/0x80000000_0x00000000"),
            RejectReason.MALFORMED_BUNDLE,
        ),
        (
            set_to("bundles.name.0", "acme/orders/0x0000000A_0x80000000"),
            RejectReason.MALFORMED_BUNDLE,
        ),
        (
            set_to("bundles.name.0", BUNDLES[0] + "\n" + BUNDLES[1]),
            RejectReason.MALFORMED_BUNDLE,
        ),
        (set_to("bundles.name.0", BUNDLES[0] + "\n"), RejectReason.MALFORMED_BUNDLE),
        (
            set_to("bundles.name.0", "acme/o ders/0x00000000_0x80000000"),
            RejectReason.MALFORMED_BUNDLE,
        ),
        (set_to("bundles.name", [BUNDLES[0]]), RejectReason.UNEQUAL_LENGTHS),
        (set_to("bundles.topics", [1]), RejectReason.UNEQUAL_LENGTHS),
        (set_to("bundles.topics", [1, 1.5]), RejectReason.WRONG_TYPE),
        (set_to("bundles.topics", [1, True]), RejectReason.WRONG_TYPE),
        (set_to("bundles.topics", [1, -1]), RejectReason.NEGATIVE),
        (set_to("bundles.topics", [1, 1e19]), RejectReason.OUT_OF_RANGE),
        (set_to("bundles.msgRateIn", [1, None]), RejectReason.WRONG_TYPE),
        (set_to("bundles.msgRateIn", [1, "1.5"]), RejectReason.WRONG_TYPE),
        (set_to("bundles.msgRateIn", [1, [1]]), RejectReason.WRONG_TYPE),
        (set_to("bundles.msgRateIn", [1, False]), RejectReason.WRONG_TYPE),
        (set_to("bundles.msgRateIn", [1, HUGE]), RejectReason.OUT_OF_RANGE),
        (set_to("bundles.msgRateIn", [1, -1e-9]), RejectReason.NEGATIVE),
        (set_to("bundles.msgRateIn", [1, float("nan")]), RejectReason.NOT_FINITE),
        (set_to("bundles.msgRateIn", [1, float("-inf")]), RejectReason.NOT_FINITE),
        (set_to("bundles.name", [f"b{n}" for n in range(5_001)]), RejectReason.TOO_LARGE),
    ],
    "topic_load": [
        (set_to("bundle", BUNDLES[1]), RejectReason.KEY_MISMATCH),
        (set_to("bundle", "x"), RejectReason.MALFORMED_BUNDLE),
        (set_to("topics.name", ["a", "a"]), RejectReason.DUPLICATE_TOPIC),
        (set_to("topics.name", ["a"]), RejectReason.UNEQUAL_LENGTHS),
        (set_to("topics.msgRateOut", [1, -1]), RejectReason.NEGATIVE),
    ],
    "acks": [
        (without("acks"), RejectReason.MISSING_FIELD),
        (set_to("acks", {}), RejectReason.WRONG_TYPE),
        (set_to("acks.0", 3), RejectReason.WRONG_TYPE),
        (set_to("acks.0.bundle", "x"), RejectReason.MALFORMED_BUNDLE),
        (set_to("acks.0.versionId", 0), RejectReason.OUT_OF_RANGE),
        (set_to("acks.0.versionId", 2**63), RejectReason.OUT_OF_RANGE),
        (set_to("acks.0.outcome", "eaten"), RejectReason.OUT_OF_RANGE),
        (set_to("acks.0.reason", 3), RejectReason.WRONG_TYPE),
    ],
    "command": [
        (without("command_id"), RejectReason.MISSING_FIELD),
        (set_to("command_id", ""), RejectReason.OUT_OF_RANGE),
        (without("kind"), RejectReason.MISSING_FIELD),
        (set_to("arguments", [1]), RejectReason.WRONG_TYPE),
        (set_to("arguments", {"x": [float("nan")]}), RejectReason.WRONG_TYPE),
        (set_to("arguments", {"x": "\ud800"}), RejectReason.WRONG_TYPE),
        (set_to("timeout_ms", -1), RejectReason.NEGATIVE),
        (set_to("timeout_ms", 86_400_001), RejectReason.OUT_OF_RANGE),
        (set_to("cluster", "east"), RejectReason.KEY_MISMATCH),
    ],
    "audit": [
        (without("action"), RejectReason.MISSING_FIELD),
        (set_to("is_allowed", "no"), RejectReason.WRONG_TYPE),
    ],
}


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [(kind, change, reason) for kind, cases in BAD.items() for change, reason in cases],
)
def test_parse_of_a_spoilt_message_names_the_reason(
    kind: str, change: Change, reason: RejectReason
) -> None:
    rejected = changed(kind, change)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail
    assert rejected.cluster == "local"


def test_parse_of_a_key_of_another_broker_is_a_mismatch() -> None:
    topic, _, value = format_message(GOOD["broker_load"])
    rejected = parse(topic, b"local/broker-2:8080", value, RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.KEY_MISMATCH
    assert "broker-1:8080" in rejected.detail


def test_parse_of_a_key_of_an_unknown_cluster_leaves_the_cluster_open() -> None:
    rejected = parse(Topic.COMMANDS, b"west", b"[]", RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.cluster == ""


def test_parse_reads_the_schema_before_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _, key, value = format_message(GOOD["heartbeat"])
    monkeypatch.setattr(envelope, "SCHEMA", 2)
    assert parse(Topic.BROKER_LOAD, key, value, RULES) == GOOD["heartbeat"]
    monkeypatch.setattr(envelope, "SCHEMA", 3)
    monkeypatch.setattr(envelope, "OLDEST_SCHEMA", 2)
    rejected = parse(Topic.BROKER_LOAD, key, value, RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.UNKNOWN_SCHEMA


def test_parse_of_a_refused_value_nested_deeply_does_not_raise() -> None:
    nested = b'{"schema":' + b"[" * 900 + b"]" * 900 + b"}"
    rejected = parse(Topic.BROKER_LOAD, b"local/b", nested, RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.WRONG_TYPE


def test_bundle_load_parts_share_the_envelope_and_hold_every_bundle() -> None:
    names = tuple(f"a/b/0x{n:08x}_0x{n + 1:08x}" for n in range(10))
    stats = np.arange(80.0).reshape(10, 8)
    parts = bundle_load_parts(ENVELOPE, names, stats, 4)
    assert [(part.part, part.parts, len(part.names)) for part in parts] == [
        (0, 3, 4),
        (1, 3, 4),
        (2, 3, 2),
    ]
    assert sum((part.names for part in parts), ()) == names
    assert np.vstack([part.stats for part in parts]).tolist() == stats.tolist()


def test_bundle_load_parts_of_no_bundles_is_one_empty_part() -> None:
    (part,) = bundle_load_parts(ENVELOPE, (), np.zeros((0, 8)), 4)
    assert (part.part, part.parts, part.names) == (0, 1, ())


def test_limits_are_the_settings_of_the_wire() -> None:
    rules = ParseRules(clusters=RULES.clusters, limits=Wire(max_bundles_per_message=1))
    topic, key, value = format_message(GOOD["bundle_load"])
    rejected = parse(topic, key, value, rules)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.TOO_LARGE

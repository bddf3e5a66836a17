"""Wire messages: parse errors, bad rows, commands, plain text."""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.model.names import Wire
from lbcore.wire import fields
from lbcore.wire.fields import ParseRules
from lbcore.wire.format import bundle_load_parts, format_message
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Rejected,
    RejectReason,
    Topic,
    TopicLoad,
)
from lbcore.wire.parse import parse, parse_rows
from tests.support.values.wire_messages import (
    BUNDLES,
    ENVELOPE,
    GOOD,
    RULES,
    STANDARD_RULES,
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
def test_parse_ignores_fields_of_later_versions(kind: str) -> None:
    assert content(changed(kind, set_to("later", {"a": 1}))) == content(GOOD[kind])


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
        (set_to("bundles.name.0", ""), RejectReason.OUT_OF_RANGE),
        (set_to("bundles.name.0", "a/b/" + "0" * 600), RejectReason.TOO_LARGE),
        (set_to("bundles.name.0", BUNDLES[1]), RejectReason.DUPLICATE_BUNDLE),
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
        (set_to("bundles.topics", [1, 1e19]), RejectReason.OUT_OF_RANGE),
        (set_to("bundles.msgRateIn", [1, "1.5"]), RejectReason.WRONG_TYPE),
        (set_to("bundles.msgRateIn", [1, -1e-9]), RejectReason.NEGATIVE),
        (set_to("bundles.name", [f"b{n}" for n in range(5_001)]), RejectReason.TOO_LARGE),
    ],
    "topic_load": [
        (set_to("bundle", BUNDLES[1]), RejectReason.KEY_MISMATCH),
        (set_to("bundle", "x"), RejectReason.MALFORMED_BUNDLE),
        (set_to("topics.name", ["a", "a"]), RejectReason.DUPLICATE_TOPIC),
        (set_to("topics.name", ["a"]), RejectReason.UNEQUAL_LENGTHS),
    ],
    "acks": [
        (without("acks"), RejectReason.MISSING_FIELD),
        (set_to("acks", {}), RejectReason.WRONG_TYPE),
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
    monkeypatch.setattr(fields, "SCHEMA", 2)
    assert parse(Topic.BROKER_LOAD, key, value, RULES) == GOOD["heartbeat"]
    monkeypatch.setattr(fields, "SCHEMA", 3)
    monkeypatch.setattr(fields, "OLDEST_SCHEMA", 2)
    rejected = parse(Topic.BROKER_LOAD, key, value, RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.UNKNOWN_SCHEMA


def test_parse_of_a_refused_value_nested_deeply_does_not_raise() -> None:
    nested = b'{"schema":' + b"[" * 900 + b"]" * 900 + b"}"
    rejected = parse(Topic.BROKER_LOAD, b"local/b", nested, RULES)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.WRONG_TYPE


def test_bundle_load_parts_share_the_envelope_and_hold_every_bundle_or_none() -> None:
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
    (part,) = bundle_load_parts(ENVELOPE, (), np.zeros((0, 8)), 4)
    assert (part.part, part.parts, part.names) == (0, 1, ())


def test_limits_are_the_settings_of_the_wire() -> None:
    rules = ParseRules(clusters=RULES.clusters, limits=Wire(max_bundles_per_message=1))
    topic, key, value = format_message(GOOD["bundle_load"])
    rejected = parse(topic, key, value, rules)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.TOO_LARGE


ENVELOPE_OF_ROWS = Envelope(
    cluster="local", broker="b-1:8080", incarnation="i", seq=4, reported_at_ms=1_000
)
ROWS = 8
BUNDLES_OF_ROWS = tuple(f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(ROWS))
MESSAGES: dict[Topic, Any] = {
    Topic.ACKS: Acks(
        envelope=ENVELOPE_OF_ROWS,
        acks=tuple(Ack(bundle=b, version_id=1, outcome=AckOutcome.OPENED) for b in BUNDLES_OF_ROWS),
    ),
    Topic.BUNDLE_LOAD: BundleLoad(
        envelope=ENVELOPE_OF_ROWS,
        part=0,
        parts=1,
        names=BUNDLES_OF_ROWS,
        stats=np.arange(ROWS * 8, dtype=np.float64).reshape(ROWS, 8),
    ),
    Topic.TOPIC_LOAD: TopicLoad(
        envelope=ENVELOPE_OF_ROWS,
        bundle=BUNDLES_OF_ROWS[0],
        topics=tuple(f"persistent://t/n/{at}" for at in range(ROWS)),
        traffic=np.arange(ROWS * 4, dtype=np.float64).reshape(ROWS, 4),
    ),
}


def put(table: str, column: str, value: Any) -> Callable[[Any, int], None]:
    def spoil(message: Any, row: int) -> None:
        message[table][column][row] = value

    return spoil


def put_ack(**fields: Any) -> Callable[[Any, int], None]:
    return lambda message, row: message["acks"][row].update(fields)


def put_item(value: Any) -> Callable[[Any, int], None]:
    def spoil(message: Any, row: int) -> None:
        message["acks"][row] = value

    return spoil


SPOILT: list[tuple[Topic, Callable[[Any, int], None], RejectReason]] = [
    (Topic.ACKS, put_ack(reason="x" * 4_097), RejectReason.TOO_LARGE),
    (Topic.ACKS, put_ack(bundle="t/n"), RejectReason.MALFORMED_BUNDLE),
    (Topic.ACKS, put_ack(bundle="t/n/0x00000001_0x00000000"), RejectReason.MALFORMED_BUNDLE),
    (Topic.ACKS, put_ack(versionId=HUGE), RejectReason.OUT_OF_RANGE),
    (Topic.ACKS, put_ack(versionId=True), RejectReason.WRONG_TYPE),
    (Topic.ACKS, put_ack(versionId=float("nan")), RejectReason.NOT_FINITE),
    (Topic.ACKS, put_ack(outcome=["opened"]), RejectReason.WRONG_TYPE),
    (Topic.ACKS, put_ack(reason="\ud800"), RejectReason.WRONG_TYPE),
    (Topic.ACKS, put_item(None), RejectReason.WRONG_TYPE),
    (Topic.ACKS, put_item([[[]]]), RejectReason.WRONG_TYPE),
    (Topic.BUNDLE_LOAD, put("bundles", "name", 7), RejectReason.WRONG_TYPE),
    (Topic.BUNDLE_LOAD, put("bundles", "name", "t/n"), RejectReason.MALFORMED_BUNDLE),
    (Topic.BUNDLE_LOAD, put("bundles", "msgRateIn", float("nan")), RejectReason.NOT_FINITE),
    (Topic.BUNDLE_LOAD, put("bundles", "msgRateIn", float("inf")), RejectReason.NOT_FINITE),
    (Topic.BUNDLE_LOAD, put("bundles", "msgRateIn", HUGE), RejectReason.OUT_OF_RANGE),
    (Topic.BUNDLE_LOAD, put("bundles", "topics", 1.5), RejectReason.WRONG_TYPE),
    (Topic.BUNDLE_LOAD, put("bundles", "topics", value=True), RejectReason.WRONG_TYPE),
    (Topic.BUNDLE_LOAD, put("bundles", "cacheSize", {}), RejectReason.WRONG_TYPE),
    (Topic.TOPIC_LOAD, put("topics", "name", ""), RejectReason.OUT_OF_RANGE),
    (Topic.TOPIC_LOAD, put("topics", "msgRateOut", -1), RejectReason.NEGATIVE),
    (Topic.TOPIC_LOAD, put("topics", "msgRateOut", None), RejectReason.WRONG_TYPE),
]


def spoilt(topic: Topic, spoil: Callable[[Any, int], None], *rows: int) -> tuple[bytes, bytes]:
    _, key, value = format_message(MESSAGES[topic])
    message = json.loads(value)
    for row in rows:
        spoil(message, row)
    return key, json.dumps(message).encode()


def without_rows(topic: Topic, *rows: int) -> Any:
    kept = [row for row in range(ROWS) if row not in rows]
    message = MESSAGES[topic]
    if isinstance(message, Acks):
        return replace(message, acks=tuple(message.acks[row] for row in kept))
    if isinstance(message, BundleLoad):
        names = tuple(message.names[row] for row in kept)
        return replace(message, names=names, stats=message.stats[kept])
    topics = tuple(message.topics[row] for row in kept)
    return replace(message, topics=topics, traffic=message.traffic[kept])


@pytest.mark.parametrize("rows", [(0,), (3, 7), tuple(range(ROWS))], ids=["one", "two", "all"])
@pytest.mark.parametrize(("topic", "spoil", "reason"), SPOILT)
def test_a_bad_row_is_refused_and_the_others_are_read(
    topic: Topic, spoil: Callable[[Any, int], None], reason: RejectReason, rows: tuple[int, ...]
) -> None:
    key, value = spoilt(topic, spoil, *rows)
    strictly = parse(topic, key, value, STANDARD_RULES)
    assert isinstance(strictly, Rejected)
    found = parse_rows(topic, key, value, STANDARD_RULES)
    assert not isinstance(found, Rejected)
    assert format_message(found) == format_message(without_rows(topic, *rows))
    refused = found.refused  # type: ignore[union-attr]
    assert [one.reason for one in refused] == [reason] * len(rows)
    assert [one.detail.partition(":")[0] for one in refused] == [f"row {row}" for row in rows]
    assert {one.cluster for one in refused} == {"local"}
    assert all(one.raw for one in refused)


@pytest.mark.parametrize("topic", [Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD])
def test_of_a_name_that_comes_twice_the_first_row_counts(topic: Topic) -> None:
    table = "bundles" if topic is Topic.BUNDLE_LOAD else "topics"
    _, key, value = format_message(MESSAGES[topic])
    message = json.loads(value)
    message[table]["name"][5] = message[table]["name"][2]
    found = parse_rows(topic, key, json.dumps(message).encode(), STANDARD_RULES)
    assert not isinstance(found, Rejected)
    assert format_message(found) == format_message(without_rows(topic, 5))


@pytest.mark.parametrize("topic", sorted(MESSAGES))
def test_a_message_that_is_wrong_as_a_whole_is_refused_whole(topic: Topic) -> None:
    _, key, value = format_message(MESSAGES[topic])
    message = json.loads(value)
    table = {Topic.ACKS: "acks", Topic.BUNDLE_LOAD: "bundles"}.get(topic, "topics")
    wrong = [
        {**message, "schema": 99},
        {**message, "seq": HUGE},
        {**message, table: 3},
        {name: part for name, part in message.items() if name != table},
    ]
    if topic is not Topic.ACKS:
        columns = message[table]
        wrong.append({**message, table: {**columns, "msgRateIn": columns["msgRateIn"][1:]}})
    for one in wrong:
        sent = json.dumps(one).encode()
        strictly = parse(topic, key, sent, STANDARD_RULES)
        assert isinstance(strictly, Rejected)
        assert parse_rows(topic, key, sent, STANDARD_RULES) == strictly
    other = parse_rows(topic, b"local/other", value, STANDARD_RULES)
    assert isinstance(other, Rejected)
    assert other.reason is RejectReason.KEY_MISMATCH


@pytest.mark.parametrize("topic", [Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD])
def test_rows_of_a_message_that_has_too_many_are_not_tried(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, key, value = format_message(MESSAGES[topic])
    message = json.loads(value)
    table = "bundles" if topic is Topic.BUNDLE_LOAD else "topics"
    message[table] = {name: column[:1] * 10_001 for name, column in message[table].items()}
    monkeypatch.setattr("lbcore.wire.parse._check_row", lambda *_: pytest.fail("a row was tried"))
    found = parse_rows(topic, key, json.dumps(message).encode(), STANDARD_RULES)
    assert isinstance(found, Rejected)
    assert found.reason is RejectReason.TOO_LARGE


def test_of_many_bad_rows_some_are_told_and_the_rest_is_counted() -> None:
    _, key, value = format_message(MESSAGES[Topic.ACKS])
    message = json.loads(value)
    message["acks"] = [{**message["acks"][0], "versionId": -at} for at in range(100)]
    found = parse_rows(Topic.ACKS, key, json.dumps(message).encode(), STANDARD_RULES)
    assert isinstance(found, Acks)
    assert found.acks == ()
    assert len(found.refused) == 21
    assert found.refused[-1].detail.startswith("80 more rows")


def test_every_character_there_is_can_be_sent_as_a_reason() -> None:
    limits = Wire(max_text_chars=256, max_bundles_per_message=100_000, max_message_bytes=16_777_216)
    chars = [chr(code) * 3 for code in range(0, sys.maxunicode + 1, 97)] + [chr(0xDCFF)]
    sent = acks_of([*chars, "x" * 5_000, "\x00" * 5_000])
    parsed = parse(*format_message(sent), ParseRules(clusters=frozenset("c"), limits=limits))
    assert isinstance(parsed, Acks), parsed
    assert len(parsed.acks) == len(sent.acks)


def acks_of(reasons: list[str]) -> Acks:
    acks = tuple(
        Ack(
            bundle=f"t/n/{number:#010x}_0xffffffff",
            version_id=1,
            outcome=AckOutcome.FAILED,
            reason=reason,
        )
        for number, reason in enumerate(reasons)
    )
    return Acks(envelope=envelope_plain_text(), acks=acks)


def envelope_plain_text() -> Envelope:
    return Envelope(cluster="c", broker="b", incarnation="i", seq=1, reported_at_ms=1)

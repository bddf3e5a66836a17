"""A bad row of a message is refused by itself; the others are read as if it had not been there."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.wire.format import format_message
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    BundleLoad,
    Envelope,
    Rejected,
    RejectReason,
    Topic,
    TopicLoad,
)
from lbcore.wire.parse import parse, parse_rows
from tests.support.values.wire_messages import STANDARD_RULES

ENVELOPE = Envelope(
    cluster="local", broker="b-1:8080", incarnation="i", seq=4, reported_at_ms=1_000
)
ROWS = 8
BUNDLES = tuple(f"t/n/0x{at:08x}_0x{at + 1:08x}" for at in range(ROWS))
MESSAGES: dict[Topic, Any] = {
    Topic.ACKS: Acks(
        envelope=ENVELOPE,
        acks=tuple(Ack(bundle=b, version_id=1, outcome=AckOutcome.OPENED) for b in BUNDLES),
    ),
    Topic.BUNDLE_LOAD: BundleLoad(
        envelope=ENVELOPE,
        part=0,
        parts=1,
        names=BUNDLES,
        stats=np.arange(ROWS * 8, dtype=np.float64).reshape(ROWS, 8),
    ),
    Topic.TOPIC_LOAD: TopicLoad(
        envelope=ENVELOPE,
        bundle=BUNDLES[0],
        topics=tuple(f"persistent://t/n/{at}" for at in range(ROWS)),
        traffic=np.arange(ROWS * 4, dtype=np.float64).reshape(ROWS, 4),
    ),
}
HUGE = 10**400


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


def without(topic: Topic, *rows: int) -> Any:
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
    assert format_message(found) == format_message(without(topic, *rows))
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
    assert format_message(found) == format_message(without(topic, 5))


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


def test_of_many_bad_rows_some_are_told_and_the_rest_is_counted() -> None:
    _, key, value = format_message(MESSAGES[Topic.ACKS])
    message = json.loads(value)
    message["acks"] = [{**message["acks"][0], "versionId": -at} for at in range(100)]
    found = parse_rows(Topic.ACKS, key, json.dumps(message).encode(), STANDARD_RULES)
    assert isinstance(found, Acks)
    assert found.acks == ()
    assert len(found.refused) == 21
    assert found.refused[-1].detail.startswith("80 more rows")


def test_a_good_message_is_what_the_strict_parser_reads() -> None:
    for topic, good in MESSAGES.items():
        _, key, value = format_message(good)
        found: Any = parse_rows(topic, key, value, STANDARD_RULES)
        assert found.refused == ()
        assert format_message(found) == (topic, key, value)

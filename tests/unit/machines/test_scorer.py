"""BrokerScorer: what is accepted, late, repeated, rejected; how parts become a report."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.config.tree import Config
from lbcore.model.resources import COUNT, complete
from lbcore.scorer.broker_states import (
    REFUSED_BYTES_PER_BATCH,
    REFUSED_PER_BATCH,
    REFUSED_RAW_BYTES,
    REINSTATED_AFTER_MS,
    RawMessage,
    ScorerState,
)
from lbcore.scorer.group_update import GroupUpdate, pack_update, unpack_update
from lbcore.scorer.scorer import BrokerScorer, parser_of
from lbcore.wire.format import format_message
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Heartbeat,
    Message,
    Position,
    RejectReason,
    TopicLoad,
)

SCORER = BrokerScorer(Config(), cluster="local", group=0, parse=parser_of(Config(), json.loads))
BUNDLES = ("t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff")


def envelope(seq: int, incarnation: str = "one", broker: str = "b") -> Envelope:
    return Envelope(
        cluster="local", broker=broker, incarnation=incarnation, seq=seq, reported_at_ms=0
    )


def load(seq: int, cpu: float, incarnation: str = "one") -> BrokerLoad:
    return BrokerLoad(
        envelope=envelope(seq, incarnation),
        usage=np.array(complete([cpu])),
        limit=np.full(COUNT, 100.0),
        traffic=np.array([1.0, 2.0, 3.0, 4.0]),
    )


def part(seq: int, number: int, parts: int) -> BundleLoad:
    stats = np.arange(8, dtype=np.float64)[np.newaxis] + number
    return BundleLoad(
        envelope=envelope(seq), part=number, parts=parts, names=(BUNDLES[number],), stats=stats
    )


def hello(seq: int = 1, incarnation: str = "one") -> Heartbeat:
    return Heartbeat(envelope=envelope(seq, incarnation))


def raw(message: Message, offset: int) -> RawMessage:
    topic, key, value = format_message(message)
    at = Position(topic=topic.value, partition=0, offset=offset, timestamp_ms=1_000 + offset)
    return RawMessage(position=at, key=key, value=value)


def take(
    messages: Sequence[Message], state: ScorerState | None = None, first: int = 0
) -> tuple[ScorerState | None, GroupUpdate]:
    events = [raw(message, first + i) for i, message in enumerate(messages)]
    step = SCORER.step(state, events, 0)
    return step.state, step.effects[0]


def test_report_with_a_seen_seq_is_a_duplicate_and_changes_nothing() -> None:
    _, update = take([load(1, 50.0), load(1, 100.0)])
    assert update.counts == {"accepted": 1, "duplicate": 1}
    assert update.loads[0].weighted_max_ema == 0.5


def test_report_of_a_superseded_incarnation_is_late_and_no_sign_of_life() -> None:
    messages = [load(9, 50.0, "one"), load(1, 60.0, "two"), load(10, 70.0, "one")]
    _, update = take(messages)
    assert update.incarnations == ("two",)
    assert update.counts == {"accepted": 2, "late": 1}
    assert len(update.arrivals.offset) == 2


def test_events_in_another_order_give_the_same_update() -> None:
    events = [raw(load(i, 10.0 * i), i) for i in range(1, 5)]
    there = SCORER.step(None, events, 0)
    back = SCORER.step(None, events[::-1], 0)
    assert SCORER.pack(there.state) == SCORER.pack(back.state)  # type: ignore[arg-type]


def test_parts_that_wait_survive_packing() -> None:
    state, _ = take([hello(), part(1, 0, 2)])
    assert state is not None
    _, update = take([part(1, 1, 2)], SCORER.unpack(SCORER.pack(state)), first=2)
    assert len(update.bundles[0].names) == 2


def test_part_whose_fellow_never_comes_is_rejected_with_its_bytes() -> None:
    messages = [part(1, 0, 2), part(2, 0, 2), part(2, 1, 2)]
    _, update = take([*messages, hello()])
    (rejected,) = update.rejected
    assert rejected.rejected.reason is RejectReason.MISSING_PART
    assert rejected.rejected.raw == raw(messages[0], 0).value
    assert rejected.position.offset == 0
    assert len(update.bundles) == 1


def test_part_that_comes_twice_is_a_duplicate() -> None:
    state, _ = take([hello()])
    parts = [part(1, 0, 2), part(1, 0, 2), part(1, 1, 2), part(1, 1, 2)]
    _, update = take(parts, state, first=1)
    assert update.counts == {"accepted": 2, "duplicate": 2}
    assert len(update.bundles) == 1


def test_part_of_a_start_that_is_over_is_rejected() -> None:
    state, _ = take([hello(), part(1, 0, 2)])
    _, update = take([hello(1, "two")], state, first=2)
    assert [one.rejected.reason for one in update.rejected] == [RejectReason.MISSING_PART]


def test_echo_of_an_older_start_wins_only_until_the_living_one_has_outlived_it() -> None:
    state, _ = take([hello(1, "new")], first=1)
    state, echo = take([hello(1, "old")], state, first=2)
    state, refused = take([hello(2, "new")], state, first=3)
    _, reinstated = take([hello(3, "new")], state, first=3 + REINSTATED_AFTER_MS)
    assert [u.incarnations for u in (echo, refused, reinstated)] == [("old",), (), ("new",)]


def test_echo_that_kafka_stamped_in_the_future_wins_no_longer_than_another() -> None:
    hour_ms = 3_600_000
    state, _ = take([hello(1, "new")], first=hour_ms)
    state, echo = take([hello(1, "old")], state, first=hour_ms + 2)
    state, refused = take([hello(2, "new")], state, first=3)  # Kafka's clock was set right
    _, reinstated = take([hello(3, "new")], state, first=4 + REINSTATED_AFTER_MS)
    assert [u.incarnations for u in (echo, refused, reinstated)] == [("old",), (), ("new",)]


def test_bad_rows_of_a_message_that_counts_are_refused_once_and_the_others_count() -> None:
    acks = Acks(
        envelope=envelope(1),
        acks=tuple(Ack(bundle=b, version_id=1, outcome=AckOutcome.OPENED) for b in BUNDLES),
    )
    good = raw(acks, 1)
    assert good.value is not None
    message = json.loads(good.value)
    message["acks"][0]["reason"] = "x" * 5_000
    bad = replace(good, value=json.dumps(message).encode())
    again = replace(bad, position=replace(bad.position, offset=2))
    update: Any = SCORER.step(None, [raw(hello(), 0), bad, again], 0).effects[0]
    (placed,) = update.messages
    assert [ack.bundle for ack in placed.message.acks] == [BUNDLES[1]]
    (refused,) = update.rejected
    assert refused.rejected.reason is RejectReason.TOO_LARGE
    assert update.counts == {"accepted": 2, "duplicate": 1, "rejected": 1}
    assert unpack_update(pack_update(update)).rejected == update.rejected


def test_a_bundle_report_goes_on_without_its_bad_rows_though_they_waited_for_other_parts() -> None:
    first, second = raw(part(1, 0, 2), 1), raw(part(1, 1, 2), 2)
    assert first.value is not None
    message = json.loads(first.value)
    message["bundles"]["name"][0] = "no bundle"
    bad = replace(first, value=json.dumps(message).encode())
    state = SCORER.step(None, [raw(hello(), 0), bad], 0).state
    update: Any = SCORER.step(state, [second], 0).effects[0]
    assert list(update.bundles[0].names) == [BUNDLES[1]]
    assert update.rejected == ()


def test_bad_rows_of_a_report_on_topics_are_refused_and_the_others_pass() -> None:
    topics = ("persistent://t/n/a", "persistent://t/n/b")
    report = TopicLoad(
        envelope=envelope(1), bundle=BUNDLES[0], topics=topics, traffic=np.ones((2, 4))
    )
    good = raw(report, 1)
    assert good.value is not None
    message = json.loads(good.value)
    message["topics"]["msgRateIn"][0] = -1
    bad = replace(good, value=json.dumps(message).encode())
    update: Any = SCORER.step(None, [bad], 0).effects[0]
    (placed,) = update.messages
    assert placed.message.topics == topics[1:]
    assert [one.rejected.reason for one in update.rejected] == [RejectReason.NEGATIVE]


def garbage(count: int, size: int) -> list[RawMessage]:
    return [
        RawMessage(
            position=Position(topic="broker-load", partition=0, offset=n, timestamp_ms=1_000),
            key=b"local/b",
            value=b"x" * size,
        )
        for n in range(count)
    ]


def test_refused_messages_are_kept_in_part_and_beyond_a_number_and_a_size_counted() -> None:
    update = SCORER.step(None, garbage(REFUSED_PER_BATCH + 500, 10), 0).effects[0]
    assert len(update.rejected) == REFUSED_PER_BATCH
    assert update.not_kept == {"broker-load:not_json": 500}
    assert update.counts == {"rejected": REFUSED_PER_BATCH + 500}
    assert unpack_update(pack_update(update)).not_kept == update.not_kept
    update = SCORER.step(None, garbage(600, 100_000), 0).effects[0]
    raws = [message.rejected.raw for message in update.rejected]
    assert {len(found) for found in raws} == {REFUSED_RAW_BYTES}
    assert sum(map(len, raws)) <= REFUSED_BYTES_PER_BATCH + REFUSED_RAW_BYTES
    assert len(raws) + update.not_kept["broker-load:not_json"] == 600
    assert "of its 100000 bytes 16384 are kept" in update.rejected[0].rejected.detail


def test_record_that_the_source_did_not_read_is_refused_for_what_the_source_says() -> None:
    at = Position(topic="acks", partition=1, offset=9, timestamp_ms=1_000)
    refusal = "too_large offset 9: the record has 700000000 bytes"
    event = RawMessage(position=at, key=b"local/evil", value=b"xx", refusal=refusal)
    (found,) = SCORER.step(None, [event], 0).effects[0].rejected
    assert found.position == at
    assert found.rejected.reason is RejectReason.TOO_LARGE
    assert found.rejected.detail == "offset 9: the record has 700000000 bytes"
    assert (found.rejected.cluster, found.rejected.raw) == ("local", b"xx")


def test_parts_of_reports_that_became_whole_no_longer_count_as_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lbcore.scorer.scorer.PENDING_BYTES", 2_000)
    messages = [part(seq, number, 2) for seq in range(1, 20) for number in (0, 1)]
    events = [raw(Heartbeat(envelope=envelope(1)), 0)]
    events += [raw(message, 1 + n) for n, message in enumerate(messages)]
    waiting = [len(event.value or b"") for event in events[1::2]]
    assert max(waiting) < 2_000 < sum(waiting)
    (update,) = SCORER.step(None, events, 0).effects
    assert update.rejected == ()
    assert update.counts["accepted"] == len(events)


def test_parts_that_wait_are_bounded_and_the_broker_with_most_gives_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lbcore.scorer.scorer.PENDING_BYTES", 2_000)

    def waiting(broker: str, number: int, offset: int) -> RawMessage:
        message = replace(part(1, number % 2, 100), envelope=envelope(1, broker=broker))
        return raw(replace(message, part=number), offset)

    starts = [Heartbeat(envelope=envelope(1, broker=name)) for name in ("good", "evil")]
    events = [raw(message, n) for n, message in enumerate(starts)]
    events += [waiting("good", 0, 2), *(waiting("evil", n, 3 + n) for n in range(20))]
    step = SCORER.step(None, events, 0)
    assert step.state is not None
    sizes = {name: one.pending_bytes for name, one in step.state.items()}
    assert sizes["good"] > 0
    assert sum(sizes.values()) <= 2_000
    found = step.effects[0].rejected
    assert {message.rejected.reason for message in found} == {RejectReason.MISSING_PART}
    assert len(found) > 5

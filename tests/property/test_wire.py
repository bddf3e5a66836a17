"""Whatever the bytes are, parse answers; and what format writes, parse reads back."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.model.names import InvalidNameError, format_bundle, parse_bundle
from lbcore.model.resources import COUNT
from lbcore.wire.fields import MIN_TRAFFIC, FieldRefusal, check_bundles
from lbcore.wire.format import format_message, plain_text
from lbcore.wire.messages import (
    NOT_REPORTED,
    Ack,
    AckOutcome,
    Acks,
    BrokerLoad,
    BundleLoad,
    Command,
    Envelope,
    Message,
    Rejected,
    RejectReason,
    Topic,
    TopicLoad,
)
from lbcore.wire.parse import READERS, parse
from tests.support.values.wire_messages import GOOD, RULES, STANDARD_RULES, content, places

TOPICS = st.sampled_from(sorted(READERS))
SPECIAL = st.sampled_from(
    [
        True,
        None,
        -1,
        0.5,
        2**63,
        2**64,
        10**30,
        1e308,
        float("nan"),
        float("inf"),
        "",
        "~",
        "\ud800",
    ]
)
JSON = st.recursive(
    SPECIAL | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=8,
)
ENTITIES = st.text(alphabet="aB0-=:._", min_size=1, max_size=6)
HASHES = st.integers(0, 2**32 - 1)
NUMBERS = st.floats(0, 1e18).map(lambda value: value if value >= MIN_TRAFFIC else 0.0)
COUNTS = st.integers(0, 2**53)


@st.composite
def bundles(draw: st.DrawFn) -> str:
    ends = sorted(draw(st.lists(HASHES, min_size=2, max_size=2, unique=True)))
    return format_bundle(f"{draw(ENTITIES)}/{draw(ENTITIES)}", *ends)


@st.composite
def envelopes(draw: st.DrawFn) -> Envelope:
    return Envelope(
        cluster=draw(st.sampled_from(sorted(RULES.clusters))),
        broker=draw(st.text(alphabet="aZ9-:.ü[]", min_size=1, max_size=12)),
        incarnation=draw(st.text(alphabet="ab/ ~ü", min_size=1, max_size=6)),
        seq=draw(st.integers(0, 2**63 - 1)),
        reported_at_ms=draw(st.integers(0, 2**63 - 1)),
    )


def numbers(draw: st.DrawFn, rows: int, columns: int) -> list[list[float]]:
    row = st.lists(NUMBERS, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=rows, max_size=rows))


@st.composite
def broker_loads(draw: st.DrawFn) -> BrokerLoad:
    (usage, limit) = numbers(draw, 2, COUNT)
    is_known = draw(st.lists(st.booleans(), min_size=COUNT, max_size=COUNT))
    return BrokerLoad(
        envelope=draw(envelopes()),
        usage=np.array(usage),
        limit=np.where(is_known, np.maximum(limit, 1e-9), -np.array(limit)),
        traffic=np.array(numbers(draw, 1, 4)[0]),
        topic_count=draw(COUNTS),
        bundle_count=draw(COUNTS),
        consumer_count=draw(COUNTS),
        producer_count=draw(COUNTS),
        web_service_url=draw(st.text(max_size=5)),
        pulsar_service_url_tls=draw(st.text(max_size=5)),
        advertised_listeners=draw(
            st.dictionaries(ENTITIES, st.dictionaries(ENTITIES, st.text(max_size=5)), max_size=3)
        ),
        broker_version=draw(st.text(max_size=5)),
        failure_domain=draw(st.text(max_size=5)),
        capacity=draw(st.floats(1e-9, 1e6)),
        is_draining=draw(st.booleans()),
        offered_msg_rate=draw(st.just(NOT_REPORTED) | NUMBERS),
    )


@st.composite
def bundle_loads(draw: st.DrawFn) -> BundleLoad:
    names = tuple(draw(st.lists(bundles(), max_size=5, unique=True)))
    rows = numbers(draw, len(names), 4)
    counts = [draw(st.lists(COUNTS, min_size=4, max_size=4)) for _ in names]
    stats = np.array([[*row, *count] for row, count in zip(rows, counts, strict=True)])
    part = draw(st.integers(0, 999))
    return BundleLoad(
        envelope=draw(envelopes()),
        part=part,
        parts=draw(st.integers(part + 1, 1_000)),
        names=names,
        stats=stats.reshape(len(names), 8),
    )


@st.composite
def topic_loads(draw: st.DrawFn) -> TopicLoad:
    topics = tuple(draw(st.lists(st.text(min_size=1, max_size=9), max_size=4, unique=True)))
    traffic = np.array(numbers(draw, len(topics), 4)).reshape(len(topics), 4)
    return TopicLoad(
        envelope=draw(envelopes()), bundle=draw(bundles()), topics=topics, traffic=traffic
    )


@st.composite
def acks(draw: st.DrawFn) -> Acks:
    one = st.builds(
        Ack,
        bundle=bundles(),
        version_id=st.integers(1, 2**63 - 1),
        outcome=st.sampled_from(AckOutcome),
        reason=st.text(max_size=9).map(plain_text),
    )
    return Acks(envelope=draw(envelopes()), acks=tuple(draw(st.lists(one, max_size=4))))


INT64 = st.integers(-(2**63), 2**63 - 1)  # decoders differ beyond
COMMANDS = st.builds(
    Command,
    cluster=st.sampled_from(sorted(RULES.clusters)),
    command_id=st.text(min_size=1, max_size=9),
    kind=st.text(min_size=1, max_size=9),
    arguments=st.dictionaries(st.text(max_size=5), INT64 | st.text(max_size=5)),
    principal=st.text(max_size=5),
    address=st.text(max_size=5),
    timeout_ms=st.integers(0, 86_400_000),
)
MESSAGES = st.one_of(broker_loads(), bundle_loads(), topic_loads(), acks(), COMMANDS)


@given(topic=TOPICS, key=st.none() | st.binary(max_size=30), value=st.none() | st.binary())
def test_parse_of_arbitrary_bytes_answers_and_keeps_them(
    topic: Topic, key: bytes | None, value: bytes | None
) -> None:
    answer = parse(topic, key, value, RULES)
    assert isinstance(answer, Rejected)
    assert answer.raw == (value or b"")
    answer.detail.encode()


@settings(max_examples=300)
@given(topic=TOPICS, value=JSON)
def test_parse_of_arbitrary_json_answers(topic: Topic, value: Any) -> None:
    answer = parse(topic, b"local/x", json.dumps(value).encode(), STANDARD_RULES)
    assert isinstance(answer, Rejected)
    answer.detail.encode()


@settings(max_examples=500)
@given(kind=st.sampled_from(sorted(GOOD)), junk=JSON, pick=st.integers(0, 10_000))
def test_parse_of_a_good_message_with_one_value_replaced_answers(
    kind: str, junk: Any, pick: int
) -> None:
    topic, key, value = format_message(GOOD[kind])
    fields = json.loads(value)
    all_places = places(fields)
    container, name = all_places[pick % len(all_places)]
    container[name] = junk
    answer = parse(topic, key, json.dumps(fields).encode(), STANDARD_RULES)
    if isinstance(answer, Rejected):
        assert answer.detail.encode()
        assert answer.reason in RejectReason
    else:
        assert isinstance(answer, type(GOOD[kind]))


@settings(max_examples=300)
@given(
    kind=st.sampled_from(sorted(GOOD)),
    start=st.integers(0, 2_000),
    length=st.integers(0, 9),
    junk=st.binary(max_size=9),
)
def test_parse_of_a_good_message_with_bytes_replaced_answers(
    kind: str, start: int, length: int, junk: bytes
) -> None:
    topic, key, value = format_message(GOOD[kind])
    start %= len(value)
    spoilt = value[:start] + junk + value[start + length :]
    answers = [parse(topic, key, spoilt, rules) for rules in (RULES, STANDARD_RULES)]
    for answer in answers:
        assert isinstance(answer, Rejected | type(GOOD[kind]))


@given(message=MESSAGES)
def test_parse_is_the_inverse_of_format(message: Message) -> None:
    topic, key, value = format_message(message)
    for rules in (RULES, STANDARD_RULES):
        assert content(parse(topic, key, value, rules)) == content(message)


@given(
    names=st.lists(
        bundles()
        | st.from_regex(r"[aü/\n]{1,3}/b/0x[0-1f]{8}_0x[0-1fF]{8}\n?", fullmatch=True)
        | st.text(max_size=30),
        max_size=4,
        unique=True,
    )
)
def test_check_bundles_of_many_agrees_with_parse_bundle_of_each(names: list[str]) -> None:
    def is_bundle(name: str) -> bool:
        try:
            parse_bundle(name)
        except InvalidNameError:
            return False
        return True

    try:
        check_bundles(names)
    except FieldRefusal:
        assert not all(map(is_bundle, names))
    else:
        assert all(map(is_bundle, names))


@given(load=bundle_loads(), column=st.integers(0, 7), junk=st.sampled_from([-1.0, np.nan, np.inf]))
def test_parse_of_one_wrong_number_among_many_is_rejected(
    load: BundleLoad, column: int, junk: float
) -> None:
    if not load.names:
        return
    topic, key, value = format_message(replace(load, stats=load.stats))
    fields = json.loads(value)
    names = list(fields["bundles"])
    names.remove("name")
    fields["bundles"][sorted(names)[column]][-1] = junk
    answer = parse(topic, key, json.dumps(fields).encode(), STANDARD_RULES)
    assert isinstance(answer, Rejected)
    assert answer.reason in (RejectReason.NEGATIVE, RejectReason.NOT_FINITE)

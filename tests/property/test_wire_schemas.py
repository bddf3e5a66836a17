"""The JSON Schema of each topic and the parser agree, but for what a schema can't say."""

import copy
import json
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from lbcore.model.names import InvalidNameError, Wire, parse_range
from lbcore.ownership.records import OwnershipRecord, State, format_record, parse_record
from lbcore.wire import loads
from lbcore.wire.format import format_message
from lbcore.wire.messages import Rejected, RejectReason, Topic
from lbcore.wire.parse import parse
from tests.support.values.wire_messages import BUNDLES, GOOD, STANDARD_RULES, places

FOLDER = files("lbcore.wire") / "schemas"
SCHEMAS = {topic: json.loads((FOLDER / f"{topic.value}.json").read_text()) for topic in Topic}

BEYOND_A_SCHEMA = {
    RejectReason.KEY_MISMATCH,
    RejectReason.UNKNOWN_CLUSTER,
    RejectReason.UNEQUAL_LENGTHS,
}
"""Reasons that the schemas' comments leave to the parser alone, beside parts and ranges."""

RECORD = OwnershipRecord(
    cluster="local",
    bundle=BUNDLES[0],
    state=State.SPLITTING,
    version_id=3,
    source="b",
    children={BUNDLES[0]: "", BUNDLES[1]: "c"},
)
KINDS = [*sorted(GOOD), "ownership"]


def written(kind: str) -> tuple[Topic, bytes, dict[str, Any]]:
    if kind == "ownership":
        key, value = format_record(RECORD)
        return Topic.OWNERSHIP, key, json.loads(value)
    topic, key, value = format_message(GOOD[kind])
    return topic, key, json.loads(value)


def validator(kind: str) -> Draft202012Validator:
    """The schema of what the key already says: a tick or a report."""
    schema = SCHEMAS[written(kind)[0]]
    if written(kind)[0] is Topic.BROKER_LOAD:
        which = "tick" if kind == "tick" else "report"
        schema = {"$ref": f"#/$defs/{which}", "$defs": schema["$defs"]}
    return Draft202012Validator(schema)


VALIDATORS = {kind: validator(kind) for kind in KINDS}


def parsed(kind: str, fields: Any) -> Any:
    topic, key, _ = written(kind)
    value = json.dumps(fields).encode()
    if topic is Topic.OWNERSHIP:
        return parse_record(key, value)
    return parse(topic, key, value, STANDARD_RULES)


def is_beyond_a_schema(rejected: Rejected, fields: Any) -> bool:
    if rejected.reason is RejectReason.BAD_PART:
        return bool(fields["part"] >= fields["parts"])
    if rejected.reason is RejectReason.MALFORMED_BUNDLE:
        return any(is_badly_ordered(text) for text in texts(fields))
    return rejected.reason in BEYOND_A_SCHEMA


def texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value
    return [text for item in inner for text in texts(item)] if isinstance(inner, list) else []


def is_badly_ordered(text: str) -> bool:
    try:
        parse_range(text.rpartition("/")[2])
    except InvalidNameError as error:
        return "empty or reversed" in str(error)
    return False


RANGES = st.sampled_from(["0x00000000_0x40000000", "0x40000000_0x00000000", "0x0_0x1"])
TEXTS = st.text(max_size=6) | st.sampled_from(
    ["", "a b", "~x", "x\n", "local", "east", "opened", "Owned", BUNDLES[0], BUNDLES[0] + "\n"]
)
NUMBERS = st.integers(-2, 3) | st.sampled_from(
    [
        2**53,
        2**53 + 1,
        2**63 - 1,
        2**63,
        10**18,
        10**18 + 1_000,
        10**400,
        1.0,
        0.5,
        -0.5,
        1e-10,
        1e300,
    ]
)
JUNK = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | RANGES.map(lambda text: f"acme/orders/{text}"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=4,
)


@pytest.mark.parametrize("topic", Topic)
def test_schema_is_a_schema_and_says_what_it_leaves_to_the_parser(topic: Topic) -> None:
    Draft202012Validator.check_schema(SCHEMAS[topic])
    assert "the key agrees with the value" in SCHEMAS[topic]["$comment"]


@pytest.mark.parametrize("topic", Topic)
def test_schema_explains_every_field(topic: Topic) -> None:
    def unexplained(schema: Any) -> list[str]:
        found = [
            name
            for name, field in schema.get("properties", {}).items()
            if not {"description", "$ref", "properties", "items"} & set(field)
        ]
        inner = [
            *schema.get("properties", {}).values(),
            *schema.get("$defs", {}).values(),
            *[schema[name] for name in ("items",) if name in schema],
        ]
        return found + [name for part in inner for name in unexplained(part)]

    assert unexplained(SCHEMAS[topic]) == []


@pytest.mark.parametrize("kind", KINDS)
def test_schema_accepts_what_format_writes(kind: str) -> None:
    topic, _, fields = written(kind)
    assert Draft202012Validator(SCHEMAS[topic]).is_valid(fields)
    assert VALIDATORS[kind].is_valid(fields)


def test_schemas_cover_every_kind_of_message() -> None:
    assert {format_message(message)[0] for message in GOOD.values()} | {Topic.OWNERSHIP} == set(
        Topic
    )


def test_schema_of_broker_load_knows_every_field_of_load() -> None:
    report = SCHEMAS[Topic.BROKER_LOAD]["$defs"]["report"]
    named = {entry["required"][0] for entry in report["if"]["anyOf"]}
    assert named == loads.LOAD_FIELDS
    assert named < set(report["properties"])


def test_schema_has_the_default_limits() -> None:
    limits = Wire()
    bundles = SCHEMAS[Topic.BUNDLE_LOAD]["properties"]
    assert bundles["bundles"]["properties"]["name"]["maxItems"] == limits.max_bundles_per_message
    assert bundles["broker"]["maxLength"] == limits.max_name_chars
    assert bundles["parts"]["maximum"] == limits.max_parts
    topics = SCHEMAS[Topic.TOPIC_LOAD]["properties"]["topics"]["properties"]
    assert topics["name"]["maxItems"] == limits.max_topics_per_message
    reason = SCHEMAS[Topic.AUDIT]["properties"]["reason"]
    assert reason["maxLength"] == limits.max_text_chars


def agree(kind: str, fields: Any) -> None:
    answer = parsed(kind, fields)
    if VALIDATORS[kind].is_valid(fields):
        assert not isinstance(answer, Rejected) or is_beyond_a_schema(answer, fields), answer.detail
    else:
        assert isinstance(answer, Rejected), (fields, answer)


LIMITS = Wire()
BOUNDARY_VALUES: list[Any] = [
    *(None, True, False, [], {}, [[]], {"a": 1}),
    *(-1, 0, 1, 2, 3, 0.5, -0.5, 1.0, 1e-10, 1e-9, 1e300, 10**400),
    *(limit + step for limit in (1_000, 86_400_000, 10**6, 2**53) for step in (0, 1)),
    *(2**63 - 1, 2**63, 10**18, 10**18 + 1_000),  # a double's neighbours there are 128 apart
    *("", "a", "~a", "a/b", "a b", "a\n", "\x7f", "ü", "local", "east", "opened", "Owned", "shed"),
    *("x" * (size + step) for size in (512, 4_096) for step in (0, 1)),
    *(BUNDLES[0], BUNDLES[0] + "\n", BUNDLES[0].upper(), "a/b/0x0_0x1", "a/0x00000000_0xffffffff"),
    "a/b/c/0x00000000_0xffffffff",
    *([BUNDLES[0]] * count for count in (1, 2)),
    *([1] * count for count in (1, 2, LIMITS.max_bundles_per_message + 1)),
]


@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_parser_agree_on_every_boundary_value_in_every_place(kind: str) -> None:
    fields = written(kind)[2]
    for container, name in places(fields):
        good = container[name]
        for value in BOUNDARY_VALUES:
            container[name] = value
            agree(kind, fields)
        container[name] = good


@settings(max_examples=1_500)
@given(kind=st.sampled_from(KINDS), junk=JUNK, pick=st.integers(0, 10_000))
def test_schema_and_parser_agree_on_a_message_with_one_value_replaced(
    kind: str, junk: Any, pick: int
) -> None:
    fields = copy.deepcopy(written(kind)[2])
    all_places = places(fields)
    container, name = all_places[pick % len(all_places)]
    container[name] = junk
    agree(kind, fields)


@settings(max_examples=400)
@given(kind=st.sampled_from(KINDS), pick=st.integers(0, 10_000), name=TEXTS, junk=JUNK)
def test_schema_and_parser_agree_on_a_message_with_a_field_more_or_less(
    kind: str, pick: int, name: str, junk: Any
) -> None:
    fields = copy.deepcopy(written(kind)[2])
    containers = [fields, *(c[k] for c, k in places(fields) if isinstance(c[k], dict | list))]
    container = containers[pick % len(containers)]
    if pick % 2 and container:
        key = sorted(container)[pick % len(container)] if isinstance(container, dict) else -1
        del container[key]
    elif isinstance(container, dict):
        container[name] = junk
    else:
        container.append(junk)
    agree(kind, fields)


LOADS = sorted(loads.LOAD_FIELDS)


@settings(max_examples=300)
@given(kept=st.sets(st.sampled_from(LOADS)))
def test_schema_and_parser_agree_on_which_fields_make_a_load(kept: set[str]) -> None:
    fields = written("broker_load")[2]
    full = {**fields, "numTopics": 1, "loadManagerClassName": "x"}
    agree("broker_load", {name: v for name, v in full.items() if name in kept or name not in LOADS})


@settings(max_examples=300)
@given(usage=NUMBERS, limit=NUMBERS)
def test_schema_and_parser_agree_on_resources(usage: float, limit: float) -> None:
    fields = written("broker_load")[2]
    agree("broker_load", {**fields, "memory": {"usage": usage, "limit": limit}})

"""Arguments that suit their command are read into its type, all others refused with a sentence."""

import json
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.wire.commands import KINDS, RefusedArguments, format_arguments, parse_arguments
from lbcore.wire.kinds.balancing_commands import SetConfig
from lbcore.wire.messages import RejectReason

NS = "acme/orders"
BUNDLE = f"{NS}/0x00000000_0x80000000"

FULL: dict[str, dict[str, Any]] = {kind: dict(one.spec.sample) for kind, one in KINDS.items()}


def refused(kind: str, arguments: dict[str, Any]) -> RefusedArguments:
    answer = parse_arguments(kind, arguments)
    assert isinstance(answer, RefusedArguments), answer
    return answer


def test_sample_of_a_kind_comes_after_samples_of_known_kinds() -> None:
    assert {before for one in KINDS.values() for before in one.spec.after} <= KINDS.keys()


@pytest.mark.parametrize("kind", FULL)
def test_arguments_written_and_read_are_the_same(kind: str) -> None:
    answer = parse_arguments(kind, FULL[kind])
    assert type(answer) is KINDS[kind]
    assert format_arguments(answer) == (kind, FULL[kind])
    json.dumps(format_arguments(answer)[1])


def test_argument_that_is_misspelt_is_refused_with_a_suggestion() -> None:
    answer = refused("unload_bundle", {"bundle": BUNDLE, "destinaton": "b:1"})
    assert answer.detail == "there is no argument 'destinaton'; did you mean destination?"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if fields(KINDS[kind])])
def test_arguments_of_every_kind_have_documentation(kind: str) -> None:
    assert KINDS[kind].__doc__
    assert all(item.metadata["argument"].doc for item in fields(KINDS[kind]))


@pytest.mark.parametrize(
    ("kind", "arguments", "reason"),
    [
        ("create_namespace", {}, RejectReason.MISSING_FIELD),
        ("create_namespace", {"namespace": "acme"}, RejectReason.MALFORMED_NAMESPACE),
        ("create_namespace", {"namespace": "a/b c"}, RejectReason.MALFORMED_NAMESPACE),
        ("create_namespace", {"namespace": 3}, RejectReason.WRONG_TYPE),
        ("create_namespace", {"namespace": NS, "bundles": -1}, RejectReason.NEGATIVE),
        ("create_namespace", {"namespace": NS, "bundles": 1 << 21}, RejectReason.OUT_OF_RANGE),
        ("create_namespace", {"namespace": NS, "bundles": True}, RejectReason.WRONG_TYPE),
        ("create_namespace", {"namespace": NS, "hash": "md5"}, RejectReason.OUT_OF_RANGE),
        ("create_namespace", {"namespace": NS, "boundaries": [1, 2]}, RejectReason.OUT_OF_RANGE),
        ("create_namespace", {"namespace": NS, "boundaries": [1.5]}, RejectReason.WRONG_TYPE),
        ("create_namespace", {"namespace": NS, "boundaries": "0"}, RejectReason.WRONG_TYPE),
        (
            "create_namespace",
            {"namespace": NS, "boundaries": [0, 4_294_967_295], "bundles": 2},
            RejectReason.OUT_OF_RANGE,
        ),
        ("unload_bundle", {"bundle": "x"}, RejectReason.MALFORMED_BUNDLE),
        ("unload_bundle", {"bundle": BUNDLE, "destination": ""}, RejectReason.OUT_OF_RANGE),
        ("override_bundle", {"bundle": BUNDLE}, RejectReason.MISSING_FIELD),
        ("split_bundle", {}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"namespace": NS}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"which": "HOT"}, RejectReason.OUT_OF_RANGE),
        (
            "split_bundle",
            {"bundle": BUNDLE, "namespace": NS, "which": "HOT"},
            RejectReason.OUT_OF_RANGE,
        ),
        ("split_bundle", {"bundle": BUNDLE, "which": "HOT"}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"namespace": NS, "which": "COLD"}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"bundle": BUNDLE, "parts": 1}, RejectReason.OUT_OF_RANGE),
        (
            "split_bundle",
            {"bundle": BUNDLE, "parts": 3, "positions": [5]},
            RejectReason.OUT_OF_RANGE,
        ),
        ("split_bundle", {"bundle": BUNDLE, "positions": ["x"]}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"bundle": BUNDLE, "positions": [-1]}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"bundle": BUNDLE, "positions": [1 << 32]}, RejectReason.OUT_OF_RANGE),
        ("split_bundle", {"bundle": BUNDLE, "unload": "yes"}, RejectReason.WRONG_TYPE),
        ("drain_broker", {"broker": "a/b"}, RejectReason.OUT_OF_RANGE),
        ("drain_broker", {"broker": "b", "deadline_ms": -1}, RejectReason.NEGATIVE),
        ("pin_bundle", {"bundle": BUNDLE}, RejectReason.MISSING_FIELD),
        ("set_config", {"values": {}}, RejectReason.OUT_OF_RANGE),
        ("set_config", {"values": []}, RejectReason.WRONG_TYPE),
        ("propose_plan", {**FULL["propose_plan"], "moves": {}}, RejectReason.OUT_OF_RANGE),
        ("reset_config", {"keys": [1]}, RejectReason.WRONG_TYPE),
        (
            "set_isolation_policy",
            {**FULL["set_isolation_policy"], "usage_threshold_percent": 101},
            RejectReason.OUT_OF_RANGE,
        ),
        ("set_anti_affinity_group", {"namespace": NS, "group": ""}, RejectReason.OUT_OF_RANGE),
    ],
)
def test_arguments_that_do_not_suit_their_kind_are_refused(
    kind: str, arguments: dict[str, Any], reason: RejectReason
) -> None:
    answer = refused(kind, arguments)
    assert answer.reason is reason, answer.detail
    assert answer.detail


def test_settings_of_any_json_value_are_passed_on() -> None:
    values = {"shedding.strategy": "avg", "shedding.excluded_namespaces": ["a/b"], "x": 0.5}
    assert parse_arguments("set_config", {"values": values}) == SetConfig(values=values)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(data=st.data(), kind=st.sampled_from(sorted(KINDS)), value=JSON)
def test_arguments_of_any_json_are_read_or_refused(
    data: st.DataObject, kind: str, value: Any
) -> None:
    names = [item.name for item in fields(KINDS[kind])]
    name = data.draw(st.sampled_from([*names, "other"]))
    answer = parse_arguments(kind, {**FULL[kind], name: value})
    assert isinstance(answer, RefusedArguments | KINDS[kind])
    if isinstance(answer, RefusedArguments):
        answer.detail.encode()

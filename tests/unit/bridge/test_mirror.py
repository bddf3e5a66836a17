"""What differs between Pulsar and the records, and what is not sure enough to be told."""

from typing import Any

import pytest

from lbcore.bridge.acting import reason_not_to_act, splits_by_itself
from lbcore.bridge.mirror import ALL, Difference, Look, commands_of, compare
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.commands import format_arguments, parse_arguments

NS = "acme/ns"
LEFT, RIGHT = f"{NS}/0x00000000_0x80000000", f"{NS}/0x80000000_0xffffffff"
WHOLE = (0, 0x80000000, 0xFFFFFFFF)
NOTHING: frozenset[str] = frozenset()


def look(a: Any = (), b: Any = (), **more: Any) -> Look:
    owned = {name: None if held is None else frozenset(held) for name, held in (("a", a), ("b", b))}
    known: dict[str, Any] = {
        "owned": owned,
        "incarnations": {"a": "1", "b": "1"},
        "namespaces": {NS: WHOLE},
    }
    return Look(**{**known, **more})


def record(bundle: str, state: State = State.OWNED, **changes: Any) -> OwnershipRecord:
    known: dict[str, Any] = {"destination": "a", "destination_incarnation": "1"}
    return OwnershipRecord(
        cluster="local", bundle=bundle, state=state, version_id=5, **{**known, **changes}
    )


RECORDS = {name: record(name) for name in (LEFT, RIGHT)}


def owners(before: Look, now: Look, *, busy: frozenset[str] = NOTHING, **records: Any) -> Any:
    known = {**RECORDS, **{one.bundle: one for one in records.values()}}
    return compare(known, before, now, ("a", "b"), busy).owners


def test_mirror_that_agrees_tells_nothing() -> None:
    same = look(a=(LEFT, RIGHT))
    assert compare(RECORDS, same, same, ("a", "b"), NOTHING) == Difference()


def test_first_look_tells_nothing() -> None:
    assert compare(RECORDS, None, look(b=(LEFT,)), (), NOTHING) == Difference()


def test_owner_that_two_looks_agree_on_is_told_with_the_version_and_the_start() -> None:
    moved = look(a=(RIGHT,), b=(LEFT,))
    assert owners(moved, moved) == {LEFT: (5, "b", "1")}
    assert owners(look(a=(LEFT, RIGHT)), moved) == {}


def test_bundle_that_nobody_owns_is_told_only_when_all_have_answered() -> None:
    gone = look(a=(RIGHT,))
    assert owners(gone, gone) == {LEFT: (5, "", "")}
    unsure = look(a=(RIGHT,), b=None)
    assert owners(unsure, unsure) == {}


def test_bundle_that_two_claim_is_not_told() -> None:
    both = look(a=(LEFT, RIGHT), b=(LEFT,))
    assert owners(both, both) == {}


def test_answer_of_one_broker_is_enough_for_what_it_owns() -> None:
    partly = look(a=None, b=(LEFT,))
    assert owners(partly, partly) == {LEFT: (5, "b", "1")}


def test_broker_that_restarted_is_told_as_another_start() -> None:
    again = look(a=(LEFT, RIGHT), incarnations={"a": "2", "b": "1"})
    assert owners(again, again) == {LEFT: (5, "a", "2"), RIGHT: (5, "a", "2")}


def test_owner_that_was_never_measured_waits() -> None:
    unmeasured = look(a=(RIGHT,), b=(LEFT,), incarnations={"a": "1"})
    assert owners(unmeasured, unmeasured) == {}


def test_record_in_flight_is_left_alone_while_one_of_its_brokers_has_the_bundle() -> None:
    moving = record(LEFT, State.RELEASING, source="a", source_incarnation="1", destination="b")
    for now in (look(a=(LEFT, RIGHT)), look(a=(RIGHT,), b=(LEFT,))):
        assert owners(now, now, moving=moving) == {}
    gone = look(a=(RIGHT,))
    assert owners(gone, gone, moving=moving) == {LEFT: (5, "", "")}
    assert owners(gone, gone, moving=moving, busy=frozenset({LEFT})) == {}


def test_namespace_that_was_split_is_told_once_and_its_bundles_later() -> None:
    cut = (0, 0x40000000, 0x80000000, 0xFFFFFFFF)
    split = look(a=(RIGHT, f"{NS}/0x00000000_0x40000000"), namespaces={NS: cut})
    found = compare(RECORDS, split, split, ("a", "b"), NOTHING)
    assert found.namespaces == {NS: cut}
    assert found.owners == {}
    busy = compare(RECORDS, split, split, ("a", "b"), frozenset({LEFT}))
    assert busy.namespaces == {}


def test_namespace_that_is_gone_or_new_is_told() -> None:
    empty = look(namespaces={"acme/new": WHOLE})
    found = compare(RECORDS, empty, empty, ("a", "b"), NOTHING)
    assert found.namespaces == {NS: (), "acme/new": WHOLE}
    deleted = {name: record(name, State.DELETED) for name in (LEFT, RIGHT)}
    assert compare(deleted, empty, empty, ("a", "b"), NOTHING).namespaces == {"acme/new": WHOLE}


@pytest.mark.parametrize("unread", [ALL, "acme", "acme/ns"])
def test_namespace_that_could_not_be_read_is_not_gone(unread: str) -> None:
    blind = look(a=(LEFT, RIGHT), namespaces={}, unread=frozenset({unread}))
    gone = look(a=(LEFT, RIGHT), namespaces={})
    assert compare(RECORDS, blind, blind, ("a", "b"), NOTHING).namespaces == {}
    assert compare(RECORDS, blind, gone, ("a", "b"), NOTHING).namespaces == {}
    assert compare(RECORDS, gone, gone, ("a", "b"), NOTHING).namespaces == {"acme/ns": ()}
    other = look(a=(LEFT, RIGHT), namespaces={}, unread=frozenset({"acme/other", "other"}))
    assert compare(RECORDS, other, other, ("a", "b"), NOTHING).namespaces == {"acme/ns": ()}


def test_brokers_are_told_when_they_are_others() -> None:
    same = look(a=(LEFT, RIGHT))
    assert compare(RECORDS, same, same, ("a",), NOTHING).brokers == ("a", "b")
    assert compare(RECORDS, same, look(owned={}), ("a",), NOTHING) == Difference()


def test_difference_of_any_size_is_commands_that_can_be_read() -> None:
    many = {f"{NS}/0x{n:08x}_0x{n + 1:08x}": (1, "a", "1") for n in range(2_500)}
    difference = Difference(brokers=("a",), namespaces={NS: WHOLE, "acme/x": ()}, owners=many)
    commands = commands_of(difference)
    assert [len(one.owners) for one in commands] == [1_000, 1_000, 500]
    assert [one.brokers for one in commands] == [("a",), (), ()]
    assert {one.differences for one in commands} == {2_502}
    for one in commands:
        assert parse_arguments(*format_arguments(one)) == one
    assert len(commands_of(Difference())) == 1


def test_guard_asks_every_broker_and_believes_none_that_is_silent() -> None:
    off = {"loadBalancerSheddingEnabled": "false"}
    assert reason_not_to_act({"a": off, "b": off}) == ""
    assert "b has" in reason_not_to_act({"a": off, "b": {"loadBalancerSheddingEnabled": "true"}})
    assert "b has" in reason_not_to_act({"a": off, "b": {}})
    assert "b does not tell" in reason_not_to_act({"a": off, "b": None})
    assert "no active broker" in reason_not_to_act({})
    disabled = {"loadBalancerSheddingEnabled": "true", "loadBalancerEnabled": "false"}
    assert reason_not_to_act({"a": disabled}) == ""
    assert splits_by_itself({"a": {"loadBalancerAutoBundleSplitEnabled": "true"}})
    assert not splits_by_itself({"a": off, "b": None})

"""Ownership records: invariants, conflict resolution, differences, wire form, state tables."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.ownership import protocol
from lbcore.ownership.changes import Change, ProtocolError, find_differences, next_record, parties
from lbcore.ownership.invariants import Invariant, Violation, of_bundles, violations_of_changes
from lbcore.ownership.records import (
    Cause,
    OwnershipRecord,
    State,
    format_record,
    parse_record,
)
from lbcore.ownership.resolve import (
    MissingOwnerError,
    ResolverVerdict,
    StateData,
    resolve,
)
from lbcore.ownership.states import (
    ACTIVE,
    BALLAST,
    IN_FLIGHT,
    METADATA_STORE,
    RULES,
    SYSTEM_TOPIC,
    TRANSITIONS,
    ReplacementRules,
    TransitionKind,
    TransitionRule,
)
from lbcore.wire.messages import Rejected, RejectReason
from tests.support.values.ownership_records import (
    BUNDLE,
    CLUSTER,
    LEFT,
    NAMESPACE,
    ORIGIN,
    RIGHT,
    A,
    B,
    deleted,
    free,
    owned,
    record_of,
    releasing,
    splitting,
    violations,
)


def records(*found: OwnershipRecord) -> dict[str, OwnershipRecord]:
    return {record.bundle: record for record in found}


def named(record: OwnershipRecord, bundle: str) -> OwnershipRecord:
    return replace(record, bundle=bundle)


def kinds(found: list[Violation]) -> list[tuple[Invariant, str]]:
    return [(violation.invariant, violation.where) for violation in found]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        (["0x00000000_0x80000000"], [(Invariant.COVER, NAMESPACE)]),
        (["0x80000000_0xffffffff"], [(Invariant.COVER, NAMESPACE)]),
        (["0x00000000_0x40000000", "0x80000000_0xffffffff"], [(Invariant.COVER, NAMESPACE)]),
        (
            ["0x00000000_0x80000000", "0x70000000_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0x70000000_0xffffffff")],
        ),
        (
            ["0x00000000_0xffffffff", "0x80000000_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0x80000000_0xffffffff")],
        ),
        (
            ["0x00000000_0xffffffff", "0xffffffff_0xffffffff"],
            [(Invariant.DISJOINT, f"{NAMESPACE}/0xffffffff_0xffffffff")],
        ),
        (["0x0_0xffffffff"], [(Invariant.NAME, f"{NAMESPACE}/0x0_0xffffffff")]),
    ],
)
def test_bundles_that_do_not_tile_the_hash_space_are_found(
    ranges: list[str], expected: list[tuple[Invariant, str]]
) -> None:
    names = [f"{NAMESPACE}/{text}" for text in ranges]
    assert kinds(of_bundles(NAMESPACE, names)) == expected
    assert kinds(violations(records(*(named(free(), name) for name in names)))) == expected


@pytest.mark.parametrize(
    "broken",
    [
        replace(owned(), destination="", destination_incarnation=""),
        replace(owned(), destination_incarnation=""),
        replace(releasing(A, B), source="", source_incarnation=""),
        replace(releasing(A, B), source="broker-b"),
        replace(splitting(), children={LEFT: ""}),
        replace(free(), destination="broker-a", destination_incarnation="a1"),
        replace(owned(), version_id=0),
    ],
)
def test_record_whose_state_and_brokers_disagree_is_found(broken: OwnershipRecord) -> None:
    assert kinds(violations(records(broken))) == [(Invariant.STATE_AND_BROKERS, BUNDLE)]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (owned(), free(), [(Invariant.VERSION, BUNDLE)]),
        (owned(A), owned(B), [(Invariant.VERSION, BUNDLE)]),
        (owned(), owned(), []),
        (owned(), replace(owned(), writer_epoch=99), []),
        (owned(), releasing(), []),
        (deleted(), None, []),
        (owned(), None, [(Invariant.LOST, BUNDLE)]),
    ],
)
def test_record_against_an_earlier_one_may_only_go_forward(
    before: OwnershipRecord,
    after: OwnershipRecord | None,
    expected: list[tuple[Invariant, str]],
) -> None:
    present = {} if after is None else records(after)
    assert kinds(violations(present, records(before))) == expected


def test_sentence_of_a_violation_names_both_bundles_and_what_it_means() -> None:
    (found,) = violations(records(free(), named(free(), RIGHT)))
    assert (
        found.sentence == f"{BUNDLE} and {RIGHT} are both live and overlap: a hash has two owners"
    )


def live_bundles(
    after: Mapping[str, OwnershipRecord], asked: list[str]
) -> Callable[[str], list[str]]:
    def of_namespace(namespace: str) -> list[str]:
        asked.append(namespace)
        return [name for name, record in after.items() if record.state is not State.DELETED]

    return of_namespace


def test_changes_that_go_back_in_version_or_create_half_a_namespace_are_found() -> None:
    back = Change(before=owned(), after=replace(owned(), version_id=2))
    found = violations_of_changes([back], live_bundles({}, []))
    assert kinds(found) == [(Invariant.VERSION, BUNDLE)]
    made = record_of(protocol.create(CLUSTER, LEFT, ORIGIN))
    half = Change(before=None, after=made)
    found = violations_of_changes([half], live_bundles(records(made), []))
    assert kinds(found) == [(Invariant.COVER, NAMESPACE)]


def test_owned_without_owner_raises_where_the_owner_matters() -> None:
    before = StateData(State.OWNED, 1, None, "a")
    with pytest.raises(MissingOwnerError, match="must be its owner, got None"):
        resolve(before, StateData(State.RELEASING, 2, "b", "a"))
    assert resolve(before, StateData(State.SPLITTING, 2, "b", "a")) is ResolverVerdict.WRONG_BROKERS


def row(bundle: str, state: str = "Owned", destination: str = "b1", version_id: int = 1) -> Any:
    return {
        "bundle": bundle,
        "state": state,
        "source": "",
        "destination": destination,
        "version_id": version_id,
    }


def test_difference_is_what_came_went_or_has_another_owner_or_state() -> None:
    before = [row("a"), row("b"), row("c"), row("e")]
    after = [row("a"), row("b", destination="b2"), row("d"), row("e", "Free", "")]
    found = list(find_differences(before, after))
    assert [(one.bundle, one.before is None, one.after is None) for one in found] == [
        ("b", False, False),
        ("c", False, True),
        ("d", True, False),
        ("e", False, False),
    ]


def test_difference_of_who_gave_an_owned_bundle_up_is_none() -> None:
    assert list(find_differences([row("a")], [{**row("a"), "source": "b9"}])) == []
    moving = {**row("a", "Releasing"), "source": "b9"}
    assert parties(moving) == ("b9", "b1")
    assert len(list(find_differences([moving], [{**moving, "source": "b8"}]))) == 1


UNFORCED = [(move, arrow) for move, arrow in TRANSITIONS.items() if not arrow.is_forced]


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_rules_name_targets_for_every_state_and_no_state_follows_itself(
    rules: ReplacementRules,
) -> None:
    assert set(rules.targets) == set(State)
    assert not any(state in targets for state, targets in rules.targets.items())


def test_ballasts_rules_are_the_system_topics_and_merges_without_gaps() -> None:
    merges = {State.OWNED: {State.MERGING}, State.MERGING: {State.DELETED}}
    for state, targets in SYSTEM_TOPIC.targets.items():
        assert BALLAST.targets[state] == targets | merges.get(state, set())
    assert State.MERGING not in set().union(*SYSTEM_TOPIC.targets.values())
    assert SYSTEM_TOPIC.accepts_gaps
    assert not BALLAST.accepts_gaps
    assert not METADATA_STORE.accepts_gaps


@pytest.mark.parametrize("move", TransitionKind)
@pytest.mark.parametrize("state", State)
def test_next_record_takes_state_and_force_from_the_table_or_refuses(
    move: TransitionKind, state: State
) -> None:
    before, arrow = replace(owned(), state=state), TRANSITIONS[move]
    if state not in arrow.sources:
        with pytest.raises(ProtocolError, match=f"{move.name} must start from .*, got"):
            next_record(before, move, ORIGIN)
        return
    made = next_record(before, move, ORIGIN, A, B)
    assert (made.state, made.is_forced) == (arrow.target, arrow.is_forced)
    assert made.version_id == before.version_id + 1


@pytest.mark.parametrize(("move", "arrow"), UNFORCED, ids=[move.name for move, _ in UNFORCED])
def test_unforced_move_obeys_the_rules_in_each_of_its_states(
    move: TransitionKind, arrow: TransitionRule
) -> None:
    begins_a_life = move in (TransitionKind.CREATE, TransitionKind.BEGIN_AS_CHILD)
    sources = arrow.sources - {State.DELETED} if begins_a_life else arrow.sources
    assert sources
    assert all(BALLAST.allows(source, arrow.target) for source in sources)


def test_every_state_is_left_and_reached_by_some_move_and_ends_without_its_broker() -> None:
    reached = {arrow.target for arrow in TRANSITIONS.values()}
    left = set().union(*(arrow.sources for arrow in TRANSITIONS.values()))
    assert reached == left == set(State)
    forced = [arrow for arrow in TRANSITIONS.values() if arrow.is_forced and arrow.target in ACTIVE]
    assert all(any(state in arrow.sources for arrow in forced) for state in IN_FLIGHT)


BUNDLE_OF_WIRE_RECORD = "acme/orders/0x00000000_0x80000000"
RECORD = OwnershipRecord(
    cluster="local",
    bundle=BUNDLE_OF_WIRE_RECORD,
    state=State.SPLITTING,
    version_id=9,
    source="broker-1:8080",
    source_incarnation="17",
    children={
        "acme/orders/0x00000000_0x40000000": "",
        "acme/orders/0x40000000_0x80000000": "broker-2:8080",
    },
    is_forced=True,
    timestamp_ms=1_795_249_787_508,
    cause=Cause.SPLIT,
    decision_id="d-1",
    command_id="c-1",
    writer_epoch=3,
)


def spoilt(**changes: Any) -> OwnershipRecord | Rejected | None:
    key, value = format_record(RECORD)
    return parse_record(key, json.dumps({**json.loads(value), **changes}).encode())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schema": 2}, RejectReason.UNKNOWN_SCHEMA),
        ({"cluster": "east"}, RejectReason.KEY_MISMATCH),
        ({"bundle": "x"}, RejectReason.MALFORMED_BUNDLE),
        ({"state": "Lost"}, RejectReason.OUT_OF_RANGE),
        ({"state": 1}, RejectReason.WRONG_TYPE),
        ({"versionId": 0}, RejectReason.OUT_OF_RANGE),
        ({"versionId": 2**63}, RejectReason.OUT_OF_RANGE),
        ({"dstBroker": None}, RejectReason.WRONG_TYPE),
        ({"force": 1}, RejectReason.WRONG_TYPE),
        ({"cause": "whim"}, RejectReason.OUT_OF_RANGE),
        ({"splitServiceUnitToDestBroker": {"x": ""}}, RejectReason.MALFORMED_BUNDLE),
        ({"splitServiceUnitToDestBroker": {BUNDLE_OF_WIRE_RECORD: 1}}, RejectReason.WRONG_TYPE),
        ({"writerEpoch": -1}, RejectReason.NEGATIVE),
    ],
)
def test_record_that_is_none_names_the_reason(
    changes: dict[str, Any], reason: RejectReason
) -> None:
    rejected = spoilt(**changes)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail


@given(key=st.none() | st.binary(max_size=9), value=st.binary(max_size=30))
def test_record_of_arbitrary_bytes_is_rejected(key: bytes | None, value: bytes) -> None:
    assert isinstance(parse_record(key, value), Rejected)


NAMES = st.text(max_size=5)


@given(
    record=st.builds(
        OwnershipRecord,
        cluster=st.sampled_from(["local", "ü"]),
        bundle=st.just(BUNDLE_OF_WIRE_RECORD),
        state=st.sampled_from(State),
        version_id=st.integers(1, 2**63 - 1),
        source=NAMES,
        source_incarnation=NAMES,
        destination=NAMES,
        destination_incarnation=NAMES,
        children=st.dictionaries(st.just(BUNDLE_OF_WIRE_RECORD), NAMES),
        is_forced=st.booleans(),
        timestamp_ms=st.integers(0, 2**63 - 1),
        cause=st.sampled_from(Cause),
        decision_id=NAMES,
        command_id=NAMES,
        writer_epoch=st.integers(0, 2**63 - 1),
    )
)
def test_record_of_any_content_survives_its_written_form(record: OwnershipRecord) -> None:
    key, value = format_record(record)
    assert parse_record(key, value) == record
    assert parse_record(key, value, orjson.loads) == record

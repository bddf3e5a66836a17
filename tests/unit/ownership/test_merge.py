"""A merge from its first record to its end: both parents in one commit, never half of it."""

from dataclasses import replace

import pytest

from lbcore.config.ownership import OwnershipConfig
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    Action,
    IntentReason,
    RefusalReason,
    Refused,
    Surroundings,
    Transition,
    joined,
    partner_of,
    record_fault,
)
from lbcore.ownership.protocol import cancel, merge
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.repair import FlightWatch, repair
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.values.ownership_records import ORIGIN, A, B, owned

LOW, HIGH = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"
WHOLE, FAR = "t/n/0x00000000_0x80000000", "t/n/0x80000000_0xffffffff"


def pair(low_version: int = 3, high_version: int = 7) -> tuple[OwnershipRecord, OwnershipRecord]:
    low = replace(owned(), bundle=LOW, version_id=low_version)
    return low, replace(low, bundle=HIGH, version_id=high_version)


def merging() -> tuple[OwnershipRecord, OwnershipRecord]:
    made = merge(*pair(), ORIGIN)
    assert isinstance(made, Transition)
    high, low = (change.after for change in made.changes)
    return low, high


def answered(record: OwnershipRecord, outcome: AckOutcome, around: Surroundings) -> Transition:
    ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=outcome)
    answer = acknowledge(record, ack, A, ORIGIN, around)
    assert isinstance(answer, Transition)
    return answer


@pytest.mark.parametrize(
    ("bundle", "merged", "partner"),
    [
        (LOW, WHOLE, HIGH),
        (HIGH, WHOLE, LOW),
        (WHOLE, "t/n/0x00000000_0xffffffff", FAR),
        (WHOLE, WHOLE, ""),
        (FAR, WHOLE, ""),
        ("t/n/0x10000000_0x20000000", WHOLE, ""),
        ("t/m/0x00000000_0x40000000", WHOLE, ""),
        ("none", WHOLE, ""),
    ],
)
def test_partner_is_the_rest_of_the_merged_bundle(bundle: str, merged: str, partner: str) -> None:
    assert partner_of(bundle, merged) == partner
    assert joined(bundle, partner) == (merged if partner else "")


def test_merge_writes_both_parents_in_one_transition() -> None:
    low, high = merging()
    assert (low.state, high.state) == (State.MERGING, State.MERGING)
    assert dict(low.children) == dict(high.children) == {WHOLE: ""}
    assert (low.source, low.destination) == (A.broker, "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"state": State.RELEASING}, RefusalReason.NOT_OWNED),
        ({"bundle": FAR}, RefusalReason.BAD_CHILDREN),
        (
            {"destination": B.broker, "destination_incarnation": B.incarnation},
            RefusalReason.DIFFERENT_OWNERS,
        ),
        ({"destination_incarnation": "later"}, RefusalReason.DIFFERENT_OWNERS),
    ],
)
def test_merge_of_what_is_no_pair_at_rest_is_refused(
    changes: dict[str, object], reason: RefusalReason
) -> None:
    low, high = pair()
    assert merge(low, replace(high, **changes), ORIGIN) == Refused(reason=reason)


@pytest.mark.parametrize("at", [0, 1])
def test_acknowledgement_of_either_parent_ends_both_and_begins_the_child(at: int) -> None:
    both = merging()
    kept = replace(owned(), bundle=WHOLE, state=State.DELETED, version_id=2)
    around = Surroundings(partner=both[1 - at], kept={WHOLE: kept})
    child, other, own = (c.after for c in answered(both[at], AckOutcome.MERGED, around).changes)
    assert (child.bundle, child.state, child.destination) == (WHOLE, State.OWNED, A.broker)
    assert child.version_id == 9, "above both parents, so that tokens only grow"
    assert {other.state, own.state} == {State.DELETED}
    assert {other.bundle, own.bundle} == {LOW, HIGH}


@pytest.mark.parametrize(
    "changes",
    [
        {"state": State.OWNED, "destination": A.broker, "children": {}},
        {"source": B.broker, "source_incarnation": B.incarnation},
        {"source_incarnation": "later"},
        {"children": {"t/n/0x40000000_0xffffffff": ""}},
    ],
)
def test_parent_whose_partner_was_taken_away_stays_as_it_was(changes: dict[str, object]) -> None:
    low, high = merging()
    around = Surroundings(partner=replace(high, **changes))
    made = answered(low, AckOutcome.MERGED, around)
    assert [change.after.state for change in made.changes] == [State.OWNED]
    assert made.record.is_forced
    assert made.record.destination == A.broker


def test_refusal_by_the_service_leaves_the_parent_with_its_owner() -> None:
    low, high = merging()
    made = answered(low, AckOutcome.FAILED, Surroundings(partner=high))
    assert (made.record.state, made.record.destination) == (State.OWNED, A.broker)


@pytest.mark.parametrize(
    ("watch", "action"),
    [
        (FlightWatch(), None),
        (FlightWatch(is_partner_gone=True), Action.CANCEL),
        (FlightWatch(silent_ms=10**9), Action.CANCEL),
        (FlightWatch(waiting_ms=10**9), Action.CANCEL),
    ],
)
def test_merge_that_nobody_ends_is_cancelled(watch: FlightWatch, action: Action | None) -> None:
    intent = repair(merging()[0], watch, OwnershipConfig())
    assert (intent and intent.action) == action
    assert intent is None or intent.reason is IntentReason.NEVER_MERGED


def test_cancelled_merge_gives_each_parent_back() -> None:
    made = cancel(merging()[1], ORIGIN)
    assert isinstance(made, Transition)
    assert (made.record.state, made.record.bundle) == (State.OWNED, HIGH)


@pytest.mark.parametrize("children", [{}, {WHOLE: "", FAR: ""}, {FAR: ""}, {LOW: ""}])
def test_merging_record_names_one_bundle_that_it_is_an_end_of(children: dict[str, str]) -> None:
    fault = record_fault(replace(merging()[0], children=children))
    assert fault is not None
    assert "its neighbour" in fault

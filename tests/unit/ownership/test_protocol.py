"""Transitions of an ownership record: requests, answers, repair, busy ranges, merges."""

from dataclasses import replace
from typing import Any

import pytest

from lbcore.config.ownership import OwnershipConfig
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    AckContext,
    Action,
    Instance,
    Intent,
    IntentReason,
    RefusalReason,
    Refused,
    Transition,
    record_fault,
)
from lbcore.ownership.protocol import cancel, merge
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.repair import FlightWatch, Presence, repair
from lbcore.ownership.states import TRANSITIONS, TransitionKind
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.values.ownership_records import (
    A2,
    B2,
    LEFT,
    MAKERS,
    ORIGIN,
    RIGHT,
    A,
    B,
    C,
    assigning,
    deleted,
    free,
    owned,
    record_of,
    releasing,
    say,
    splitting,
)

REQUESTS = {
    TransitionKind.ASSIGN: lambda record: protocol.assign(record, C, ORIGIN),
    TransitionKind.UNLOAD: lambda record: protocol.unload(record, ORIGIN),
    TransitionKind.SPLIT: lambda record: protocol.split(record, {LEFT: "", RIGHT: ""}, ORIGIN),
    TransitionKind.REASSIGN: lambda record: protocol.reassign(record, C, ORIGIN),
    TransitionKind.REDIRECT: lambda record: protocol.redirect(record, C, ORIGIN),
    TransitionKind.CANCEL: lambda record: protocol.cancel(record, ORIGIN),
    TransitionKind.DELETE: lambda record: protocol.delete(record, ORIGIN),
}


@pytest.mark.parametrize("state", MAKERS)
@pytest.mark.parametrize("move", REQUESTS)
def test_request_in_every_state_makes_the_next_version_or_is_refused_as_the_table_says(
    move: TransitionKind, state: State
) -> None:
    before, arrow = MAKERS[state](), TRANSITIONS[move]
    made = REQUESTS[move](before)
    if state not in arrow.sources:
        assert isinstance(made, Refused)
        return
    after = record_of(made)
    assert (after.state, after.is_forced) == (arrow.target, arrow.is_forced)
    assert after.version_id == before.version_id + 1
    assert made.changes[-1].before == before
    assert record_fault(after) is None


@pytest.mark.parametrize(
    ("action", "record", "state"),
    [
        (Action.REASSIGN, owned(), State.ASSIGNING),
        (Action.REDIRECT, releasing(A, B), State.RELEASING),
        (Action.CANCEL, releasing(A, B), State.OWNED),
    ],
)
def test_intent_carried_out_makes_the_record_that_it_names(
    action: Action, record: OwnershipRecord, state: State
) -> None:
    intent = Intent(action=action, reason=IntentReason.NEVER_CLOSED)
    assert record_of(protocol.apply_intent(record, intent, C, ORIGIN)).state is state


@pytest.mark.parametrize("record", [releasing(A, B), splitting()])
def test_failed_source_keeps_the_bundle(record: OwnershipRecord) -> None:
    made = record_of(say(record, AckOutcome.FAILED, A))
    assert (made.state, made.destination, made.is_forced) == (State.OWNED, "broker-a", True)


@pytest.mark.parametrize(
    ("record", "outcome", "sender", "version", "reason"),
    [
        (None, AckOutcome.OPENED, A, 1, RefusalReason.UNKNOWN_BUNDLE),
        (assigning(), AckOutcome.OPENED, A, 1, RefusalReason.LATE),
        (assigning(), AckOutcome.OPENED, A, 3, RefusalReason.OUT_OF_ORDER),
        (assigning(), AckOutcome.OPENED, B, 2, RefusalReason.FORGED),
        (assigning(), AckOutcome.OPENED, A2, 2, RefusalReason.OTHER_INCARNATION),
        (assigning(), AckOutcome.CLOSED, A, 2, RefusalReason.WRONG_OUTCOME),
        (assigning(), AckOutcome.CLOSING, A, 2, RefusalReason.WRONG_OUTCOME),
        (owned(), AckOutcome.OPENED, A, 2, RefusalReason.REPEATED),
        (owned(), AckOutcome.OPENED, A, 3, RefusalReason.REPEATED),
        (owned(), AckOutcome.OPENED, B, 2, RefusalReason.LATE),
        (owned(), AckOutcome.OPENED, B, 3, RefusalReason.FORGED),
        (owned(), AckOutcome.CLOSED, A, 3, RefusalReason.WRONG_OUTCOME),
        (releasing(A, B), AckOutcome.CLOSED, B, 4, RefusalReason.FORGED),
        (releasing(A, B), AckOutcome.OPENED, B, 4, RefusalReason.WRONG_OUTCOME),
        (releasing(A, B), AckOutcome.SPLIT, A, 4, RefusalReason.WRONG_OUTCOME),
        (splitting(), AckOutcome.CLOSED, A, 4, RefusalReason.WRONG_OUTCOME),
        (free(), AckOutcome.CLOSED, A, 1, RefusalReason.WRONG_OUTCOME),
        (deleted(), AckOutcome.CLOSED, A, 4, RefusalReason.WRONG_OUTCOME),
    ],
)
def test_ack_that_does_not_fit_changes_nothing_and_says_why(
    record: OwnershipRecord | None,
    outcome: AckOutcome,
    sender: Instance,
    version: int,
    reason: RefusalReason,
) -> None:
    assert say(record, outcome, sender, version) == Refused(reason=reason)


@pytest.mark.parametrize("record", [releasing(A), releasing(A, B)])
def test_closed_said_twice_is_repeated(record: OwnershipRecord) -> None:
    after = record_of(say(record, AckOutcome.CLOSED, A))
    assert say(after, AckOutcome.CLOSED, A, 4) == Refused(reason=RefusalReason.REPEATED)
    assert say(after, AckOutcome.CLOSED, A2, 4) == Refused(reason=RefusalReason.LATE)


def test_split_said_twice_is_repeated() -> None:
    after = record_of(say(splitting(), AckOutcome.SPLIT, A))
    assert say(after, AckOutcome.SPLIT, A, 4) == Refused(reason=RefusalReason.REPEATED)


@pytest.mark.parametrize("state", MAKERS)
@pytest.mark.parametrize("outcome", AckOutcome)
@pytest.mark.parametrize("sender", [A, A2, B, B2, C])
def test_ack_in_any_state_makes_the_next_version_an_intent_or_nothing(
    state: State, outcome: AckOutcome, sender: Instance
) -> None:
    before = MAKERS[state]()
    for version in range(before.version_id + 2):
        answer = say(before, outcome, sender, version)
        if isinstance(answer, Transition):
            assert version == before.version_id
            assert sender == A
            assert answer.record.version_id == version + 1
        elif isinstance(answer, Refused):
            assert answer.reason.value
        else:
            assert (version, sender) == (before.version_id, A)


CONFIG = OwnershipConfig()
IN_FLIGHT = CONFIG.in_flight_timeout_ms
UNLOAD = CONFIG.unload_timeout_ms
DEAD, RESTARTED, ALIVE = Presence.DEAD, Presence.RESTARTED, Presence.ALIVE


def intent(action: Action, reason: IntentReason, destination: str = "") -> Intent:
    return Intent(action=action, reason=reason, destination=destination)


@pytest.mark.parametrize(
    ("record", "watch", "expected"),
    [
        (owned(), {}, ""),
        (owned(), {"waiting_ms": 10 * UNLOAD, "silent_ms": 10 * UNLOAD}, ""),
        (owned(), {"destination": DEAD}, "REASSIGN OWNER_DEAD"),
        (owned(), {"destination": RESTARTED}, "REASSIGN RESTARTED broker-a"),
        (owned(), {"source": DEAD}, ""),
        (assigning(), {"waiting_ms": IN_FLIGHT}, ""),
        (assigning(), {"waiting_ms": IN_FLIGHT + 1}, "REASSIGN NEVER_OPENED"),
        (assigning(), {"destination": DEAD}, "REASSIGN DESTINATION_DEAD"),
        (assigning(), {"destination": RESTARTED}, "REASSIGN RESTARTED broker-a"),
        (releasing(A, B), {"waiting_ms": UNLOAD, "silent_ms": IN_FLIGHT}, ""),
        (
            releasing(A, B),
            {"waiting_ms": UNLOAD, "silent_ms": IN_FLIGHT + 1},
            "CANCEL NEVER_CLOSED",
        ),
        (releasing(A, B), {"waiting_ms": UNLOAD + 1}, "CANCEL NEVER_CLOSED"),
        (releasing(A, B), {"source": DEAD}, "REASSIGN SOURCE_DEAD broker-b"),
        (
            releasing(A, B),
            {"source": DEAD, "destination": RESTARTED},
            "REASSIGN SOURCE_DEAD broker-b",
        ),
        (releasing(A, B), {"source": DEAD, "destination": DEAD}, "REASSIGN SOURCE_DEAD"),
        (releasing(A, B), {"source": RESTARTED}, "REASSIGN RESTARTED broker-b"),
        (releasing(A, B), {"destination": DEAD}, "REDIRECT DESTINATION_DEAD"),
        (releasing(A, B), {"destination": DEAD, "silent_ms": IN_FLIGHT + 1}, "CANCEL NEVER_CLOSED"),
        (releasing(A, B), {"destination": RESTARTED}, ""),
        (releasing(A), {"source": DEAD}, "REASSIGN SOURCE_DEAD"),
        (releasing(A), {"source": RESTARTED}, "REASSIGN RESTARTED"),
        (splitting(), {"waiting_ms": UNLOAD, "silent_ms": IN_FLIGHT}, ""),
        (splitting(), {"silent_ms": IN_FLIGHT + 1}, "CANCEL NEVER_SPLIT"),
        (splitting(), {"source": DEAD}, "REASSIGN SOURCE_DEAD"),
        (splitting(), {"source": RESTARTED}, "REASSIGN RESTARTED broker-a"),
        (free(), {"source": DEAD, "destination": DEAD, "waiting_ms": 10 * UNLOAD}, ""),
        (deleted(), {"source": DEAD, "destination": DEAD, "waiting_ms": 10 * UNLOAD}, ""),
    ],
)
def test_record_under_watch_needs_what_the_design_says(
    record: OwnershipRecord, watch: dict[str, Any], expected: str
) -> None:
    """expected: action, reason and destination of the intent; "" = none."""
    action, reason, destination = (*expected.split(), "", "", "")[:3]
    needed = repair(record, FlightWatch(**watch), CONFIG)
    if not expected:
        assert needed is None
        return
    assert needed == intent(Action[action], IntentReason[reason], destination)


@pytest.mark.parametrize("record", [releasing(A, B), releasing(A), splitting()])
@pytest.mark.parametrize("waited_ms", [0, IN_FLIGHT + 1, 10 * UNLOAD])
@pytest.mark.parametrize("destination", Presence)
def test_live_source_never_loses_a_bundle_under_its_feet(
    record: OwnershipRecord, waited_ms: int, destination: Presence
) -> None:
    watch = FlightWatch(destination=destination, waiting_ms=waited_ms, silent_ms=waited_ms)
    needed = repair(record, watch, CONFIG)
    assert needed is None or needed.action is not Action.REASSIGN


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


def answered(record: OwnershipRecord, outcome: AckOutcome, context: AckContext) -> Transition:
    ack = Ack(bundle=record.bundle, version_id=record.version_id, outcome=outcome)
    answer = acknowledge(record, ack, A, ORIGIN, context)
    assert isinstance(answer, Transition)
    return answer


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


def test_refusal_by_the_service_leaves_the_parent_with_its_owner() -> None:
    low, high = merging()
    made = answered(low, AckOutcome.FAILED, AckContext(partner=high))
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

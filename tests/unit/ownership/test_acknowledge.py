"""What brokers' answers make of a record, and which answers change nothing."""

from dataclasses import replace

import pytest

from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    Action,
    Instance,
    Intent,
    IntentReason,
    ProtocolError,
    RefusalReason,
    Refused,
    Surroundings,
    Transition,
)
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.values.ownership_records import (
    A2,
    B2,
    BUNDLE,
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


def test_opened_makes_the_destination_the_owner() -> None:
    record = owned()
    assert (record.state, record.version_id) == (State.OWNED, 3)
    assert (record.destination, record.destination_incarnation) == ("broker-a", "a1")


def test_closed_without_destination_frees_the_bundle() -> None:
    record = record_of(say(releasing(), AckOutcome.CLOSED, A))
    assert (record.state, record.source, record.destination) == (State.FREE, "broker-a", "")


def test_closed_with_destination_assigns_it_in_its_present_incarnation() -> None:
    surroundings = Surroundings(incarnations={"broker-b": "b2"})
    record = record_of(say(releasing(A, B), AckOutcome.CLOSED, A, surroundings=surroundings))
    assert record.state is State.ASSIGNING
    assert (record.destination, record.destination_incarnation) == ("broker-b", "b2")
    assert (record.source, record.source_incarnation) == ("broker-a", "a1")


def test_closed_with_a_destination_that_is_gone_keeps_the_incarnation_named() -> None:
    record = record_of(say(releasing(A, B), AckOutcome.CLOSED, A))
    assert record.destination_incarnation == "b1"


def test_split_makes_the_children_owned_and_the_parent_deleted_in_one_transition() -> None:
    parent = splitting()
    made = say(parent, AckOutcome.SPLIT, A)
    assert isinstance(made, Transition)
    left, right, gone = (change.after for change in made.changes)
    assert [left.bundle, right.bundle, gone.bundle] == [LEFT, RIGHT, BUNDLE]
    assert [left.state, right.state, gone.state] == [State.OWNED, State.OWNED, State.DELETED]
    assert (left.destination, left.destination_incarnation) == ("broker-a", "a1")
    assert (gone.source, gone.is_forced, gone.version_id) == ("broker-a", False, 5)
    assert made.changes[0].before is None
    assert made.record == gone


def test_children_start_above_every_token_of_their_parent() -> None:
    parent = splitting()
    made = say(parent, AckOutcome.SPLIT, A)
    assert made.changes[0].after.version_id == parent.version_id + 1
    floored = say(parent, AckOutcome.SPLIT, A, surroundings=Surroundings(version_floor=90))
    assert floored.changes[0].after.version_id == 91


def test_child_with_a_record_of_an_earlier_life_goes_on_above_it() -> None:
    kept = replace(deleted(), bundle=LEFT, version_id=30)
    made = say(splitting(), AckOutcome.SPLIT, A, surroundings=Surroundings(kept={LEFT: kept}))
    assert made.changes[0].before == kept
    assert made.changes[0].after.version_id == 31


def test_child_that_lives_already_is_a_bug() -> None:
    surroundings = Surroundings(kept={LEFT: replace(owned(), bundle=LEFT)})
    with pytest.raises(ProtocolError, match="must not exist before"):
        say(splitting(), AckOutcome.SPLIT, A, surroundings=surroundings)


@pytest.mark.parametrize("record", [releasing(A, B), splitting()])
def test_closing_asks_to_wait(record: OwnershipRecord) -> None:
    intent = Intent(action=Action.WAIT, reason=IntentReason.STILL_CLOSING)
    assert say(record, AckOutcome.CLOSING, A) == intent


@pytest.mark.parametrize("record", [releasing(A, B), splitting()])
def test_failed_source_keeps_the_bundle(record: OwnershipRecord) -> None:
    made = record_of(say(record, AckOutcome.FAILED, A))
    assert (made.state, made.destination, made.is_forced) == (State.OWNED, "broker-a", True)


@pytest.mark.parametrize("record", [assigning(), owned()])
def test_failed_owner_asks_for_another_destination(record: OwnershipRecord) -> None:
    intent = Intent(action=Action.REASSIGN, reason=IntentReason.CANNOT_SERVE)
    assert say(record, AckOutcome.FAILED, A) == intent


def test_follow_up_keeps_the_decision_and_command_of_its_record() -> None:
    origin = replace(ORIGIN, decision_id="", command_id="", cause=Cause.ACK, now_ms=2_000)
    record = assigning()
    ack = Ack(bundle=BUNDLE, version_id=2, outcome=AckOutcome.OPENED)
    made = record_of(acknowledge(record, ack, A, origin, Surroundings()))
    assert (made.decision_id, made.command_id, made.cause) == ("d1", "c1", Cause.ACK)
    assert made.timestamp_ms == 2_000


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


def test_ack_of_what_was_overridden_by_force_is_late_not_repeated() -> None:
    cancelled = record_of(protocol.cancel(releasing(A, B), ORIGIN))
    assert say(cancelled, AckOutcome.OPENED, A, 4) == Refused(reason=RefusalReason.LATE)


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

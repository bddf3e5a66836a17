"""Transitions of an ownership record: requests, failures, broker answers, repair, busy ranges."""

from dataclasses import replace
from typing import Any

import pytest

from lbcore.config.ownership import OwnershipConfig
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    NOBODY,
    Action,
    Instance,
    Intent,
    IntentReason,
    ProtocolError,
    RefusalReason,
    Refused,
    Surroundings,
    Transition,
    record_fault,
    transition,
)
from lbcore.ownership.holding import BusyRanges, OpenRanges
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.repair import FlightWatch, Presence, repair
from lbcore.ownership.states import TRANSITIONS, TransitionKind
from lbcore.wire.messages import Ack, AckOutcome
from tests.support.values.ownership_records import (
    A2,
    B2,
    BUNDLE,
    CLUSTER,
    LEFT,
    MAKERS,
    NAMESPACE,
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


def brokers(record: OwnershipRecord) -> tuple[str, str, str, str]:
    """Source, its incarnation, destination, its incarnation."""
    return (
        record.source,
        record.source_incarnation,
        record.destination,
        record.destination_incarnation,
    )


def test_create_makes_a_free_bundle_of_version_one_with_its_origin() -> None:
    record = free()
    assert (record.state, record.version_id, record.is_forced) == (State.FREE, 1, False)
    assert (record.cluster, record.bundle, record.timestamp_ms) == (CLUSTER, BUNDLE, 1_000)
    assert (record.decision_id, record.command_id, record.writer_epoch) == ("d1", "c1", 7)
    assert brokers(record) == ("", "", "", "")


@pytest.mark.parametrize(
    ("previous", "floor", "version"),
    [(None, 0, 1), (None, 41, 42), (deleted(), 0, 5), (deleted(), 9, 10)],
)
def test_create_again_goes_on_above_every_version_there_was(
    previous: OwnershipRecord | None, floor: int, version: int
) -> None:
    made = protocol.create(CLUSTER, BUNDLE, ORIGIN, previous=previous, version_floor=floor)
    assert record_of(made).version_id == version
    assert made.changes[0].before == previous


@pytest.mark.parametrize("state", [state for state in MAKERS if state is not State.DELETED])
def test_create_of_a_live_bundle_is_refused(state: State) -> None:
    made = protocol.create(CLUSTER, BUNDLE, ORIGIN, previous=MAKERS[state]())
    assert made == Refused(reason=RefusalReason.EXISTS)


def test_transfer_to_the_owner_is_refused_in_any_incarnation() -> None:
    refused = Refused(reason=RefusalReason.SAME_BROKER)
    assert protocol.transfer(owned(), A, ORIGIN) == refused
    assert protocol.transfer(owned(), A2, ORIGIN) == refused


def test_split_names_owner_and_children_in_order() -> None:
    record = record_of(protocol.split(owned(), {RIGHT: "", LEFT: "broker-b"}, ORIGIN))
    assert (record.state, record.version_id) == (State.SPLITTING, 4)
    assert brokers(record) == ("broker-a", "a1", "", "")
    assert list(record.children.items()) == [(LEFT, "broker-b"), (RIGHT, "")]


@pytest.mark.parametrize(
    "children",
    [
        (),
        (BUNDLE,),
        (LEFT,),
        (LEFT, f"{NAMESPACE}/0x90000000_0xffffffff"),
        (LEFT, f"{NAMESPACE}/0x70000000_0xffffffff"),
        (LEFT, "tenant/other/0x80000000_0xffffffff"),
        (LEFT, "0x80000000_0xffffffff"),
        (LEFT, f"{NAMESPACE}/0x80000000_0xf0000000"),
    ],
)
def test_split_into_bundles_that_do_not_tile_it_is_refused(children: tuple[str, ...]) -> None:
    made = protocol.split(owned(), dict.fromkeys(children, ""), ORIGIN)
    assert made == Refused(reason=RefusalReason.BAD_CHILDREN)


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
    ("record", "destination", "source"),
    [
        (owned(), B, ("broker-a", "a1")),
        (owned(), A2, ("", "")),
        (assigning(), A, ("", "")),
        (assigning(), B, ("broker-a", "a1")),
        (releasing(A, B), B, ("broker-a", "a1")),
        (splitting(), C, ("broker-a", "a1")),
    ],
)
def test_reassign_names_whom_the_bundle_is_taken_from_unless_it_is_the_same_broker(
    record: OwnershipRecord, destination: Instance, source: tuple[str, str]
) -> None:
    made = record_of(protocol.reassign(record, destination, ORIGIN))
    assert brokers(made) == (*source, destination.broker, destination.incarnation)


def test_redirect_changes_the_destination_only() -> None:
    made = record_of(protocol.redirect(releasing(A, B), C, ORIGIN))
    assert brokers(made) == ("broker-a", "a1", "broker-c", "c1")
    without = record_of(protocol.redirect(releasing(A, B), NOBODY, ORIGIN))
    assert brokers(without) == ("broker-a", "a1", "", "")
    refused = Refused(reason=RefusalReason.SAME_BROKER)
    assert protocol.redirect(releasing(A, B), A, ORIGIN) == refused


@pytest.mark.parametrize("record", [releasing(A, B), splitting()])
def test_cancel_gives_the_bundle_back_to_its_source(record: OwnershipRecord) -> None:
    made = record_of(protocol.cancel(record, ORIGIN))
    assert (made.state, brokers(made)) == (State.OWNED, ("", "", "broker-a", "a1"))
    assert made.children == {}


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
    assert record_of(protocol.carry_out(record, intent, C, ORIGIN)).state is state


def test_record_that_the_resolver_refuses_is_a_bug() -> None:
    with pytest.raises(ProtocolError, match="illegal_transition"):
        transition((free(), replace(owned(), version_id=2)))
    with pytest.raises(ProtocolError, match="old_version"):
        transition((deleted(), free()))
    with pytest.raises(ProtocolError, match="destination must be given in Owned"):
        transition(
            (None, OwnershipRecord(cluster="x", bundle=BUNDLE, state=State.OWNED, version_id=1))
        )


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


WHOLE = "t/n/0x00000000_0xffffffff"
LEFT_OF_BUSY_RANGES = "t/n/0x00000000_0x80000000"
RIGHT_OF_BUSY_RANGES = "t/n/0x80000000_0xffffffff"
LAST = "t/n/0xffffffff_0xffffffff"
MIDDLE = "t/n/0x70000000_0x90000000"
FIRST = "t/n/0x00000000_0x00000001"
ELSEWHERE = "t/other/0x00000000_0xffffffff"


@pytest.mark.parametrize(
    ("busy", "bundle", "is_free"),
    [
        ([], WHOLE, True),
        ([WHOLE], WHOLE, False),
        ([WHOLE], LEFT_OF_BUSY_RANGES, False),
        ([LEFT_OF_BUSY_RANGES], RIGHT_OF_BUSY_RANGES, True),
        ([RIGHT_OF_BUSY_RANGES], LEFT_OF_BUSY_RANGES, True),
        ([LEFT_OF_BUSY_RANGES, RIGHT_OF_BUSY_RANGES], MIDDLE, False),
        ([LEFT_OF_BUSY_RANGES], WHOLE, False),
        ([LAST], RIGHT_OF_BUSY_RANGES, False),
        ([LAST], LEFT_OF_BUSY_RANGES, True),
        ([RIGHT_OF_BUSY_RANGES], LAST, False),
        ([FIRST], LEFT_OF_BUSY_RANGES, False),
        ([WHOLE], "t/other/0x00000000_0xffffffff", True),
    ],
)
def test_range_is_taken_only_when_it_overlaps_no_busy_one(
    busy: list[str], bundle: str, *, is_free: bool
) -> None:
    ranges = BusyRanges({})
    assert all(ranges.take(name) for name in busy)
    assert ranges.take(bundle) is is_free


def test_released_range_may_be_taken_again() -> None:
    ranges = BusyRanges({})
    ranges.take(LEFT_OF_BUSY_RANGES)
    ranges.release(LEFT_OF_BUSY_RANGES)
    assert ranges.take(WHOLE)


def test_release_of_a_range_that_is_not_busy_is_a_bug() -> None:
    with pytest.raises(ValueError, match="not in list"):
        BusyRanges({}).release(LEFT_OF_BUSY_RANGES)


def test_frozen_ranges_are_a_value_of_their_own() -> None:
    ranges = BusyRanges({})
    ranges.take(RIGHT_OF_BUSY_RANGES)
    frozen = ranges.freeze()
    later = BusyRanges(frozen)
    later.take(LEFT_OF_BUSY_RANGES)
    assert frozen == {"t/n": ((0x80000000, 0xFFFFFFFF),)}
    assert later.freeze() == {"t/n": ((0, 0x7FFFFFFF), (0x80000000, 0xFFFFFFFF))}


def test_frozen_ranges_without_change_are_the_same_object_and_empty_ones_go() -> None:
    before = {"t/n": ((0, 0x7FFFFFFF),)}
    assert BusyRanges(before).freeze() is before
    ranges = BusyRanges(before)
    ranges.release(LEFT_OF_BUSY_RANGES)
    assert ranges.freeze() == {}


@pytest.mark.parametrize(
    ("bundle", "is_overlapping"),
    [
        (WHOLE, True),
        (LEFT_OF_BUSY_RANGES, False),
        (RIGHT_OF_BUSY_RANGES, True),
        (LAST, True),
        (MIDDLE, True),
        (ELSEWHERE, False),
    ],
)
def test_bundle_overlaps_what_is_open(bundle: str, is_overlapping: object) -> None:
    assert OpenRanges([RIGHT_OF_BUSY_RANGES]).overlaps(bundle) == is_overlapping


def test_bundle_overlaps_nothing_once_that_is_closed() -> None:
    ranges = OpenRanges([LEFT_OF_BUSY_RANGES, RIGHT_OF_BUSY_RANGES])
    ranges.discard(RIGHT_OF_BUSY_RANGES)
    ranges.discard(MIDDLE)
    assert not ranges.overlaps(RIGHT_OF_BUSY_RANGES)
    assert ranges.overlaps(LEFT_OF_BUSY_RANGES)


def test_bundle_open_over_another_leaves_that_in_place() -> None:
    ranges = OpenRanges([LEFT_OF_BUSY_RANGES])
    ranges.add(WHOLE)
    ranges.add(LEFT_OF_BUSY_RANGES)
    ranges.discard(WHOLE)
    assert ranges.overlaps(LEFT_OF_BUSY_RANGES)
    assert not ranges.overlaps(RIGHT_OF_BUSY_RANGES)

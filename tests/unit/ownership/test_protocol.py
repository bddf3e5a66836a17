"""What requests and failures make of a record: new versions, brokers, refusals."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from lbcore.ownership import protocol
from lbcore.ownership.changes import (
    NOBODY,
    Action,
    Answer,
    Instance,
    Intent,
    IntentReason,
    ProtocolError,
    RefusalReason,
    Refused,
    record_fault,
    transition,
)
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import MOVES, Move
from lbcore.wire.messages import AckOutcome
from tests.support.values.ownership_records import (
    A2,
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


def test_assign_names_the_destination_in_its_incarnation() -> None:
    record = assigning()
    assert (record.state, record.version_id) == (State.ASSIGNING, 2)
    assert brokers(record) == ("", "", "broker-a", "a1")


def test_unload_without_destination_names_the_owner_as_source() -> None:
    record = releasing()
    assert (record.state, record.version_id) == (State.RELEASING, 4)
    assert brokers(record) == ("broker-a", "a1", "", "")


def test_transfer_names_both_brokers() -> None:
    record = record_of(protocol.transfer(owned(), B, ORIGIN))
    assert brokers(record) == ("broker-a", "a1", "broker-b", "b1")


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
    Move.ASSIGN: lambda record: protocol.assign(record, C, ORIGIN),
    Move.UNLOAD: lambda record: protocol.unload(record, ORIGIN),
    Move.SPLIT: lambda record: protocol.split(record, {LEFT: "", RIGHT: ""}, ORIGIN),
    Move.REASSIGN: lambda record: protocol.reassign(record, C, ORIGIN),
    Move.REDIRECT: lambda record: protocol.redirect(record, C, ORIGIN),
    Move.CANCEL: lambda record: protocol.cancel(record, ORIGIN),
    Move.DELETE: lambda record: protocol.delete(record, ORIGIN),
}


@pytest.mark.parametrize("state", MAKERS)
@pytest.mark.parametrize("move", REQUESTS)
def test_request_in_every_state_makes_the_next_version_or_is_refused_as_the_table_says(
    move: Move, state: State
) -> None:
    before, arrow = MAKERS[state](), MOVES[move]
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


@pytest.mark.parametrize("request_", [protocol.assign, protocol.transfer, protocol.reassign])
def test_request_that_needs_a_destination_without_one_is_refused(
    request_: Callable[..., Answer],
) -> None:
    record = free() if request_ is protocol.assign else owned()
    assert request_(record, NOBODY, ORIGIN) == Refused(reason=RefusalReason.NO_DESTINATION)


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


def test_intent_to_wait_carried_out_is_refused() -> None:
    intent = Intent(action=Action.WAIT, reason=IntentReason.STILL_CLOSING)
    assert isinstance(protocol.carry_out(releasing(), intent, C, ORIGIN), Refused)


def test_record_that_the_resolver_refuses_is_a_bug() -> None:
    with pytest.raises(ProtocolError, match="illegal_transition"):
        transition((free(), replace(owned(), version_id=2)))
    with pytest.raises(ProtocolError, match="old_version"):
        transition((deleted(), free()))
    with pytest.raises(ProtocolError, match="destination must be given in Owned"):
        transition(
            (None, OwnershipRecord(cluster="x", bundle=BUNDLE, state=State.OWNED, version_id=1))
        )


def test_whole_life_of_a_bundle_counts_its_versions_without_gap() -> None:
    record = record_of(say(releasing(A, B), AckOutcome.CLOSED, A))
    record = record_of(say(record, AckOutcome.OPENED, B))
    record = record_of(protocol.unload(record, ORIGIN))
    record = record_of(say(record, AckOutcome.CLOSED, B))
    assert (record.state, record.version_id) == (State.FREE, 8)
    assert brokers(record) == ("broker-b", "b1", "", "")
    assert brokers(record_of(protocol.assign(record, C, ORIGIN))) == ("", "", "broker-c", "c1")

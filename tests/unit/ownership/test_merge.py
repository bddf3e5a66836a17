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

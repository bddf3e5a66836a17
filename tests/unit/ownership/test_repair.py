"""What a record in flight needs when brokers are gone or keep everyone waiting."""

import pytest

from lbcore.config.ownership import OwnershipConfig
from lbcore.ownership.changes import Action, Intent, IntentReason
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.repair import FlightWatch, Presence, repair
from tests.support.values.ownership_records import (
    A,
    B,
    assigning,
    deleted,
    free,
    owned,
    releasing,
    splitting,
)

CONFIG = OwnershipConfig()
IN_FLIGHT = CONFIG.in_flight_timeout_ms
UNLOAD = CONFIG.unload_timeout_ms
DEAD, RESTARTED, ALIVE = Presence.DEAD, Presence.RESTARTED, Presence.ALIVE


def intent(action: Action, reason: IntentReason, destination: str = "") -> Intent:
    return Intent(action=action, reason=reason, destination=destination)


@pytest.mark.parametrize(
    ("record", "watch", "expected"),
    [
        (owned(), FlightWatch(), None),
        (owned(), FlightWatch(waiting_ms=10 * UNLOAD, silent_ms=10 * UNLOAD), None),
        (
            owned(),
            FlightWatch(destination=DEAD),
            intent(Action.REASSIGN, IntentReason.OWNER_DEAD),
        ),
        (
            owned(),
            FlightWatch(destination=RESTARTED),
            intent(Action.REASSIGN, IntentReason.RESTARTED, "broker-a"),
        ),
        (owned(), FlightWatch(source=DEAD), None),
        (assigning(), FlightWatch(waiting_ms=IN_FLIGHT), None),
        (
            assigning(),
            FlightWatch(waiting_ms=IN_FLIGHT + 1),
            intent(Action.REASSIGN, IntentReason.NEVER_OPENED),
        ),
        (
            assigning(),
            FlightWatch(destination=DEAD),
            intent(Action.REASSIGN, IntentReason.DESTINATION_DEAD),
        ),
        (
            assigning(),
            FlightWatch(destination=RESTARTED),
            intent(Action.REASSIGN, IntentReason.RESTARTED, "broker-a"),
        ),
        (releasing(A, B), FlightWatch(waiting_ms=UNLOAD, silent_ms=IN_FLIGHT), None),
        (
            releasing(A, B),
            FlightWatch(waiting_ms=UNLOAD, silent_ms=IN_FLIGHT + 1),
            intent(Action.CANCEL, IntentReason.NEVER_CLOSED),
        ),
        (
            releasing(A, B),
            FlightWatch(waiting_ms=UNLOAD + 1),
            intent(Action.CANCEL, IntentReason.NEVER_CLOSED),
        ),
        (
            releasing(A, B),
            FlightWatch(source=DEAD),
            intent(Action.REASSIGN, IntentReason.SOURCE_DEAD, "broker-b"),
        ),
        (
            releasing(A, B),
            FlightWatch(source=DEAD, destination=RESTARTED),
            intent(Action.REASSIGN, IntentReason.SOURCE_DEAD, "broker-b"),
        ),
        (
            releasing(A, B),
            FlightWatch(source=DEAD, destination=DEAD),
            intent(Action.REASSIGN, IntentReason.SOURCE_DEAD),
        ),
        (
            releasing(A, B),
            FlightWatch(source=RESTARTED),
            intent(Action.REASSIGN, IntentReason.RESTARTED, "broker-b"),
        ),
        (
            releasing(A, B),
            FlightWatch(destination=DEAD),
            intent(Action.REDIRECT, IntentReason.DESTINATION_DEAD),
        ),
        (
            releasing(A, B),
            FlightWatch(destination=DEAD, silent_ms=IN_FLIGHT + 1),
            intent(Action.CANCEL, IntentReason.NEVER_CLOSED),
        ),
        (releasing(A, B), FlightWatch(destination=RESTARTED), None),
        (releasing(A), FlightWatch(source=DEAD), intent(Action.REASSIGN, IntentReason.SOURCE_DEAD)),
        (
            releasing(A),
            FlightWatch(source=RESTARTED),
            intent(Action.REASSIGN, IntentReason.RESTARTED),
        ),
        (splitting(), FlightWatch(waiting_ms=UNLOAD, silent_ms=IN_FLIGHT), None),
        (
            splitting(),
            FlightWatch(silent_ms=IN_FLIGHT + 1),
            intent(Action.CANCEL, IntentReason.NEVER_SPLIT),
        ),
        (splitting(), FlightWatch(source=DEAD), intent(Action.REASSIGN, IntentReason.SOURCE_DEAD)),
        (
            splitting(),
            FlightWatch(source=RESTARTED),
            intent(Action.REASSIGN, IntentReason.RESTARTED, "broker-a"),
        ),
        (free(), FlightWatch(source=DEAD, destination=DEAD, waiting_ms=10 * UNLOAD), None),
        (deleted(), FlightWatch(source=DEAD, destination=DEAD, waiting_ms=10 * UNLOAD), None),
    ],
)
def test_record_under_watch_needs_what_the_design_says(
    record: OwnershipRecord, watch: FlightWatch, expected: Intent | None
) -> None:
    assert repair(record, watch, CONFIG) == expected


@pytest.mark.parametrize("record", [releasing(A, B), releasing(A), splitting()])
@pytest.mark.parametrize("waited_ms", [0, IN_FLIGHT + 1, 10 * UNLOAD])
@pytest.mark.parametrize("destination", Presence)
def test_live_source_never_loses_a_bundle_under_its_feet(
    record: OwnershipRecord, waited_ms: int, destination: Presence
) -> None:
    watch = FlightWatch(destination=destination, waiting_ms=waited_ms, silent_ms=waited_ms)
    needed = repair(record, watch, CONFIG)
    assert needed is None or needed.action is not Action.REASSIGN

"""Repair of records whose broker is gone or does not respond.

Decides what must happen to a record, not where the bundle goes: `protocol.apply_intent` executes
it, with a destination that placement chooses. Called for each record in flight, and for each record
of a broker that died or restarted. Compare monitorOwnerships and overrideOwnership of Pulsar
4.0.8's ServiceUnitStateChannelImpl: after one time limit they take the bundle away even from a live
source.
"""

from dataclasses import dataclass
from enum import Enum

from lbcore.config.ownership import OwnershipConfig
from lbcore.ownership.changes import Action, Intent, IntentReason
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import LEAVING


def stuck_after_ms(config: OwnershipConfig) -> int:
    """Return the time in flight after which a bundle is stuck: one close, two repairs."""
    return config.unload_timeout_ms + 2 * config.in_flight_timeout_ms


class Presence(str, Enum):
    """Presence of a broker in the incarnation that a record names."""

    ALIVE = "alive"
    RESTARTED = "restarted"
    DEAD = "dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightWatch:
    """Observations about a record in flight.

    source, destination: ALIVE also if the record names none. waiting_ms: time since the record was
    written. silent_ms: time since the last ack *closing*, or since the record was written. Both are
    by the clock of `brokers.watch_clocks`. is_partner_gone: the other bundle of its merge is not
    being merged with it.
    """

    source: Presence = Presence.ALIVE
    destination: Presence = Presence.ALIVE
    waiting_ms: int = 0
    silent_ms: int = 0
    is_partner_gone: bool = False


def repair(record: OwnershipRecord, watch: FlightWatch, config: OwnershipConfig) -> Intent | None:
    """Return the repair that the record needs now; None = none yet.

    Owned, Assigning: a destination that is dead or has restarted does not have the bundle open, and
    one that doesn't open it within in_flight_timeout_ms loses it. Releasing, Splitting, Merging: a
    source that is dead or has restarted loses it to the destination, if there is one. A live source
    never loses it: after in_flight_timeout_ms of silence or unload_timeout_ms of closing, the
    operation is cancelled and the source keeps the bundle.

    The intent suggests a restarted broker as the destination, except for a bundle that it was
    releasing; the caller may choose another.
    """
    if record.state in (State.OWNED, State.ASSIGNING):
        return _repair_destination(record, watch, config)
    if record.state in LEAVING:
        return _repair_source(record, watch, config)
    return None


def _repair_destination(
    record: OwnershipRecord, watch: FlightWatch, config: OwnershipConfig
) -> Intent | None:
    if watch.destination is Presence.RESTARTED:
        return _reassign(IntentReason.RESTARTED, record.destination)
    if watch.destination is Presence.DEAD:
        is_owner = record.state is State.OWNED
        return _reassign(IntentReason.OWNER_DEAD if is_owner else IntentReason.DESTINATION_DEAD)
    if record.state is State.ASSIGNING and watch.waiting_ms > config.in_flight_timeout_ms:
        return _reassign(IntentReason.NEVER_OPENED)
    return None


def _repair_source(
    record: OwnershipRecord, watch: FlightWatch, config: OwnershipConfig
) -> Intent | None:
    if watch.source is not Presence.ALIVE:
        is_dead = watch.source is Presence.DEAD
        reason = IntentReason.SOURCE_DEAD if is_dead else IntentReason.RESTARTED
        if record.destination and watch.destination is not Presence.DEAD:
            return _reassign(reason, record.destination)
        is_given_up = is_dead or record.state is State.RELEASING
        return _reassign(reason, "" if is_given_up else record.source)
    is_silent = watch.silent_ms > config.in_flight_timeout_ms
    if is_silent or watch.waiting_ms > config.unload_timeout_ms or watch.is_partner_gone:
        return Intent(action=Action.CANCEL, reason=_NEVER_DONE[record.state])
    if watch.destination is Presence.DEAD:
        return Intent(action=Action.REDIRECT, reason=IntentReason.DESTINATION_DEAD)
    return None


_NEVER_DONE = {
    State.RELEASING: IntentReason.NEVER_CLOSED,
    State.SPLITTING: IntentReason.NEVER_SPLIT,
    State.MERGING: IntentReason.NEVER_MERGED,
}


def _reassign(reason: IntentReason, destination: str = "") -> Intent:
    return Intent(action=Action.REASSIGN, reason=reason, destination=destination)

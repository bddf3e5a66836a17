"""The balancer's side of ownership: effects of requests and failures on a record.

Pure functions from one record to its next version; the caller gives the destination. `acknowledge`
handles brokers' answers, `repair` finds what is stuck in flight. Source: the roles and events of
Pulsar 4.0.8's ServiceUnitStateChannelImpl. Different here: one writer, incarnations, and forced
reassignment to Assigning. Pulsar forces Owned, and nobody notices an owner that never opens.
"""

from collections.abc import Mapping
from dataclasses import replace

from lbcore.ownership.changes import (
    NOBODY,
    Action,
    Instance,
    Intent,
    Origin,
    RefusalReason,
    Refused,
    Transition,
    advance,
    destination_of,
    holder_of,
    joined,
    next_record,
    source_of,
    tiles,
    transition,
    unborn,
)
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.states import TRANSITIONS, TransitionKind, may_start


def create(
    cluster: str,
    bundle: str,
    origin: Origin,
    *,
    previous: OwnershipRecord | None = None,
    version_floor: int = 0,
) -> Transition | Refused:
    """Create a bundle, Free.

    previous: the kept record of an earlier bundle of this name, which must be Deleted, else EXISTS.
    version_floor: no earlier bundle of this range had a higher version. Versions continue above
    both, so that none is used twice for a hash.
    """
    if not may_start(TransitionKind.CREATE, State.INIT if previous is None else previous.state):
        return Refused(reason=RefusalReason.EXISTS)
    first = unborn(cluster, bundle, previous, version_floor)
    return transition((previous, next_record(first, TransitionKind.CREATE, origin)))


def assign(record: OwnershipRecord, destination: Instance, origin: Origin) -> Transition | Refused:
    """Make Free → Assigning(destination)."""
    if not may_start(TransitionKind.ASSIGN, record.state):
        return Refused(reason=RefusalReason.NOT_FREE)
    if not destination.broker:
        return Refused(reason=RefusalReason.NO_DESTINATION)
    return advance(record, TransitionKind.ASSIGN, origin, destination=destination)


def unload(
    record: OwnershipRecord, origin: Origin, destination: Instance = NOBODY
) -> Transition | Refused:
    """Make Owned → Releasing(owner → destination, or Free without one)."""
    if not may_start(TransitionKind.UNLOAD, record.state):
        return Refused(reason=RefusalReason.NOT_OWNED)
    if destination.broker == record.destination:
        return Refused(reason=RefusalReason.SAME_BROKER)
    return advance(record, TransitionKind.UNLOAD, origin, destination_of(record), destination)


def transfer(
    record: OwnershipRecord, destination: Instance, origin: Origin
) -> Transition | Refused:
    """Make Owned → Releasing(owner → destination); a destination is required."""
    if not destination.broker:
        return Refused(reason=RefusalReason.NO_DESTINATION)
    return unload(record, origin, destination)


def split(
    record: OwnershipRecord, children: Mapping[str, str], origin: Origin
) -> Transition | Refused:
    """Make Owned → Splitting(owner, children).

    children: two or more bundle names that tile the bundle's range exactly, else BAD_CHILDREN; each
    with the broker that shall get it afterwards ("" = stay).
    """
    if not may_start(TransitionKind.SPLIT, record.state):
        return Refused(reason=RefusalReason.NOT_OWNED)
    if not tiles(record.bundle, list(children)):
        return Refused(reason=RefusalReason.BAD_CHILDREN)
    splitting = next_record(record, TransitionKind.SPLIT, origin, source=destination_of(record))
    return transition((record, replace(splitting, children=dict(sorted(children.items())))))


def merge(one: OwnershipRecord, other: OwnershipRecord, origin: Origin) -> Transition | Refused:
    """Make Owned → Merging(owner, merged bundle), for two neighbours in one commit."""
    if not all(may_start(TransitionKind.MERGE, record.state) for record in (one, other)):
        return Refused(reason=RefusalReason.NOT_OWNED)
    merged = joined(one.bundle, other.bundle)
    if not merged:
        return Refused(reason=RefusalReason.BAD_CHILDREN)
    owner = destination_of(one)
    if owner != destination_of(other):
        return Refused(reason=RefusalReason.DIFFERENT_OWNERS)
    begun = [
        (record, next_record(record, TransitionKind.MERGE, origin, owner))
        for record in (other, one)  # last: the one whose record is returned
    ]
    return transition(*((before, replace(after, children={merged: ""})) for before, after in begun))


def delete(record: OwnershipRecord, origin: Origin) -> Transition | Refused:
    """Make any live state → Deleted, by force; who holds the bundle closes it.

    If the range may be opened elsewhere afterwards (a namespace that is created again), unload the
    bundle first and delete it when it is Free.
    """
    if not may_start(TransitionKind.DELETE, record.state):
        return Refused(reason=RefusalReason.DELETED)
    return advance(record, TransitionKind.DELETE, origin, source=holder_of(record))


def reassign(
    record: OwnershipRecord, destination: Instance, origin: Origin
) -> Transition | Refused:
    """Make Owned or in flight → Assigning(destination), by force.

    For a holder that is dead, has restarted, can't serve or opens too late, or by an operator's
    override; repairs never take a bundle from a live source. The destination may be the same
    broker, in a new incarnation or to try again.
    """
    if not may_start(TransitionKind.REASSIGN, record.state):
        return Refused(reason=RefusalReason.NOT_OWNED)
    if not destination.broker:
        return Refused(reason=RefusalReason.NO_DESTINATION)
    holder = holder_of(record)
    source = NOBODY if holder.broker == destination.broker else holder
    return advance(record, TransitionKind.REASSIGN, origin, source, destination)


def redirect(
    record: OwnershipRecord, destination: Instance, origin: Origin
) -> Transition | Refused:
    """Make Releasing(source → old) → Releasing(source → destination), by force.

    destination NOBODY: the bundle becomes Free once the source has closed it.
    """
    if not may_start(TransitionKind.REDIRECT, record.state):
        return Refused(reason=RefusalReason.NOT_IN_FLIGHT)
    if destination.broker == record.source:
        return Refused(reason=RefusalReason.SAME_BROKER)
    return advance(record, TransitionKind.REDIRECT, origin, source_of(record), destination)


def cancel(record: OwnershipRecord, origin: Origin) -> Transition | Refused:
    """Make Releasing, Splitting or Merging → Owned(source), by force.

    The source keeps it, or opens it again.
    """
    if not may_start(TransitionKind.CANCEL, record.state):
        return Refused(reason=RefusalReason.NOT_IN_FLIGHT)
    return advance(record, TransitionKind.CANCEL, origin, destination=source_of(record))


def apply_intent(
    record: OwnershipRecord, intent: Intent, destination: Instance, origin: Origin
) -> Transition | Refused:
    """Apply an intent; WAIT is refused. `destination` is ignored for CANCEL."""
    if intent.action is Action.WAIT:
        return Refused(reason=RefusalReason.NOT_IN_FLIGHT)
    if intent.action is Action.CANCEL:
        return cancel(record, origin)
    move = reassign if intent.action is Action.REASSIGN else redirect
    return move(record, destination, origin)


def observe(record: OwnershipRecord, owner: Instance, origin: Origin) -> Transition | Refused:
    """Make any live state → Owned(owner), or Free if the owner is NOBODY; by force.

    Refused as REPEATED if the record says so already, as DELETED if the bundle is gone. Only under
    an external authority: the observed owner already serves the bundle, no broker has to act.
    """
    kind = TransitionKind.OBSERVE_OWNER if owner.broker else TransitionKind.OBSERVE_FREE
    if record.state in (State.DELETED, State.INIT):
        return Refused(reason=RefusalReason.DELETED)
    holder = holder_of(record)
    is_known = record.state is TRANSITIONS[kind].target
    # an observation may start in each state that is left but Free, seen without an owner again
    if not may_start(kind, record.state) or (is_known and holder == owner):
        return Refused(reason=RefusalReason.REPEATED)
    source = NOBODY if holder.broker == owner.broker else holder
    return advance(record, kind, origin, source, owner)

"""Transitions that follow from a broker's acknowledgement of a record.

Late, repeated, forged and out-of-order answers change nothing: the reason is returned. Called by
the balancer for each ack. Source: the follow-up events of Pulsar 4.0.8's
ServiceUnitStateChannelImpl, which in Pulsar each broker publishes itself.
"""

from dataclasses import replace

from lbcore.ownership.changes import (
    AckContext,
    Action,
    Consequence,
    Instance,
    Intent,
    IntentReason,
    Origin,
    ProtocolError,
    RefusalReason,
    Refused,
    Transition,
    advance,
    destination_of,
    holder_of,
    next_record,
    source_of,
    transition,
    unborn,
)
from lbcore.ownership.protocol import cancel
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.resolve import is_newer, next_version
from lbcore.ownership.states import LEAVING, TransitionKind
from lbcore.wire.messages import Ack, AckOutcome


def acknowledge(
    record: OwnershipRecord | None, ack: Ack, sender: Instance, origin: Origin, context: AckContext
) -> Consequence:
    """Return the consequence of a broker's answer for the record that it names.

    It counts only from the broker that must act, in the incarnation and at the version of the
    record. opened: Assigning → Owned. closed: Releasing → Assigning(destination, in its present
    incarnation) or Free. split: the children Owned, the parent Deleted; children start above the
    parent's version (Pulsar: at 1), so that fencing tokens only grow for each hash. merged: the one
    child Owned, both parents Deleted, if the sender is still merging both. closing: the intent
    WAIT; the caller notes the time for `repair`. failed: a source keeps the bundle; a broker that
    could not open it, or no longer serves it, loses it (the intent REASSIGN).
    """
    refusal = _refuse(record, ack, sender)
    if refusal is not None or record is None:
        return Refused(reason=refusal or RefusalReason.UNKNOWN_BUNDLE)
    follow_up = replace(origin, decision_id=record.decision_id, command_id=record.command_id)
    if ack.outcome is AckOutcome.CLOSING:
        return Intent(action=Action.WAIT, reason=IntentReason.STILL_CLOSING)
    if ack.outcome is AckOutcome.FAILED:
        if record.state in LEAVING:
            return cancel(record, follow_up)
        return Intent(action=Action.REASSIGN, reason=IntentReason.CANNOT_SERVE)
    if ack.outcome is AckOutcome.OPENED:
        return _opened(record, follow_up)
    follow = _closed if ack.outcome is AckOutcome.CLOSED else _reshaped
    return follow(record, follow_up, context)


_OUTCOMES = {
    State.ASSIGNING: {AckOutcome.OPENED, AckOutcome.FAILED},
    State.OWNED: {AckOutcome.OPENED, AckOutcome.FAILED},
    State.RELEASING: {AckOutcome.CLOSING, AckOutcome.CLOSED, AckOutcome.FAILED},
    State.SPLITTING: {AckOutcome.CLOSING, AckOutcome.SPLIT, AckOutcome.FAILED},
    State.MERGING: {AckOutcome.CLOSING, AckOutcome.MERGED, AckOutcome.FAILED},
}
_ALREADY_DONE = {
    (AckOutcome.OPENED, State.OWNED): destination_of,
    (AckOutcome.CLOSED, State.ASSIGNING): source_of,
    (AckOutcome.CLOSED, State.FREE): source_of,
    (AckOutcome.SPLIT, State.DELETED): source_of,
    (AckOutcome.MERGED, State.DELETED): source_of,
}


def _refuse(record: OwnershipRecord | None, ack: Ack, sender: Instance) -> RefusalReason | None:
    if record is None:
        return RefusalReason.UNKNOWN_BUNDLE
    if is_newer(ack.version_id, record.version_id):
        return RefusalReason.OUT_OF_ORDER
    if ack.version_id != record.version_id:
        return _refuse_old(record, ack, sender)
    if ack.outcome not in _OUTCOMES.get(record.state, ()):
        return RefusalReason.WRONG_OUTCOME
    return _refuse_sender(holder_of(record), sender)


def _refuse_sender(expected: Instance, sender: Instance) -> RefusalReason | None:
    if sender.broker != expected.broker:
        return RefusalReason.FORGED
    if sender.incarnation != expected.incarnation:
        return RefusalReason.OTHER_INCARNATION
    return None


def _refuse_old(record: OwnershipRecord, ack: Ack, sender: Instance) -> RefusalReason:
    done_by = _ALREADY_DONE.get((ack.outcome, record.state))
    is_repeated = (
        done_by is not None
        and not record.is_forced
        and next_version(ack.version_id) == record.version_id
        and done_by(record) == sender
    )
    return RefusalReason.REPEATED if is_repeated else RefusalReason.LATE


def _opened(record: OwnershipRecord, origin: Origin) -> Consequence:
    if record.state is State.OWNED:
        return Refused(reason=RefusalReason.REPEATED)
    return advance(record, TransitionKind.OPENED, origin, source_of(record), destination_of(record))


def _closed(record: OwnershipRecord, origin: Origin, context: AckContext) -> Transition:
    source, named = source_of(record), destination_of(record)
    if not named.broker:
        return advance(record, TransitionKind.CLOSED_WITHOUT_DESTINATION, origin, source)
    present = context.incarnations.get(named.broker, named.incarnation)
    destination = replace(named, incarnation=present)
    return advance(record, TransitionKind.CLOSED_WITH_DESTINATION, origin, source, destination)


def are_partners(record: OwnershipRecord, other: OwnershipRecord) -> bool:
    """Return True if one broker is merging both into the same bundle."""
    return (
        record.state is other.state is State.MERGING
        and dict(record.children) == dict(other.children)
        and source_of(record) == source_of(other)
    )


def _reshaped(record: OwnershipRecord, origin: Origin, context: AckContext) -> Consequence:
    """Make the children Owned and the parents Deleted, in one commit.

    A bundle whose partner was taken away from their merge is given back.
    """
    parents, done = [record], TransitionKind.SPLIT_DONE
    if record.state is State.MERGING:
        if context.partner is None or not are_partners(record, context.partner):
            return cancel(record, origin)
        parents, done = [context.partner, record], TransitionKind.MERGE_DONE
    owner, changes = source_of(record), []
    floor = max(*(parent.version_id for parent in parents), context.version_floor)
    for name in sorted(record.children):
        previous = context.kept.get(name)
        if previous is not None and previous.state is not State.DELETED:
            raise ProtocolError(f"child {name} must not exist before the {done.value}, but it does")
        child = unborn(record.cluster, name, previous, floor)
        owned = next_record(child, TransitionKind.BEGIN_AS_CHILD, origin, destination=owner)
        changes.append((previous, owned))
    deleted = [(parent, next_record(parent, done, origin, source=owner)) for parent in parents]
    return transition(*changes, *deleted)

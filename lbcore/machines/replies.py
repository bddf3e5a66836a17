"""Replies: what brokers answer to ownership records, and the audit trail of services.

Decides nothing by itself: `ownership.acknowledge` says what an answer changes. Third phase of
`balancer`. Source: ours.
"""

from collections.abc import Sequence

from lbcore.machines.repairs import carry_out_all
from lbcore.machines.work import Work
from lbcore.model.tables import AUDIT
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import Action, Instance, Intent, Refused, Surroundings, Transition
from lbcore.ownership.records import Cause, OwnershipRecord
from lbcore.wire.messages import Ack, Acks, AuditEntry

_AUDITED = ("cluster", "principal", "address", "action", "is_allowed", "reason", "command_id")


def take_acks(work: Work, messages: Sequence[Acks]) -> None:
    """Take in brokers' answers, in the order of the log; what is refused is counted by reason."""
    incarnations = {
        name: entry.incarnation for name, entry in work.brokers.items() if not entry.is_silent
    }
    intents: list[tuple[str, Intent]] = []
    for message in messages:
        envelope = message.envelope
        sender = Instance(broker=envelope.broker, incarnation=envelope.incarnation)
        for ack in message.acks:
            intent = _take(work, ack, sender, incarnations)
            if intent is not None:
                intents.append((ack.bundle, intent))
    if intents:
        carry_out_all(work, [(work.ledger.index[name], intent) for name, intent in intents])


def take_audit(work: Work, entries: Sequence[AuditEntry]) -> None:
    """Count the audit entries of services, and have each written down."""
    for entry in entries:
        work.counts[f"audit:{'allowed' if entry.is_allowed else 'refused'}"] += 1
        work.add_row(AUDIT.name, {name: getattr(entry, name) for name in _AUDITED})


def _take(work: Work, ack: Ack, sender: Instance, incarnations: dict[str, str]) -> Intent | None:
    record = work.ledger.record(ack.bundle)
    origin = work.origin(Cause.ACK)
    around = _surroundings(work, record, incarnations)
    answer = acknowledge(record, ack, sender, origin, around)
    if isinstance(answer, Transition):
        work.apply(answer)
        work.counts[f"ack:{ack.outcome.value}"] += 1
    elif isinstance(answer, Refused):
        work.counts[f"ack_refused:{answer.reason.value}"] += 1
    elif answer.action is Action.WAIT:
        row = work.ledger.index[ack.bundle]
        work.ledger.closing_clock_ms[row] = work.liveness.elapsed_ms
        work.counts[f"ack:{ack.outcome.value}"] += 1
    else:
        return answer
    return None


def _surroundings(
    work: Work, record: OwnershipRecord | None, incarnations: dict[str, str]
) -> Surroundings:
    if record is None or not record.children:
        return Surroundings(incarnations=incarnations)
    children = {name: work.ledger.record(name) for name in record.children}
    namespace = work.namespaces[record.bundle.rpartition("/")[0]]
    return Surroundings(
        incarnations=incarnations,
        kept={name: kept for name, kept in children.items() if kept is not None},
        version_floor=namespace.highest_version,
    )

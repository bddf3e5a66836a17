"""Replies: what brokers answer to ownership records, and the audit trail of services.

Decides nothing by itself: `ownership.acknowledge` says what an answer changes. Third phase of
`balancer`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from lbcore.balancer.intake.eligible_brokers import is_external
from lbcore.balancer.state.work import Work
from lbcore.balancer.transitions.repairs import carry_out_all
from lbcore.balancer.transitions.splits import finish_split
from lbcore.model.tables import AUDIT
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import Action, Instance, Intent, Refused, Surroundings, Transition
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.scorer.group_update import Placed
from lbcore.wire.messages import Ack, AckOutcome, Acks, AuditEntry, Position

_AUDITED = ("cluster", "principal", "address", "action", "is_allowed", "reason", "command_id")


@dataclass(frozen=True, slots=True)
class BrokerAnswer:
    """One row of a message of acks, with the message's place in Kafka."""

    sender: Instance
    ack: Ack
    position: Position


def answers_of(placed: Sequence[Placed]) -> list[BrokerAnswer]:
    """The rows of messages of acks, in their order."""
    found = []
    for item in placed:
        if isinstance(item.message, Acks):
            envelope, position = item.message.envelope, item.position
            sender = Instance(broker=envelope.broker, incarnation=envelope.incarnation)
            found += [BrokerAnswer(sender, ack, position) for ack in item.message.acks]
    return found


def take_answers(work: Work, answers: Sequence[BrokerAnswer]) -> None:
    """Take in brokers' answers, in the order of the log; what is refused is counted by reason."""
    incarnations = {
        name: entry.incarnation for name, entry in work.brokers.items() if not entry.is_silent
    }
    intents: dict[str, tuple[int, Intent]] = {}
    _reserve_children(work, answers)
    for answer in answers:
        ack = answer.ack
        intent = _take(work, ack, answer.sender, incarnations)
        if intent is not None:
            intents[ack.bundle] = (ack.version_id, intent)
    rows = [(work.ledger.index[name], *intents[name]) for name in sorted(intents)]
    wanted = [(row, intent) for row, version, intent in rows if version == work.ledger.version[row]]
    if wanted and not is_external(work):
        carry_out_all(work, wanted)


def take_audit(work: Work, entries: Sequence[AuditEntry]) -> None:
    """Count the audit entries of services, and have each written down."""
    for entry in entries:
        work.counts[f"audit:{'allowed' if entry.is_allowed else 'refused'}"] += 1
        work.add_row(AUDIT.name, {name: getattr(entry, name) for name in _AUDITED})


def _reserve_children(work: Work, answers: Sequence[BrokerAnswer]) -> None:
    """Rows for the children of all splits that are answered: each added alone costs as much."""
    acks = (answer.ack for answer in answers)
    answered = {ack.bundle for ack in acks if ack.outcome is AckOutcome.SPLIT}
    children = (work.ledger.children.get(bundle, {}) for bundle in sorted(answered))
    work.ledger.add(child for names in children for child in names)


def _take(work: Work, ack: Ack, sender: Instance, incarnations: dict[str, str]) -> Intent | None:
    record = work.ledger.record(ack.bundle)
    origin = work.origin(Cause.ACK)
    around = _surroundings(work, record, incarnations)
    answer = acknowledge(record, ack, sender, origin, around)
    if isinstance(answer, Transition):
        work.apply(answer)
        if ack.outcome is AckOutcome.FAILED and ack.reason:
            work.failures[ack.bundle] = ack.reason
        if record is not None and ack.outcome is AckOutcome.SPLIT:
            finish_split(work, record)
        work.counts[f"ack:{ack.outcome.value}"] += 1
    elif isinstance(answer, Refused):
        work.counts[f"ack_refused:{answer.reason.value}"] += 1
    elif answer.action is Action.WAIT:
        work.ledger.note_closing(ack.bundle, work.clock_ms)
        work.counts[f"ack:{ack.outcome.value}"] += 1
    elif _is_second_failure(record):
        work.counts["failed_again"] += 1
    else:
        return answer
    return None


def _is_second_failure(record: OwnershipRecord | None) -> bool:
    """True if a repair gave the bundle to this broker; then the next repair waits.

    Otherwise a bundle that no broker can open would be reassigned once per batch.
    """
    is_assigning = record is not None and record.state is State.ASSIGNING
    return is_assigning and record is not None and record.cause is Cause.REPAIR


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

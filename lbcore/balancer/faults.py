"""Faults of a batch: outcomes of commands, rows of messages, an alarm and a row in `decisions`.

Table rows are the same whenever the batch is repeated; the error's own text goes into the log
alone. Transitions are checked for the invariants of ownership before rows are made of them.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.balancer.intake.intake import reject
from lbcore.balancer.state.outcome import FAILED, Outcome
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.waiting import write_outcome
from lbcore.balancer.transitions.replies import BrokerAnswer
from lbcore.fault_isolation import ALARM, Fault
from lbcore.ownership.changes import Change
from lbcore.ownership.invariants import violations_of_changes
from lbcore.scorer.group_update import Placed
from lbcore.wire.messages import Command

_SHOWN = 3


class BrokenInvariantError(AssertionError):
    """The balancer was about to write records that must never be."""


def check_transitions(work: Work) -> None:
    """Raise BrokenInvariantError when the batch's transitions break what must always hold."""
    changes = [Change(before=before, after=after) for before, after in work.transitions]
    ledger = work.ledger
    found = violations_of_changes(
        changes, lambda namespace: (ledger.names[row] for row in ledger.live_rows(namespace))
    )
    if found:
        sentences = "; ".join(violation.sentence for violation in found[:_SHOWN])
        message = (
            f"{len(found)} violations of ownership in one batch, nothing of it was written: "
            f"{sentences}; this is a bug: keep the state folder and report it"
        )
        raise BrokenInvariantError(message)


ROWS_EVERY_MS = 60_000
"""A fault that comes with each batch is written down once in this time; the metric counts all."""

KIND, REASON = "fault", "InternalError"
"""Of the row in `decisions`."""

_ROWS_MAX = 20
_WRITTEN = ("number", "phase", "type", "place", "item", "count")


def put_command_aside(work: Work, item: Placed, fault: Fault) -> str:
    """The command has failed."""
    command = item.message
    if not isinstance(command, Command):
        return put_message_aside(work, item, fault)
    write_outcome(work, command, Outcome(status=FAILED, reason=fault.sentence))
    return f"{command.kind} {command.command_id}"


def put_answer_aside(work: Work, item: BrokerAnswer, fault: Fault) -> str:
    """The answer is among the refused; its neighbours in the message are not."""
    reject(work, item.position, repr(item.ack), fault)
    return f"{item.ack.outcome.value} of {item.ack.bundle} by {item.sender.broker}"


def put_message_aside(work: Work, item: Placed, fault: Fault) -> str:
    """The message is among the refused."""
    reject(work, item.position, repr(item.message), fault)
    at = item.position
    return f"{at.topic}-{at.partition}@{at.offset}"


def tell_faults(work: Work, faults: Sequence[Mapping[str, Any]]) -> None:
    """Count what was put aside, raise the alarm, and write each cause down now and then.

    faults: as `fault_isolation.summarize_faults` says them.
    """
    if not faults:
        return
    work.alarms.add(ALARM)
    work.faults += faults
    for fault in faults:
        work.counts[f"fault:{fault['phase']}"] += fault["count"]
    if work.now_ms - work.times.fault_ms < ROWS_EVERY_MS and work.times.fault_ms:
        return
    work.note(fault_ms=work.now_ms)
    causes = {fault["number"]: fault for fault in reversed(faults)}
    for number in sorted(causes)[:_ROWS_MAX]:
        inputs = {name: causes[number][name] for name in _WRITTEN}
        work.write_decision(work.next_decision(), KIND, REASON, inputs)

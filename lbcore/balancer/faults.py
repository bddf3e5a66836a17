"""What becomes of what is put aside: outcomes of commands, rows of messages, an alarm and a row.

Decides how a fault is told; `put_aside` says what is left out. What goes into tables is the same
whenever the batch is repeated; what an error says in its own words goes into the log alone.
Part of `balancer`. Source: ours.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.balancer.intake.intake import reject
from lbcore.balancer.state.outcome import FAILED, Outcome
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.waiting import write_outcome
from lbcore.balancer.transitions.replies import BrokerAnswer
from lbcore.put_aside import ALARM, Fault
from lbcore.scorer.group_update import Placed
from lbcore.wire.messages import Command

ROWS_EVERY_MS = 60_000
"""A fault that comes with each batch is written down once in this time; the metric counts all."""

KIND, REASON = "fault", "InternalError"
"""Of the row in `decisions`."""

_ROWS_MAX = 20
_WRITTEN = ("number", "phase", "type", "place", "item", "count")


def put_command_aside(work: Work, item: Placed, fault: Fault) -> str:
    """The command has failed, or, where not even that can be written, is among the refused."""
    command = item.message
    if not isinstance(command, Command):
        return put_message_aside(work, item, fault)
    work.guard.first_of(
        lambda: write_outcome(work, command, Outcome(status=FAILED, reason=fault.sentence)),
        lambda: reject(work, item.position, "", fault),
    )
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

    faults: as `put_aside.told` says them.
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

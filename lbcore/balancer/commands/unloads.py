"""Unloads of namespaces, a slice of their bundles at a time if they are many.

Decides which bundles their owners give up in this batch: all, or as many as a batch may; the next
slice when those before have come to rest, so that no batch and no broker gets more at once, and
what else is asked goes on beside it. How far it is, its command says. Begun by the command, driven
on in each batch after the repairs.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lbcore.balancer.commands.bundles import release
from lbcore.balancer.intake.eligible_brokers import reason_not_to_take
from lbcore.balancer.state.outcome import ACCEPTED, AFTER, DONE, FAILED, Outcome, refuse
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.deletions import reason_not_to_change
from lbcore.balancer.tasks.waiting import begin_wait, end_wait, fail_waiting, finish_command
from lbcore.ownership.records import Cause, State
from lbcore.wire.messages import Command

KIND = "unload_namespace"
WHY_SKIPPED = "why_skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Outcome of a slice of an unload.

    result: of all slices until now. moving: bundle → its previous owner. problem: why the first
    bundle with an owner stayed, "" = none did.
    """

    result: Mapping[str, Any]
    moving: Mapping[str, str]
    problem: str = ""


def begin_unload(work: Work, command: Command) -> Outcome:
    """Let the owners of the first slice give it up; the namespace must be there."""
    part = _release(work, command, {AFTER: ""}, max(_room(work), 0))
    is_under_way = part.moving or AFTER in part.result
    if part.problem and not is_under_way:
        return refuse(f"nothing of {_asked(command)[0]} can be unloaded now: {part.problem}")
    status = ACCEPTED if is_under_way else DONE
    return Outcome(status=status, result=part.result, moving=part.moving)


def drive_unloads(work: Work) -> None:
    """Begin the next slice of each namespace whose last one has come to rest."""
    resting = [
        command_id
        for command_id, waiting in work.waiting.items()
        if waiting.command.kind == KIND and AFTER in waiting.result and not waiting.moving
    ]
    work.guard.each(
        "unload",
        resting,
        lambda some: _drive(work, some),
        lambda command_id, fault: fail_waiting(work, command_id, fault),
    )


def _drive(work: Work, command_ids: Sequence[str]) -> None:
    """The smallest rest first; each has an equal part of what is left of a batch's share."""
    sizes = sorted((len(_rest(work, one)), one) for one in command_ids)
    for at, (_, command_id) in enumerate(sizes):
        _advance(work, command_id, max(_room(work) // (len(sizes) - at), 1))


def _advance(work: Work, command_id: str, part: int) -> None:
    waiting = work.waiting[command_id]
    command = waiting.command
    name, destination = _asked(command)
    problem = reason_not_to_change(work, name) or reason_not_to_take(work, destination)
    if problem:
        reason = f"it was given up before its end: {problem}"
        finish_command(work, command_id, Outcome(status=FAILED, reason=reason))
        return
    done = _release(work, command, waiting.result, part)
    begin_wait(work, command, Outcome(status=ACCEPTED, result=done.result, moving=done.moving), 0)
    again = work.waiting[command_id]
    work.waiting[command_id] = replace(again, faults=waiting.faults, failed=waiting.failed)
    if not done.moving and AFTER not in done.result:
        end_wait(work, command_id)


def _release(work: Work, command: Command, before: Mapping[str, Any], part: int) -> _Slice:
    """Let owners give up the next `part` bundles. before: the result of the slices until now."""
    name, destination = _asked(command)
    rest = _rows_after(work, name, str(before[AFTER]))
    rows = rest[:part]
    work.unloaded += len(rows)
    decision_id = work.next_decision()
    origin = work.origin(Cause.ADMIN, decision_id, command.command_id)
    moving: dict[str, str] = {}
    problem = ""
    for row in rows:
        record = work.ledger.record_at(row)
        if record.state is not State.OWNED or record.destination == destination:
            continue
        had, refused = record.destination, release(work, record, origin, destination)
        if not refused:
            moving[record.bundle] = had
        problem = problem or (refused and f"{record.bundle} stays: {refused}")
    counts = {"bundles": len(moving), "skipped": len(rows) - len(moving)}
    result: dict[str, Any] = {key: n + int(before.get(key, 0)) for key, n in counts.items()}
    if why := before.get(WHY_SKIPPED, problem):
        result[WHY_SKIPPED] = why
    if len(rows) < len(rest):
        result[AFTER] = work.ledger.names[rows[-1]] if rows else before[AFTER]
    work.write_decision(
        decision_id,
        kind="transfer" if destination else "unload",
        reason="Admin",
        inputs={"command_id": command.command_id, "namespace": name, **counts},
        destination=destination,
    )
    return _Slice(result=result, moving=moving, problem=problem)


def _room(work: Work) -> int:
    return work.share - work.unloaded


def _rest(work: Work, command_id: str) -> Sequence[int]:
    waiting = work.waiting[command_id]
    return _rows_after(work, _asked(waiting.command)[0], str(waiting.result[AFTER]))


def _rows_after(work: Work, name: str, bundle: str) -> list[int]:
    """The rows of the namespace's bundles that come after one in name order; "" = of all."""
    rows = work.ledger.live_rows(name)
    return rows[bisect_right(rows, bundle, key=work.ledger.names.__getitem__) :]


def _asked(command: Command) -> tuple[str, str]:
    arguments = command.arguments
    return str(arguments["namespace"]), str(arguments.get("destination") or "")

"""Accepted commands that have not ended: identity, deadlines and outcomes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import (
    ACCEPTED,
    AFTER,
    DEADLINE,
    DONE,
    FAILED,
    FAILURES,
    FAULTS,
    FROM,
    QUEUED,
    TIMED_OUT,
    Outcome,
    Waiting,
)
from lbcore.balancer.effects import to_json
from lbcore.fault_isolation import Fault
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.commands import KINDS
from lbcore.wire.messages import Command


def identity_of(kind: str, arguments: Mapping[str, Any], principal: str) -> str:
    """Return 16 hexadecimal digits, equal for equal commands.

    The order of their arguments doesn't matter.
    """
    text = to_json([kind, arguments, principal])
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def identity(command: Command) -> str:
    """Return the identity of a command as it was sent."""
    return identity_of(command.kind, command.arguments, command.principal)


def remember(status: str, command_identity: str) -> str:
    """Return the state's entry for a finished command: its status and its identity."""
    return f"{status} {command_identity}"


def status_of(remembered: str) -> str:
    """Return the status in the state's entry for a command."""
    return remembered.partition(" ")[0]


MAX_WAITING = 1_000
"""Commands that may be under way at once; more are refused, except those that set rules."""

WAIT_MAX_MS = 86_400_000
"""Maximum wait for a command without a timeout, ms; no command may wait for ever."""

_SETTLED = frozenset({State.OWNED, State.FREE, State.DELETED})
_FAULTS_SHOWN = 3


def write_outcome(work: BatchContext, command: Command, outcome: Outcome) -> None:
    """Write a command's outcome; of several in a batch, only the last is kept."""
    work.commands[command.command_id] = remember(outcome.status, identity(command))
    kind = command.kind if command.kind in KINDS else "unknown"
    work.counts[f"command:{kind}:{outcome.status}"] += 1
    work.outcomes.pop(command.command_id, None)
    work.outcomes[command.command_id] = {
        "cluster": work.cluster,
        "at_ms": work.now_ms,
        "command_id": command.command_id,
        "kind": command.kind,
        "arguments": to_json(command.arguments),
        "principal": command.principal,
        "address": command.address,
        "status": outcome.status,
        "reason": outcome.reason,
        "result": to_json(outcome.result),
    }


def begin_wait(
    work: BatchContext,
    command: Command,
    outcome: Outcome,
    deadline_ms: int,
    *,
    is_queued: bool = False,
) -> None:
    """Begin to wait for the end of an accepted command, and write that it is accepted.

    deadline_ms: 0 = it has no timeout of its own. is_queued: it is not begun until its bundle is
    at rest. A command on many bundles begins them in slices: the faults of earlier
    ones stay.
    """
    before = work.waiting.get(command.command_id)
    work.waiting[command.command_id] = Waiting(
        command=command,
        deadline_ms=deadline_ms or work.now_ms + WAIT_MAX_MS,
        is_queued=is_queued,
        moving=outcome.moving,
        result=outcome.result,
        faults=before.faults if before else (),
        failed=before.failed if before else 0,
    )
    _write_accepted(work, work.waiting[command.command_id])


def _write_accepted(work: BatchContext, waiting: Waiting) -> None:
    shown = {**waiting.result, DEADLINE: waiting.deadline_ms, QUEUED: waiting.is_queued}
    if waiting.moving:
        shown[FROM] = dict(waiting.moving)
    if waiting.failed:
        shown |= {FAULTS: list(waiting.faults), FAILURES: waiting.failed}
    write_outcome(work, waiting.command, Outcome(status=ACCEPTED, result=shown))


def record_progress(work: BatchContext, command_id: str, result: Mapping[str, Any]) -> None:
    """Record the progress of an accepted command; nothing if it isn't waiting."""
    waiting = work.waiting.get(command_id)
    if waiting is not None:
        outcome = Outcome(status=ACCEPTED, result={**waiting.result, **result})
        begin_wait(work, waiting.command, outcome, waiting.deadline_ms)


def finish_command(work: BatchContext, command_id: str, outcome: Outcome) -> None:
    """Record the outcome of an accepted command; nothing if it isn't waiting."""
    waiting = work.waiting.pop(command_id, None)
    if waiting is not None:
        result = {**waiting.result, **outcome.result}
        write_outcome(work, waiting.command, replace(outcome, result=result))


def end_wait(work: BatchContext, command_id: str) -> None:
    """End an accepted command whose bundles are all at rest, as done or as failed."""
    waiting = work.waiting[command_id]
    command, outcome = waiting.command, Outcome(status=DONE)
    record = work.ledger.record(str(command.arguments.get("bundle", "")))
    if waiting.failed:
        reason, result = _listed(waiting.faults, waiting.failed), {FAILURES: waiting.failed}
        outcome = Outcome(status=FAILED, reason=reason, result=result)
    elif command.kind == "assign_bundle" and record is not None:
        # a repair may have chosen another broker
        outcome = Outcome(status=DONE, result={"owner": record.destination})
    finish_command(work, command_id, outcome)


def fail_waiting(work: BatchContext, command_id: str, fault: Fault) -> str:
    """End a command whose work raised an error; return its name."""
    finish_command(work, command_id, Outcome(status=FAILED, reason=fault.sentence))
    return command_id


def idle_commands(work: BatchContext, kind: str) -> list[str]:
    """Return commands of a kind with a slice to begin, and no bundle in flight."""
    return [
        command_id
        for command_id, waiting in work.waiting.items()
        if waiting.command.kind == kind and AFTER in waiting.result and not waiting.moving
    ]


MERGE = "merge_bundle"


def settle_commands(work: BatchContext, command_ids: Sequence[str]) -> None:
    """End commands whose bundles are at rest, or whose time is over."""
    asked_for = set(command_ids)
    ended = {name: found for name, found in _ended(work).items() if name in asked_for}
    for command_id in [*ended, *(name for name in command_ids if name not in ended)]:
        waiting, ended_bundles = work.waiting[command_id], ended.get(command_id, {})
        faults = [fault for _, fault in sorted(ended_bundles.items()) if fault]
        if ended_bundles:
            moving = waiting.moving.items()
            waiting = work.waiting[command_id] = replace(
                waiting,
                moving={name: former for name, former in moving if name not in ended_bundles},
                faults=(*waiting.faults, *faults)[:_FAULTS_SHOWN],
                failed=waiting.failed + len(faults),
            )
        if ended_bundles and not waiting.moving and AFTER not in waiting.result:
            end_wait(work, command_id)
        elif waiting.deadline_ms < work.now_ms:
            finish_command(work, command_id, _timed_out(waiting))
        elif faults:  # for a rebuild
            _write_accepted(work, waiting)


def _ended(work: BatchContext) -> dict[str, dict[str, str]]:
    """Return command → bundle that it no longer waits for → what went wrong, or "".

    Also bundles that their destination failed to open and that go to another broker.
    """
    ended: dict[str, dict[str, str]] = {}
    for before, after in work.transitions:
        ids = {after.command_id} if before is None else {before.command_id, after.command_id}
        for command_id in sorted(ids & work.waiting.keys()):
            waiting = work.waiting[command_id]
            found = ended.setdefault(command_id, {})
            if after.bundle not in waiting.moving:
                continue
            if after.command_id != command_id:
                owner = after.destination
                now = f"{after.state.value} at {owner}" if owner else "with nobody"
                overtaken = (
                    f"{after.bundle} was overtaken by {after.cause.value} and is {now}: send the"
                    " command again if it is still wanted"
                )
                found.setdefault(after.bundle, overtaken)
            elif after.state in _SETTLED:
                broker_reason = work.failures.get(after.bundle, "")
                found.setdefault(after.bundle, _fault(waiting, after, broker_reason))
            else:
                found.pop(after.bundle, None)
                lost = before.destination if before is not None else ""
                is_named = lost == waiting.command.arguments.get("destination")
                is_lost = lost and is_named and lost != after.destination
                if is_lost and after.bundle in work.failures:
                    why = f"{work.failures[after.bundle]}. It goes to {after.destination}"
                    found[after.bundle] = f"{after.bundle} was not opened by {lost}: {why}"
    return {command_id: found for command_id, found in ended.items() if found}


def _fault(waiting: Waiting, record: OwnershipRecord, broker_reason: str) -> str:
    """Return the reason why a bundle's final place is wrong; "" if it is as asked.

    broker_reason: why its broker could not do it, in that broker's words; "" = it gave none.
    """
    command, bundle, owner = waiting.command, record.bundle, record.destination
    if command.kind == "split_bundle":
        is_child = bundle in waiting.result.get("children", ())
        why = broker_reason or "read that broker's log, then split it again"
        is_done = is_child or record.state is State.DELETED
        return "" if is_done else f"{bundle} was not split and is with {owner}: {why}"
    if command.kind == MERGE and AFTER not in waiting.result:
        why = broker_reason or "read that broker's log, then merge it again"
        is_done = record.state is State.DELETED
        return "" if is_done else f"{bundle} was not merged and is with {owner}: {why}"
    wanted, former = str(command.arguments.get("destination", "")), waiting.moving[bundle]
    if record.state is not State.OWNED or owner == wanted or (not wanted and owner != former):
        return ""
    if owner == former:
        why = broker_reason or "read its log, then ask again"
        return f"{bundle} stayed with {former}, which did not close it: {why}"
    return f"{bundle} is with {owner} and not with {wanted}: is that broker alive?"


def _timed_out(waiting: Waiting) -> Outcome:
    """Return the outcome of a command whose deadline has passed."""
    names = sorted(waiting.moving)
    still = f": {_listed(names[:_FAULTS_SHOWN], len(names))} still under way" if names else ""
    what = (
        ": it was not begun, because its bundle was busy; send it again"
        if waiting.is_queued
        else f"{still}; it goes on: look at the ownership, or wait longer next time"
    )
    return Outcome(status=TIMED_OUT, reason=f"its time was over before it ended{what}")


def _listed(shown: Sequence[str], count: int) -> str:
    """Return the shown items as text, and how many more of `count` there are."""
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more

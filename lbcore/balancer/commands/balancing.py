"""Commands that hold balancing back: pins, pauses and the brake.

Decides whether each is possible now. Part of `commands`. Source: ours.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.commands.bundles import find_record
from lbcore.balancer.intake.brake import release
from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.rules import Paused, Pin
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.usage import RULES, note_gone, reason_not_to_rule
from lbcore.model.names import tenant_of
from lbcore.wire.kinds.balancing_commands import Pause, ReleaseBrake, Resume
from lbcore.wire.kinds.bundle_commands import PinBundle, UnpinBundle
from lbcore.wire.messages import Command


def _pin(work: Work, command: Command, arguments: PinBundle) -> Outcome:
    bundle, broker = arguments.bundle, arguments.broker
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    entry = work.brokers.get(broker)
    if entry is None or entry.is_silent:
        return refuse(f"broker {broker} is not active; choose one that is")
    pin = Pin(
        broker=broker,
        until_ms=work.now_ms + arguments.ttl_ms if arguments.ttl_ms else 0,
        owner=arguments.owner or command.principal,
        reason=arguments.reason,
    )
    problem = reason_not_to_rule(work, bundle, is_known=bundle in work.rules.pins)
    if problem:
        return refuse(problem)
    work.set_rule("pins", bundle, pin, command)
    return Outcome(status=DONE, result={"until_ms": pin.until_ms})


def _unpin(work: Work, command: Command, arguments: UnpinBundle) -> Outcome:
    if arguments.bundle not in work.rules.pins:
        return refuse(f"bundle {arguments.bundle} is not pinned; table pins lists those that are")
    work.set_rule("pins", arguments.bundle, None, command)
    note_gone(work, RULES, tenant_of(arguments.bundle))
    return Outcome(status=DONE)


def _pause(work: Work, command: Command, arguments: Pause) -> Outcome:
    name = arguments.namespace
    known = work.namespaces.get(name)
    if name and (known is None or known.is_deleted):
        return refuse(f"there is no namespace {name}; table namespaces lists them")
    paused = Paused(since_ms=work.now_ms, by=command.principal, reason=arguments.reason)
    problem = reason_not_to_rule(work, name, is_known=not name or name in work.rules.paused)
    if problem:
        return refuse(problem)
    work.set_rule("paused", name, paused, command)
    return Outcome(status=DONE)


def _resume(work: Work, command: Command, arguments: Resume) -> Outcome:
    name = arguments.namespace
    if name not in work.rules.paused:
        what = f"namespace {name}" if name else "the cluster"
        return refuse(f"{what} is not paused; table policies lists what is")
    work.set_rule("paused", name, None, command)
    note_gone(work, RULES, tenant_of(name))
    return Outcome(status=DONE)


def _release_brake(work: Work, command: Command, arguments: ReleaseBrake) -> Outcome:
    del arguments
    brake = work.rules.brake
    if brake is None:
        return refuse("the brake is not on; table policies shows when it is")
    release(work, "Released", command)
    return Outcome(status=DONE, result={"still_lost": list(brake.lost)})


BALANCING_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "pin_bundle": _pin,
    "unpin_bundle": _unpin,
    "pause": _pause,
    "resume": _resume,
    "release_brake": _release_brake,
}

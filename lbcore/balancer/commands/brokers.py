"""Commands about whole brokers: emptying them, and striking them off the list.

Decides whether each is possible now; `drains` carries a drain on. Part of `commands`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.decisions.placing import usable_brokers
from lbcore.balancer.intake.eligible_brokers import is_draining
from lbcore.balancer.state.outcome import ACCEPTED, DONE, FAILED, Outcome, refuse
from lbcore.balancer.state.rules import Drain
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.drains import held_by, is_named, pins_of_drain
from lbcore.balancer.tasks.forgetting import strike_off
from lbcore.balancer.tasks.waiting import finish_command
from lbcore.wire.kinds.broker_commands import CancelDrain, DrainBroker, ForgetBroker
from lbcore.wire.messages import Command


def _drain(work: Work, command: Command, arguments: DrainBroker) -> Outcome:
    broker = arguments.broker
    problem = _reason_not_to_drain(work, broker)
    if problem:
        return refuse(problem)
    total = held_by(work, broker)
    drain = Drain(
        since_ms=work.now_ms,
        total=total,
        left=total,
        max_in_flight=arguments.max_in_flight,
        deadline_ms=work.now_ms + arguments.deadline_ms if arguments.deadline_ms else 0,
        command_id=command.command_id,
    )
    work.set_rule("drains", broker, drain, command)
    inputs = {
        "total": total,
        "max_in_flight": drain.max_in_flight or work.config.shedding.max_drains_in_flight,
        "deadline_ms": drain.deadline_ms,
        "command_id": command.command_id,
    }
    result = {"total": total, **pins_of_drain(work, broker)}
    inputs |= result
    work.write_decision(work.next_decision(), "drain", "Begun", inputs, source=broker)
    return Outcome(status=ACCEPTED, result=result)


def _reason_not_to_drain(work: Work, broker: str) -> str:
    entry = work.brokers.get(broker)
    if entry is None:
        return f"there is no broker {broker}; `ballast status` lists them"
    if entry.is_silent:
        return f"broker {broker} is silent, its bundles went to others; forget_broker removes it"
    drain = work.rules.drains.get(broker)
    if drain is not None and not drain.is_done:
        return f"broker {broker} is being drained already, {drain.left} bundles are left"
    others = [n for n in usable_brokers(work) if n != broker and not is_draining(work, n)]
    if not others and held_by(work, broker):
        return f"nobody could take the bundles of {broker}: start another broker first"
    return ""


def _cancel_drain(work: Work, command: Command, arguments: CancelDrain) -> Outcome:
    broker = arguments.broker
    drain = work.rules.drains.get(broker)
    if drain is None:
        return refuse(f"broker {broker} is not drained by command; table policies lists drains")
    left = held_by(work, broker)
    work.set_rule("drains", broker, None, command)
    inputs = {"left": left, "total": drain.total, "command_id": command.command_id}
    work.write_decision(work.next_decision(), "drain", "Cancelled", inputs, source=broker)
    reason = f"cancelled by command {command.command_id} with {left} bundles left"
    finish_command(work, drain.command_id, Outcome(status=FAILED, reason=reason))
    return Outcome(status=DONE, result={"left": left})


def _forget(work: Work, command: Command, arguments: ForgetBroker) -> Outcome:
    broker = arguments.broker
    entry = work.brokers.get(broker)
    if entry is None:
        return refuse(f"there is no broker {broker}; `ballast status` lists them")
    if not entry.is_silent:
        return refuse(f"broker {broker} is alive: drain it, stop it, then forget it")
    if is_named(work, broker):
        return refuse(
            f"broker {broker} still has {held_by(work, broker)} bundles by the records, or some "
            "are on their way from it or to it; wait until they have found new owners"
        )
    pins = sum(pin.broker == broker for pin in work.rules.pins.values())
    strike_off(work, broker, command)
    return Outcome(status=DONE, result={"pins_to_it": pins})


BROKER_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "drain_broker": _drain,
    "cancel_drain": _cancel_drain,
    "forget_broker": _forget,
}

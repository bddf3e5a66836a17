"""Commands on brokers, and the bridge's commands that mirror another authority."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbcore.balancer.decisions.placement import usable_brokers
from lbcore.balancer.intake.brokers import is_draining, is_external, note_silent
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import ACCEPTED, DONE, FAILED, NamespaceEntry, Outcome, refuse
from lbcore.balancer.state.rules import Drain
from lbcore.balancer.tasks.deletions import (
    deregister_broker,
    drop_rules_of,
    expire_topics,
    live_records,
    version_floor,
)
from lbcore.balancer.tasks.drains import held_by, is_named, pins_of_drain
from lbcore.balancer.tasks.waiting import finish_command
from lbcore.model.bundles import HashFunction, NamespaceBundles
from lbcore.ownership.changes import Instance, Transition
from lbcore.ownership.protocol import create, delete, observe
from lbcore.ownership.records import Cause, OwnershipRecord
from lbcore.plan.filter.policies import InvalidPolicyError, IsolationPolicy
from lbcore.wire.kinds.balancing_commands import CancelDrain, DrainBroker, ForgetBroker
from lbcore.wire.kinds.mirror_commands import ObserveOwnership, ObservePolicies
from lbcore.wire.messages import Command


def _drain(work: BatchContext, command: Command, arguments: DrainBroker) -> Outcome:
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


def _reason_not_to_drain(work: BatchContext, broker: str) -> str:
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


def _cancel_drain(work: BatchContext, command: Command, arguments: CancelDrain) -> Outcome:
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


def _forget(work: BatchContext, command: Command, arguments: ForgetBroker) -> Outcome:
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
    deregister_broker(work, broker, command)
    return Outcome(status=DONE, result={"pins_to_it": pins})


BROKER_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "drain_broker": _drain,
    "cancel_drain": _cancel_drain,
    "forget_broker": _forget,
}


_OURS = (
    "Ballast is this cluster's authority, so nothing is taken over; set cluster.authority to"
    " external and start the job again, if a bridge is meant to tell of it"
)


def _observe_ownership(
    work: BatchContext, command: Command, arguments: ObserveOwnership
) -> Outcome:
    if not is_external(work):
        return refuse(_OURS)
    active = arguments.brokers
    changed = note_silent(work, work.brokers.keys() - active) if active else 0
    taken = {"brokers": changed, "namespaces": 0, "owners": 0}
    for name in sorted(arguments.namespaces):
        taken["namespaces"] += _take_namespace(work, command, name, arguments.namespaces[name])
    origin = work.origin(Cause.EXTERNAL, command_id=command.command_id)
    late = 0
    for bundle in sorted(arguments.owners):
        version, broker, incarnation = arguments.owners[bundle]
        record = work.ledger.record(bundle)
        if record is None or record.version_id != version:
            late += 1
            continue
        answer = observe(record, Instance(broker=broker, incarnation=incarnation), origin)
        if isinstance(answer, Transition):
            work.apply(answer)
            taken["owners"] += 1
    work.counts["taken_over"] += taken["owners"]
    is_observe_only = work.config.cluster.observe_only
    told = {"late": late, "differences": arguments.differences, "observe_only": is_observe_only}
    found = {"findings": list(arguments.findings)} if arguments.findings else {}
    return Outcome(status=DONE, result={**taken, **told, **found})


def _take_namespace(
    work: BatchContext, command: Command, name: str, boundaries: Sequence[int]
) -> int:
    """Set the namespace's bundles to the boundaries; return how many came or went."""
    wanted = _names(name, boundaries)
    live = {record.bundle: record for record in live_records(work, name)}
    gone = [live[bundle] for bundle in sorted(live.keys() - wanted)]
    new = sorted(wanted - live.keys())
    entry = work.namespaces.get(name)
    if not gone and not new and entry is not None:
        return 0
    # new bundles' versions go on above those of the bundles whose hashes they take
    floor = max(version_floor(work, name), *(record.version_id for record in gone), 0)
    _drop(work, command, gone)
    origin = work.origin(Cause.EXTERNAL, command_id=command.command_id)
    work.ledger.add(new)
    for bundle in new:
        made = create(
            work.cluster,
            bundle,
            origin,
            previous=work.ledger.record(bundle),
            version_floor=floor,
        )
        if isinstance(made, Transition):
            work.apply(made)
    is_deleted = not wanted
    known = entry or NamespaceEntry(hash=HashFunction.CRC32.value)
    kept = replace(known, highest_version=floor, is_deleted=is_deleted)
    if is_deleted:
        expire_topics(work, name)
        drop_rules_of(work, name)
    if kept != entry:
        work.keep_namespace(name, kept)
    return len(gone) + len(new)


def _names(name: str, boundaries: Sequence[int]) -> set[str]:
    if not boundaries:
        return set()
    return set(NamespaceBundles(namespace=name, boundaries=tuple(boundaries)).names())


def _drop(work: BatchContext, command: Command, gone: Sequence[OwnershipRecord]) -> None:
    origin = work.origin(Cause.EXTERNAL, command_id=command.command_id)
    for record in gone:
        answer = delete(record, origin)
        if isinstance(answer, Transition):
            work.apply(answer)
    work.topics = work.topics.without(record.bundle for record in gone)


def _observe_policies(work: BatchContext, command: Command, arguments: ObservePolicies) -> Outcome:
    """All policies are replaced; those that can't be used as they are, are named.

    One with patterns that can't be matched is kept: these match nobody, so that nothing moves to a
    broker that the policy may keep out.
    """
    if not is_external(work):
        return refuse(_OURS)
    told = {name: _isolation(name, arguments.isolation[name]) for name in arguments.isolation}
    isolation = {name: one for name, one in told.items() if isinstance(one, IsolationPolicy)}
    unusable = {name: one for name, one in told.items() if isinstance(one, str)}
    unusable |= {name: why for name, one in isolation.items() for why in one.problems()}
    work.change_rules(command, isolation=isolation, anti_affinity=dict(arguments.anti_affinity))
    counts = {"isolation": len(isolation), "anti_affinity": len(arguments.anti_affinity)}
    return Outcome(status=DONE, result={**counts, "unusable": unusable})


def _isolation(name: str, told: Mapping[str, Any]) -> IsolationPolicy | str:
    """The policy, or why it can't be used."""
    try:
        return IsolationPolicy(
            name=name,
            namespaces=tuple(told["namespaces"]),
            primary=tuple(told["primary"]),
            secondary=tuple(told["secondary"]),
            min_limit=told["min_limit"],
            usage_threshold_percent=int(told["usage_threshold_percent"]),
        )
    except InvalidPolicyError as error:
        return str(error)


EXTERNAL_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "observe_ownership": _observe_ownership,
    "observe_policies": _observe_policies,
}

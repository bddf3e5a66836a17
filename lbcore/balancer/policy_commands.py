"""Commands on rules, settings, plans and brokers, and those of the bridge."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbcore.balancer.approvals import OBSERVED, answer, approve, blocked_steps, offer
from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import ACCEPTED, DONE, FAILED, NamespaceEntry, Outcome, refuse
from lbcore.balancer.brokers import (
    is_draining,
    is_external,
    note_silent,
    reason_not_to_take,
    release,
)
from lbcore.balancer.bundle_commands import find_record
from lbcore.balancer.drains import held_by, is_named, pins_of_drain
from lbcore.balancer.effects import to_json
from lbcore.balancer.moves import reason_to_stand_still
from lbcore.balancer.namespaces import (
    RULES,
    deregister_broker,
    drop_rules_of,
    expire_topics,
    live_records,
    note_gone,
    reason_not_to_rule,
    version_floor,
)
from lbcore.balancer.placement import usable_brokers
from lbcore.balancer.rules import EXCLUDED, Drain, Paused, Pin, PlanStatus, ProposedStep
from lbcore.balancer.waiting import finish_command
from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.values import ConfigError
from lbcore.model.bundles import HashFunction, NamespaceBundles
from lbcore.model.names import tenant_of
from lbcore.model.tables import CONFIG_VERSIONS
from lbcore.model.times import instant
from lbcore.ownership.changes import Instance, Transition
from lbcore.ownership.protocol import create, delete, observe
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import Kind
from lbcore.plan.filter.policies import MAX_POLICIES, InvalidPolicyError, IsolationPolicy
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    CancelDrain,
    DeleteAntiAffinityGroup,
    DeleteIsolationPolicy,
    DrainBroker,
    ForgetBroker,
    Pause,
    ProposePlan,
    RejectPlan,
    ReleaseBrake,
    ResetConfig,
    Resume,
    SetAntiAffinityGroup,
    SetConfig,
    SetIsolationPolicy,
)
from lbcore.wire.kinds.bundle_commands import PinBundle, UnpinBundle
from lbcore.wire.kinds.mirror_commands import ObserveOwnership, ObservePolicies
from lbcore.wire.kinds.namespace_commands import ExcludeNamespace, IncludeNamespace
from lbcore.wire.messages import Command


def _pin(work: BatchContext, command: Command, arguments: PinBundle) -> Outcome:
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


def _unpin(work: BatchContext, command: Command, arguments: UnpinBundle) -> Outcome:
    if arguments.bundle not in work.rules.pins:
        return refuse(f"bundle {arguments.bundle} is not pinned; table pins lists those that are")
    work.set_rule("pins", arguments.bundle, None, command)
    note_gone(work, RULES, tenant_of(arguments.bundle))
    return Outcome(status=DONE)


def _pause(work: BatchContext, command: Command, arguments: Pause) -> Outcome:
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


def _resume(work: BatchContext, command: Command, arguments: Resume) -> Outcome:
    name = arguments.namespace
    if name not in work.rules.paused:
        what = f"namespace {name}" if name else "the cluster"
        return refuse(f"{what} is not paused; table policies lists what is")
    work.set_rule("paused", name, None, command)
    note_gone(work, RULES, tenant_of(name))
    return Outcome(status=DONE)


def _release_brake(work: BatchContext, command: Command, arguments: ReleaseBrake) -> Outcome:
    del arguments
    brake = work.rules.brake
    if brake is None:
        return refuse("the brake is not on; table policies shows when it is")
    release(work, "Released", command)
    return Outcome(status=DONE, result={"still_lost": list(brake.lost)})


BALANCING_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "pin_bundle": _pin,
    "unpin_bundle": _unpin,
    "pause": _pause,
    "resume": _resume,
    "release_brake": _release_brake,
}


def _change_config(
    work: BatchContext, command: Command, arguments: SetConfig | ResetConfig
) -> Outcome:
    try:
        work.use_settings(settings_after(work.settings, arguments))
    except ConfigError as error:
        return refuse(str(error))
    number = work.rules.config_changes + 1
    work.change_rules(command, config_changes=number)
    work.add_row(
        CONFIG_VERSIONS.name,
        {
            "number": number,
            "config_version": work.config_version,
            "settings": to_json(work.settings),
            "principal": command.principal,
            "command_id": command.command_id,
        },
    )
    result = {"config_version": work.config_version, "number": number}
    return Outcome(status=DONE, result=result)


def settings_after(
    settings: Mapping[str, Any], arguments: SetConfig | ResetConfig
) -> Mapping[str, Any]:
    """Return the changed settings by "section.name" after one command more.

    Raises ConfigError for values that can't be read.
    """
    if isinstance(arguments, SetConfig):
        return {**settings, **resolve_changes(arguments.values)}
    if not arguments.keys:
        return {}
    # a key that this version doesn't know may have been changed by one that did
    gone = {name for key in arguments.keys for name in named_by(key) or (key,)}
    return {name: value for name, value in settings.items() if name not in gone}


SETTINGS_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "set_config": _change_config,
    "reset_config": _change_config,
}


def _set_isolation(work: BatchContext, command: Command, arguments: SetIsolationPolicy) -> Outcome:
    try:
        policy = IsolationPolicy(
            name=arguments.policy,
            namespaces=arguments.namespaces,
            primary=arguments.primary,
            secondary=arguments.secondary,
            min_limit=arguments.min_limit,
            usage_threshold_percent=int(arguments.usage_threshold_percent),
        ).checked()
    except InvalidPolicyError as error:
        return refuse(str(error))
    if len(work.rules.isolation.keys() | {policy.name}) > MAX_POLICIES:
        return refuse(f"there are {MAX_POLICIES} isolation policies, the most there may be")
    work.set_rule("isolation", policy.name, policy, command)
    return Outcome(status=DONE)


def _delete_isolation(
    work: BatchContext, command: Command, arguments: DeleteIsolationPolicy
) -> Outcome:
    if arguments.policy not in work.rules.isolation:
        known = ", ".join(sorted(work.rules.isolation)) or "none"
        return refuse(f"there is no isolation policy {arguments.policy}; there are: {known}")
    work.set_rule("isolation", arguments.policy, None, command)
    return Outcome(status=DONE)


def _set_group(work: BatchContext, command: Command, arguments: SetAntiAffinityGroup) -> Outcome:
    name = arguments.namespace
    problem = reason_not_to_rule(work, name, is_known=name in work.rules.anti_affinity)
    if problem:
        return refuse(problem)
    work.set_rule("anti_affinity", name, arguments.group, command)
    return Outcome(status=DONE)


def _delete_group(
    work: BatchContext, command: Command, arguments: DeleteAntiAffinityGroup
) -> Outcome:
    if arguments.namespace not in work.rules.anti_affinity:
        return refuse(f"namespace {arguments.namespace} is in no anti-affinity group")
    work.set_rule("anti_affinity", arguments.namespace, None, command)
    note_gone(work, RULES, tenant_of(arguments.namespace))
    return Outcome(status=DONE)


def _exclude(work: BatchContext, command: Command, arguments: ExcludeNamespace) -> Outcome:
    before, name = work.rules.excluded, arguments.namespace
    at = bisect_left(before, name)
    is_known = before[at : at + 1] == (name,)
    problem = reason_not_to_rule(work, name, is_known=is_known)
    if problem:
        return refuse(problem)
    if not is_known:
        work.rules = replace(work.rules, excluded=(*before[:at], name, *before[at:]))
        work.changed_by[EXCLUDED, name] = command
    return Outcome(status=DONE)


def _include(work: BatchContext, command: Command, arguments: IncludeNamespace) -> Outcome:
    before, name = work.rules.excluded, arguments.namespace
    at = bisect_left(before, name)
    if before[at : at + 1] == (name,):
        work.rules = replace(work.rules, excluded=before[:at] + before[at + 1 :])
        note_gone(work, RULES, tenant_of(name))
        work.changed_by[EXCLUDED, name] = command
        return Outcome(status=DONE)
    if name in work.config.shedding.excluded_namespaces:
        return refuse(
            f"namespace {name} is excluded by the setting shedding.excluded_namespaces; "
            "change that with set_config"
        )
    return refuse(f"namespace {name} is not excluded from shedding")


POLICY_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "set_isolation_policy": _set_isolation,
    "delete_isolation_policy": _delete_isolation,
    "set_anti_affinity_group": _set_group,
    "delete_anti_affinity_group": _delete_group,
    "exclude_namespace": _exclude,
    "include_namespace": _include,
}


OPEN_MAX = 10
"""Plans of people that may wait at once."""


def _propose(work: BatchContext, command: Command, arguments: ProposePlan) -> Outcome:
    people = [one for one in work.rules.proposals.values() if one.by and one.station.is_open]
    if len(people) >= OPEN_MAX:
        return refuse(f"{OPEN_MAX} plans wait already; approve or reject some of them first")
    if arguments.plan in work.rules.proposals:
        return refuse(f"there is a plan {arguments.plan} already; choose another name, or none")
    steps = []
    for bundle, broker in sorted(arguments.moves.items()):
        found = _step(work, bundle, broker, arguments.why)
        if isinstance(found, Outcome):
            return found
        steps.append(found)
    name, proposal = offer(work, steps, arguments.why, command, arguments.plan)
    result = {
        "plan": name,
        "steps": len(steps),
        "until_ms": proposal.until_ms,
        "before": proposal.before,
        "after": proposal.after,
        **_blocked_summary("blocked", blocked_steps(work, steps)),
    }
    return Outcome(status=DONE, result=result)


def _step(work: BatchContext, bundle: str, broker: str, why: str) -> ProposedStep | Outcome:
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    problem = _reason_not_to_move(record, broker) or reason_not_to_take(work, broker)
    if problem:
        return refuse(problem)
    return ProposedStep(
        kind=Kind.TRANSFER.value,
        bundle=bundle,
        source=record.destination,
        destination=broker,
        strategy="",
        reason="Proposed",
        inputs={"why": why},
        version_id=record.version_id,
    )


def _reason_not_to_move(record: OwnershipRecord, broker: str) -> str:
    if record.state is not State.OWNED:
        return f"bundle {record.bundle} is {record.state.value}: propose it when it has an owner"
    if record.destination == broker:
        return f"bundle {record.bundle} is on {broker} already: leave it out"
    return ""


def _approve(work: BatchContext, command: Command, arguments: ApprovePlan) -> Outcome:
    problem = _reason_not_to_answer(work, arguments.plan, (PlanStatus.WAITS,))
    if problem:
        return refuse(problem)
    if work.config.cluster.observe_only:
        advice = "`ballast config set cluster.observe_only=false`, then approve it"
        return refuse(
            f"nothing of plan {arguments.plan} would be carried out: {OBSERVED}; {advice}"
        )
    proposal = work.rules.proposals[arguments.plan]
    skipped = approve(work, arguments.plan, command)
    stands_still, _ = reason_to_stand_still(work)
    waits = {"waits": stands_still} if stands_still else {}
    result = {"steps": len(proposal.steps), **_blocked_summary("skipped", skipped), **waits}
    return Outcome(status=DONE, result=result)


_REPORTED_MAX = 20


def _blocked_summary(name: str, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return how many steps rules prevent, and why the first; {} where there are none."""
    if not reasons:
        return {}
    shown = dict(sorted(reasons.items())[:_REPORTED_MAX])
    return {name: len(reasons), f"why_{name}": shown}


def _reject(work: BatchContext, command: Command, arguments: RejectPlan) -> Outcome:
    problem = _reason_not_to_answer(work, arguments.plan, (PlanStatus.WAITS, PlanStatus.APPROVED))
    if problem:
        return refuse(problem)
    proposal = work.rules.proposals[arguments.plan]
    station = PlanStatus.REJECTED if proposal.station is PlanStatus.WAITS else PlanStatus.STOPPED
    answer(work, arguments.plan, station, arguments.reason, command)
    begun = len(proposal.steps) - len(proposal.left) - proposal.done - proposal.skipped
    counts = {"done": proposal.done, "skipped": proposal.skipped, "begun": begun}
    return Outcome(status=DONE, result={**counts, "left": len(proposal.left)})


def _reason_not_to_answer(work: BatchContext, name: str, stations: tuple[PlanStatus, ...]) -> str:
    proposal = work.rules.proposals.get(name)
    if proposal is None:
        return f"there is no plan {name}; `ballast plan list` has those that wait"
    if proposal.station is PlanStatus.WAITS and work.now_ms >= proposal.until_ms:
        return f"plan {name} has lapsed: its time was over at {instant(proposal.until_ms)}"
    if proposal.station in stations:
        return ""
    by = f" by {proposal.answered_by}" if proposal.answered_by else f": {proposal.why}"
    return f"plan {name} is {proposal.station.value} already{by}; the next one has another name"


PLAN_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "propose_plan": _propose,
    "approve_plan": _approve,
    "reject_plan": _reject,
}


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

"""Commands on rules, settings, plans and brokers, and those of the bridge."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lbcore.balancer.approvals import OBSERVED, answer, approve, blocked_steps, offer
from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import (
    ACCEPTED,
    DONE,
    FAILED,
    BrokerEntry,
    NamespaceEntry,
    Outcome,
    RefusedCommandError,
    refuse_if,
)
from lbcore.balancer.brokers import (
    held_by,
    is_draining,
    is_external,
    is_named,
    note_silent,
    reason_not_to_take,
    release,
    usable_brokers,
)
from lbcore.balancer.bundle_commands import find_record
from lbcore.balancer.effects import to_json
from lbcore.balancer.moves import pins_of_drain, reason_to_stand_still
from lbcore.balancer.namespaces import (
    RULES,
    creations,
    deregister_broker,
    drop_contents,
    has_namespace,
    note_gone,
    reason_not_to_add,
    version_floor,
)
from lbcore.balancer.rules import Drain, Paused, Pin, PlanProposal, PlanStatus, ProposedStep
from lbcore.balancer.waiting import finish_command
from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.values import ConfigError
from lbcore.model.bundles import HashFunction, NamespaceBundles
from lbcore.model.names import tenant_of
from lbcore.model.tables import CONFIG_VERSIONS
from lbcore.model.times import instant
from lbcore.ownership.changes import Instance, Origin
from lbcore.ownership.protocol import delete, observe
from lbcore.ownership.records import Cause, State
from lbcore.plan.decision import Kind
from lbcore.plan.filter.policies import MAX_POLICIES, InvalidPolicyError, IsolationPolicy
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    CancelDrain,
    DeleteIsolationPolicy,
    DrainBroker,
    ForgetBroker,
    Pause,
    ProposePlan,
    RejectPlan,
    ReleaseBrake,
    ResetConfig,
    Resume,
    SetConfig,
    SetIsolationPolicy,
)
from lbcore.wire.kinds.bundle_commands import PinBundle
from lbcore.wire.kinds.mirror_commands import ObserveOwnership, ObservePolicies
from lbcore.wire.kinds.namespace_commands import IncludeNamespace
from lbcore.wire.messages import Command


def _pin(work: BatchContext, command: Command, arguments: PinBundle) -> Outcome:
    bundle, broker = arguments.bundle, arguments.broker
    find_record(work, bundle)
    entry = work.brokers.get(broker)
    refuse_if(entry is None or entry.is_dead, f"broker {broker} is not active; choose one that is")
    pin = Pin(
        broker=broker,
        until_ms=work.now_ms + arguments.ttl_ms if arguments.ttl_ms else 0,
        owner=arguments.owner or command.principal,
        reason=arguments.reason,
    )
    _set_rule(work, "pins", bundle, pin, command)
    return Outcome(status=DONE, result={"until_ms": pin.until_ms})


def _set_rule(work: BatchContext, kind: str, name: str, rule: Any, command: Command) -> Outcome:
    """Set a rule of a namespace or bundle, if its tenant may have one more."""
    is_known = not name or name in getattr(work.rules, kind)
    refuse_if("" if is_known else reason_not_to_add(work, tenant_of(name), {RULES: 1}))
    work.set_rule(kind, name, rule, command)
    return Outcome(status=DONE)


def _take_back(work: BatchContext, kind: str, name: str, command: Command, refusal: str) -> Outcome:
    """Take back a rule of a namespace or bundle. refusal: for one that isn't set."""
    refuse_if(name not in getattr(work.rules, kind), refusal)
    work.set_rule(kind, name, None, command)
    note_gone(work, RULES, tenant_of(name))
    return Outcome(status=DONE)


def _pause(work: BatchContext, command: Command, arguments: Pause) -> Outcome:
    name = arguments.namespace
    refuse_if(
        name and not has_namespace(work, name),
        f"there is no namespace {name}; table namespaces lists them",
    )
    paused = Paused(since_ms=work.now_ms, by=command.principal, reason=arguments.reason)
    return _set_rule(work, "paused", name, paused, command)


def _resume(work: BatchContext, command: Command, arguments: Resume) -> Outcome:
    what = f"namespace {arguments.namespace}" if arguments.namespace else "the cluster"
    refusal = f"{what} is not paused; table policies lists what is"
    return _take_back(work, "paused", arguments.namespace, command, refusal)


def _release_brake(work: BatchContext, command: Command, _: ReleaseBrake) -> Outcome:
    brake = work.rules.brake
    if brake is None:
        raise RefusedCommandError("the brake is not on; table policies shows when it is")
    return Outcome(status=DONE, result={"still_lost": release(work, brake, "Released", command)})


def _change_config(
    work: BatchContext, command: Command, arguments: SetConfig | ResetConfig
) -> Outcome:
    try:
        if isinstance(arguments, SetConfig):
            work.use_settings({**work.settings, **resolve_changes(arguments.values)})
        else:
            # a key that this version doesn't know may have been changed by one that did
            gone = {name for key in arguments.keys for name in named_by(key) or (key,)}
            kept = {name: value for name, value in work.settings.items() if name not in gone}
            work.use_settings(kept if arguments.keys else {})
    except ConfigError as error:
        raise RefusedCommandError(str(error)) from error
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
    return Outcome(status=DONE, result={"config_version": work.config_version, "number": number})


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
        raise RefusedCommandError(str(error)) from error
    refuse_if(
        len(work.rules.isolation.keys() | {policy.name}) > MAX_POLICIES,
        f"there are {MAX_POLICIES} isolation policies, the most there may be",
    )
    work.set_rule("isolation", policy.name, policy, command)
    return Outcome(status=DONE)


def _delete_isolation(
    work: BatchContext, command: Command, arguments: DeleteIsolationPolicy
) -> Outcome:
    known = work.rules.isolation
    refuse_if(
        arguments.policy not in known,
        f"there is no isolation policy {arguments.policy}; there are:"
        f" {', '.join(sorted(known)) or 'none'}",
    )
    work.set_rule("isolation", arguments.policy, None, command)
    return Outcome(status=DONE)


def _include(work: BatchContext, command: Command, arguments: IncludeNamespace) -> Outcome:
    name = arguments.namespace
    refusal = (
        f"namespace {name} is excluded by the setting shedding.excluded_namespaces; "
        "change that with set_config"
        if name in work.config.shedding.excluded_namespaces
        else f"namespace {name} is not excluded from shedding"
    )
    return _take_back(work, "excluded", name, command, refusal)


OPEN_MAX = 10
"""Plans of people that may wait at once."""


def _propose(work: BatchContext, command: Command, arguments: ProposePlan) -> Outcome:
    people = [one for one in work.rules.proposals.values() if one.by and one.station.is_open]
    refuse_if(
        len(people) >= OPEN_MAX,
        f"{OPEN_MAX} plans wait already; approve or reject some of them first",
    )
    refuse_if(
        arguments.plan in work.rules.proposals,
        f"there is a plan {arguments.plan} already; choose another name, or none",
    )
    steps = []
    for bundle, broker in sorted(arguments.moves.items()):
        record = find_record(work, bundle)
        refuse_if(
            record.state is not State.OWNED,
            f"bundle {bundle} is {record.state.value}: propose it when it has an owner",
        )
        refuse_if(
            record.destination == broker, f"bundle {bundle} is on {broker} already: leave it out"
        )
        refuse_if(reason_not_to_take(work, broker))
        steps.append(
            ProposedStep(
                kind=Kind.TRANSFER.value,
                bundle=bundle,
                source=record.destination,
                destination=broker,
                reason="Proposed",
                inputs={"why": arguments.why},
                version_id=record.version_id,
            )
        )
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


def _approve(work: BatchContext, command: Command, arguments: ApprovePlan) -> Outcome:
    name = arguments.plan
    proposal = _find_proposal(work, name, PlanStatus.WAITS)
    refuse_if(
        work.config.cluster.observe_only,
        f"nothing of plan {name} would be carried out: {OBSERVED};"
        " `ballast config set cluster.observe_only=false`, then approve it",
    )
    skipped = approve(work, name, command)
    result = {"steps": len(proposal.steps), **_blocked_summary("skipped", skipped)}
    if stands_still := reason_to_stand_still(work)[0]:
        result["waits"] = stands_still
    return Outcome(status=DONE, result=result)


_REPORTED_MAX = 20


def _blocked_summary(name: str, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return how many steps rules prevent, and the first reasons; {} without any."""
    if not reasons:
        return {}
    shown = dict(sorted(reasons.items())[:_REPORTED_MAX])
    return {name: len(reasons), f"why_{name}": shown}


def _reject(work: BatchContext, command: Command, arguments: RejectPlan) -> Outcome:
    proposal = _find_proposal(work, arguments.plan, PlanStatus.WAITS, PlanStatus.APPROVED)
    station = PlanStatus.REJECTED if proposal.station is PlanStatus.WAITS else PlanStatus.STOPPED
    answer(work, arguments.plan, station, arguments.reason, command)
    begun = len(proposal.steps) - len(proposal.left) - proposal.done - proposal.skipped
    counts = {"done": proposal.done, "skipped": proposal.skipped, "begun": begun}
    return Outcome(status=DONE, result={**counts, "left": len(proposal.left)})


def _find_proposal(work: BatchContext, name: str, *stations: PlanStatus) -> PlanProposal:
    """Return a plan that has one of these statuses. Raises RefusedCommandError."""
    proposal = work.rules.proposals.get(name)
    if proposal is None:
        raise RefusedCommandError(
            f"there is no plan {name}; `ballast plan list` has those that wait"
        )
    refuse_if(
        proposal.station is PlanStatus.WAITS and work.now_ms >= proposal.until_ms,
        f"plan {name} has lapsed: its time was over at {instant(proposal.until_ms)}",
    )
    by = f" by {proposal.answered_by}" if proposal.answered_by else f": {proposal.why}"
    refuse_if(
        proposal.station not in stations,
        f"plan {name} is {proposal.station.value} already{by}; the next one has another name",
    )
    return proposal


def _drain(work: BatchContext, command: Command, arguments: DrainBroker) -> Outcome:
    broker = arguments.broker
    refuse_if(
        _known_broker(work, broker).is_dead,
        f"broker {broker} is silent, its bundles went to others; forget_broker removes it",
    )
    before, total = work.rules.drains.get(broker), held_by(work, broker)
    if before is not None and not before.is_done:
        raise RefusedCommandError(
            f"broker {broker} is being drained already, {before.left} bundles are left"
        )
    others = [n for n in usable_brokers(work) if n != broker and not is_draining(work, n)]
    refuse_if(
        total and not others,
        f"nobody could take the bundles of {broker}: start another broker first",
    )
    drain = Drain(
        since_ms=work.now_ms,
        total=total,
        left=total,
        max_in_flight=arguments.max_in_flight,
        deadline_ms=work.now_ms + arguments.deadline_ms if arguments.deadline_ms else 0,
        command_id=command.command_id,
    )
    work.set_rule("drains", broker, drain, command)
    result = {"total": total, **pins_of_drain(work, broker)}
    inputs = {
        "max_in_flight": drain.max_in_flight or work.config.shedding.max_drains_in_flight,
        "deadline_ms": drain.deadline_ms,
        "command_id": command.command_id,
        **result,
    }
    work.write_decision("drain", "Begun", inputs, source=broker)
    return Outcome(status=ACCEPTED, result=result)


def _known_broker(work: BatchContext, broker: str) -> BrokerEntry:
    if broker not in work.brokers:
        raise RefusedCommandError(f"there is no broker {broker}; `ballast status` lists them")
    return work.brokers[broker]


def _cancel_drain(work: BatchContext, command: Command, arguments: CancelDrain) -> Outcome:
    broker = arguments.broker
    drain = work.rules.drains.get(broker)
    if drain is None:
        raise RefusedCommandError(
            f"broker {broker} is not drained by command; table policies lists drains"
        )
    left = held_by(work, broker)
    work.set_rule("drains", broker, None, command)
    inputs = {"left": left, "total": drain.total, "command_id": command.command_id}
    work.write_decision("drain", "Cancelled", inputs, source=broker)
    reason = f"cancelled by command {command.command_id} with {left} bundles left"
    finish_command(work, drain.command_id, Outcome(status=FAILED, reason=reason))
    return Outcome(status=DONE, result={"left": left})


def _forget(work: BatchContext, command: Command, arguments: ForgetBroker) -> Outcome:
    broker = arguments.broker
    refuse_if(
        not _known_broker(work, broker).is_dead,
        f"broker {broker} is alive: drain it, stop it, then forget it",
    )
    refuse_if(
        is_named(work, broker),
        f"broker {broker} still has {held_by(work, broker)} bundles by the records, or some "
        "are on their way from it or to it; wait until they have found new owners",
    )
    pins = sum(pin.broker == broker for pin in work.rules.pins.values())
    deregister_broker(work, broker, command)
    return Outcome(status=DONE, result={"pins_to_it": pins})


_NOT_EXTERNAL = (
    "Ballast is this cluster's authority, so nothing is taken over; set cluster.authority to"
    " external and start the job again, if a bridge is meant to tell of it"
)


def _observe_ownership(
    work: BatchContext, command: Command, arguments: ObserveOwnership
) -> Outcome:
    refuse_if(not is_external(work), _NOT_EXTERNAL)
    active = arguments.brokers
    changed = note_silent(work, work.brokers.keys() - active) if active else 0
    origin = work.origin(Cause.EXTERNAL, command_id=command.command_id)
    found = sorted(arguments.namespaces.items())
    taken = {
        "brokers": changed,
        "namespaces": sum(_take_namespace(work, origin, name, cuts) for name, cuts in found),
        "owners": 0,
    }
    late = 0
    for bundle in sorted(arguments.owners):
        version, broker, incarnation = arguments.owners[bundle]
        record = work.ledger.record(bundle)
        if record is None or record.version_id != version:
            late += 1
            continue
        answer = observe(record, Instance(broker=broker, incarnation=incarnation), origin)
        taken["owners"] += not work.apply(answer)
    work.counts["taken_over"] += taken["owners"]
    is_observe_only = work.config.cluster.observe_only
    state = {"late": late, "differences": arguments.differences, "observe_only": is_observe_only}
    findings = {"findings": list(arguments.findings)} if arguments.findings else {}
    return Outcome(status=DONE, result={**taken, **state, **findings})


def _take_namespace(
    work: BatchContext, origin: Origin, name: str, boundaries: Sequence[int]
) -> int:
    """Set the namespace's bundles to the boundaries; return how many came or went."""
    wanted = set(NamespaceBundles(name, tuple(boundaries)).names() if boundaries else ())
    records = map(work.ledger.record_at, work.ledger.live_rows(name))
    live = {record.bundle: record for record in records}
    gone = [live[bundle] for bundle in sorted(live.keys() - wanted)]
    new = sorted(wanted - live.keys())
    entry = work.namespaces.get(name)
    if not gone and not new and entry is not None:
        return 0
    # new bundles' versions go on above those of the bundles whose hashes they take
    floor = max(version_floor(work, name), *(record.version_id for record in gone), 0)
    for record in gone:
        work.apply(delete(record, origin))
    work.clear_load([record.bundle for record in gone])
    work.ledger.add(new)
    for made in creations(work, new, origin, floor):
        work.apply(made)
    known = entry or NamespaceEntry(hash=HashFunction.CRC32.value)
    kept = replace(known, highest_version=floor, is_deleted=not wanted)
    if not wanted:
        drop_contents(work, name)
    if kept != entry:
        work.keep_namespace(name, kept)
    return len(gone) + len(new)


def _observe_policies(work: BatchContext, command: Command, arguments: ObservePolicies) -> Outcome:
    """Replace all policies, and name those that can't be used as they are.

    One with patterns that can't be matched is kept: these match nobody, so that nothing moves to a
    broker that the policy may exclude.
    """
    refuse_if(not is_external(work), _NOT_EXTERNAL)
    isolation: dict[str, IsolationPolicy] = {}
    unusable: dict[str, str] = {}
    for name, policy in arguments.isolation.items():
        try:
            isolation[name] = IsolationPolicy(
                name=name,
                namespaces=tuple(policy["namespaces"]),
                primary=tuple(policy["primary"]),
                secondary=tuple(policy["secondary"]),
                min_limit=policy["min_limit"],
                usage_threshold_percent=int(policy["usage_threshold_percent"]),
            )
        except InvalidPolicyError as error:  # noqa: PERF203 (of this policy)
            unusable[name] = str(error)
    unusable |= {name: why for name, one in isolation.items() for why in one.problems()}
    work.change_rules(command, isolation=isolation, anti_affinity=dict(arguments.anti_affinity))
    counts = {"isolation": len(isolation), "anti_affinity": len(arguments.anti_affinity)}
    return Outcome(status=DONE, result={**counts, "unusable": unusable})


POLICY_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "drain_broker": _drain,
    "cancel_drain": _cancel_drain,
    "forget_broker": _forget,
    "pin_bundle": _pin,
    "unpin_bundle": lambda work, command, asked: _take_back(
        work,
        "pins",
        asked.bundle,
        command,
        f"bundle {asked.bundle} is not pinned; table pins lists those that are",
    ),
    "pause": _pause,
    "resume": _resume,
    "release_brake": _release_brake,
    "propose_plan": _propose,
    "approve_plan": _approve,
    "reject_plan": _reject,
    "set_isolation_policy": _set_isolation,
    "delete_isolation_policy": _delete_isolation,
    "set_anti_affinity_group": lambda work, command, asked: _set_rule(
        work, "anti_affinity", asked.namespace, asked.group, command
    ),
    "delete_anti_affinity_group": lambda work, command, asked: _take_back(
        work,
        "anti_affinity",
        asked.namespace,
        command,
        f"namespace {asked.namespace} is in no anti-affinity group",
    ),
    "exclude_namespace": lambda work, command, asked: _set_rule(
        work, "excluded", asked.namespace, command=command, rule=True
    ),
    "include_namespace": _include,
    "set_config": _change_config,
    "reset_config": _change_config,
    "observe_ownership": _observe_ownership,
    "observe_policies": _observe_policies,
}

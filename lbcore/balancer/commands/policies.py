"""Commands on policies, pauses, pins, settings and plans."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.balancer.commands.bundles import find_record
from lbcore.balancer.decisions.approvals import OBSERVED, answer, approve, blocked_steps, offer
from lbcore.balancer.decisions.moves import reason_to_stand_still
from lbcore.balancer.intake.brokers import reason_not_to_take, release
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import DONE, Outcome, refuse
from lbcore.balancer.state.effects import to_json
from lbcore.balancer.state.rules import EXCLUDED, Paused, Pin, PlanStatus, ProposedStep
from lbcore.balancer.tasks.creations import RULES, note_gone, reason_not_to_rule
from lbcore.config.pulsar_keys import named_by, resolve_changes
from lbcore.config.values import ConfigError
from lbcore.model.names import tenant_of
from lbcore.model.tables import CONFIG_VERSIONS
from lbcore.model.times import instant
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.plan.decision import Kind
from lbcore.plan.filter.policies import MAX_POLICIES, InvalidPolicyError, IsolationPolicy
from lbcore.wire.kinds.balancing_commands import (
    ApprovePlan,
    DeleteAntiAffinityGroup,
    DeleteIsolationPolicy,
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

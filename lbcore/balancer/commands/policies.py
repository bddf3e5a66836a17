"""Commands about where namespaces may live, and which are never shed.

Decides whether each is possible now; the filters of the plan obey from the next cycle on. Part of
`commands`. Source: Pulsar 4.0.8's namespace isolation policies, anti-affinity groups and
loadBalancerSheddingExcludedNamespaces.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.rules import EXCLUDED
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.usage import RULES, note_gone, reason_not_to_rule
from lbcore.model.names import tenant_of
from lbcore.plan.filter.policies import MAX_POLICIES, InvalidPolicyError, IsolationPolicy
from lbcore.wire.kinds.balancing_commands import (
    DeleteAntiAffinityGroup,
    DeleteIsolationPolicy,
    SetAntiAffinityGroup,
    SetIsolationPolicy,
)
from lbcore.wire.kinds.namespace_commands import ExcludeNamespace, IncludeNamespace
from lbcore.wire.messages import Command


def _set_isolation(work: Work, command: Command, arguments: SetIsolationPolicy) -> Outcome:
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


def _delete_isolation(work: Work, command: Command, arguments: DeleteIsolationPolicy) -> Outcome:
    if arguments.policy not in work.rules.isolation:
        known = ", ".join(sorted(work.rules.isolation)) or "none"
        return refuse(f"there is no isolation policy {arguments.policy}; there are: {known}")
    work.set_rule("isolation", arguments.policy, None, command)
    return Outcome(status=DONE)


def _set_group(work: Work, command: Command, arguments: SetAntiAffinityGroup) -> Outcome:
    name = arguments.namespace
    problem = reason_not_to_rule(work, name, is_known=name in work.rules.anti_affinity)
    if problem:
        return refuse(problem)
    work.set_rule("anti_affinity", name, arguments.group, command)
    return Outcome(status=DONE)


def _delete_group(work: Work, command: Command, arguments: DeleteAntiAffinityGroup) -> Outcome:
    if arguments.namespace not in work.rules.anti_affinity:
        return refuse(f"namespace {arguments.namespace} is in no anti-affinity group")
    work.set_rule("anti_affinity", arguments.namespace, None, command)
    note_gone(work, RULES, tenant_of(arguments.namespace))
    return Outcome(status=DONE)


def _exclude(work: Work, command: Command, arguments: ExcludeNamespace) -> Outcome:
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


def _include(work: Work, command: Command, arguments: IncludeNamespace) -> Outcome:
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


POLICY_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "set_isolation_policy": _set_isolation,
    "delete_isolation_policy": _delete_isolation,
    "set_anti_affinity_group": _set_group,
    "delete_anti_affinity_group": _delete_group,
    "exclude_namespace": _exclude,
    "include_namespace": _include,
}

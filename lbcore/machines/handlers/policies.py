"""Commands about where namespaces may live, and which are never shed.

Decides whether each is possible now; the filters of the plan obey from the next cycle on. Part of
`commands`. Source: Pulsar 4.0.8's namespace isolation policies, anti-affinity groups and
loadBalancerSheddingExcludedNamespaces.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.machines.outcome import DONE, Outcome, refuse
from lbcore.machines.rules import added, without
from lbcore.machines.work import Work
from lbcore.plan.filter.policies import InvalidPolicyError, IsolationPolicy
from lbcore.wire import commands as asked
from lbcore.wire.messages import Command


def _set_isolation(work: Work, command: Command, arguments: asked.SetIsolationPolicy) -> Outcome:
    try:
        policy = IsolationPolicy(
            name=arguments.policy,
            namespaces=arguments.namespaces,
            primary=arguments.primary,
            secondary=arguments.secondary,
            min_limit=arguments.min_limit,
            usage_threshold_percent=int(arguments.usage_threshold_percent),
        )
    except InvalidPolicyError as error:
        return refuse(str(error))
    work.change_rules(command, isolation=added(work.rules.isolation, policy.name, policy))
    return Outcome(status=DONE)


def _delete_isolation(
    work: Work, command: Command, arguments: asked.DeleteIsolationPolicy
) -> Outcome:
    if arguments.policy not in work.rules.isolation:
        known = ", ".join(sorted(work.rules.isolation)) or "none"
        return refuse(f"there is no isolation policy {arguments.policy}; there are: {known}")
    work.change_rules(command, isolation=without(work.rules.isolation, arguments.policy))
    return Outcome(status=DONE)


def _set_group(work: Work, command: Command, arguments: asked.SetAntiAffinityGroup) -> Outcome:
    groups = added(work.rules.anti_affinity, arguments.namespace, arguments.group)
    work.change_rules(command, anti_affinity=groups)
    return Outcome(status=DONE)


def _delete_group(
    work: Work, command: Command, arguments: asked.DeleteAntiAffinityGroup
) -> Outcome:
    if arguments.namespace not in work.rules.anti_affinity:
        return refuse(f"namespace {arguments.namespace} is in no anti-affinity group")
    groups = without(work.rules.anti_affinity, arguments.namespace)
    work.change_rules(command, anti_affinity=groups)
    return Outcome(status=DONE)


def _exclude(work: Work, command: Command, arguments: asked.ExcludeNamespace) -> Outcome:
    excluded = {*work.rules.excluded, arguments.namespace}
    work.change_rules(command, excluded=tuple(sorted(excluded)))
    return Outcome(status=DONE)


def _include(work: Work, command: Command, arguments: asked.IncludeNamespace) -> Outcome:
    name = arguments.namespace
    if name in work.rules.excluded:
        work.change_rules(command, excluded=tuple(n for n in work.rules.excluded if n != name))
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

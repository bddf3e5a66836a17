"""Namespace isolation policies as Pulsar's admin interface reads and writes them.

Source: Pulsar 4.0.8, ClustersBase, NamespaceIsolationDataImpl, BrokerNamespaceIsolationDataImpl.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.plan.filter.policies import (
    MAX_USAGE_PERCENT,
    InvalidPolicyError,
    IsolationPolicy,
    matches_any,
)
from lbcore.pulsar.names import BAD_REQUEST, PulsarError
from lbcore.wire.kinds.balancing_commands import SetIsolationPolicy

PRIMARY = "primary"
SECONDARY = "secondary"
SHARED = "shared"


def read_policy(name: str, body: Any) -> SetIsolationPolicy:
    """Return the command that sets the policy of a body. Raises PulsarError 400.

    The body is NamespaceIsolationData. Only the failover policy min_available is known, and it
    needs both its parameters, as in Pulsar.
    """
    try:
        return _read_policy(name, body)
    except (InvalidPolicyError, AttributeError, KeyError, TypeError, ValueError):
        data = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        reason = f"Invalid format of input policy data. policy: {name}; data: {data}"
        raise PulsarError(BAD_REQUEST, reason) from None


def _read_policy(name: str, body: Any) -> SetIsolationPolicy:
    for field in ("namespaces", "primary", "secondary"):
        given = body.get(field) or []
        if not isinstance(given, list) or not all(isinstance(one, str) and one for one in given):
            raise TypeError(field)
    policy = IsolationPolicy.from_json(name, body)
    if policy.min_limit < 0 or not 0 <= policy.usage_threshold_percent <= MAX_USAGE_PERCENT:
        raise ValueError(policy)
    for problem in policy.problems():  # Pulsar takes these, and fails or hangs when it matches them
        raise PulsarError(BAD_REQUEST, problem)
    return SetIsolationPolicy(
        policy=name,
        namespaces=policy.namespaces,
        primary=policy.primary,
        secondary=policy.secondary,
        min_limit=policy.min_limit,
        usage_threshold_percent=float(policy.usage_threshold_percent),
    )


def broker_data(
    broker: str, names: Sequence[str], policies: Mapping[str, IsolationPolicy]
) -> dict[str, Any]:
    """Return BrokerNamespaceIsolationData: the policies that name a broker.

    The last of them by name. names: all by which a pattern may mean it.
    """
    data: dict[str, Any] = {"brokerName": broker}
    patterns: list[str] = []
    is_primary = False
    for name, policy in sorted(policies.items()):
        role = role_of(names, policy)
        if role is not None:
            patterns += policy.namespaces
            is_primary = role == PRIMARY
            data["policyName"] = name
    return {**data, "primary": is_primary, "namespaceRegex": patterns}


def role_of(names: Sequence[str], policy: IsolationPolicy) -> str | None:
    """Return a broker's role in a policy: PRIMARY, SECONDARY or None.

    names: any of the broker's names may match.
    """
    if matches_any(policy.primary, *names):
        return PRIMARY
    return SECONDARY if matches_any(policy.secondary, *names) else None


def ownership_status(
    namespace: str, names: Sequence[str], policies: Mapping[str, IsolationPolicy]
) -> dict[str, Any]:
    """Return NamespaceOwnershipStatus of each bundle of a namespace that a broker owns.

    names: the broker's. The first policy by name that matches the namespace holds for it.
    """
    by_name = (policy for _, policy in sorted(policies.items()))
    policy = next((one for one in by_name if matches_any(one.namespaces, namespace)), None)
    role = role_of(names, policy) if policy else None
    return {
        "broker_assignment": role or SHARED,
        "is_controlled": policy is not None,
        "is_active": True,
    }

"""Clusters, tenants, the leader and isolation policies under Pulsar's paths.

A service of Ballast knows one cluster, which may have other names too. Source: Pulsar 4.0.8,
ClusterDataImpl, TenantInfoImpl, TenantsBase, BrokerInfo, ClustersBase, NamespaceIsolationDataImpl,
BrokerNamespaceIsolationDataImpl.
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
from lbcore.pulsar.names import (
    BAD_REQUEST,
    FORBIDDEN,
    PRECONDITION_FAILED,
    PulsarError,
)
from lbcore.wire.kinds.balancing_commands import SetIsolationPolicy

GLOBAL = "global"
"""The name that stands for all clusters."""


def cluster_data(service_url: str, broker_url: str) -> dict[str, Any]:
    """Return ClusterData.

    service_url: where this service was asked; broker_url: one broker's, or "".
    """
    urls = {"serviceUrl": service_url, "brokerServiceUrl": broker_url}
    return {
        **{name: url for name, url in urls.items() if url},
        "brokerClientTlsEnabled": False,
        "tlsAllowInsecureConnection": False,
        "brokerClientTlsEnabledWithKeyStore": False,
        "brokerClientTlsTrustStoreType": "JKS",
        "brokerClientTlsKeyStoreType": "JKS",
        "brokerClientSslFactoryPlugin": ("org.apache.pulsar.common.util.DefaultPulsarSslFactory"),
    }


def read_tenant(body: Any, clusters: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Admin roles and allowed clusters of a TenantInfo; raises PulsarError 412.

    clusters: names that this service's cluster goes by; others don't exist here.
    """
    if body is None:
        raise PulsarError(PRECONDITION_FAILED, "TenantInfo is null")
    if not isinstance(body, Mapping):
        raise PulsarError(BAD_REQUEST, "the body must be a JSON object of a tenant")
    roles, allowed = body.get("adminRoles") or [], body.get("allowedClusters", [])
    if allowed is None:
        raise PulsarError(PRECONDITION_FAILED, "Clusters cannot be null")
    if not isinstance(roles, list) or not isinstance(allowed, list):
        raise PulsarError(BAD_REQUEST, "adminRoles and allowedClusters must be JSON lists")
    names = {str(name) for name in allowed}
    if not names or not all(name.strip() for name in names):
        raise PulsarError(PRECONDITION_FAILED, "Clusters cannot be empty or blank")
    if names - {*clusters, GLOBAL}:
        raise PulsarError(PRECONDITION_FAILED, "Clusters do not exist")
    if any(str(role) != str(role).strip() for role in roles):
        reason = "AdminRoles contains whitespace in the beginning or end."
        raise PulsarError(PRECONDITION_FAILED, reason)
    return tuple(sorted({str(role) for role in roles} - {""})), tuple(sorted(names))


def tenant_data(roles: Sequence[str], clusters: Sequence[str]) -> dict[str, Any]:
    """TenantInfo."""
    return {"adminRoles": list(roles), "allowedClusters": list(clusters)}


def leader_data(address: str) -> dict[str, str]:
    """Return BrokerInfo of the leader: this service. address: its host:port."""
    return {"serviceUrl": f"http://{address}", "brokerId": address}


def check_replication(
    tenant: str, wanted: Sequence[str], allowed: Sequence[str], known: Sequence[str]
) -> None:
    """Raises PulsarError 403 for clusters that a new namespace's tenant may not be in.

    wanted: the namespace's, empty = this service's. allowed: the tenant's. known: all names of this
    service's one cluster.
    """
    for cluster in wanted or known[:1]:
        names = set(known) if cluster in known else {cluster}
        if not names & set(allowed):
            raise PulsarError(
                FORBIDDEN,
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                f"[{tenant}]",
            )


def internal_data() -> dict[str, Any]:
    """Return InternalConfigurationData, as far as it applies without Pulsar's stores."""
    return {"metadataStoreUrl": "", "configurationMetadataStoreUrl": "", "ledgersRootPath": ""}


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
    """Return NamespaceOwnershipStatus of the bundles of a namespace on a broker.

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

"""Clusters, tenants and the leader as Pulsar's admin interface shows them.

A service of Ballast knows one cluster, which may have other names too. Source: Pulsar 4.0.8,
ClusterDataImpl, TenantInfoImpl, TenantsBase, BrokerInfo.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.pulsar.names import (
    BAD_REQUEST,
    FORBIDDEN,
    PRECONDITION_FAILED,
    PulsarError,
)

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

    wanted: of the namespace, none for this service's. allowed: the tenant's. known: the names that
    this service's cluster goes by, which are one.
    """
    for cluster in wanted or known[:1]:
        names = set(known) if cluster in known else {cluster}
        if not names & set(allowed):
            reason = (
                f"Cluster [{cluster}] is not in the list of allowed clusters list for tenant "
                f"[{tenant}]"
            )
            raise PulsarError(FORBIDDEN, reason)


def internal_data() -> dict[str, Any]:
    """Return InternalConfigurationData, as far as it applies without Pulsar's stores."""
    return {"metadataStoreUrl": "", "configurationMetadataStoreUrl": "", "ledgersRootPath": ""}

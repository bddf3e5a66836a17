"""Clusters, tenants and the leader as Pulsar's admin interface shows them.

Decides the bodies and the refusals; a service of Ballast knows one cluster, which may go by other
names too. Source: Pulsar 4.0.8, ClusterDataImpl, TenantInfoImpl, TenantsBase, BrokerInfo.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.route.pulsar_errors import BAD_REQUEST, NOT_FOUND, PRECONDITION_FAILED, PulsarError


def cluster_data(service_url: str, broker_url: str) -> dict[str, Any]:
    """ClusterData. service_url: where this service was asked; broker_url: one broker's, or ""."""
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
    if body is not None and not isinstance(body, Mapping):
        raise PulsarError(BAD_REQUEST, "the body must be a JSON object of a tenant")
    info = body or {}
    roles, allowed = info.get("adminRoles") or [], info.get("allowedClusters") or []
    if not isinstance(roles, list) or not isinstance(allowed, list):
        raise PulsarError(BAD_REQUEST, "adminRoles and allowedClusters must be JSON lists")
    names = [str(name) for name in allowed]
    if not names or not all(name.strip() for name in names):
        raise PulsarError(PRECONDITION_FAILED, "Clusters can not be empty")
    if set(names) - set(clusters):
        raise PulsarError(PRECONDITION_FAILED, "Clusters do not exist")
    kept = tuple(sorted({str(role) for role in roles if str(role).strip()}))
    return kept, tuple(sorted(set(names)))


def tenant_data(roles: Sequence[str], clusters: Sequence[str]) -> dict[str, Any]:
    """TenantInfo."""
    return {"adminRoles": list(roles), "allowedClusters": list(clusters)}


def leader_data(address: str, scheme: str = "http") -> dict[str, str]:
    """BrokerInfo of the leader: who decides is asked here. address: host:port of this service."""
    return {"serviceUrl": f"{scheme}://{address}", "brokerId": address}


def no_cluster() -> PulsarError:
    """No cluster of that name."""
    return PulsarError(NOT_FOUND, "Cluster does not exist")


def check_replication(clusters: Sequence[str], known: Sequence[str]) -> None:
    """Raises PulsarError 403 when a new namespace names a cluster that isn't known."""
    for cluster in clusters:
        if cluster not in known:
            raise PulsarError(403, f"Invalid cluster id: {cluster}")

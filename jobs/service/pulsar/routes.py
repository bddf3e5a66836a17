"""The table of Pulsar's admin paths.

Decides which handler serves each, and who may ask: changes of the cluster take Pulsar's superuser,
who is an admin of the whole cluster here; those of a tenant its admin; reading takes a viewer.
Source: Pulsar 4.0.8, admin.v2.*; the paths of lookups are `lookup_http`'s.
"""

from jobs.service.access import Role
from jobs.service.pulsar import brokers, clusters, namespaces, records
from jobs.service.pulsar.known import answering
from jobs.service.routes import Handler, Route

_V2 = "/admin/v2"
_NAMESPACE = f"{_V2}/namespaces/{{tenant}}/{{namespace}}"
_BUNDLE = f"{_NAMESPACE}/{{bundle}}"
_ANY_TOPIC = f"{_V2}/{{domain}}/{{tenant}}/{{namespace}}"
_TOPIC = f"{_ANY_TOPIC}/{{topic}}"
_V1_TOPIC = "/admin/{domain}/{tenant}/{cluster}/{namespace}/{topic}"
_BROKERS = f"{_V2}/brokers"
_STATS = f"{_V2}/broker-stats"
_CLUSTER = f"{_V2}/clusters/{{cluster}}"
_POLICIES = f"{_CLUSTER}/namespaceIsolationPolicies"
_QUOTAS = f"{_V2}/resource-quotas"
_BUNDLE_QUOTA = f"{_QUOTAS}/{{tenant}}/{{namespace}}/{{bundle}}"


def _reading(path: str, handler: Handler) -> Route:
    """Make a read route for viewers of the tenant.

    If the path names no tenant: for viewers of the cluster.
    """
    return Route(method="GET", path=path, handler=answering(handler), role=Role.VIEWER)


def _for_viewers(path: str, handler: Handler) -> Route:
    """Make a read route for viewers of the whole cluster."""
    return Route(
        method="GET",
        path=path,
        handler=answering(handler),
        role=Role.VIEWER,
        is_for_superuser=True,
    )


def _of_tenant(method: str, path: str, handler: Handler) -> Route:
    """Make a write route for admins of the tenant."""
    return Route(method=method, path=path, handler=answering(handler), role=Role.ADMIN)


def _of_cluster(method: str, path: str, handler: Handler) -> Route:
    """Make a write route for superusers only."""
    return Route(
        method=method,
        path=path,
        handler=answering(handler),
        role=Role.ADMIN,
        is_for_superuser=True,
    )


_NAMESPACE_ROUTES = (
    _reading(f"{_V2}/namespaces/{{tenant}}", namespaces.list_namespaces),
    _reading(_NAMESPACE, namespaces.get_policies),
    _of_tenant("PUT", _NAMESPACE, namespaces.create_namespace),
    _of_tenant("DELETE", _NAMESPACE, namespaces.delete_namespace),
    _reading(f"{_NAMESPACE}/bundles", namespaces.get_bundles),
    _reading(f"{_NAMESPACE}/topics", namespaces.list_topics),
    _reading(f"{_NAMESPACE}/replication", namespaces.get_replication),
    _of_cluster("PUT", f"{_NAMESPACE}/unload", namespaces.unload_namespace),
    _reading(f"{_NAMESPACE}/antiAffinity", namespaces.get_group),
    _of_tenant("POST", f"{_NAMESPACE}/antiAffinity", namespaces.set_group),
    _of_tenant("DELETE", f"{_NAMESPACE}/antiAffinity", namespaces.delete_group),
    _for_viewers(f"{_V2}/namespaces/{{cluster}}/antiAffinity/{{group}}", namespaces.list_group),
    _for_viewers("/admin/namespaces/{cluster}/antiAffinity/{group}", namespaces.list_group),
    _of_cluster("PUT", f"{_BUNDLE}/unload", namespaces.unload_bundle),
    _of_cluster("PUT", f"{_BUNDLE}/split", namespaces.split_bundle),
    _reading(f"{_BUNDLE}/topicHashPositions", namespaces.get_positions),
)

_TOPIC_ROUTES = (
    _reading(_ANY_TOPIC, records.list_topics),
    _reading(f"{_ANY_TOPIC}/partitioned", records.list_partitioned),
    _reading(f"{_ANY_TOPIC}/{{bundle}}", records.list_topics),
    _of_tenant("PUT", _TOPIC, records.create_topic),
    _of_tenant("DELETE", _TOPIC, records.delete_topic),
    _reading(f"{_TOPIC}/partitions", records.get_partitions),
    _of_tenant("PUT", f"{_TOPIC}/partitions", records.create_partitioned),
    _of_tenant("POST", f"{_TOPIC}/partitions", records.update_partitions),
    _of_tenant("DELETE", f"{_TOPIC}/partitions", records.delete_partitioned),
    _reading(f"{_TOPIC}/stats", records.get_stats),
    _reading(f"{_TOPIC}/partitioned-stats", records.get_partitioned_stats),
    _reading(f"{_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema", records.get_schema),
    _reading(
        f"{_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema/{{version}}", records.get_schema
    ),
    _reading(f"{_V1_TOPIC}/partitions", records.get_partitions),
)

_BROKER_ROUTES = (
    _for_viewers(_BROKERS, brokers.list_brokers),
    _for_viewers(f"{_BROKERS}/{{cluster}}", brokers.list_brokers),
    _for_viewers(f"{_BROKERS}/leaderBroker", brokers.get_leader),
    _for_viewers(f"{_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces", brokers.get_owned),
    _for_viewers(f"{_BROKERS}/health", brokers.get_health),
    _reading(f"{_BROKERS}/ready", brokers.get_ready),
    _reading(f"{_BROKERS}/version", brokers.get_version),
    _for_viewers(f"{_BROKERS}/configuration", brokers.list_dynamic),
    _for_viewers(f"{_BROKERS}/configuration/values", brokers.get_values),
    _for_viewers(f"{_BROKERS}/configuration/runtime", brokers.get_runtime),
    _for_viewers(f"{_BROKERS}/internal-configuration", brokers.get_internal),
    _of_cluster("POST", f"{_BROKERS}/configuration/{{key}}/{{value}}", brokers.set_value),
    _of_cluster("DELETE", f"{_BROKERS}/configuration/{{key}}", brokers.delete_value),
)

_CLUSTER_ROUTES = (
    _reading(f"{_V2}/clusters", clusters.list_clusters),
    _reading(_CLUSTER, clusters.get_cluster),
    _for_viewers(f"{_CLUSTER}/failureDomains", clusters.list_domains),
    _for_viewers(f"{_CLUSTER}/failureDomains/{{domain}}", clusters.get_domain),
    _of_cluster("POST", f"{_CLUSTER}/failureDomains/{{domain}}", clusters.set_domain),
    _of_cluster("DELETE", f"{_CLUSTER}/failureDomains/{{domain}}", clusters.set_domain),
    _for_viewers(_POLICIES, clusters.list_policies),
    _for_viewers(f"{_POLICIES}/{{policy}}", clusters.get_policy),
    _of_cluster("POST", f"{_POLICIES}/{{policy}}", clusters.set_policy),
    _of_cluster("DELETE", f"{_POLICIES}/{{policy}}", clusters.delete_policy),
    _for_viewers(f"{_POLICIES}/brokers", clusters.list_isolated_brokers),
    _for_viewers(f"{_POLICIES}/brokers/{{broker}}", clusters.get_isolated_broker),
    _for_viewers(f"{_V2}/tenants", records.list_tenants),
    _for_viewers(f"{_V2}/tenants/{{tenant}}", records.get_tenant),
    _of_cluster("PUT", f"{_V2}/tenants/{{tenant}}", records.create_tenant),
    _of_cluster("POST", f"{_V2}/tenants/{{tenant}}", records.update_tenant),
    _of_cluster("DELETE", f"{_V2}/tenants/{{tenant}}", records.delete_tenant),
)

_STATS_ROUTES = (
    _for_viewers(f"{_STATS}/load-report", brokers.get_load_report),
    _for_viewers(f"{_STATS}/topics", brokers.get_topics),
    _for_viewers(f"{_STATS}/destinations", brokers.get_topics),
    _for_viewers(f"{_STATS}/metrics", brokers.get_metrics),
    _for_viewers(f"{_STATS}/mbeans", brokers.get_beans),
    _for_viewers(f"{_STATS}/bookieops", brokers.get_pending),
    _for_viewers(f"{_STATS}/allocator-stats/{{allocator}}", brokers.get_allocator),
    _for_viewers(
        f"{_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}", brokers.get_availability
    ),
    _for_viewers(_QUOTAS, brokers.get_quota),
    _of_cluster("POST", _QUOTAS, brokers.set_quota),
    _for_viewers(_BUNDLE_QUOTA, brokers.get_quota),
    _of_cluster("POST", _BUNDLE_QUOTA, brokers.set_quota),
    _of_cluster("DELETE", _BUNDLE_QUOTA, brokers.set_quota),
)

PULSAR_ROUTES = (
    *_NAMESPACE_ROUTES,
    *_TOPIC_ROUTES,
    *_BROKER_ROUTES,
    *_CLUSTER_ROUTES,
    *_STATS_ROUTES,
)

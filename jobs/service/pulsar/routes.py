"""The table of Pulsar's admin paths.

Decides which handler serves each, and who may ask: changes of the cluster take Pulsar's superuser,
who is an admin of the whole cluster here; those of a tenant its admin; reading takes a viewer.
Source: Pulsar 4.0.8, admin.v2.*; the paths of lookups are `lookup_http`'s.
"""

from typing import Any

from jobs.service.access import Role
from jobs.service.pulsar import brokers, namespaces, records
from jobs.service.pulsar.known import answering
from jobs.service.routes import Handler, MapOf, Route

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


_TEXTS, _TEXT_MAP, _OBJECT = list[str], dict[str, str], dict[str, Any]
_BUNDLES = {"boundaries": _TEXTS, "numBundles": int}
_POSITIONS = {"namespace": str, "bundle": str, "topicHashPositions": dict[str, int]}
_PARTITIONS = {"partitions": int, "deleted": bool}
_LEADER = {"serviceUrl": str, "brokerId": str}
_OWNED = MapOf({"broker_assignment": str, "is_controlled": bool, "is_active": bool})
_DOMAIN = {"brokers": _TEXTS}
_TENANT = {"adminRoles": _TEXTS, "allowedClusters": _TEXTS}
_POLICY = {
    **dict.fromkeys(("namespaces", "primary", "secondary"), _TEXTS),
    "auto_failover_policy": {"policy_type": str, "parameters": _TEXT_MAP},
}
_ISOLATED = {"brokerName": str, "namespaceRegex?": _TEXTS, "primary?": bool, "policyName?": str}
_QUOTA = {
    **dict.fromkeys(("msgRateIn", "msgRateOut", "bandwidthIn", "bandwidthOut", "memory"), float),
    "dynamic": bool,
}


def _route(way: str, handler: Handler, answer: Any, *, is_for_superuser: bool) -> Route:
    """way: method and path; what is only read takes a viewer, anything else an admin."""
    method, path = way.split()
    return Route(
        method=method,
        path=path,
        handler=answering(handler),
        role=Role.VIEWER if method == "GET" else Role.ADMIN,
        is_for_superuser=is_for_superuser,
        answer=answer,
        statuses={} if answer else {204: "Done, or there is none."},
    )


def _of_tenant(way: str, handler: Handler, answer: Any = None) -> Route:
    """A route for those of the tenant; of the whole cluster if the path names none."""
    return _route(way, handler, answer, is_for_superuser=False)


def _of_cluster(way: str, handler: Handler, answer: Any = None) -> Route:
    """Make a route for those of the whole cluster; a change takes a superuser."""
    return _route(way, handler, answer, is_for_superuser=True)


_NAMESPACE_ROUTES = (
    _of_tenant(f"GET {_V2}/namespaces/{{tenant}}", namespaces.list_namespaces, _TEXTS),
    _of_tenant(f"GET {_NAMESPACE}", namespaces.get_policies, _OBJECT),
    _of_tenant(f"PUT {_NAMESPACE}", namespaces.create_namespace),
    _of_tenant(f"DELETE {_NAMESPACE}", namespaces.delete_namespace),
    _of_tenant(f"GET {_NAMESPACE}/bundles", namespaces.get_bundles, _BUNDLES),
    _of_tenant(f"GET {_NAMESPACE}/topics", namespaces.list_topics, _TEXTS),
    _of_tenant(f"GET {_NAMESPACE}/replication", namespaces.get_replication, _TEXTS),
    _of_cluster(f"PUT {_NAMESPACE}/unload", namespaces.unload_namespace),
    _of_tenant(f"GET {_NAMESPACE}/antiAffinity", namespaces.get_group),
    _of_tenant(f"POST {_NAMESPACE}/antiAffinity", namespaces.set_group),
    _of_tenant(f"DELETE {_NAMESPACE}/antiAffinity", namespaces.delete_group),
    _of_cluster(
        f"GET {_V2}/namespaces/{{cluster}}/antiAffinity/{{group}}", namespaces.list_group, _TEXTS
    ),
    _of_cluster(
        "GET /admin/namespaces/{cluster}/antiAffinity/{group}", namespaces.list_group, _TEXTS
    ),
    _of_cluster(f"PUT {_BUNDLE}/unload", namespaces.unload_bundle),
    _of_cluster(f"PUT {_BUNDLE}/split", namespaces.split_bundle),
    _of_tenant(f"GET {_BUNDLE}/topicHashPositions", namespaces.get_positions, _POSITIONS),
)

_TOPIC_ROUTES = (
    _of_tenant(f"GET {_ANY_TOPIC}", records.list_topics, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/partitioned", records.list_partitioned, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/{{bundle}}", records.list_topics, _TEXTS),
    _of_tenant(f"PUT {_TOPIC}", records.create_topic),
    _of_tenant(f"DELETE {_TOPIC}", records.delete_topic),
    _of_tenant(f"GET {_TOPIC}/partitions", records.get_partitions, _PARTITIONS),
    _of_tenant(f"PUT {_TOPIC}/partitions", records.create_partitioned),
    _of_tenant(f"POST {_TOPIC}/partitions", records.update_partitions),
    _of_tenant(f"DELETE {_TOPIC}/partitions", records.delete_partitioned),
    _of_tenant(f"GET {_TOPIC}/stats", records.get_stats, _OBJECT),
    _of_tenant(f"GET {_TOPIC}/partitioned-stats", records.get_partitioned_stats, _OBJECT),
    _of_tenant(f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema", records.get_schema),
    _of_tenant(
        f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema/{{version}}",
        records.get_schema,
    ),
    _of_tenant(f"GET {_V1_TOPIC}/partitions", records.get_partitions, _PARTITIONS),
)

_BROKER_ROUTES = (
    _of_cluster(f"GET {_BROKERS}", brokers.list_brokers, _TEXTS),
    _of_cluster(f"GET {_BROKERS}/{{cluster}}", brokers.list_brokers, _TEXTS),
    _of_cluster(f"GET {_BROKERS}/leaderBroker", brokers.get_leader, _LEADER),
    _of_cluster(
        f"GET {_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces", brokers.get_owned, _OWNED
    ),
    _of_cluster(f"GET {_BROKERS}/health", brokers.get_health),
    _of_tenant(f"GET {_BROKERS}/ready", brokers.get_ready),
    _of_tenant(f"GET {_BROKERS}/version", brokers.get_version),
    _of_cluster(f"GET {_BROKERS}/configuration", brokers.list_dynamic, _TEXTS),
    _of_cluster(f"GET {_BROKERS}/configuration/values", brokers.get_values, _TEXT_MAP),
    _of_cluster(f"GET {_BROKERS}/configuration/runtime", brokers.get_runtime, _TEXT_MAP),
    _of_cluster(f"GET {_BROKERS}/internal-configuration", brokers.get_internal, _OBJECT),
    _of_cluster(f"POST {_BROKERS}/configuration/{{key}}/{{value}}", brokers.set_value),
    _of_cluster(f"DELETE {_BROKERS}/configuration/{{key}}", brokers.delete_value),
)

_CLUSTER_ROUTES = (
    _of_tenant(f"GET {_V2}/clusters", brokers.list_clusters, _TEXTS),
    _of_tenant(f"GET {_CLUSTER}", brokers.get_cluster, _OBJECT),
    _of_cluster(f"GET {_CLUSTER}/failureDomains", brokers.list_domains, MapOf(_DOMAIN)),
    _of_cluster(f"GET {_CLUSTER}/failureDomains/{{domain}}", brokers.get_domain, _DOMAIN),
    _of_cluster(f"POST {_CLUSTER}/failureDomains/{{domain}}", brokers.set_domain),
    _of_cluster(f"DELETE {_CLUSTER}/failureDomains/{{domain}}", brokers.set_domain),
    _of_cluster(f"GET {_POLICIES}", brokers.list_policies, MapOf(_POLICY)),
    _of_cluster(f"GET {_POLICIES}/{{policy}}", brokers.get_policy, _POLICY),
    _of_cluster(f"POST {_POLICIES}/{{policy}}", brokers.set_policy),
    _of_cluster(f"DELETE {_POLICIES}/{{policy}}", brokers.delete_policy),
    _of_cluster(f"GET {_POLICIES}/brokers", brokers.list_isolated_brokers, [_ISOLATED]),
    _of_cluster(f"GET {_POLICIES}/brokers/{{broker}}", brokers.get_isolated_broker, _ISOLATED),
    _of_cluster(f"GET {_V2}/tenants", records.list_tenants, _TEXTS),
    _of_cluster(f"GET {_V2}/tenants/{{tenant}}", records.get_tenant, _TENANT),
    _of_cluster(f"PUT {_V2}/tenants/{{tenant}}", records.create_tenant),
    _of_cluster(f"POST {_V2}/tenants/{{tenant}}", records.update_tenant),
    _of_cluster(f"DELETE {_V2}/tenants/{{tenant}}", records.delete_tenant),
)

_STATS_ROUTES = (
    _of_cluster(f"GET {_STATS}/load-report", brokers.get_load_report, _OBJECT),
    _of_cluster(f"GET {_STATS}/topics", brokers.get_topics, _OBJECT),
    _of_cluster(f"GET {_STATS}/destinations", brokers.get_topics, _OBJECT),
    _of_cluster(f"GET {_STATS}/metrics", brokers.get_metrics, [_OBJECT]),
    _of_cluster(f"GET {_STATS}/mbeans", brokers.get_beans, [_OBJECT]),
    _of_cluster(f"GET {_STATS}/bookieops", brokers.get_pending, _OBJECT),
    _of_cluster(f"GET {_STATS}/allocator-stats/{{allocator}}", brokers.get_allocator, _OBJECT),
    _of_cluster(
        f"GET {_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}",
        brokers.get_availability,
    ),
    _of_cluster(f"GET {_QUOTAS}", brokers.get_quota, _QUOTA),
    _of_cluster(f"POST {_QUOTAS}", brokers.set_quota),
    _of_cluster(f"GET {_BUNDLE_QUOTA}", brokers.get_quota, _QUOTA),
    _of_cluster(f"POST {_BUNDLE_QUOTA}", brokers.set_quota),
    _of_cluster(f"DELETE {_BUNDLE_QUOTA}", brokers.set_quota),
)

PULSAR_ROUTES = (
    *_NAMESPACE_ROUTES,
    *_TOPIC_ROUTES,
    *_BROKER_ROUTES,
    *_CLUSTER_ROUTES,
    *_STATS_ROUTES,
)

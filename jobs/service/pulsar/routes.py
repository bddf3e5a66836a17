"""The table of Pulsar's admin paths.

Decides which handler serves each, and who may ask: changes of the cluster take Pulsar's superuser,
who is an admin of the whole cluster here; those of a tenant its admin; reading takes a viewer.
Source: Pulsar 4.0.8, admin.v2.*; the paths of lookups are `lookup_http`'s.
"""

from functools import partial
from typing import Any

from jobs.service.access import Role
from jobs.service.exchange import JSON, Reply
from jobs.service.pulsar import brokers, namespaces
from jobs.service.pulsar.known import PulsarHandler, answering, existing
from jobs.service.routes import MapOf, Route
from lbcore.pulsar.clusters import internal_data, leader_data
from lbcore.pulsar.dynamic_config import dynamic_names, overrides, runtime
from lbcore.pulsar.names import NOT_IMPLEMENTED, PulsarError
from lbcore.pulsar.namespaces import bundles_data, policies_data
from lbcore.pulsar.stats import DEFAULT_QUOTA, allocator_stats, metrics, no_availability

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


_NO_QUOTAS = "Ballast has no resource quotas: it measures load, and obeys limits and policies"
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


def _of_cluster(
    way: str,
    handle: PulsarHandler,
    answer: Any = None,
    summary: str = "",
    *,
    is_for_superuser: bool = True,
) -> Route:
    """A route about the whole cluster; a change takes a superuser.

    way: method and path; what is only read takes a viewer, anything else an admin.
    """
    method, path = way.split()
    return Route(
        method=method,
        path=path,
        handler=answering(handle),
        role=Role.VIEWER if method == "GET" else Role.ADMIN,
        is_for_superuser=is_for_superuser,
        summary=summary,
        answer=answer,
        statuses={} if answer else {204: "Done, or there is none."},
    )


_of_tenant = partial(_of_cluster, is_for_superuser=False)
"""A route about a tenant, or about the whole cluster if the path names none."""


_NAMESPACE_ROUTES = (
    _of_tenant(f"GET {_V2}/namespaces/{{tenant}}", namespaces.list_namespaces, _TEXTS),
    _of_tenant(
        f"GET {_NAMESPACE}",
        lambda request, context: policies_data(
            (found := existing(request, context)).live, context.cluster, found.hash_function
        ),
        _OBJECT,
        "The policies of a namespace.",
    ),
    _of_tenant(f"PUT {_NAMESPACE}", namespaces.create_namespace),
    _of_tenant(f"DELETE {_NAMESPACE}", namespaces.delete_namespace),
    _of_tenant(
        f"GET {_NAMESPACE}/bundles",
        lambda request, context: bundles_data(existing(request, context).live),
        _BUNDLES,
        "The boundaries of a namespace's bundles.",
    ),
    _of_tenant(f"GET {_NAMESPACE}/topics", namespaces.list_all_topics, _TEXTS),
    _of_tenant(
        f"GET {_NAMESPACE}/replication",
        lambda request, context: existing(request, context) and [context.cluster],
        _TEXTS,
        "The clusters that a namespace is in: this one.",
    ),
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
    _of_tenant(f"GET {_ANY_TOPIC}", namespaces.list_topics, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/partitioned", namespaces.list_partitioned, _TEXTS),
    _of_tenant(f"GET {_ANY_TOPIC}/{{bundle}}", namespaces.list_topics, _TEXTS),
    _of_tenant(f"PUT {_TOPIC}", namespaces.create_topic),
    _of_tenant(f"DELETE {_TOPIC}", namespaces.delete_topic),
    _of_tenant(f"GET {_TOPIC}/partitions", namespaces.get_partitions, _PARTITIONS),
    _of_tenant(f"PUT {_TOPIC}/partitions", namespaces.create_partitioned),
    _of_tenant(f"POST {_TOPIC}/partitions", namespaces.update_partitions),
    _of_tenant(f"DELETE {_TOPIC}/partitions", namespaces.delete_partitioned),
    _of_tenant(f"GET {_TOPIC}/stats", namespaces.get_stats, _OBJECT),
    _of_tenant(f"GET {_TOPIC}/partitioned-stats", namespaces.get_partitioned_stats, _OBJECT),
    _of_tenant(
        f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema", namespaces.get_schema
    ),
    _of_tenant(
        f"GET {_V2}/schemas/{{tenant}}/{{namespace}}/{{topic}}/schema/{{version}}",
        namespaces.get_schema,
    ),
    _of_tenant(f"GET {_V1_TOPIC}/partitions", namespaces.get_partitions, _PARTITIONS),
)

_BROKER_ROUTES = (
    _of_cluster(f"GET {_BROKERS}", brokers.list_brokers, _TEXTS),
    _of_cluster(f"GET {_BROKERS}/{{cluster}}", brokers.list_brokers, _TEXTS),
    _of_cluster(
        f"GET {_BROKERS}/leaderBroker",
        lambda request, _: leader_data(request.reached_at),
        _LEADER,
        "Return this service as the leader.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/{{cluster}}/{{broker}}/ownedNamespaces", brokers.get_owned, _OWNED
    ),
    _of_cluster(f"GET {_BROKERS}/health", brokers.get_health),
    _of_tenant(
        f"GET {_BROKERS}/ready",
        lambda _, context: brokers.OK if context.follower.view is not None else Reply(status=500),
        summary="Check that the tables are loaded.",
    ),
    _of_tenant(
        f"GET {_BROKERS}/version",
        lambda *_: Reply(body=brokers.PULSAR_VERSION.encode(), headers=(JSON,)),
        summary="The version of Pulsar whose interface this is.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration",
        lambda *_: dynamic_names(),
        _TEXTS,
        "The keys that may be changed while running.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration/values",
        lambda _, context: overrides(context.views.settings),
        _TEXT_MAP,
        "Return the settings that were changed at runtime.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/configuration/runtime",
        lambda _, context: runtime(context.started, context.views.settings),
        _TEXT_MAP,
        "All settings in force.",
    ),
    _of_cluster(
        f"GET {_BROKERS}/internal-configuration",
        lambda *_: internal_data(),
        _OBJECT,
        "InternalConfigurationData: there is no metadata store to name.",
    ),
    _of_cluster(f"POST {_BROKERS}/configuration/{{key}}/{{value}}", brokers.set_value),
    _of_cluster(f"DELETE {_BROKERS}/configuration/{{key}}", brokers.delete_value),
)

_CLUSTER_ROUTES = (
    _of_tenant(
        f"GET {_V2}/clusters",
        lambda _, context: [context.cluster],
        _TEXTS,
        "The one cluster of this service.",
    ),
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
    _of_cluster(f"GET {_V2}/tenants", namespaces.list_tenants, _TEXTS),
    _of_cluster(f"GET {_V2}/tenants/{{tenant}}", namespaces.get_tenant, _TENANT),
    _of_cluster(f"PUT {_V2}/tenants/{{tenant}}", namespaces.create_tenant),
    _of_cluster(f"POST {_V2}/tenants/{{tenant}}", namespaces.update_tenant),
    _of_cluster(f"DELETE {_V2}/tenants/{{tenant}}", namespaces.delete_tenant),
)

_STATS_ROUTES = (
    _of_cluster(f"GET {_STATS}/load-report", brokers.get_load_report, _OBJECT),
    _of_cluster(f"GET {_STATS}/topics", brokers.get_topics, _OBJECT),
    _of_cluster(f"GET {_STATS}/destinations", brokers.get_topics, _OBJECT),
    _of_cluster(
        f"GET {_STATS}/metrics",
        lambda _, context: metrics(one for _, one in sorted(context.views.newest_load.items())),
        [_OBJECT],
        "The newest load of every broker as metrics.",
    ),
    _of_cluster(f"GET {_STATS}/mbeans", lambda *_: [], [_OBJECT], "Java's beans: none."),
    _of_cluster(
        f"GET {_STATS}/bookieops",
        lambda *_: {},
        _OBJECT,
        "BookKeeper's pending operations: none.",
    ),
    _of_cluster(
        f"GET {_STATS}/allocator-stats/{{allocator}}",
        lambda request, _: allocator_stats(request.params["allocator"]),
        _OBJECT,
        "The statistics of Netty's allocators, of which there are none here.",
    ),
    _of_cluster(
        f"GET {_STATS}/broker-resource-availability/{{tenant}}/{{namespace}}",
        lambda *_: no_availability(),
        summary="Only Pulsar's oldest load manager has an answer.",
    ),
    *(
        _of_cluster(
            f"GET {path}",
            lambda *_: DEFAULT_QUOTA,
            _QUOTA,
            "Pulsar's default: nothing is ever measured against it.",
        )
        for path in (_QUOTAS, _BUNDLE_QUOTA)
    ),
    *(
        _of_cluster(
            way,
            lambda *_: PulsarError(NOT_IMPLEMENTED, _NO_QUOTAS),
            summary="Quotas can't be set: nothing would obey them.",
        )
        for way in (f"POST {_QUOTAS}", f"POST {_BUNDLE_QUOTA}", f"DELETE {_BUNDLE_QUOTA}")
    ),
)

PULSAR_ROUTES = (
    *_NAMESPACE_ROUTES,
    *_TOPIC_ROUTES,
    *_BROKER_ROUTES,
    *_CLUSTER_ROUTES,
    *_STATS_ROUTES,
)

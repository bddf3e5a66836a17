"""Brokers, clusters and isolation policies under Pulsar's paths.

The configuration is the dynamic one. Decides who stands for what Ballast has not: the leader is the
service that is asked. Source: Pulsar 4.0.8, BrokersBase; health, ready and version answer unquoted
text as JSON.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, HttpError, Reply, Request, encode, json_reply, no_content
from jobs.service.pulsar.known import (
    Namespace,
    brokers,
    carry_out,
    cluster_names,
    find_broker,
    find_namespace,
    isolation,
    names_by_broker,
    topics_of,
    was_isolated,
)
from jobs.service.routes import Handler
from lbcore.config.values import ConfigError
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.clusters import cluster_data, internal_data, leader_data, no_cluster
from lbcore.pulsar.dynamic_config import (
    changes_of,
    check_dynamic,
    dynamic_names,
    invalid_value,
    overrides,
    resets_of,
    runtime,
)
from lbcore.pulsar.isolation import broker_data, find_policy, ownership_status, read_policy
from lbcore.pulsar.names import (
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    PulsarError,
    broker_id,
)
from lbcore.pulsar.stats import (
    DEFAULT_QUOTA,
    allocator_stats,
    load_report,
    metrics,
    no_availability,
    no_load_report,
    stats_of,
)
from lbcore.route.known_topics import KnownTopics, position
from lbcore.route.slices import LEFT_OUT, Fields, Maybe
from lbcore.route.snapshot import LookupSnapshot
from lbcore.validation.check import in_force
from lbcore.wire.kinds.balancing_commands import DeleteIsolationPolicy, ResetConfig, SetConfig

PULSAR_VERSION = "4.0.8"
_OK = Reply(body=b"ok", headers=(JSON,))


def _constant(body: bytes, doc: str) -> Handler:
    """A handler of what never changes."""

    async def answer(_request: Request, _context: AdminContext) -> Reply:
        return Reply(body=body, headers=(JSON,))

    answer.__doc__ = doc
    return answer


get_version = _constant(PULSAR_VERSION.encode(), "The version of Pulsar whose interface this is.")
list_dynamic = _constant(encode(dynamic_names()), "The keys that may be changed while running.")
get_internal = _constant(
    encode(internal_data()), "InternalConfigurationData: there is no metadata store to name."
)
get_beans = _constant(b"[]", "Java's beans: none.")
get_pending = _constant(b"{}", "BookKeeper's pending operations: none.")
get_quota = _constant(
    encode(DEFAULT_QUOTA), "Pulsar's default: nothing is ever measured against it."
)


async def list_brokers(request: Request, context: AdminContext) -> Reply:
    """The names of the active brokers."""
    cluster = request.params.get("cluster", context.cluster)
    if cluster not in cluster_names(context):
        raise _no_cluster(cluster)
    return json_reply(list(brokers(context)))


def _no_cluster(cluster: str) -> PulsarError:
    return PulsarError(NOT_FOUND, f"Cluster does not exist: cluster={cluster}")


async def get_leader(request: Request, _context: AdminContext) -> Reply:
    """Return this service as the leader.

    The balancer decides for all brokers.
    """
    return json_reply(leader_data(request.reached_at))


async def get_owned(request: Request, context: AdminContext) -> Reply:
    """The bundles that a broker owns, and by which right."""
    broker = _active_broker(request.params["broker"], context)
    cluster = request.params["cluster"]
    if cluster not in cluster_names(context):
        raise _no_cluster(cluster)
    policies = await isolation(context)
    names = names_by_broker(context)[broker]
    return json_reply(Fields(_owned((broker, names), context.snapshot, policies)))


def _owned(
    broker: tuple[str, Sequence[str]],
    snapshot: LookupSnapshot,
    policies: Mapping[str, IsolationPolicy],
) -> Iterator[Maybe[tuple[str, Any]]]:
    """Each bundle of a snapshot with its status, LEFT_OUT for others' bundles.

    broker: its name, and all by which policies may mean it.
    """
    for name in snapshot.names:
        yield LEFT_OUT
        status = None
        for route in snapshot.namespaces[name].live:
            if route.broker != broker[0]:
                yield LEFT_OUT
                continue
            status = status or ownership_status(name, broker[1], policies)
            yield route.bundle, status


def _active_broker(text: str, context: AdminContext) -> str:
    broker = find_broker(text, context)
    if broker is None:
        raise PulsarError(NOT_FOUND, f"Broker id '{text}' not found in available brokers.")
    return broker


async def get_health(request: Request, context: AdminContext) -> Reply:
    """Check that lookups are answered, as clients need; 503 before the first load.

    A broker that is named must be active.
    """
    view, asked = context.view, request.first("brokerId").strip()
    if asked and broker_id(asked) != request.reached_at:
        _active_broker(asked, context)
    if view.snapshot.brokers:
        return _OK
    raise HttpError(503, "No broker has reported yet: try again")


async def get_ready(_request: Request, context: AdminContext) -> Reply:
    """Check that the tables are loaded."""
    return _OK if context.follower.view is not None else Reply(status=500)


# -- dynamic configuration


async def get_values(_request: Request, context: AdminContext) -> Reply:
    """Return the settings that were changed at runtime."""
    return json_reply(overrides(context.views.settings))


async def get_runtime(_request: Request, context: AdminContext) -> Reply:
    """All settings in force."""
    config = context.started
    return json_reply(runtime(config, context.views.settings))


async def set_value(request: Request, context: AdminContext) -> Reply:
    """Change a setting while running, for good."""
    key, value = check_dynamic(request.params["key"]), request.params["value"]
    files = context.started
    config, _ = in_force(files, context.views.settings)
    try:
        values = changes_of(key, value, config)
    except ConfigError as error:
        raise invalid_value(str(error)) from None
    await carry_out(request, context, SetConfig(values=values), invalid_value)
    return Reply()


async def delete_value(request: Request, context: AdminContext) -> Reply:
    """Take a changed setting back to what the files say."""
    key = request.params["key"]
    if key not in context.views.settings:  # else it was changed, if by a version that knew more
        check_dynamic(key, "delete")
    files = context.started
    keys = resets_of(key, files, context.views.settings)
    await carry_out(request, context, ResetConfig(keys=keys))
    return Reply()


_TOPICS_MAX = 20_000


async def get_load_report(request: Request, context: AdminContext) -> Reply:
    """Return the load of ?broker=; without one, the extensible manager's answer."""
    asked = request.first("broker")
    if not asked:
        raise no_load_report()
    broker = find_broker(asked, context)
    if broker is None:
        raise PulsarError(NOT_FOUND, f"Broker {asked} is not active")
    return json_reply(load_report(brokers(context)[broker], context.views.newest_load.get(broker)))


async def get_topics(_request: Request, context: AdminContext) -> Reply:
    """Return the known topics by namespace, bundle and domain.

    As far as a broker serves them.
    """
    if context.views.topic_count > _TOPICS_MAX:
        reason = f"There are more than {_TOPICS_MAX} topics: list them by namespace"
        raise PulsarError(PRECONDITION_FAILED, reason)
    by_namespace: dict[str, dict[str, list[str]]] = {}
    for name in sorted(context.views.topics):
        found = find_namespace(name, context)
        if found is not None:
            places = await context.turns.gather(_places(found, topics_of(name, context)))
            if places:
                by_bundle = by_namespace.setdefault(name, {})
                for text, topic in sorted(places):
                    by_bundle.setdefault(text, []).append(topic)
    return json_reply(
        Fields(
            (name, Fields((text, stats_of(topics)) for text, topics in by_bundle.items()))
            for name, by_bundle in by_namespace.items()
        )
    )


def _places(found: Namespace, topics: KnownTopics) -> Iterator[Maybe[tuple[str, str]]]:
    """Each topic that a broker serves, after the range of its bundle."""
    for topic in topics.names():
        route = found.bundle_at(position(topic, found.hash_function))
        yield (route.range_text, topic) if route.broker else LEFT_OUT


async def get_metrics(_request: Request, context: AdminContext) -> Reply:
    """The newest load of every broker as metrics."""
    loads = context.views.newest_load
    return json_reply(metrics(loads[name] for name in sorted(loads)))


async def get_allocator(request: Request, _context: AdminContext) -> Reply:
    """The statistics of Netty's allocators, of which there are none here."""
    return json_reply(allocator_stats(request.params["allocator"]))


async def get_availability(_request: Request, _context: AdminContext) -> Reply:
    """Only Pulsar's oldest load manager has an answer."""
    raise no_availability()


async def set_quota(_request: Request, _context: AdminContext) -> Reply:
    """Quotas can't be set: nothing would obey them."""
    reason = "Ballast has no resource quotas: it measures load, and obeys limits and policies"
    raise PulsarError(NOT_IMPLEMENTED, reason)


# -- clusters


async def list_clusters(_request: Request, context: AdminContext) -> Reply:
    """The one cluster of this service."""
    return json_reply([context.cluster])


async def get_cluster(request: Request, context: AdminContext) -> Reply:
    """Return the cluster's service URL and one broker's address."""
    if request.params["cluster"] not in cluster_names(context):
        raise no_cluster()
    urls = (row["pulsar_service_url"] for row in brokers(context).values())
    return json_reply(cluster_data(f"http://{request.reached_at}", next(urls, "")))


async def list_domains(request: Request, context: AdminContext) -> Reply:
    """Return the brokers' failure domains; none for an unknown cluster."""
    is_ours = request.params["cluster"] in cluster_names(context)
    return json_reply(_domains(context) if is_ours else {})


async def get_domain(request: Request, context: AdminContext) -> Reply:
    """One failure domain."""
    cluster = _check_cluster(request, context, PRECONDITION_FAILED)
    name = request.params["domain"]
    found = _domains(context).get(name)
    if found is None:
        raise PulsarError(NOT_FOUND, f"Domain {name} for cluster {cluster} does not exist")
    return json_reply(found)


async def set_domain(request: Request, context: AdminContext) -> Reply:
    """Failure domains can't be set or deleted: a broker says itself in which it is."""
    _check_cluster(request, context, PRECONDITION_FAILED)
    reason = "A failure domain is a label of its brokers: start them with another label"
    raise PulsarError(NOT_IMPLEMENTED, reason)


def _domains(context: AdminContext) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for name, row in brokers(context).items():
        if row["failure_domain"]:
            found.setdefault(row["failure_domain"], {"brokers": []})["brokers"].append(name)
    return dict(sorted(found.items()))


def _check_cluster(request: Request, context: AdminContext, status: int = NOT_FOUND) -> str:
    cluster = request.params["cluster"]
    if cluster not in cluster_names(context):
        raise PulsarError(status, f"Cluster {cluster} does not exist.")
    return cluster


# -- isolation policies


async def _policies(
    request: Request, context: AdminContext, status: int
) -> dict[str, IsolationPolicy]:
    """The policies of the path's cluster; raises PulsarError when there never was one."""
    cluster = _check_cluster(request, context, status)
    if not was_isolated(context):
        reason = f"NamespaceIsolationPolicies for cluster {cluster} does not exist"
        raise PulsarError(NOT_FOUND, reason)
    return await isolation(context)


async def list_policies(request: Request, context: AdminContext) -> Reply:
    """All isolation policies by name."""
    policies = await _policies(request, context, NOT_FOUND)
    return json_reply(Fields((name, policy.to_json()) for name, policy in sorted(policies.items())))


async def get_policy(request: Request, context: AdminContext) -> Reply:
    """One isolation policy."""
    policies = await _policies(request, context, PRECONDITION_FAILED)
    found = find_policy(request.params["policy"], policies, request.params["cluster"])
    return json_reply(found.to_json())


async def set_policy(request: Request, context: AdminContext) -> Reply:
    """Set an isolation policy.

    Nothing is unloaded by it: a bundle that may not be where it is goes on there until something
    else unloads it.
    """
    _check_cluster(request, context, PRECONDITION_FAILED)
    arguments = read_policy(request.params["policy"], request.json())
    return await carry_out(request, context, arguments)


async def delete_policy(request: Request, context: AdminContext) -> Reply:
    """Remove an isolation policy; one that isn't there is removed already."""
    _check_cluster(request, context, PRECONDITION_FAILED)
    name = request.params["policy"]
    if name in await isolation(context):
        await carry_out(request, context, DeleteIsolationPolicy(policy=name))
    return no_content()


async def list_isolated_brokers(request: Request, context: AdminContext) -> Reply:
    """Each active broker with the policies that name it."""
    policies = await _policies(request, context, PRECONDITION_FAILED)
    known = names_by_broker(context)
    return json_reply(broker_data(name, names, policies) for name, names in known.items())


async def get_isolated_broker(request: Request, context: AdminContext) -> Reply:
    """One broker with the policies that name it."""
    policies = await _policies(request, context, PRECONDITION_FAILED)
    broker = request.params["broker"]
    names = names_by_broker(context).get(find_broker(broker, context) or "")
    return json_reply(broker_data(broker, names or broker_names(broker), policies))

"""Brokers, clusters, policies under Pulsar's paths; commands to the balancer.

The configuration is the dynamic one. Decides who stands for what Ballast has not: the leader is the
service that is asked. A refusal of the balancer becomes Pulsar's refusal, and 503 with the reason
while it is away or still at it; never a success that has not happened. Source: Pulsar 4.0.8,
BrokersBase; health, ready and version answer unquoted text as JSON.
"""

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, TypeAlias

from jobs.adapters.processes.clocks import wall_ms
from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, RETRY, HttpError, Reply, Request
from lbcore.balancer.book import ACCEPTED, DONE, REFUSED
from lbcore.config.values import ConfigError
from lbcore.model.bundles import HashFunction, hash_topic
from lbcore.model.tables import BROKERS, POLICIES
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.clusters import broker_data, cluster_data, ownership_status, read_policy
from lbcore.pulsar.dynamic_config import (
    changes_of,
    check_dynamic,
    invalid_value,
    resets_of,
)
from lbcore.pulsar.names import (
    CONFLICT,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    PulsarError,
    broker_id,
    check_namespace,
)
from lbcore.pulsar.stats import (
    load_report,
    no_load_report,
    stats_of,
)
from lbcore.route.bundles import BundleRoute, placeholder_route
from lbcore.route.known_topics import KnownTopics
from lbcore.route.slices import LEFT_OUT, Fields, Maybe
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.kinds.balancing_commands import DeleteIsolationPolicy, ResetConfig, SetConfig

PULSAR_VERSION = "4.0.8"
OK = Reply(body=b"ok", headers=(JSON,))
_NO_TOPICS = KnownTopics()
_SERVING = frozenset({"active", "draining"})
_SILENT_MAX_MS = 60_000
_EXTRA_MS = 10_000

Refusal: TypeAlias = Callable[[str], PulsarError]

conflict = partial(PulsarError, CONFLICT)
"""409 with the balancer's reason: the state changed meanwhile."""


def cluster_names(context: AdminContext) -> tuple[str, ...]:
    """The names that this service's cluster goes by, its own first."""
    return (context.cluster, *context.config.lookup.cluster_aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """An existing namespace: live bundles, ascending, and its hash function."""

    name: str
    live: tuple[BundleRoute, ...]
    hash_function: HashFunction

    def bundle_at(self, position: int) -> BundleRoute:
        """The bundle in which a hash lies."""
        return self.live[bisect_right(self.live, position, key=attrgetter("lower")) - 1]


def namespace_name(request: Request) -> str:
    """Return tenant/namespace of the path. Raises PulsarError 412.

    In v1 it is tenant/cluster/namespace.
    """
    tenant, *rest = (
        request.params[part]
        for part in ("tenant", "cluster", "namespace")
        if part in request.params
    )
    for part in rest:
        check_namespace(tenant, part)
    return "/".join((tenant, *rest))


def existing(
    request: Request, context: AdminContext, missing: PulsarError | None = None
) -> Namespace:
    """The namespace of the path; raises PulsarError 412, or `missing`."""
    found = find_namespace(namespace_name(request), context)
    if found is None:
        raise missing or PulsarError(NOT_FOUND, "Namespace does not exist")
    return found


def find_namespace(name: str, context: AdminContext) -> Namespace | None:
    """A namespace by its name."""
    routes = context.view.snapshot.namespaces.get(name)
    if routes is None or routes.hash_function is None:
        return None
    live = routes.live or (placeholder_route(name),)
    return Namespace(name=name, live=live, hash_function=routes.hash_function)


def topics_of(namespace: str, context: AdminContext) -> KnownTopics:
    """Return a namespace's topics created here.

    What brokers report has no names here.
    """
    return context.views.topics.get(namespace, _NO_TOPICS)


def brokers(context: AdminContext) -> dict[str, Mapping[str, Any]]:
    """The brokers that are there, by name, each as its row of `brokers`."""
    rows = context.views.rows(BROKERS.name)
    found = {str(row["broker"]): row for row in rows if row["state"] in _SERVING}
    return dict(sorted(found.items()))


def find_broker(text: str, context: AdminContext) -> str | None:
    """Return the broker of a request: by name, or by host:port of a web URL."""
    active, asked = brokers(context), broker_id(text)
    if not asked or asked in active:
        return asked or None  # "" is also the URL that a broker has not
    for name, row in active.items():
        if asked in (broker_id(row["web_service_url"]), broker_id(row["web_service_url_tls"])):
            return name
    return None


def names_by_broker(context: AdminContext) -> dict[str, tuple[str, ...]]:
    """The names by which isolation policies may mean each broker that is there."""
    return {
        name: broker_names(name, row["web_service_url"], row["web_service_url_tls"])
        for name, row in brokers(context).items()
    }


async def isolation(context: AdminContext) -> dict[str, IsolationPolicy]:
    """The isolation policies by name."""
    return dict(
        await context.turns.gather(
            (str(row["name"]), IsolationPolicy.from_json(row["name"], json.loads(row["value"])))
            if row["kind"] == "isolation" and row["is_set"]
            else LEFT_OUT
            for row in context.views.rows(POLICIES.name)
        )
    )


async def carry_out(
    request: Request,
    context: AdminContext,
    arguments: CommandArguments,
    refused: Refusal = conflict,
) -> None:
    """Have a command done.

    refused: what a refusal of the balancer's (with its sentence) is answered with. Raises
    PulsarError, and HttpError 503 when the balancer is away or needs longer than an unload may.
    """
    silent_ms = context.view.writer_silent_ms(wall_ms())
    if silent_ms > _SILENT_MAX_MS:
        raise HttpError(
            503,
            f"The balancer has been silent for {silent_ms} ms, so nothing was asked of it: try "
            "again when it is back",
            RETRY,
        )
    wait_ms = context.in_force.ownership.unload_timeout_ms + _EXTRA_MS
    outcome = await context.command(arguments, request, timeout_ms=wait_ms)
    if outcome.status == REFUSED:
        raise refused(outcome.reason)
    reason = f"Command {outcome.command_id}: {outcome.reason}"
    if outcome.status == ACCEPTED:
        reason = f"Command {outcome.command_id} is still under way after {wait_ms} ms"
    if outcome.status != DONE:
        raise HttpError(503, reason, RETRY)


# -- brokers


def list_brokers(request: Request, context: AdminContext) -> list[str]:
    """The names of the active brokers."""
    check_known(request.params.get("cluster", context.cluster), context)
    return list(brokers(context))


def check_known(cluster: str, context: AdminContext) -> None:
    """Raise PulsarError 404 for another cluster."""
    if cluster not in cluster_names(context):
        raise PulsarError(NOT_FOUND, f"Cluster does not exist: cluster={cluster}")


async def get_owned(request: Request, context: AdminContext) -> Fields:
    """The bundles that a broker owns, and by which right."""
    broker = _active_broker(request.params["broker"], context)
    check_known(request.params["cluster"], context)
    policies = await isolation(context)
    names, snapshot = names_by_broker(context)[broker], context.view.snapshot

    def owned() -> Iterator[Maybe[tuple[str, Any]]]:
        for name in snapshot.names:
            yield LEFT_OUT
            status = None
            for route in snapshot.namespaces[name].live:
                if route.broker != broker:
                    yield LEFT_OUT
                    continue
                status = status or ownership_status(name, names, policies)
                yield route.bundle, status

    return Fields(owned())


def _active_broker(text: str, context: AdminContext) -> str:
    broker = find_broker(text, context)
    if broker is None:
        raise PulsarError(NOT_FOUND, f"Broker id '{text}' not found in available brokers.")
    return broker


def get_health(request: Request, context: AdminContext) -> Reply:
    """Check that lookups are answered, as clients need; 503 before the first load.

    A broker that is named must be active.
    """
    view, asked = context.view, request.first("brokerId").strip()
    if asked and broker_id(asked) != request.reached_at:
        _active_broker(asked, context)
    if view.snapshot.brokers:
        return OK
    raise HttpError(503, "No broker has reported yet: try again")


# -- dynamic configuration


async def set_value(request: Request, context: AdminContext) -> Reply:
    """Change a setting while running, for good."""
    key, value = check_dynamic(request.params["key"]), request.params["value"]
    try:
        values = changes_of(key, value, context.in_force)
    except ConfigError as error:
        raise invalid_value(str(error)) from None
    await carry_out(request, context, SetConfig(values=values), invalid_value)
    return Reply()


async def delete_value(request: Request, context: AdminContext) -> Reply:
    """Take a changed setting back to what the files say."""
    key, changed = request.params["key"], context.views.settings
    if key not in changed:  # else it was changed, if by a version that knew more
        check_dynamic(key, "delete")
    await carry_out(request, context, ResetConfig(keys=resets_of(key, context.started, changed)))
    return Reply()


_TOPICS_MAX = 20_000


def get_load_report(request: Request, context: AdminContext) -> Any:
    """Return the load of ?broker=; without one, the extensible manager's answer."""
    asked = request.first("broker")
    if not asked:
        return no_load_report()
    broker = find_broker(asked, context)
    if broker is None:
        return PulsarError(NOT_FOUND, f"Broker {asked} is not active")
    return load_report(brokers(context)[broker], context.views.newest_load.get(broker))


async def get_topics(_request: Request, context: AdminContext) -> Fields:
    """Return the known topics by namespace, bundle and domain.

    As far as a broker serves them.
    """
    if context.views.topic_count > _TOPICS_MAX:
        raise PulsarError(
            PRECONDITION_FAILED,
            f"There are more than {_TOPICS_MAX} topics: list them by namespace",
        )
    by_namespace: dict[str, dict[str, list[str]]] = {}
    for name in sorted(context.views.topics):
        found = find_namespace(name, context)
        if found is not None:
            places = await context.turns.gather(_places(found, topics_of(name, context)))
            for text, topic in sorted(places):
                by_namespace.setdefault(name, {}).setdefault(text, []).append(topic)
    return Fields(
        (name, Fields((text, stats_of(topics)) for text, topics in by_bundle.items()))
        for name, by_bundle in by_namespace.items()
    )


def _places(found: Namespace, topics: KnownTopics) -> Iterator[Maybe[tuple[str, str]]]:
    """Each topic that a broker serves, after the range of its bundle."""
    for topic in topics.names():
        route = found.bundle_at(hash_topic(found.hash_function, topic))
        yield (route.range_text, topic) if route.broker else LEFT_OUT


# -- clusters


def get_cluster(request: Request, context: AdminContext) -> Any:
    """Return the cluster's service URL and one broker's address."""
    if request.params["cluster"] not in cluster_names(context):
        return PulsarError(NOT_FOUND, "Cluster does not exist")
    urls = (row["pulsar_service_url"] for row in brokers(context).values())
    return cluster_data(f"http://{request.reached_at}", next(urls, ""))


def list_domains(request: Request, context: AdminContext) -> Mapping[str, Any]:
    """Return the brokers' failure domains; none for an unknown cluster."""
    return _domains(context) if request.params["cluster"] in cluster_names(context) else {}


def get_domain(request: Request, context: AdminContext) -> Any:
    """One failure domain."""
    cluster, name = check_cluster(request, context), request.params["domain"]
    missing = PulsarError(NOT_FOUND, f"Domain {name} for cluster {cluster} does not exist")
    return _domains(context).get(name, missing)


def set_domain(request: Request, context: AdminContext) -> PulsarError:
    """Failure domains can't be set or deleted: a broker says itself in which it is."""
    check_cluster(request, context)
    return PulsarError(
        NOT_IMPLEMENTED,
        "A failure domain is a label of its brokers: start them with another label",
    )


def _domains(context: AdminContext) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = {}
    for name, row in brokers(context).items():
        if row["failure_domain"]:
            found.setdefault(row["failure_domain"], {"brokers": []})["brokers"].append(name)
    return dict(sorted(found.items()))


def check_cluster(
    request: Request, context: AdminContext, status: int = PRECONDITION_FAILED
) -> str:
    """The cluster of the path; raises PulsarError for another one than the service's."""
    cluster = request.params["cluster"]
    if cluster not in cluster_names(context):
        raise PulsarError(status, f"Cluster {cluster} does not exist.")
    return cluster


# -- isolation policies


async def _policies(
    request: Request, context: AdminContext, status: int = PRECONDITION_FAILED
) -> dict[str, IsolationPolicy]:
    """The policies of the path's cluster; raises PulsarError when there never was one."""
    cluster = check_cluster(request, context, status)
    rows = context.views.rows(POLICIES.name)
    if not any(row["kind"] == "isolation" for row in rows):
        raise PulsarError(
            NOT_FOUND, f"NamespaceIsolationPolicies for cluster {cluster} does not exist"
        )
    return await isolation(context)


async def list_policies(request: Request, context: AdminContext) -> Fields:
    """All isolation policies by name."""
    policies = await _policies(request, context, NOT_FOUND)
    return Fields((name, policy.to_json()) for name, policy in sorted(policies.items()))


async def get_policy(request: Request, context: AdminContext) -> Any:
    """One isolation policy."""
    name, cluster = request.params["policy"], request.params["cluster"]
    found = (await _policies(request, context)).get(name)
    reason = f"Cannot find NamespaceIsolationPolicy {name} for cluster {cluster}"
    return found.to_json() if found else PulsarError(NOT_FOUND, reason)


async def set_policy(request: Request, context: AdminContext) -> None:
    """Set an isolation policy.

    Nothing is unloaded by it: a bundle that may not be where it is goes on there until something
    else unloads it.
    """
    check_cluster(request, context)
    await carry_out(request, context, read_policy(request.params["policy"], request.json()))


async def delete_policy(request: Request, context: AdminContext) -> None:
    """Remove an isolation policy; one that isn't there is removed already."""
    check_cluster(request, context)
    name = request.params["policy"]
    if name in await isolation(context):
        await carry_out(request, context, DeleteIsolationPolicy(policy=name))


async def list_isolated_brokers(request: Request, context: AdminContext) -> Iterator[Any]:
    """Each active broker with the policies that name it."""
    policies = await _policies(request, context)
    known = names_by_broker(context)
    return (broker_data(name, names, policies) for name, names in known.items())


async def get_isolated_broker(request: Request, context: AdminContext) -> Any:
    """One broker with the policies that name it."""
    policies = await _policies(request, context)
    broker = request.params["broker"]
    names = names_by_broker(context).get(find_broker(broker, context) or "")
    return broker_data(broker, names or broker_names(broker), policies)

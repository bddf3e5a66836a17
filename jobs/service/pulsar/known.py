"""Tables in the terms of Pulsar's paths, and a handler's command and answer.

A refusal of the balancer becomes Pulsar's refusal, and 503 with the reason while it is away or
still at it; never a success that has not happened.
"""

import asyncio
import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, TypeAlias
from urllib.parse import unquote_plus

from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.context import AdminContext
from jobs.service.exchange import RETRY, HttpError, Request
from lbcore.balancer.book import ACCEPTED, DONE, REFUSED
from lbcore.balancer.commands import EXISTS
from lbcore.model.bundles import HashFunction
from lbcore.model.names import TopicName, tenant_of
from lbcore.model.tables import BROKERS, POLICIES, RECORDS
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.names import (
    CONFLICT,
    NOT_FOUND,
    PRECONDITION_FAILED,
    PulsarError,
    broker_id,
    check_namespace,
    check_topic,
    domain_of,
)
from lbcore.route.bundles import BundleRoute, placeholder_route
from lbcore.route.known_topics import KnownTopics
from lbcore.route.slices import LEFT_OUT, Maybe
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.kinds.namespace_commands import (
    ADMIN_ROLES,
    ALLOWED_CLUSTERS,
    TENANT,
)

_LOCAL_NAME = 5
_AFTER_SLASH = chr(ord("/") + 1)
_NO_TOPICS = KnownTopics()
_SERVING = frozenset({"active", "draining"})


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
    routes = context.snapshot.namespaces.get(name)
    if routes is None or routes.hash_function is None:
        return None
    live = routes.live or (placeholder_route(name),)
    return Namespace(name=name, live=live, hash_function=routes.hash_function)


def namespace_names(context: AdminContext, tenant: str) -> Sequence[str]:
    """The existing namespaces of a tenant, sorted. O(log namespaces) and those."""
    names = context.snapshot.names
    return names[bisect_left(names, f"{tenant}/") : bisect_left(names, f"{tenant}{_AFTER_SLASH}")]


def topic_name(request: Request) -> TopicName:
    """The topic of the path; raises PulsarError 412.

    Pulsar decodes the local name as a form's field: "+" is a blank. It is the sixth part of every
    path that has one.
    """
    domain = domain_of(request.params.get("domain", "persistent"))
    local = unquote_plus(request.raw_path.strip("/").split("/")[_LOCAL_NAME])
    return check_topic(domain, namespace_name(request), local)


def topics_of(namespace: str, context: AdminContext) -> KnownTopics:
    """Return a namespace's topics created here.

    What brokers report has no names here.
    """
    return context.views.topics.get(namespace, _NO_TOPICS)


def tenant_names(context: AdminContext) -> Iterator[str]:
    """Those that were created, or have a namespace; one may come twice."""
    yield from (str(row["name"]) for row in _tenant_rows(context))
    names, at = context.snapshot.names, 0
    while at < len(names):
        tenant = tenant_of(names[at])
        yield tenant
        at = bisect_left(names, f"{tenant}{_AFTER_SLASH}")


def find_tenant(tenant: str, context: AdminContext) -> tuple[list[str], list[str]] | None:
    """Return a tenant's admin roles and allowed clusters; None if unknown."""
    for row in _tenant_rows(context):
        if row["name"] == tenant:
            value = json.loads(row["value"])
            return value[ADMIN_ROLES], value[ALLOWED_CLUSTERS]
    return ([], [context.cluster]) if namespace_names(context, tenant) else None


def _tenant_rows(context: AdminContext) -> Iterator[Mapping[str, Any]]:
    rows = context.views.rows(RECORDS.name)
    return (row for row in rows if row["record_type"] == TENANT and not row["is_deleted"])


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


def groups(context: AdminContext) -> Iterator[Maybe[tuple[str, str]]]:
    """Each namespace that is in an anti-affinity group, and the group."""
    for row in context.views.rows(POLICIES.name):
        yield (str(row["name"]), _group_of(row)) if _is_group(row) else LEFT_OUT


def find_group(namespace: str, context: AdminContext) -> str | None:
    """The anti-affinity group of a namespace."""
    rows = context.views.rows(POLICIES.name)
    found = (_group_of(row) for row in rows if row["name"] == namespace and _is_group(row))
    return next(found, None)


def _is_group(row: Mapping[str, Any]) -> bool:
    return row["kind"] == "anti_affinity" and bool(row["is_set"])


def _group_of(row: Mapping[str, Any]) -> str:
    return str(json.loads(row["value"])["group"])


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


def cluster_names(context: AdminContext) -> tuple[str, ...]:
    """The names that this service's cluster goes by, its own first."""
    return (context.cluster, *context.config.lookup.cluster_aliases)


Refusal: TypeAlias = Callable[[str], PulsarError]

_SILENT_MAX_MS = 60_000
_EXTRA_MS = 10_000
_POLL_S = 0.02


def conflict(reason: str) -> PulsarError:
    """Return 409 with the balancer's reason: the state changed meanwhile."""
    return PulsarError(CONFLICT, reason)


def unless_exists(exists: PulsarError) -> Refusal:
    """Return `exists` for what was made meanwhile; clients take it for a success."""
    return lambda why: exists if EXISTS in why else PulsarError(PRECONDITION_FAILED, why)


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


async def at_rest(
    context: AdminContext, find: Callable[[], Sequence[BundleRoute]]
) -> Sequence[BundleRoute]:
    """Return some bundles once none is in flight, or when its time is over.

    Pulsar, too, waits for an owner before it acts on a bundle. find: looks at them again.
    """
    deadline_ms = boot_ms() + context.in_force.ownership.in_flight_timeout_ms
    while True:
        routes = find()
        if boot_ms() >= deadline_ms or not any(route.state in IN_FLIGHT for route in routes):
            return routes
        await asyncio.sleep(_POLL_S)

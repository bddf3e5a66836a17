"""Namespaces and bundles under Pulsar's paths: create, list, unload, delete.

The order of the checks is Pulsar's; the checks and bodies are `lbcore.pulsar`'s and
`lbcore.route`'s. Source: Pulsar 4.0.8, admin.v2.Namespaces with the extensible load manager.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, Reply, Request
from jobs.service.pulsar.brokers import check_cluster
from jobs.service.pulsar.known import (
    Namespace,
    at_rest,
    carry_out,
    cluster_names,
    conflict,
    existing,
    find_broker,
    find_group,
    find_namespace,
    find_tenant,
    groups,
    namespace_name,
    namespace_names,
    topics_of,
    unless_exists,
)
from lbcore.balancer.commands import NOT_EMPTY
from lbcore.model.names import Domain, is_system_topic, namespace_of_bundle, tenant_of
from lbcore.pulsar.clusters import check_replication
from lbcore.pulsar.names import (
    CONFLICT,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    SERVER_ERROR,
    PulsarError,
    check_tenant,
    namespace_not_found,
    unexpected,
)
from lbcore.pulsar.namespaces import (
    check_algorithm,
    check_positions,
    find_bundle,
    highest_bundle,
    no_boundary,
    read_creation,
    read_positions,
)
from lbcore.pulsar.stats import throughput, topic_counts
from lbcore.route.bundles import BundleRoute
from lbcore.route.known_topics import is_in_range, is_requested, requested_names, topic_hash
from lbcore.route.slices import LEFT_OUT, Fields, LeftOut, Maybe
from lbcore.wire.kinds.balancing_commands import DeleteAntiAffinityGroup, SetAntiAffinityGroup
from lbcore.wire.kinds.bundle_commands import HOT, LARGEST, SplitBundle, UnloadBundle
from lbcore.wire.kinds.namespace_commands import DeleteNamespace, UnloadNamespace

_MODES = {"ALL": None, "PERSISTENT": Domain.PERSISTENT, "NON_PERSISTENT": Domain.NON_PERSISTENT}


def list_namespaces(request: Request, context: AdminContext) -> Any:
    """The namespaces of a tenant."""
    tenant = check_tenant(request.params["tenant"])
    if find_tenant(tenant, context) is None:
        return PulsarError(NOT_FOUND, "Tenant not found")
    return namespace_names(context, tenant)


async def create_namespace(request: Request, context: AdminContext) -> None:
    """Make a namespace with the bundles that its policies ask for."""
    name, tenant = namespace_name(request), request.params["tenant"]
    arguments, clusters = read_creation(name, request.json())
    known = find_tenant(tenant, context)
    if known is None:
        raise PulsarError(NOT_FOUND, "Tenant does not exist")
    check_replication(tenant, clusters, known[1], cluster_names(context))
    exists = PulsarError(CONFLICT, "Namespace already exists")
    if find_namespace(name, context) is not None:
        raise exists
    if not arguments.bundles and not arguments.boundaries:
        arguments = replace(arguments, bundles=context.in_force.splitting.default_bundles)
    await carry_out(request, context, arguments, unless_exists(exists))


async def delete_namespace(request: Request, context: AdminContext) -> None:
    """Delete a namespace without topics; the balancer checks that its owners report."""
    name = namespace_name(request)
    if request.flag("force"):
        raise PulsarError(NOT_ALLOWED, "Broker doesn't allow forced deletion of namespaces")
    if find_namespace(name, context) is None:
        raise PulsarError(NOT_FOUND, f"Namespace {name} does not exist.")
    not_empty = PulsarError(CONFLICT, "Cannot delete non empty namespace")
    if not all(is_system_topic(topic) for topic in topics_of(name, context).created):
        raise not_empty
    arguments = DeleteNamespace(namespace=name, only_empty=True)
    await carry_out(
        request, context, arguments, lambda why: not_empty if NOT_EMPTY in why else conflict(why)
    )


def list_topics(request: Request, context: AdminContext) -> Iterable[Any]:
    """The topics of a namespace, partitions one by one."""
    found = existing(request, context)
    domain = _MODES.get(request.first("mode", "PERSISTENT"), Domain.PERSISTENT)
    return topics_of(found.name, context).names(domain)


async def unload_namespace(request: Request, context: AdminContext) -> None:
    """Take all bundles of a namespace from their owners."""
    name = namespace_name(request)
    live = await at_rest(context, lambda: existing(request, context, namespace_not_found()).live)
    if any(route.broker for route in live):
        await carry_out(request, context, UnloadNamespace(namespace=name))


def get_group(request: Request, context: AdminContext) -> Reply | None:
    """The anti-affinity group of a namespace, as plain text; nothing without one."""
    group = find_group(existing(request, context, namespace_not_found()).name, context)
    return None if group is None else Reply(body=group.encode(), headers=(JSON,))


async def set_group(request: Request, context: AdminContext) -> None:
    """Put a namespace into the anti-affinity group of the body.

    The body is its name, with or without quotes.
    """
    found = existing(request, context, namespace_not_found())
    group = request.body.decode("utf-8", "replace").strip().strip('"').strip()
    if not group:
        raise PulsarError(PRECONDITION_FAILED, "antiAffinityGroup can't be empty")
    await carry_out(request, context, SetAntiAffinityGroup(namespace=found.name, group=group))


async def delete_group(request: Request, context: AdminContext) -> None:
    """Take a namespace out of its anti-affinity group."""
    found = existing(request, context, namespace_not_found())
    if find_group(found.name, context) is not None:
        await carry_out(request, context, DeleteAntiAffinityGroup(namespace=found.name))


async def list_group(request: Request, context: AdminContext) -> list[str]:
    """The namespaces of an anti-affinity group, of one tenant or (without one) of all.

    Pulsar's own tool still asks by the older path, where the tenant is a "property".
    """
    check_cluster(request, context)
    tenant = request.first("tenant") or request.first("property")
    asked = request.params["group"].lower()
    return sorted(
        name
        for name, group in await context.turns.gather(groups(context))
        if group.lower() == asked and tenant in ("", tenant_of(name))
    )


Value = TypeVar("Value")


async def unload_bundle(request: Request, context: AdminContext) -> None:
    """Take a bundle from its owner, for a broker that is named or for any.

    One that nobody owns is unloaded already.
    """
    namespace_name(request)
    destination = _destination(request, context)
    route = await _at_rest(request.params["bundle"], request, context)
    if not route.broker:
        return
    if destination == route.broker:
        message = (
            f"Namespace bundle: {route.bundle} own by {route.broker}, cannot be transfer to same "
            "broker."
        )
        reason = unexpected(message, "java.lang.IllegalArgumentException")
        raise PulsarError(SERVER_ERROR, reason)
    await carry_out(request, context, UnloadBundle(bundle=route.bundle, destination=destination))


async def _at_rest(text: str, request: Request, context: AdminContext) -> BundleRoute:
    def find() -> tuple[BundleRoute]:
        found = existing(request, context, namespace_not_found())
        return (find_bundle(found.name, text, found.live),)

    return (await at_rest(context, find))[0]


def _destination(request: Request, context: AdminContext) -> str:
    asked = request.first("destinationBroker").strip()
    if not asked:
        return ""
    broker = find_broker(asked, context)
    if broker is None:
        reason = "Not allowed unload namespace bundle to inactive destination broker"
        raise PulsarError(CONFLICT, reason)
    return broker


async def split_bundle(request: Request, context: AdminContext) -> None:
    """Split a bundle, or the LARGEST or HOT one.

    Where the algorithm or the positions say.
    """
    namespace_name(request)
    algorithm = request.first("splitAlgorithmName").strip()
    positions_asked = read_positions(request.json())
    check_algorithm(algorithm, context.in_force.splitting.supported_algorithms, positions_asked)
    found = existing(request, context, namespace_not_found())
    route = await _chosen_bundle(request.params["bundle"], found, context)
    route = await _at_rest(route.range_text, request, context)
    at = check_positions(route, algorithm, positions_asked)
    arguments = SplitBundle(
        bundle=route.bundle,
        algorithm=algorithm,
        positions=(at,) if at else (),
        unload=request.flag("unload"),
        force=True,
    )
    await carry_out(request, context, arguments, lambda why: no_boundary(route.bundle, why))


async def _chosen_bundle(text: str, found: Namespace, context: AdminContext) -> BundleRoute:
    """The bundle of a range; LARGEST has the most topics.

    HOT has the highest throughput, or the most topics where none has any.
    """
    if text not in (LARGEST, HOT):
        return find_bundle(found.name, text, found.live)
    chosen = None
    if text == HOT:
        rates = throughput(context.views.newest_load.values())
        chosen = highest_bundle(found.live, await _of_namespace(found, rates, context))
    chosen = chosen or highest_bundle(found.live, await _topic_counts(found, context))
    if chosen is None:
        raise PulsarError(NOT_FOUND, f"Bundle range {text} not found")
    return chosen


async def _topic_counts(found: Namespace, context: AdminContext) -> Mapping[str, int]:
    """Return bundle → persistent topics known, or as its broker reports if more."""
    names = topics_of(found.name, context).names(Domain.PERSISTENT)
    known: Counter[str] = Counter()

    def count() -> Iterator[LeftOut]:
        for name in names:
            known[found.bundle_at(topic_hash(name, found.hash_function)).bundle] += 1
            yield LEFT_OUT

    await context.turns.gather(count())
    reported = await _of_namespace(found, topic_counts(context.views.newest_load.values()), context)
    return {**known, **{bundle: max(known[bundle], count) for bundle, count in reported.items()}}


async def _of_namespace(
    found: Namespace, values: Iterable[tuple[str, Value]], context: AdminContext
) -> dict[str, Value]:
    """The values of a namespace's bundles."""
    pairs = (pair if namespace_of_bundle(pair[0]) == found.name else LEFT_OUT for pair in values)
    return dict(await context.turns.gather(pairs))


def get_positions(request: Request, context: AdminContext) -> Mapping[str, Any]:
    """The hashes of a bundle's topics."""
    found = existing(request, context)
    text = request.params["bundle"]
    route = find_bundle(found.name, text, found.live)
    asked = [one for value in request.query.get("topics", []) for one in value.split(",") if one]
    wanted = requested_names(asked)

    def here() -> Iterator[Maybe[tuple[str, int]]]:
        for name in topics_of(found.name, context).names():
            at = topic_hash(name, found.hash_function)
            is_here = is_in_range(at, route) and (not asked or is_requested(name, wanted))
            yield (name, at) if is_here else LEFT_OUT

    return {"namespace": found.name, "bundle": text, "topicHashPositions": Fields(here())}

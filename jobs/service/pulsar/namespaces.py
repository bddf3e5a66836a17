"""Tenants, namespaces, bundles and topics under Pulsar's paths.

The order of the checks is Pulsar's; the checks and bodies are `lbcore.pulsar`'s and
`lbcore.route`'s. To the balancer tenants and topics are records (`CreateRecord`). Requests are
refused in Pulsar's words. Asking for a topic that nobody has made yet is no error where clients let
their first producer make it. Source: Pulsar 4.0.8, admin.v2.Namespaces with the extensible load
manager, TenantsBase, PersistentTopicsBase, NonPersistentTopics, SchemasResource.
"""

import asyncio
import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import unquote_plus

from jobs.adapters.processes.clocks import boot_ms
from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, Reply, Request
from jobs.service.pulsar.brokers import (
    Namespace,
    Refusal,
    carry_out,
    check_cluster,
    cluster_names,
    conflict,
    existing,
    find_broker,
    find_namespace,
    namespace_name,
    topics_of,
)
from lbcore.balancer.commands import EXISTS, NOT_EMPTY
from lbcore.model.bundles import hash_topic
from lbcore.model.names import (
    Domain,
    TopicName,
    is_system_topic,
    namespace_of_bundle,
    strip_partition,
    tenant_of,
)
from lbcore.model.tables import POLICIES, RECORDS
from lbcore.ownership.states import IN_FLIGHT
from lbcore.pulsar.clusters import check_replication, read_tenant, tenant_data
from lbcore.pulsar.names import (
    BAD_REQUEST,
    CONFLICT,
    NOT_ACCEPTABLE,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    SERVER_ERROR,
    UNPROCESSABLE,
    PulsarError,
    check_tenant,
    check_topic,
    domain_of,
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
from lbcore.pulsar.stats import throughput, topic_counts, topic_stats
from lbcore.route.bundles import BundleRoute
from lbcore.route.known_topics import (
    KnownTopics,
    is_in_domain,
    is_in_range,
    is_requested,
    requested_names,
)
from lbcore.route.slices import LEFT_OUT, Fields, LeftOut, Maybe
from lbcore.wire.kinds.balancing_commands import DeleteAntiAffinityGroup, SetAntiAffinityGroup
from lbcore.wire.kinds.bundle_commands import HOT, LARGEST, SplitBundle, UnloadBundle
from lbcore.wire.kinds.namespace_commands import (
    ADMIN_ROLES,
    ALLOWED_CLUSTERS,
    MAX_PARTITIONS,
    TENANT,
    TOPIC,
    CreateRecord,
    DeleteNamespace,
    DeleteRecord,
    UnloadNamespace,
    UpdateRecord,
)

_PARTITIONS_FIELD = "partitions"
_MODES = {"ALL": None, "PERSISTENT": Domain.PERSISTENT, "NON_PERSISTENT": Domain.NON_PERSISTENT}
_LOCAL_NAME = 5
_AFTER_SLASH = chr(ord("/") + 1)
_POLL_S = 0.02


def topic_name(request: Request) -> TopicName:
    """The topic of the path; raises PulsarError 412.

    Pulsar decodes the local name as a form's field: "+" is a blank. It is the sixth part of every
    path that has one.
    """
    domain = domain_of(request.params.get("domain", "persistent"))
    local = unquote_plus(request.raw_path.strip("/").split("/")[_LOCAL_NAME])
    return check_topic(domain, namespace_name(request), local)


def namespace_names(context: AdminContext, tenant: str) -> Sequence[str]:
    """The existing namespaces of a tenant, sorted. O(log namespaces) and those."""
    names = context.view.snapshot.names
    return names[bisect_left(names, f"{tenant}/") : bisect_left(names, f"{tenant}{_AFTER_SLASH}")]


def tenant_names(context: AdminContext) -> Iterator[str]:
    """Those that were created, or have a namespace; one may come twice."""
    yield from (str(row["name"]) for row in _tenant_rows(context))
    names, at = context.view.snapshot.names, 0
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


def unless_exists(exists: PulsarError) -> Refusal:
    """Return `exists` for what was made meanwhile; clients take it for a success."""
    return lambda why: exists if EXISTS in why else PulsarError(PRECONDITION_FAILED, why)


# -- namespaces


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
    await carry_out(
        request,
        context,
        DeleteNamespace(namespace=name, only_empty=True),
        lambda why: not_empty if NOT_EMPTY in why else conflict(why),
    )


def list_all_topics(request: Request, context: AdminContext) -> Iterable[Any]:
    """The topics of a namespace, partitions one by one."""
    found = existing(request, context)
    domain = _MODES.get(request.first("mode", "PERSISTENT"), Domain.PERSISTENT)
    return topics_of(found.name, context).names(domain)


async def unload_namespace(request: Request, context: AdminContext) -> None:
    """Take all bundles of a namespace from their owners."""
    name = namespace_name(request)
    if any(route.broker for route in await _at_rest(request, context)):
        await carry_out(request, context, UnloadNamespace(namespace=name))


async def _at_rest(
    request: Request, context: AdminContext, text: str | None = None
) -> Sequence[BundleRoute]:
    """Return all bundles of the namespace, or that of a range, once none is in flight.

    Also when its time is over. Pulsar, too, waits for an owner before it acts on a bundle.
    """
    deadline_ms = boot_ms() + context.in_force.ownership.in_flight_timeout_ms
    while True:
        found = existing(request, context, namespace_not_found())
        routes = found.live if text is None else (find_bundle(found.name, text, found.live),)
        if boot_ms() >= deadline_ms or not any(route.state in IN_FLIGHT for route in routes):
            return routes
        await asyncio.sleep(_POLL_S)


def _group_of(row: Mapping[str, Any]) -> str:
    """The anti-affinity group that a policy sets, "" for any other policy."""
    is_group = row["kind"] == "anti_affinity" and row["is_set"]
    return str(json.loads(row["value"])["group"]) if is_group else ""


def find_group(namespace: str, context: AdminContext) -> str:
    """The anti-affinity group of a namespace, "" = none."""
    rows = context.views.rows(POLICIES.name)
    return next(filter(None, (_group_of(row) for row in rows if row["name"] == namespace)), "")


def get_group(request: Request, context: AdminContext) -> Reply | None:
    """The anti-affinity group of a namespace, as plain text; nothing without one."""
    group = find_group(existing(request, context, namespace_not_found()).name, context)
    return Reply(body=group.encode(), headers=(JSON,)) if group else None


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
    if find_group(found.name, context):
        await carry_out(request, context, DeleteAntiAffinityGroup(namespace=found.name))


async def list_group(request: Request, context: AdminContext) -> list[str]:
    """The namespaces of an anti-affinity group, of one tenant or (without one) of all.

    Pulsar's own tool still asks by the older path, where the tenant is a "property".
    """
    check_cluster(request, context)
    tenant = request.first("tenant") or request.first("property")
    asked = request.params["group"].lower()

    def members() -> Iterator[Maybe[str]]:
        for row in context.views.rows(POLICIES.name):
            name = str(row["name"])
            is_member = _group_of(row).lower() == asked and tenant in ("", tenant_of(name))
            yield name if is_member else LEFT_OUT

    return sorted(await context.turns.gather(members()))


Value = TypeVar("Value")


async def unload_bundle(request: Request, context: AdminContext) -> None:
    """Take a bundle from its owner, for a broker that is named or for any.

    One that nobody owns is unloaded already.
    """
    namespace_name(request)
    asked = request.first("destinationBroker").strip()
    destination = find_broker(asked, context) if asked else ""
    if destination is None:
        raise PulsarError(
            CONFLICT, "Not allowed unload namespace bundle to inactive destination broker"
        )
    (route,) = await _at_rest(request, context, request.params["bundle"])
    if not route.broker:
        return
    if destination == route.broker:
        message = (
            f"Namespace bundle: {route.bundle} own by {route.broker}, cannot be transfer to same "
            "broker."
        )
        raise PulsarError(SERVER_ERROR, unexpected(message, "java.lang.IllegalArgumentException"))
    await carry_out(request, context, UnloadBundle(bundle=route.bundle, destination=destination))


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
    (route,) = await _at_rest(request, context, route.range_text)
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
            known[found.bundle_at(hash_topic(found.hash_function, name)).bundle] += 1
            yield LEFT_OUT

    await context.turns.gather(count())
    reported = await _of_namespace(found, topic_counts(context.views.newest_load.values()), context)
    return {**known, **{bundle: max(known[bundle], count) for bundle, count in reported.items()}}


async def _of_namespace(
    found: Namespace, values: Iterable[tuple[str, Value]], context: AdminContext
) -> dict[str, Value]:
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
            at = hash_topic(found.hash_function, name)
            is_here = is_in_range(at, route) and (not asked or is_requested(name, wanted))
            yield (name, at) if is_here else LEFT_OUT

    return {"namespace": found.name, "bundle": text, "topicHashPositions": Fields(here())}


# -- tenants


async def list_tenants(_request: Request, context: AdminContext) -> list[str]:
    """All tenants."""
    return sorted(set(await context.turns.gather(tenant_names(context))))


def get_tenant(request: Request, context: AdminContext) -> Any:
    """A tenant's roles and clusters."""
    found = find_tenant(request.params["tenant"], context)
    return tenant_data(*found) if found else PulsarError(NOT_FOUND, "Tenant does not exist")


async def create_tenant(request: Request, context: AdminContext) -> None:
    """Make a tenant."""
    tenant = check_tenant(request.params["tenant"])
    value = _tenant_value(request, context)
    exists = PulsarError(CONFLICT, "Tenant already exist")
    if find_tenant(tenant, context) is not None:
        raise exists
    arguments = CreateRecord(record_type=TENANT, name=tenant, value=value)
    await carry_out(request, context, arguments, unless_exists(exists))


async def update_tenant(request: Request, context: AdminContext) -> None:
    """Replace a tenant's roles and clusters."""
    value, tenant = _tenant_value(request, context), request.params["tenant"]
    if find_tenant(tenant, context) is None:
        raise PulsarError(NOT_FOUND, f"Tenant {tenant} not found")
    await carry_out(request, context, UpdateRecord(record_type=TENANT, name=tenant, value=value))


def _tenant_value(request: Request, context: AdminContext) -> dict[str, list[str]]:
    roles, clusters = read_tenant(request.json(), cluster_names(context))
    return {ADMIN_ROLES: list(roles), ALLOWED_CLUSTERS: list(clusters)}


async def delete_tenant(request: Request, context: AdminContext) -> None:
    """Delete a tenant without namespaces."""
    tenant = request.params["tenant"]
    if request.flag("force"):
        raise PulsarError(NOT_ALLOWED, "Broker doesn't allow forced deletion of tenants")
    if find_tenant(tenant, context) is None:
        raise PulsarError(NOT_FOUND, "Tenant doesn't exist")
    if namespace_names(context, tenant):
        raise PulsarError(CONFLICT, "The tenant still has active namespaces")
    await carry_out(request, context, DeleteRecord(record_type=TENANT, name=tenant))


# -- topics


def _known(
    request: Request, context: AdminContext, *, is_whole: bool = False
) -> tuple[TopicName, KnownTopics]:
    """The topic of the path, and its namespace's topics.

    is_whole: raise PulsarError 412 for a partition in place of a partitioned topic.
    """
    topic = topic_name(request)
    found = existing(request, context, namespace_not_found())
    if is_whole and topic.partition is not None:
        raise PulsarError(
            PRECONDITION_FAILED, "Partitioned Topic Name should not contain '-partition-'"
        )
    return topic, topics_of(found.name, context)


def list_topics(request: Request, context: AdminContext) -> Iterable[Any]:
    """The topics of a namespace in one domain, of one bundle when it is named."""
    domain = domain_of(request.params["domain"])
    found = existing(request, context, namespace_not_found())
    names = topics_of(found.name, context).names(domain)
    text = request.first("bundle") or request.params.get("bundle", "")
    if not text:
        return names
    route = find_bundle(found.name, text, found.live)
    return (
        name if is_in_range(hash_topic(found.hash_function, name), route) else LEFT_OUT
        for name in names
    )


def list_partitioned(request: Request, context: AdminContext) -> Iterable[Any]:
    """The partitioned topics of a namespace in one domain."""
    domain = domain_of(request.params["domain"])
    found = existing(request, context, namespace_not_found())
    topics = topics_of(found.name, context)
    return (
        name if is_in_domain(name, domain) else LEFT_OUT
        for name in topics.created
        if name in topics.partitioned
    )


def get_partitions(request: Request, context: AdminContext) -> Any:
    """Return the number of partitions.

    0 for a topic that has none, or that its producer may make.
    """
    topic, known = _known(request, context)
    if not request.flag("checkAllowAutoCreation") and not known.exists(topic.full):
        return _not_found(topic)
    return {_PARTITIONS_FIELD: known.partitions_of(topic.full), "deleted": False}


async def create_topic(request: Request, context: AdminContext) -> None:
    """Make a topic without partitions."""
    topic, known = _known(request, context)
    if topic.partition is not None:  # one that its partitioned topic has
        parent = strip_partition(topic.full)
        count, name = known.partitions_of(parent), parent.rpartition("/")[2]
        number = f'Can\'t create topic {topic.local} with "-partition-" followed by'
        if not count:
            raise PulsarError(
                PRECONDITION_FAILED,
                f"{number} numeric value if there isn't a partitioned topic {name} created.",
            )
        if topic.partition >= count:
            raise PulsarError(
                PRECONDITION_FAILED,
                f"{number} a number smaller than number of partition of partitioned topic {name}",
            )
    await _create(request, context, CreateRecord(record_type=TOPIC, name=topic.full), known)


async def create_partitioned(request: Request, context: AdminContext) -> None:
    """Make a topic with partitions."""
    topic, known = _known(request, context, is_whole=True)
    count = _read_partitions(request)
    if count <= 0:
        raise PulsarError(NOT_ACCEPTABLE, "Number of partitions should be more than 0")
    if count > MAX_PARTITIONS:
        raise PulsarError(
            NOT_ACCEPTABLE,
            f"Number of partitions should be less than or equal to {MAX_PARTITIONS}",
        )
    await _create(
        request, context, CreateRecord(record_type=TOPIC, name=topic.full, value=count), known
    )


async def _create(
    request: Request, context: AdminContext, arguments: CreateRecord, known: KnownTopics
) -> None:
    exists = PulsarError(CONFLICT, "This topic already exists")
    if known.exists(arguments.name):
        raise exists
    await carry_out(request, context, arguments, unless_exists(exists))


async def update_partitions(request: Request, context: AdminContext) -> None:
    """Give a partitioned topic more partitions."""
    topic, known = _known(request, context, is_whole=True)
    count, now = _read_partitions(request), known.partitions_of(topic.full)
    if not now:
        raise PulsarError(CONFLICT, f"Topic {topic.full} is not the partitioned topic.")
    reason = f"Desired partitions {count} can't be "
    if count < now:
        raise PulsarError(UNPROCESSABLE, f"{reason}less than the current partitions {now}.")
    if count > MAX_PARTITIONS:
        raise PulsarError(
            UNPROCESSABLE,
            f"{reason}greater than the maximum partitions per topic {MAX_PARTITIONS}.",
        )
    if count > now:
        await carry_out(
            request, context, UpdateRecord(record_type=TOPIC, name=topic.full, value=count)
        )


async def delete_partitioned(request: Request, context: AdminContext) -> None:
    """Forget a partitioned topic and its partitions."""
    topic, known = _known(request, context, is_whole=True)
    if not known.partitions_of(topic.full):
        if known.exists(topic.full):
            raise PulsarError(
                CONFLICT,
                f"{topic.full} is a non-partitioned topic. Instead of calling "
                "delete-partitioned-topic please call delete.",
            )
        raise PulsarError(NOT_FOUND, f"Topic {topic.full} not found.")
    await carry_out(request, context, DeleteRecord(record_type=TOPIC, name=topic.full))


async def delete_topic(request: Request, context: AdminContext) -> None:
    """Forget a topic without partitions."""
    topic, known = _known(request, context)
    if known.partitions_of(topic.full):
        raise PulsarError(
            CONFLICT,
            f"{topic.full} is a partitioned topic, instead of calling delete topic, please call "
            "delete-partitioned-topic.",
        )
    if not known.exists(topic.full):
        raise _not_found(topic)
    await carry_out(request, context, DeleteRecord(record_type=TOPIC, name=topic.full))


def get_stats(request: Request, context: AdminContext) -> Any:
    """Return a topic's statistics: its owner.

    Ballast does not count messages of single topics.
    """
    topic, known = _known(request, context)
    if known.is_served(topic.full):
        route = context.view.snapshot.lookup(topic.full)
        return topic_stats(route.broker if route else "")
    if topic.partition is None:
        return _not_found(topic)
    if known.partitions_of(strip_partition(topic.full)):
        return PulsarError(NOT_FOUND, "Topic partitions were not yet created")
    return PulsarError(NOT_FOUND, f"Partitioned Topic not found: {topic.full} has zero partitions")


def get_partitioned_stats(request: Request, context: AdminContext) -> Any:
    """The statistics of a partitioned topic, all partitions together."""
    topic, known = _known(request, context)
    count = known.partitions_of(topic.full)
    if not count:
        raise PulsarError(NOT_FOUND, f"Partitioned Topic {topic.full} not found")
    return {
        **topic_stats(""),
        "metadata": {_PARTITIONS_FIELD: count, "deleted": False},
        _PARTITIONS_FIELD: {},
    }


def get_schema(request: Request, context: AdminContext) -> PulsarError:
    """There are no schemas here; clients read 404 as none."""
    topic_name(request)
    existing(request, context, namespace_not_found())
    return PulsarError(NOT_FOUND, "Schema not found")


def _read_partitions(request: Request) -> int:
    """Return the partitions in the body: a number or a topic's metadata; 0 without."""
    body = request.json()
    if body is None:
        return 0
    value = body.get(_PARTITIONS_FIELD) if isinstance(body, dict) else body
    if type(value) is not int:
        raise PulsarError(BAD_REQUEST, "the body must be the number of partitions")
    return value


def _not_found(topic: TopicName) -> PulsarError:
    return PulsarError(NOT_FOUND, f"Topic {topic.full} not found")

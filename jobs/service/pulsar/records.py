"""Tenants and topics under Pulsar's paths: create, list, get, delete, statistics.

To the balancer both are records (`CreateRecord`). Requests are refused in Pulsar's words. Asking
for a topic that nobody has made yet is no error where clients let their first producer make it.
Source: Pulsar 4.0.8, TenantsBase, PersistentTopicsBase, NonPersistentTopics, SchemasResource.
"""

from collections.abc import Iterable
from typing import Any

from jobs.service.context import AdminContext
from jobs.service.exchange import Request
from jobs.service.pulsar.known import (
    carry_out,
    cluster_names,
    existing,
    find_tenant,
    namespace_name,
    namespace_names,
    tenant_names,
    topic_name,
    topics_of,
    unless_exists,
)
from lbcore.model.names import TopicName, strip_partition
from lbcore.pulsar.clusters import read_tenant, tenant_data
from lbcore.pulsar.names import (
    BAD_REQUEST,
    CONFLICT,
    NOT_ACCEPTABLE,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    UNPROCESSABLE,
    PulsarError,
    check_tenant,
    domain_of,
    namespace_not_found,
)
from lbcore.pulsar.namespaces import find_bundle
from lbcore.pulsar.stats import topic_stats
from lbcore.route.known_topics import KnownTopics, is_in_domain, is_in_range, topic_hash
from lbcore.route.slices import LEFT_OUT
from lbcore.wire.kinds.namespace_commands import (
    ADMIN_ROLES,
    ALLOWED_CLUSTERS,
    MAX_PARTITIONS,
    TENANT,
    TOPIC,
    CreateRecord,
    DeleteRecord,
    UpdateRecord,
)

_PARTITIONS_FIELD = "partitions"


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
    arguments = UpdateRecord(record_type=TENANT, name=tenant, value=value)
    await carry_out(request, context, arguments)


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


def _known(request: Request, context: AdminContext) -> tuple[TopicName, KnownTopics]:
    """The topic of the path, and its namespace's topics."""
    topic = topic_name(request)
    existing(request, context, namespace_not_found())
    return topic, topics_of(namespace_name(request), context)


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
        name if is_in_range(topic_hash(name, found.hash_function), route) else LEFT_OUT
        for name in names
    )


def list_partitioned(request: Request, context: AdminContext) -> Iterable[Any]:
    """The partitioned topics of a namespace in one domain."""
    domain = domain_of(request.params["domain"])
    found = existing(request, context, namespace_not_found())
    topics = topics_of(found.name, context)
    names = (name for name in topics.created if name in topics.partitioned)
    return (name if is_in_domain(name, domain) else LEFT_OUT for name in names)


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
    _check_partition(topic, known)
    await _create(request, context, CreateRecord(record_type=TOPIC, name=topic.full), known)


async def create_partitioned(request: Request, context: AdminContext) -> None:
    """Make a topic with partitions."""
    topic, known = _known(request, context)
    _check_whole(topic)
    count = _read_partitions(request)
    if count <= 0:
        raise PulsarError(NOT_ACCEPTABLE, "Number of partitions should be more than 0")
    if count > MAX_PARTITIONS:
        reason = f"Number of partitions should be less than or equal to {MAX_PARTITIONS}"
        raise PulsarError(NOT_ACCEPTABLE, reason)
    arguments = CreateRecord(record_type=TOPIC, name=topic.full, value=count)
    await _create(request, context, arguments, known)


async def _create(
    request: Request, context: AdminContext, arguments: CreateRecord, known: KnownTopics
) -> None:
    exists = PulsarError(CONFLICT, "This topic already exists")
    if known.exists(arguments.name):
        raise exists
    await carry_out(request, context, arguments, unless_exists(exists))


async def update_partitions(request: Request, context: AdminContext) -> None:
    """Give a partitioned topic more partitions."""
    topic, known = _known(request, context)
    _check_whole(topic)
    count, now = _read_partitions(request), known.partitions_of(topic.full)
    if not now:
        raise PulsarError(CONFLICT, f"Topic {topic.full} is not the partitioned topic.")
    reason = f"Desired partitions {count} can't be "
    if count < now:
        raise PulsarError(UNPROCESSABLE, f"{reason}less than the current partitions {now}.")
    if count > MAX_PARTITIONS:
        reason = f"{reason}greater than the maximum partitions per topic {MAX_PARTITIONS}."
        raise PulsarError(UNPROCESSABLE, reason)
    if count > now:
        await carry_out(
            request, context, UpdateRecord(record_type=TOPIC, name=topic.full, value=count)
        )


async def delete_partitioned(request: Request, context: AdminContext) -> None:
    """Forget a partitioned topic and its partitions."""
    topic, known = _known(request, context)
    _check_whole(topic)
    if not known.partitions_of(topic.full) and known.exists(topic.full):
        reason = (
            f"{topic.full} is a non-partitioned topic. Instead of calling delete-partitioned-topic "
            "please call delete."
        )
        raise PulsarError(CONFLICT, reason)
    if not known.partitions_of(topic.full):
        raise PulsarError(NOT_FOUND, f"Topic {topic.full} not found.")
    await carry_out(request, context, DeleteRecord(record_type=TOPIC, name=topic.full))


async def delete_topic(request: Request, context: AdminContext) -> None:
    """Forget a topic without partitions."""
    topic, known = _known(request, context)
    if known.partitions_of(topic.full):
        reason = (
            f"{topic.full} is a partitioned topic, instead of calling delete topic, please call "
            "delete-partitioned-topic."
        )
        raise PulsarError(CONFLICT, reason)
    if not known.exists(topic.full):
        raise _not_found(topic)
    await carry_out(request, context, DeleteRecord(record_type=TOPIC, name=topic.full))


def get_stats(request: Request, context: AdminContext) -> Any:
    """Return a topic's statistics: its owner.

    Ballast does not count messages of single topics.
    """
    topic, known = _known(request, context)
    if not known.is_served(topic.full):
        raise _no_partition(topic, known) if topic.partition is not None else _not_found(topic)
    route = context.snapshot.lookup(topic.full)
    return topic_stats(route.broker if route else "")


def get_partitioned_stats(request: Request, context: AdminContext) -> Any:
    """The statistics of a partitioned topic, all partitions together."""
    topic, known = _known(request, context)
    count = known.partitions_of(topic.full)
    if not count:
        raise PulsarError(NOT_FOUND, f"Partitioned Topic {topic.full} not found")
    metadata = {_PARTITIONS_FIELD: count, "deleted": False}
    return {**topic_stats(""), "metadata": metadata, _PARTITIONS_FIELD: {}}


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


def _check_whole(topic: TopicName) -> None:
    """Raise PulsarError 412 for a partition in place of a partitioned topic."""
    if topic.partition is not None:
        reason = "Partitioned Topic Name should not contain '-partition-'"
        raise PulsarError(PRECONDITION_FAILED, reason)


def _check_partition(topic: TopicName, known: KnownTopics) -> None:
    """Raises PulsarError 412 for a partition that its partitioned topic has not."""
    if topic.partition is None:
        return
    parent = strip_partition(topic.full)
    count, name = known.partitions_of(parent), parent.rpartition("/")[2]
    number = f'Can\'t create topic {topic.local} with "-partition-" followed by'
    if not count:
        reason = f"{number} numeric value if there isn't a partitioned topic {name} created."
        raise PulsarError(PRECONDITION_FAILED, reason)
    if topic.partition >= count:
        reason = f"{number} a number smaller than number of partition of partitioned topic {name}"
        raise PulsarError(PRECONDITION_FAILED, reason)


def _no_partition(topic: TopicName, known: KnownTopics) -> PulsarError:
    if known.partitions_of(strip_partition(topic.full)):
        return PulsarError(NOT_FOUND, "Topic partitions were not yet created")
    reason = f"Partitioned Topic not found: {topic.full} has zero partitions"
    return PulsarError(NOT_FOUND, reason)


def _not_found(topic: TopicName) -> PulsarError:
    return PulsarError(NOT_FOUND, f"Topic {topic.full} not found")

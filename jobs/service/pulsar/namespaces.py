"""Namespaces under Pulsar's paths: made, listed, shown, emptied, deleted.

Decides nothing of its own: what is refused, and the bodies, are `lbcore.pulsar.namespaces`'.
Source: Pulsar 4.0.8, admin.v2.Namespaces.
"""

from dataclasses import replace

from jobs.service.context import AdminContext
from jobs.service.exchange import JSON, Reply, Request, json_reply, no_content
from jobs.service.pulsar.asking import at_rest, carry_out, conflict
from jobs.service.pulsar.known import (
    cluster_names,
    existing,
    find_group,
    find_namespace,
    find_tenant,
    groups,
    namespace_name,
    namespace_names,
    topics_of,
)
from lbcore.balancer.commands.namespaces import NOT_EMPTY
from lbcore.model.names import Domain, is_system_topic, tenant_of
from lbcore.pulsar.clusters import check_replication
from lbcore.pulsar.errors import (
    CONFLICT,
    NOT_ALLOWED,
    NOT_FOUND,
    PRECONDITION_FAILED,
    PulsarError,
    namespace_not_found,
)
from lbcore.pulsar.names import check_tenant
from lbcore.pulsar.namespaces import (
    already_exists,
    bundles_data,
    policies_data,
    read_creation,
)
from lbcore.wire.kinds.balancing_commands import DeleteAntiAffinityGroup, SetAntiAffinityGroup
from lbcore.wire.kinds.namespace_commands import DeleteNamespace, UnloadNamespace

_MODES = {"ALL": None, "PERSISTENT": Domain.PERSISTENT, "NON_PERSISTENT": Domain.NON_PERSISTENT}


async def list_namespaces(request: Request, context: AdminContext) -> Reply:
    """The namespaces of a tenant."""
    tenant = check_tenant(request.params["tenant"])
    if find_tenant(tenant, context) is None:
        raise PulsarError(NOT_FOUND, "Tenant not found")
    return json_reply(namespace_names(context, tenant))


async def create_namespace(request: Request, context: AdminContext) -> Reply:
    """Make a namespace with the bundles that its policies ask for."""
    name = namespace_name(request)
    asked = read_creation(name, request.json())
    tenant = request.params["tenant"]
    known = find_tenant(tenant, context)
    if known is None:
        raise PulsarError(NOT_FOUND, "Tenant does not exist")
    allowed = known[1]
    check_replication(tenant, asked.replication_clusters, allowed, cluster_names(context))
    if find_namespace(name, context) is not None:
        raise already_exists()
    arguments = asked.arguments
    if not arguments.bundles and not arguments.boundaries:
        arguments = replace(arguments, bundles=context.started.splitting.default_bundles)
    await carry_out(request, context, arguments, lambda _: already_exists())
    return no_content()


async def delete_namespace(request: Request, context: AdminContext) -> Reply:
    """Delete a namespace without topics; which brokers report, the balancer knows."""
    name = namespace_name(request)
    if request.flag("force"):
        raise PulsarError(NOT_ALLOWED, "Broker doesn't allow forced deletion of namespaces")
    if find_namespace(name, context) is None:
        raise PulsarError(NOT_FOUND, f"Namespace {name} does not exist.")
    if not all(is_system_topic(topic) for topic in topics_of(name, context).created):
        raise _not_empty()
    arguments = DeleteNamespace(namespace=name, only_empty=True)
    await carry_out(request, context, arguments, _not_deleted)
    return no_content()


def _not_deleted(reason: str) -> PulsarError:
    return _not_empty() if NOT_EMPTY in reason else conflict(reason)


def _not_empty() -> PulsarError:
    return PulsarError(CONFLICT, "Cannot delete non empty namespace")


async def get_policies(request: Request, context: AdminContext) -> Reply:
    """The policies of a namespace."""
    found = existing(request, context)
    return json_reply(policies_data(found.live, context.cluster, found.hash_function))


async def get_bundles(request: Request, context: AdminContext) -> Reply:
    """The boundaries of a namespace's bundles."""
    return json_reply(bundles_data(existing(request, context).live))


async def get_replication(request: Request, context: AdminContext) -> Reply:
    """The clusters that a namespace is in: this one."""
    existing(request, context)
    return json_reply([context.cluster])


async def list_topics(request: Request, context: AdminContext) -> Reply:
    """The topics of a namespace, partitions one by one."""
    found = existing(request, context)
    domain = _MODES.get(request.first("mode", "PERSISTENT"), Domain.PERSISTENT)
    return json_reply(topics_of(found.name, context).names(domain))


async def unload_namespace(request: Request, context: AdminContext) -> Reply:
    """Take all bundles of a namespace from their owners."""
    name = namespace_name(request)
    live = await at_rest(context, lambda: existing(request, context, namespace_not_found()).live)
    if any(route.broker for route in live):
        await carry_out(request, context, UnloadNamespace(namespace=name))
    return no_content()


async def get_group(request: Request, context: AdminContext) -> Reply:
    """The anti-affinity group of a namespace, as plain text; nothing without one."""
    found = existing(request, context, namespace_not_found())
    group = find_group(found.name, context)
    return no_content() if group is None else Reply(body=group.encode(), headers=(JSON,))


async def set_group(request: Request, context: AdminContext) -> Reply:
    """Put a namespace into an anti-affinity group; the body is its name, with or without quotes."""
    found = existing(request, context, namespace_not_found())
    group = request.body.decode("utf-8", "replace").strip().strip('"').strip()
    if not group:
        raise PulsarError(PRECONDITION_FAILED, "antiAffinityGroup can't be empty")
    await carry_out(request, context, SetAntiAffinityGroup(namespace=found.name, group=group))
    return no_content()


async def delete_group(request: Request, context: AdminContext) -> Reply:
    """Take a namespace out of its anti-affinity group."""
    found = existing(request, context, namespace_not_found())
    if find_group(found.name, context) is not None:
        await carry_out(request, context, DeleteAntiAffinityGroup(namespace=found.name))
    return no_content()


async def list_group(request: Request, context: AdminContext) -> Reply:
    """The namespaces of an anti-affinity group, of one tenant or (without one) of all.

    Pulsar's own tool still asks by the older path, where the tenant is a "property".
    """
    cluster = request.params["cluster"]
    if cluster not in cluster_names(context):
        raise PulsarError(PRECONDITION_FAILED, f"Cluster {cluster} does not exist.")
    tenant = request.first("tenant") or request.first("property")
    asked = request.params["group"].lower()
    members = [
        name
        for name, group in await context.turns.gather(groups(context))
        if group.lower() == asked and tenant in ("", tenant_of(name))
    ]
    return json_reply(sorted(members))

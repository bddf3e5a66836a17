"""Clusters, tenants and isolation policies under Pulsar's paths.

Decides nothing of its own: bodies and refusals are `lbcore.route`'s. Source: Pulsar 4.0.8,
ClustersBase, TenantsBase.
"""

from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request, json_reply, no_content
from jobs.service.pulsar.asking import carry_out
from jobs.service.pulsar.known import (
    brokers,
    cluster_names,
    find_broker,
    find_tenant,
    isolation,
    names_by_broker,
    namespace_names,
    tenant_names,
    was_isolated,
)
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.clusters import cluster_data, no_cluster, read_tenant, tenant_data
from lbcore.pulsar.errors import (
    CONFLICT,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    PulsarError,
)
from lbcore.pulsar.isolation import broker_data, find_policy, read_policy
from lbcore.pulsar.names import check_tenant
from lbcore.route.slices import Fields
from lbcore.wire.kinds.balancing_commands import DeleteIsolationPolicy
from lbcore.wire.kinds.catalogue_commands import CreateTenant, DeleteTenant, UpdateTenant

# -- clusters


async def list_clusters(request: Request, context: AdminContext) -> Reply:
    """The one cluster of this service."""
    del request
    return json_reply([context.cluster])


async def get_cluster(request: Request, context: AdminContext) -> Reply:
    """Where the cluster is asked, and one broker's address."""
    if request.params["cluster"] not in cluster_names(context):
        raise no_cluster()
    urls = (row["pulsar_service_url"] for row in brokers(context).values())
    return json_reply(cluster_data(f"http://{request.reached_at}", next(urls, "")))


async def list_domains(request: Request, context: AdminContext) -> Reply:
    """The failure domains that brokers are labelled with; none of a cluster that isn't there."""
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


# -- tenants


async def list_tenants(request: Request, context: AdminContext) -> Reply:
    """All tenants."""
    del request
    return json_reply(sorted(set(await context.turns.gather(tenant_names(context)))))


async def get_tenant(request: Request, context: AdminContext) -> Reply:
    """A tenant's roles and clusters."""
    found = find_tenant(request.params["tenant"], context)
    if found is None:
        raise PulsarError(NOT_FOUND, "Tenant does not exist")
    return json_reply(tenant_data(*found))


async def create_tenant(request: Request, context: AdminContext) -> Reply:
    """Make a tenant."""
    tenant = check_tenant(request.params["tenant"])
    roles, clusters = read_tenant(request.json(), cluster_names(context))
    if find_tenant(tenant, context) is not None:
        raise _tenant_exists()
    arguments = CreateTenant(tenant=tenant, admin_roles=roles, allowed_clusters=clusters)
    await carry_out(request, context, arguments, lambda _: _tenant_exists())
    return no_content()


async def update_tenant(request: Request, context: AdminContext) -> Reply:
    """Replace a tenant's roles and clusters."""
    roles, clusters = read_tenant(request.json(), cluster_names(context))
    tenant = request.params["tenant"]
    if find_tenant(tenant, context) is None:
        raise PulsarError(NOT_FOUND, f"Tenant {tenant} not found")
    arguments = UpdateTenant(tenant=tenant, admin_roles=roles, allowed_clusters=clusters)
    await carry_out(request, context, arguments)
    return no_content()


async def delete_tenant(request: Request, context: AdminContext) -> Reply:
    """Delete a tenant without namespaces."""
    tenant = request.params["tenant"]
    if request.flag("force"):
        raise PulsarError(NOT_ALLOWED, "Broker doesn't allow forced deletion of tenants")
    if find_tenant(tenant, context) is None:
        raise PulsarError(NOT_FOUND, "Tenant doesn't exist")
    if namespace_names(context, tenant):
        raise _tenant_in_use()
    await carry_out(request, context, DeleteTenant(tenant=tenant), lambda _: _tenant_in_use())
    return no_content()


def _tenant_exists() -> PulsarError:
    return PulsarError(CONFLICT, "Tenant already exist")


def _tenant_in_use() -> PulsarError:
    return PulsarError(CONFLICT, "The tenant still has active namespaces")


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
    await carry_out(request, context, arguments)
    return no_content()


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

"""Clusters and isolation policies under Pulsar's paths.

Decides nothing of its own: bodies and refusals are `lbcore.route`'s. Source: Pulsar
4.0.8, ClustersBase.
"""

from jobs.service.context import AdminContext
from jobs.service.exchange import Reply, Request, json_reply, no_content
from jobs.service.pulsar.known import (
    brokers,
    carry_out,
    cluster_names,
    find_broker,
    isolation,
    names_by_broker,
    was_isolated,
)
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.clusters import cluster_data, no_cluster
from lbcore.pulsar.isolation import broker_data, find_policy, read_policy
from lbcore.pulsar.names import (
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    PulsarError,
)
from lbcore.route.slices import Fields
from lbcore.wire.kinds.balancing_commands import DeleteIsolationPolicy

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

"""What the tables say, in the terms of Pulsar's paths: namespaces, topics, policies, brokers.

Decides nothing; handlers ask here instead of reading rows. Source: ours.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any
from urllib.parse import unquote_plus

from jobs.service.context import AdminContext
from jobs.service.exchange import Request
from lbcore.model.hashing import HashFunction
from lbcore.model.names import TopicName, tenant_of
from lbcore.model.tables import BROKERS, TENANTS
from lbcore.plan.filter.policies import IsolationPolicy, broker_names
from lbcore.pulsar.errors import PulsarError, namespace_does_not_exist
from lbcore.pulsar.names import broker_id, check_namespace, check_topic, domain_of
from lbcore.route.bundles import BundleRoute, unborn
from lbcore.route.known_topics import KnownTopics
from lbcore.route.slices import LEFT_OUT, Maybe

POLICIES = "policies"
_LOCAL_NAME = 5
_AFTER_SLASH = chr(ord("/") + 1)
_NO_TOPICS = KnownTopics()
_SERVING = frozenset({"active", "draining"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """An existing namespace: its live bundles, ascending, and how its topics are hashed."""

    name: str
    live: tuple[BundleRoute, ...]
    hash_function: HashFunction

    def bundle_at(self, position: int) -> BundleRoute:
        """The bundle in which a hash lies."""
        return self.live[bisect_right(self.live, position, key=attrgetter("lower")) - 1]


def namespace_name(request: Request) -> str:
    """tenant/namespace of the path, in v1 tenant/cluster/namespace; raises PulsarError 412."""
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
        raise missing or namespace_does_not_exist()
    return found


def find_namespace(name: str, context: AdminContext) -> Namespace | None:
    """A namespace by its name."""
    routes = context.snapshot.namespaces.get(name)
    if routes is None or routes.hash_function is None:
        return None
    live = routes.live or (unborn(name),)
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
    """The topics of a namespace that were created here; what brokers report has no names here."""
    return context.views.topics.get(namespace, _NO_TOPICS)


def tenant_names(context: AdminContext) -> Iterator[str]:
    """Those that were created, or have a namespace; one may come twice."""
    for row in context.views.rows(TENANTS.name):
        if not row["is_deleted"]:
            yield str(row["tenant"])
    names, at = context.snapshot.names, 0
    while at < len(names):
        tenant = tenant_of(names[at])
        yield tenant
        at = bisect_left(names, f"{tenant}{_AFTER_SLASH}")


def find_tenant(tenant: str, context: AdminContext) -> tuple[list[str], list[str]] | None:
    """A tenant's admin roles and allowed clusters, None when there is none of that name."""
    for row in context.views.rows(TENANTS.name):
        if row["tenant"] == tenant and not row["is_deleted"]:
            return json.loads(row["admin_roles"]), json.loads(row["allowed_clusters"])
    return ([], [context.cluster]) if namespace_names(context, tenant) else None


async def isolation(context: AdminContext) -> dict[str, IsolationPolicy]:
    """The isolation policies by name."""
    return dict(
        await context.turns.gather(
            (str(row["name"]), IsolationPolicy.from_json(row["name"], json.loads(row["value"])))
            if _is_set(row, "isolation")
            else LEFT_OUT
            for row in context.views.rows(POLICIES)
        )
    )


def groups(context: AdminContext) -> Iterator[Maybe[tuple[str, str]]]:
    """Each namespace that is in an anti-affinity group, and the group."""
    for row in context.views.rows(POLICIES):
        if _is_set(row, "anti_affinity"):
            yield str(row["name"]), str(json.loads(row["value"])["group"])
        else:
            yield LEFT_OUT


def find_group(namespace: str, context: AdminContext) -> str | None:
    """The anti-affinity group of a namespace."""
    for row in context.views.rows(POLICIES):
        if row["name"] == namespace and _is_set(row, "anti_affinity"):
            return str(json.loads(row["value"])["group"])
    return None


def _is_set(row: Mapping[str, Any], kind: str) -> bool:
    return bool(row["kind"] == kind and row["is_set"])


def was_isolated(context: AdminContext) -> bool:
    """Whether there has ever been an isolation policy."""
    return any(row["kind"] == "isolation" for row in context.views.rows(POLICIES))


def brokers(context: AdminContext) -> dict[str, Mapping[str, Any]]:
    """The brokers that are there, by name, each as its row of `brokers`."""
    rows = context.views.rows(BROKERS.name)
    found = {str(row["broker"]): row for row in rows if row["state"] in _SERVING}
    return dict(sorted(found.items()))


def find_broker(text: str, context: AdminContext) -> str | None:
    """The name of the broker that a request means: its own, or host:port of a web URL of its."""
    active, asked = brokers(context), broker_id(text)
    if asked in active:
        return asked
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

"""Commands about tenants and topics.

Decides whether each is possible now: names are unique, a tenant with namespaces stays, partitions
only grow. Part of `commands`. Source: ours; the rules are those of Pulsar 4.0.8's TenantsBase and
PersistentTopicsBase.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.state.catalogue import MAX_TOPICS, Tenant, tenant_row, topic_row
from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks import usage
from lbcore.balancer.tasks.forgetting import drop_topic
from lbcore.balancer.tasks.usage import NAMESPACES, PARTITIONS, has_any, reason_not_to_add
from lbcore.model.names import namespace_of_topic, partition_of, strip_partition, tenant_of
from lbcore.model.tables import TENANTS, TOPICS
from lbcore.wire.kinds.catalogue_commands import (
    CreateTenant,
    CreateTopic,
    DeleteTenant,
    DeleteTopic,
    UpdateTenant,
    UpdateTopic,
)
from lbcore.wire.messages import Command


def namespaces_of(work: Work, tenant: str) -> list[str]:
    """The existing namespaces of a tenant, sorted."""
    return sorted(
        name
        for name, entry in work.namespaces.items()
        if tenant_of(name) == tenant and not entry.is_deleted
    )


def _create_tenant(work: Work, _: Command, arguments: CreateTenant) -> Outcome:
    name = arguments.tenant
    if name in work.catalogue.tenants:
        return refuse(f"tenant {name} exists already; change it with update_tenant")
    return _keep_tenant(work, arguments)


def _update_tenant(work: Work, _: Command, arguments: UpdateTenant) -> Outcome:
    name = arguments.tenant
    if name not in work.catalogue.tenants and not has_any(work, NAMESPACES, name):
        return refuse(f"there is no tenant {name}; make it with create_tenant")
    return _keep_tenant(work, arguments)


def _delete_tenant(work: Work, _: Command, arguments: DeleteTenant) -> Outcome:
    name = arguments.tenant
    if has_any(work, NAMESPACES, name):
        first = namespaces_of(work, name)[0]
        return refuse(f"tenant {name} still has namespace {first}; delete that first")
    if name not in work.catalogue.tenants:
        return refuse(f"there is no tenant {name}; table tenants lists them")
    work.catalogue.set_tenant(name, None)
    work.add_row(TENANTS.name, tenant_row(name, None))
    return Outcome(status=DONE)


def _create_topic(work: Work, _: Command, arguments: CreateTopic) -> Outcome:
    topic, partitions = arguments.topic, arguments.partitions
    entry = work.namespaces.get(namespace_of_topic(topic))
    if entry is None or entry.is_deleted:
        return refuse(f"there is no namespace of topic {topic}; create it first")
    if partitions and partition_of(topic) is not None:
        return refuse(f"{topic} is the name of a partition; choose one without -partition-")
    known = work.catalogue.topics
    if topic in known or topic in _partitions_of(known, topic):
        return refuse(f"topic {topic} exists already; delete it first, or choose another name")
    if len(known) >= MAX_TOPICS:
        return refuse(f"{MAX_TOPICS} topics are kept at most; let brokers report the others")
    tenant = tenant_of(namespace_of_topic(topic))
    more = {PARTITIONS: partitions, usage.TOPICS: 1}
    problem = reason_not_to_add(work, tenant, more)
    if problem:
        return refuse(problem)
    _keep_topic(work, topic, partitions)
    return Outcome(status=DONE)


def _update_topic(work: Work, _: Command, arguments: UpdateTopic) -> Outcome:
    topic, partitions = arguments.topic, arguments.partitions
    now = work.catalogue.topics.get(topic, 0)
    if not now:
        return refuse(f"there is no partitioned topic {topic}; create it first")
    if partitions < now:
        return refuse(f"topic {topic} has {now} partitions; ask for as many or more")
    tenant = tenant_of(namespace_of_topic(topic))
    problem = reason_not_to_add(work, tenant, {PARTITIONS: partitions - now})
    if problem:
        return refuse(problem)
    _keep_topic(work, topic, partitions)
    return Outcome(status=DONE)


def _delete_topic(work: Work, _: Command, arguments: DeleteTopic) -> Outcome:
    topic = arguments.topic
    if topic not in work.catalogue.topics:
        return refuse(f"there is no topic {topic}; table topics lists those that were created")
    drop_topic(work, topic)
    return Outcome(status=DONE)


def _keep_tenant(work: Work, arguments: CreateTenant | UpdateTenant) -> Outcome:
    tenant = Tenant(admin_roles=arguments.admin_roles, allowed_clusters=arguments.allowed_clusters)
    work.catalogue.set_tenant(arguments.tenant, tenant)
    work.add_row(TENANTS.name, tenant_row(arguments.tenant, tenant))
    return Outcome(status=DONE)


def _keep_topic(work: Work, name: str, partitions: int) -> None:
    work.catalogue.set_topic(name, partitions)
    work.add_row(TOPICS.name, topic_row(name, partitions))


def _partitions_of(known: Mapping[str, int], topic: str) -> frozenset[str]:
    """The topic itself when it is a partition that a known partitioned topic has."""
    number = partition_of(topic)
    if number is None or number >= known.get(strip_partition(topic), 0):
        return frozenset()
    return frozenset({topic})


CATALOGUE_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "create_tenant": _create_tenant,
    "update_tenant": _update_tenant,
    "delete_tenant": _delete_tenant,
    "create_topic": _create_topic,
    "update_topic": _update_topic,
    "delete_topic": _delete_topic,
}

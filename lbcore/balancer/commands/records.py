"""Commands about records: whether a tenant or topic can be made, changed or deleted now.

Names are unique, a tenant with namespaces stays, partitions only grow. The rules are those of
Pulsar 4.0.8's TenantsBase and PersistentTopicsBase.
"""

from collections.abc import Callable, Mapping
from typing import Any

from lbcore.balancer.state.outcome import DONE, Outcome, refuse
from lbcore.balancer.state.records import MAX_TOPICS
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks import usage
from lbcore.balancer.tasks.forgetting import drop_topic
from lbcore.balancer.tasks.usage import NAMESPACES, PARTITIONS, has_any, reason_not_to_add
from lbcore.model.names import namespace_of_topic, partition_of, strip_partition, tenant_of
from lbcore.model.tables import RECORDS
from lbcore.wire.kinds.record_commands import (
    TENANT,
    TOPIC,
    CreateRecord,
    DeleteRecord,
    UpdateRecord,
    read_value,
)
from lbcore.wire.messages import Command


def namespaces_of(work: Work, tenant: str) -> list[str]:
    """The existing namespaces of a tenant, sorted."""
    return sorted(
        name
        for name, entry in work.namespaces.items()
        if tenant_of(name) == tenant and not entry.is_deleted
    )


def _create(work: Work, _: Command, arguments: CreateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value = read_value(kind, arguments.value)
    if kind == TOPIC:
        problem = _problem_with_new_topic(work, name, value)
    else:
        is_there = name in work.records.of(TENANT)
        problem = f"tenant {name} exists already; change it with update_record" if is_there else ""
    return refuse(problem) if problem else _keep(work, kind, name, value)


def _problem_with_new_topic(work: Work, topic: str, partitions: int) -> str:
    """Return the reason why the topic can't be created; "" if it can."""
    namespace, known = namespace_of_topic(topic), work.records.of(TOPIC)
    entry, number = work.namespaces.get(namespace), partition_of(topic)
    if entry is None or entry.is_deleted:
        return f"there is no namespace of topic {topic}; create it first"
    if partitions and number is not None:
        return f"{topic} is the name of a partition; choose one without -partition-"
    is_partition = number is not None and number < known.get(strip_partition(topic), 0)
    if topic in known or is_partition:
        return f"topic {topic} exists already; delete it first, or choose another name"
    if len(known) >= MAX_TOPICS:
        return f"{MAX_TOPICS} topics are kept at most; let brokers report the others"
    return reason_not_to_add(work, tenant_of(namespace), {PARTITIONS: partitions, usage.TOPICS: 1})


def _update(work: Work, _: Command, arguments: UpdateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value, known, problem = read_value(kind, arguments.value), work.records.of(kind), ""
    if kind == TENANT and name not in known and not has_any(work, NAMESPACES, name):
        problem = f"there is no tenant {name}; make it with create_record"
    elif kind == TOPIC and not known.get(name):
        problem = f"there is no partitioned topic {name}; create it first"
    elif kind == TOPIC and value < known[name]:
        problem = f"topic {name} has {known[name]} partitions; ask for as many or more"
    elif kind == TOPIC:
        more = {PARTITIONS: value - known[name]}
        problem = reason_not_to_add(work, tenant_of(namespace_of_topic(name)), more)
    return refuse(problem) if problem else _keep(work, kind, name, value)


def _delete(work: Work, _: Command, arguments: DeleteRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    if kind == TENANT and has_any(work, NAMESPACES, name):
        first = namespaces_of(work, name)[0]
        return refuse(f"tenant {name} still has namespace {first}; delete that first")
    if name not in work.records.of(kind):
        return refuse(f"there is no {kind} {name}; table records lists those that were created")
    if kind == TENANT:
        return _keep(work, kind, name, None)
    drop_topic(work, name)
    return Outcome(status=DONE)


def _keep(work: Work, record_type: str, name: str, value: Any) -> Outcome:
    work.add_row(RECORDS.name, work.records.set(record_type, name, value))
    return Outcome(status=DONE)


RECORD_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "create_record": _create,
    "update_record": _update,
    "delete_record": _delete,
}

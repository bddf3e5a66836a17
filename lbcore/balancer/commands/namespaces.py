"""Commands on namespaces, and on records of tenants and topics."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.commands.bundles import begin_unload
from lbcore.balancer.intake.brokers import reason_not_to_take
from lbcore.balancer.state.batch_context import BatchContext
from lbcore.balancer.state.book import (
    ACCEPTED,
    BUNDLES_WANTED,
    DONE,
    SPLIT_ALGORITHM,
    NamespaceEntry,
    Outcome,
    refuse,
)
from lbcore.balancer.state.ledger import NOBODY, STATE_CODE
from lbcore.balancer.state.records import MAX_TOPICS
from lbcore.balancer.tasks import usage
from lbcore.balancer.tasks.creations import begin_creation, give_up_creation, room_for_whole
from lbcore.balancer.tasks.deletions import (
    DELETING,
    drop_topic,
    is_deleting,
    reason_not_to_change,
    version_floor,
)
from lbcore.balancer.tasks.usage import BUNDLES, NAMESPACES, PARTITIONS, has_any, reason_not_to_add
from lbcore.model.bundles import InvalidRangeError, NamespaceBundles, even_boundaries
from lbcore.model.hashing import HashFunction, hash_topics
from lbcore.model.names import (
    is_system_topic,
    namespace_of_topic,
    partition_of,
    strip_partition,
    system_topics,
    tenant_of,
)
from lbcore.model.tables import RECORDS
from lbcore.ownership.changes import Refused, Transition
from lbcore.ownership.protocol import create
from lbcore.ownership.records import Cause
from lbcore.ownership.states import RESHAPING
from lbcore.wire.kinds.namespace_commands import (
    MAX_BUNDLES,
    CreateNamespace,
    DeleteNamespace,
    UnloadNamespace,
)
from lbcore.wire.kinds.record_commands import (
    TENANT,
    TOPIC,
    CreateRecord,
    DeleteRecord,
    UpdateRecord,
    read_value,
)
from lbcore.wire.messages import Command

NOT_EMPTY = "is not empty"
"""In the refusal to delete a namespace that has topics."""


def has_split_under_way(work: BatchContext, namespace: str) -> bool:
    """True if a bundle of the namespace is being split or merged."""
    states = work.ledger.state[work.ledger.live_rows(namespace)]
    return bool(np.isin(states, [STATE_CODE[state] for state in RESHAPING]).any())


def _create_namespace(work: BatchContext, command: Command, arguments: CreateNamespace) -> Outcome:
    name, algorithm = arguments.namespace, arguments.split_algorithm
    try:
        bundles = _bundles(work, arguments)
    except InvalidRangeError as error:
        return refuse(f"namespace {name} can't be divided so: {error}")
    problem = _problem_to_create(work, name, algorithm, len(bundles))
    if problem:
        return refuse(problem)
    floor = version_floor(work, name)
    properties: dict[str, Any] = {BUNDLES_WANTED: len(bundles)}
    if algorithm:
        properties[SPLIT_ALGORITHM] = algorithm
    entry = NamespaceEntry(hash=arguments.hash.value, highest_version=floor, properties=properties)
    if len(bundles) > room_for_whole(work):
        creation: dict[str, Any] = {"command_id": command.command_id, "bundles": len(bundles)}
        if arguments.boundaries:
            creation["boundaries"] = list(bundles.boundaries)
        begin_creation(work, bundles.namespace, entry, creation)
        return Outcome(status=ACCEPTED, result={"bundles": len(bundles), "made": 0})
    made = _made(work, command, bundles, floor)
    if isinstance(made, Outcome):
        return made
    for transition in made:
        work.apply(transition)
    work.made += len(bundles)
    work.keep_namespace(name, entry)
    return Outcome(status=DONE, result={"bundles": len(bundles)})


def _problem_to_create(work: BatchContext, name: str, algorithm: str, bundles: int) -> str:
    """Return the reason why the namespace can't be created; "" if it can."""
    known = work.namespaces.get(name)
    if known is not None and not known.is_deleted:
        if is_deleting(work, name):
            return f"namespace {name} is still being deleted; create it when that is done"
        return f"namespace {name} exists already; delete it first, or choose another name"
    supported = work.config.splitting.supported_algorithms
    if algorithm and algorithm not in supported:
        listed = ", ".join(supported)
        return f"split algorithm {algorithm} is not supported; choose one of {listed}"
    return reason_not_to_add(work, tenant_of(name), {BUNDLES: bundles, NAMESPACES: 1})


def _bundles(work: BatchContext, arguments: CreateNamespace) -> NamespaceBundles:
    count = arguments.bundles or work.config.splitting.default_bundles
    if count > MAX_BUNDLES:
        raise InvalidRangeError(f"it would have {count} bundles, at most are {MAX_BUNDLES}")
    boundaries = arguments.boundaries or even_boundaries(count)
    return NamespaceBundles(namespace=arguments.namespace, boundaries=boundaries)


def _made(
    work: BatchContext, command: Command, bundles: NamespaceBundles, floor: int
) -> list[Transition] | Outcome:
    origin = work.origin(Cause.CREATE, command_id=command.command_id)
    transitions = []
    for bundle in bundles.names():
        previous = work.ledger.record(bundle)
        made = create(work.cluster, bundle, origin, previous=previous, version_floor=floor)
        if isinstance(made, Refused):
            return refuse(
                f"bundle {bundle} can't be created: {made.reason.value}; look at its ownership"
            )
        transitions.append(made)
    work.ledger.add(bundles.names())
    return transitions


def topics_in(work: BatchContext, namespace: str) -> int:
    """Return the known number of topics of a namespace. O(bundles + created topics).

    The larger of two counts, as most topics are in both: those last reported by brokers, and those
    created here. Pulsar's system topics are excluded from both. Of reported topics only the hashes
    are known. For some bundles only their number is known, which includes system topics.
    """
    created = [topic for topic in work.records.topics_of(namespace) if not is_system_topic(topic)]
    function = HashFunction(work.namespaces[namespace].hash)
    system = hash_topics(function, system_topics(namespace))
    reported = 0
    for row in work.ledger.live_rows(namespace):
        count = int(work.ledger.topics[row])
        known = work.topics.topics_of(work.ledger.names[row]) if count else None
        reported += count if known is None else int((~np.isin(known.hashes, system)).sum())
    return max(len(created), reported)


def _unreported_owner(work: BatchContext, namespace: str) -> str:
    """Return an owner of its bundles that has not reported yet; "" = none."""
    ledger = work.ledger
    owners = np.unique(ledger.destination[ledger.live_rows(namespace)])
    names = sorted(ledger.instances.rows[at].broker for at in owners.tolist() if at != NOBODY)
    known = [name for name in names if name in work.brokers]
    return next((name for name in known if not work.brokers[name].reported_ms), "")


def _delete_namespace(work: BatchContext, command: Command, arguments: DeleteNamespace) -> Outcome:
    """Mark it; `deletions` does the rest, from this batch on."""
    name = arguments.namespace
    problem = reason_not_to_change(work, name)
    if problem:
        return refuse(problem)
    untold = _unreported_owner(work, name) if arguments.only_empty else ""
    if untold:
        return refuse(
            f"it is not known whether namespace {name} is empty: broker {untold} has not reported "
            "since it, or the job's state, began anew; try again when it has (ballast status)"
        )
    topics = topics_in(work, name) if arguments.only_empty else 0
    if topics:
        return refuse(f"namespace {name} {NOT_EMPTY}: it has {topics} topics; delete those first")
    reason = f"namespace {name} was deleted by command {command.command_id} before it was made"
    give_up_creation(work, name, reason)
    entry = work.namespaces[name]
    properties = {**entry.properties, DELETING: command.command_id}
    work.keep_namespace(name, replace(entry, properties=properties))
    return Outcome(status=ACCEPTED)


def _unload_namespace(work: BatchContext, command: Command, arguments: UnloadNamespace) -> Outcome:
    """All of it, or the first slice: `bundles` does the rest, from the next batch on."""
    problem = reason_not_to_change(work, arguments.namespace)
    problem = problem or reason_not_to_take(work, arguments.destination)
    return refuse(problem) if problem else begin_unload(work, command)


NAMESPACE_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "create_namespace": _create_namespace,
    "delete_namespace": _delete_namespace,
    "unload_namespace": _unload_namespace,
}


def namespaces_of(work: BatchContext, tenant: str) -> list[str]:
    """The existing namespaces of a tenant, sorted."""
    return sorted(
        name
        for name, entry in work.namespaces.items()
        if tenant_of(name) == tenant and not entry.is_deleted
    )


def _create(work: BatchContext, _: Command, arguments: CreateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value = read_value(kind, arguments.value)
    if kind == TOPIC:
        problem = _problem_with_new_topic(work, name, value)
    else:
        is_there = name in work.records.of(TENANT)
        problem = f"tenant {name} exists already; change it with update_record" if is_there else ""
    return refuse(problem) if problem else _keep(work, kind, name, value)


def _problem_with_new_topic(work: BatchContext, topic: str, partitions: int) -> str:
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


def _update(work: BatchContext, _: Command, arguments: UpdateRecord) -> Outcome:
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


def _delete(work: BatchContext, _: Command, arguments: DeleteRecord) -> Outcome:
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


def _keep(work: BatchContext, record_type: str, name: str, value: Any) -> Outcome:
    work.add_row(RECORDS.name, work.records.set(record_type, name, value))
    return Outcome(status=DONE)


RECORD_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "create_record": _create,
    "update_record": _update,
    "delete_record": _delete,
}

"""Commands of people and services to the balancer, each executed or refused once.

Decides that a command is new and well formed; whether it is possible now is its handler's to say.
Each has an outcome in the `commands` table; one whose effect takes time is `accepted` there, and
`waiting` writes its end. First phase of `balancer`. The names of the commands follow Pulsar's admin
interface.

Commands on namespaces, and on records of tenants and topics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import (
    ACCEPTED,
    AFTER,
    BUNDLES_WANTED,
    DONE,
    SPLIT_ALGORITHM,
    NamespaceEntry,
    Outcome,
    refuse,
)
from lbcore.balancer.brokers import is_external, reason_not_to_take
from lbcore.balancer.bundle_commands import (
    BUNDLE_HANDLERS,
    SPLIT_HANDLERS,
    begin_unload,
    place_splits,
    split_target,
)
from lbcore.balancer.ledger import NOBODY, STATE_CODE
from lbcore.balancer.merges import MERGE_HANDLERS
from lbcore.balancer.namespaces import (
    BUNDLES,
    DELETING,
    NAMESPACES,
    PARTITIONS,
    TOPICS,
    begin_creation,
    drop_topic,
    give_up_creation,
    has_any,
    is_deleting,
    reason_not_to_add,
    reason_not_to_change,
    room_for_whole,
    version_floor,
)
from lbcore.balancer.placement import place, write_places
from lbcore.balancer.policy_commands import (
    BALANCING_HANDLERS,
    BROKER_HANDLERS,
    EXTERNAL_HANDLERS,
    PLAN_HANDLERS,
    POLICY_HANDLERS,
    SETTINGS_HANDLERS,
)
from lbcore.balancer.topic_book import MAX_TOPICS
from lbcore.balancer.waiting import (
    MAX_WAITING,
    begin_wait,
    identity,
    is_same,
    timed_out_unread,
    write_outcome,
)
from lbcore.model.bundles import (
    HashFunction,
    InvalidRangeError,
    NamespaceBundles,
    even_boundaries,
    hash_topics,
)
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
from lbcore.ownership.records import Cause, State
from lbcore.ownership.states import IN_FLIGHT, RESHAPING
from lbcore.plan.decision import Places
from lbcore.wire.arguments import CommandArguments
from lbcore.wire.commands import RefusedArguments, parse_arguments
from lbcore.wire.kinds.bundle_commands import AssignBundle, OverrideBundle, SplitBundle
from lbcore.wire.kinds.namespace_commands import (
    MAX_BUNDLES,
    TENANT,
    TOPIC,
    CreateNamespace,
    CreateRecord,
    DeleteNamespace,
    DeleteRecord,
    UnloadNamespace,
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
    created = [topic for topic in work.catalog.topics_of(namespace) if not is_system_topic(topic)]
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
        is_there = name in work.catalog.of(TENANT)
        problem = f"tenant {name} exists already; change it with update_record" if is_there else ""
    return refuse(problem) if problem else _keep(work, kind, name, value)


def _problem_with_new_topic(work: BatchContext, topic: str, partitions: int) -> str:
    """Return the reason why the topic can't be created; "" if it can."""
    namespace, known = namespace_of_topic(topic), work.catalog.of(TOPIC)
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
    return reason_not_to_add(work, tenant_of(namespace), {PARTITIONS: partitions, TOPICS: 1})


def _update(work: BatchContext, _: Command, arguments: UpdateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value, known, problem = read_value(kind, arguments.value), work.catalog.of(kind), ""
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
    if name not in work.catalog.of(kind):
        return refuse(f"there is no {kind} {name}; table records lists those that were created")
    if kind == TENANT:
        return _keep(work, kind, name, None)
    drop_topic(work, name)
    return Outcome(status=DONE)


def _keep(work: BatchContext, record_type: str, name: str, value: Any) -> Outcome:
    work.add_row(RECORDS.name, work.catalog.set(record_type, name, value))
    return Outcome(status=DONE)


RECORD_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "create_record": _create,
    "update_record": _update,
    "delete_record": _delete,
}


REMEMBERED_COMMANDS = 2_000

_ELSEWHERE = (
    "{kind} is not ours to do: another authority owns this cluster's bundles and policies; do it"
    " there, and the bridge takes over what comes of it"
)

HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    **NAMESPACE_HANDLERS,
    **BUNDLE_HANDLERS,
    **SPLIT_HANDLERS,
    **MERGE_HANDLERS,
    **BROKER_HANDLERS,
    **BALANCING_HANDLERS,
    **PLAN_HANDLERS,
    **POLICY_HANDLERS,
    **SETTINGS_HANDLERS,
    **RECORD_HANDLERS,
    **EXTERNAL_HANDLERS,
}


def take_command(work: BatchContext, command: Command, sent_ms: int) -> None:
    """Carry out a command, or refuse it; one whose id was seen before changes nothing.

    sent_ms: when Kafka got it. One that names a bundle in the middle of a split or merge waits for
    its end.
    """
    if any(command.command_id in ids for ids in (work.commands, work.waiting, work.unplaced)):
        is_repeated = _is_repeated(work, command)
        work.counts["repeated_command" if is_repeated else "reused_command_id"] += 1
        return
    deadline_ms = sent_ms + command.timeout_ms if command.timeout_ms else 0
    if 0 < deadline_ms < work.now_ms:
        write_outcome(work, command, timed_out_unread(command))
    else:
        _take(work, command, deadline_ms)
    while len(work.commands) > REMEMBERED_COMMANDS:
        del work.commands[next(iter(work.commands))]


def _is_repeated(work: BatchContext, command: Command) -> bool:
    """True if a command with a known id repeats it: same kind, arguments, principal."""
    waiting = work.waiting.get(command.command_id)
    if waiting is not None:
        return identity(waiting.command) == identity(command)
    if command.command_id in work.unplaced:
        return identity(work.unplaced[command.command_id][0]) == identity(command)
    return is_same(work.commands[command.command_id], command)


def take_queued_of(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Begin those of these commands whose bundle is no longer busy, in their order."""
    for command_id in command_ids:
        waiting = work.waiting[command_id]
        arguments = parse_arguments(waiting.command.kind, waiting.command.arguments)
        if not _is_busy(work, arguments):
            del work.waiting[command_id]
            _take(work, waiting.command, waiting.deadline_ms)
    carry_out_assignments(work)


def carry_out_assignments(work: BatchContext) -> None:
    """Execute what waits for a place: assignments, then splits.

    O(bundles), once for each. All assignments that name no broker are placed together, and so are
    all children of splits that are to leave their parent's owner. What else was asked about their
    bundles meanwhile has waited.
    """
    assigned: list[tuple[Command, AssignBundle, int]] = []
    splits: list[tuple[Command, SplitBundle, int]] = []
    for command, deadline_ms in work.unplaced.values():
        arguments = parse_arguments(command.kind, command.arguments)
        if isinstance(arguments, SplitBundle):
            splits.append((command, arguments, deadline_ms))
        elif isinstance(arguments, AssignBundle):
            assigned.append((command, arguments, deadline_ms))
    work.unplaced, work.unplaced_bundles, work.unplaced_splits = {}, {}, {}
    names = dict.fromkeys(arguments.bundle for _, arguments, _ in assigned)
    rows = {name: work.ledger.index[name] for name in names if _is_free(work, name)}
    _carry_out_at(work, place(work, [] if is_external(work) else list(rows.values()), {}), assigned)
    _carry_out_at(work, place_splits(work, [arguments for _, arguments, _ in splits]), splits)


def _carry_out_at(
    work: BatchContext,
    places: Places,
    commands: Sequence[tuple[Command, AssignBundle | SplitBundle, int]],
) -> None:
    work.places = places.found
    for command, arguments, deadline_ms in commands:
        _carry_out(work, command, arguments, deadline_ms)
    write_places(work, places)


def _is_free(work: BatchContext, bundle: str) -> bool:
    record = work.ledger.record(bundle)
    return record is not None and record.state is State.FREE


def _take(work: BatchContext, command: Command, deadline_ms: int) -> None:
    arguments = parse_arguments(command.kind, command.arguments)
    if len(work.waiting) < MAX_WAITING and _is_busy(work, arguments):
        queued = Outcome(status=ACCEPTED)
        begin_wait(work, command, queued, deadline_ms, is_queued=True)
        return
    if isinstance(arguments, SplitBundle) and arguments.unload:
        bundle = split_target(work, arguments)
        work.unplaced_splits[arguments.namespace or bundle.rpartition("/")[0]] = None
    elif _is_to_be_assigned(arguments):
        bundle = getattr(arguments, "bundle", "")
    else:
        _carry_out(work, command, arguments, deadline_ms)
        return
    work.unplaced[command.command_id] = command, deadline_ms
    work.unplaced_bundles[bundle] = None


def _is_to_be_assigned(arguments: CommandArguments | RefusedArguments) -> bool:
    return isinstance(arguments, AssignBundle) and not arguments.destination


def _carry_out(
    work: BatchContext,
    command: Command,
    arguments: CommandArguments | RefusedArguments,
    deadline_ms: int,
) -> None:
    outcome = _outcome(work, command, arguments)
    if outcome.status == ACCEPTED:
        # it goes on to its end, however long that is
        is_sure = command.kind == "create_namespace" or AFTER in outcome.result
        begin_wait(work, command, outcome, 0 if is_sure else deadline_ms)
    else:
        write_outcome(work, command, outcome)


def _is_busy(work: BatchContext, arguments: CommandArguments | RefusedArguments) -> bool:
    """True if the command must wait for the operation in progress on its bundle.

    All commands but an override wait for a split or merge. An assignment also waits for an unload
    without a destination, and a split for any transition. A command that follows an unplaced
    assignment or split of its bundle waits for the end of the batch's commands.
    """
    if isinstance(arguments, UnloadNamespace | SplitBundle) and arguments.namespace:
        is_wanted = arguments.namespace in work.unplaced_splits
        return is_wanted or has_split_under_way(work, arguments.namespace)
    bundle = getattr(arguments, "bundle", "")
    if bundle and bundle in work.unplaced_bundles and not _is_to_be_assigned(arguments):
        return True
    record = work.ledger.record(bundle) if bundle else None
    if record is None or isinstance(arguments, OverrideBundle):
        return False
    is_freed = record.state is State.RELEASING and not record.destination
    wants_it_free = isinstance(arguments, AssignBundle)
    wants_it_split = isinstance(arguments, SplitBundle) and record.state in IN_FLIGHT
    return record.state in RESHAPING or (is_freed and wants_it_free) or wants_it_split


def _outcome(
    work: BatchContext, command: Command, arguments: CommandArguments | RefusedArguments
) -> Outcome:
    if isinstance(arguments, RefusedArguments):
        return refuse(arguments.detail)
    if len(work.waiting) >= MAX_WAITING:
        return refuse(f"{MAX_WAITING} commands are under way; send it again when some have ended")
    if is_external(work) and arguments.about.is_of_authority:
        return refuse(_ELSEWHERE.format(kind=command.kind))
    return HANDLERS[command.kind](work, command, arguments)

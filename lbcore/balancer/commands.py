"""Commands of people and services to the balancer, each executed or refused once.

Checks that a command is new and well formed; its handler decides whether it is possible now.
Each has an outcome in the `commands` table; one whose effect takes time is `accepted` there, and
`waiting` writes its end. The names of the commands follow Pulsar's admin
interface. Commands on namespaces, tenants and topics have their handlers here.
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
    FAILED,
    REFUSED,
    SPLIT_ALGORITHM,
    TIMED_OUT,
    NamespaceEntry,
    Outcome,
    RefusedCommandError,
    refuse_if,
)
from lbcore.balancer.brokers import is_external
from lbcore.balancer.bundle_commands import (
    BUNDLE_HANDLERS,
    place_splits,
    refuse_unsupported,
    split_target,
)
from lbcore.balancer.ledger import NOBODY, STATE_CODE
from lbcore.balancer.merges import merge_bundle
from lbcore.balancer.namespaces import (
    BUNDLES,
    CREATING,
    DELETING,
    NAMESPACES,
    PARTITIONS,
    TOPICS,
    begin_creation,
    creations,
    drop_topic,
    end_creation,
    has_namespace,
    has_namespaces,
    is_deleting,
    namespaces_with,
    reason_not_to_add,
    reason_not_to_change,
    version_floor,
)
from lbcore.balancer.placement import place, write_places
from lbcore.balancer.policy_commands import POLICY_HANDLERS
from lbcore.balancer.topic_book import MAX_TOPICS
from lbcore.balancer.waiting import (
    MAX_WAITING,
    MERGE,
    begin_wait,
    identity,
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
from lbcore.ownership.changes import Refused
from lbcore.ownership.records import Cause, State
from lbcore.ownership.states import IN_FLIGHT, RESHAPING
from lbcore.scorer.group_update import PositionedMessage
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

EXISTS, NOT_EMPTY = "exists already", "is not empty"
"""Parts of refusals: to create what exists, and to delete a namespace that has topics."""


def _create_namespace(work: BatchContext, command: Command, arguments: CreateNamespace) -> Outcome:
    name, algorithm = arguments.namespace, arguments.split_algorithm
    bundles = _divide(work, arguments)
    if has_namespace(work, name):
        raise RefusedCommandError(
            f"namespace {name} is still being deleted; create it when that is done"
            if is_deleting(work, name)
            else f"namespace {name} {EXISTS}; delete it first, or choose another name"
        )
    refuse_unsupported(work, algorithm)
    refuse_if(reason_not_to_add(work, tenant_of(name), {BUNDLES: len(bundles), NAMESPACES: 1}))
    floor = version_floor(work, name)
    properties: dict[str, Any] = {BUNDLES_WANTED: len(bundles)}
    if algorithm:
        properties[SPLIT_ALGORITHM] = algorithm
    entry = NamespaceEntry(hash=arguments.hash.value, highest_version=floor, properties=properties)
    # half of a batch's maximum is reserved for namespaces whose creation is in progress
    most = work.max_created // (2 if namespaces_with(work, CREATING) else 1)
    if len(bundles) > most - work.made:
        creation: dict[str, Any] = {"command_id": command.command_id, "bundles": len(bundles)}
        if arguments.boundaries:
            creation["boundaries"] = list(bundles.boundaries)
        begin_creation(work, name, entry, creation)
        return Outcome(status=ACCEPTED, result={"bundles": len(bundles), "made": 0})
    origin = work.origin(Cause.CREATE, command_id=command.command_id)
    transitions = creations(work, bundles.names(), origin, floor)
    for bundle, made in zip(bundles.names(), transitions, strict=True):
        if isinstance(made, Refused):
            raise RefusedCommandError(
                f"bundle {bundle} can't be created: {made.reason.value}; look at its ownership"
            )
    work.ledger.add(bundles.names())
    for transition in transitions:
        work.apply(transition)
    work.made += len(bundles)
    work.keep_namespace(name, entry)
    return Outcome(status=DONE, result={"bundles": len(bundles)})


def _divide(work: BatchContext, arguments: CreateNamespace) -> NamespaceBundles:
    name, count = arguments.namespace, arguments.bundles or work.config.splitting.default_bundles
    refuse_if(
        count > MAX_BUNDLES,
        f"namespace {name} can't be divided so: it would have {count} bundles, at most are"
        f" {MAX_BUNDLES}",
    )
    try:
        return NamespaceBundles(name, arguments.boundaries or even_boundaries(count))
    except InvalidRangeError as error:
        raise RefusedCommandError(f"namespace {name} can't be divided so: {error}") from error


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


def _delete_namespace(work: BatchContext, command: Command, arguments: DeleteNamespace) -> Outcome:
    """Mark the namespace; the phase of `namespaces` deletes it from this batch on."""
    name = arguments.namespace
    refuse_if(reason_not_to_change(work, name))
    if arguments.only_empty:
        _refuse_unless_empty(work, name)
    reason = f"namespace {name} was deleted by command {command.command_id} before it was made"
    end_creation(work, name, Outcome(status=FAILED, reason=reason))
    entry = work.namespaces[name]
    properties = {**entry.properties, DELETING: command.command_id}
    work.keep_namespace(name, replace(entry, properties=properties))
    return Outcome(status=ACCEPTED)


def _refuse_unless_empty(work: BatchContext, name: str) -> None:
    """Raise RefusedCommandError if it has topics, or an owner has not reported."""
    ledger = work.ledger
    owners = np.unique(ledger.destination[ledger.live_rows(name)]).tolist()
    for broker in sorted(ledger.instances.rows[at].broker for at in owners if at != NOBODY):
        if broker in work.brokers and not work.brokers[broker].reported_ms:
            raise RefusedCommandError(
                f"it is not known whether namespace {name} is empty: broker {broker} has not "
                "reported since it, or the job's state, began anew; try again when it has "
                "(ballast status)"
            )
    topics = topics_in(work, name)
    refuse_if(topics, f"namespace {name} {NOT_EMPTY}: it has {topics} topics; delete those first")


def _create(work: BatchContext, _: Command, arguments: CreateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value = read_value(kind, arguments.value)
    if kind == TOPIC:
        _refuse_topic(work, name, value)
    else:
        refuse_if(
            name in work.catalog.of(TENANT),
            f"tenant {name} {EXISTS}; change it with update_record",
        )
    return _keep(work, kind, name, value)


def _refuse_topic(work: BatchContext, topic: str, partitions: int) -> None:
    """Raise RefusedCommandError if the topic can't be created."""
    namespace, known = namespace_of_topic(topic), work.catalog.of(TOPIC)
    number = partition_of(topic)
    refuse_if(
        not has_namespace(work, namespace),
        f"there is no namespace of topic {topic}; create it first",
    )
    refuse_if(
        partitions and number is not None,
        f"{topic} is the name of a partition; choose one without -partition-",
    )
    is_partition = number is not None and number < known.get(strip_partition(topic), 0)
    refuse_if(
        topic in known or is_partition,
        f"topic {topic} {EXISTS}; delete it first, or choose another name",
    )
    refuse_if(
        len(known) >= MAX_TOPICS,
        f"{MAX_TOPICS} topics are kept at most; let brokers report the others",
    )
    refuse_if(reason_not_to_add(work, tenant_of(namespace), {PARTITIONS: partitions, TOPICS: 1}))


def _update(work: BatchContext, _: Command, arguments: UpdateRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    value, known = read_value(kind, arguments.value), work.catalog.of(kind)
    if kind == TOPIC:
        before = known.get(name, 0)
        refuse_if(not before, f"there is no partitioned topic {name}; create it first")
        refuse_if(value < before, f"topic {name} has {before} partitions; ask for as many or more")
        tenant = tenant_of(namespace_of_topic(name))
        refuse_if(reason_not_to_add(work, tenant, {PARTITIONS: value - before}))
    else:
        refuse_if(
            name not in known and not has_namespaces(work, name),
            f"there is no tenant {name}; make it with create_record",
        )
    return _keep(work, kind, name, value)


def _delete(work: BatchContext, _: Command, arguments: DeleteRecord) -> Outcome:
    kind, name = arguments.record_type, arguments.name
    if kind == TENANT and has_namespaces(work, name):
        first = min(n for n in work.namespaces if tenant_of(n) == name and has_namespace(work, n))
        raise RefusedCommandError(f"tenant {name} still has namespace {first}; delete that first")
    refuse_if(
        name not in work.catalog.of(kind),
        f"there is no {kind} {name}; table records lists those that were created",
    )
    if kind == TENANT:
        return _keep(work, kind, name, None)
    drop_topic(work, name)
    return Outcome(status=DONE)


def _keep(work: BatchContext, record_type: str, name: str, value: Any) -> Outcome:
    work.add_row(RECORDS.name, work.catalog.set(record_type, name, value))
    return Outcome(status=DONE)


REMEMBERED_COMMANDS = 2_000

_ELSEWHERE = (
    "{kind} is not ours to do: another authority owns this cluster's bundles and policies; do it"
    " there, and the bridge picks up the result"
)

HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "create_namespace": _create_namespace,
    "delete_namespace": _delete_namespace,
    "create_record": _create,
    "update_record": _update,
    "delete_record": _delete,
    **BUNDLE_HANDLERS,
    MERGE: merge_bundle,
    **POLICY_HANDLERS,
}


def take_commands(work: BatchContext, items: Sequence[PositionedMessage]) -> None:
    """Carry out the batch's commands, then those that wait for a place."""
    for item in items:
        if isinstance(item.message, Command):
            take_command(work, item.message, work.bounded_arrival_ms(item.position.timestamp_ms))
    carry_out_assignments(work)


def take_command(work: BatchContext, command: Command, sent_ms: int) -> None:
    """Carry out a command, or refuse it; one with a known id changes nothing.

    sent_ms: when Kafka got it. A command on a busy bundle (`_is_busy`) waits.
    """
    command_id = command.command_id
    known = None
    if command_id in work.waiting:
        known = identity(work.waiting[command_id].command)
    elif command_id in work.unplaced:
        known = identity(work.unplaced[command_id][0])
    elif command_id in work.commands:
        known = work.commands[command_id].partition(" ")[2]
    if known is not None:  # the same kind, arguments and principal: a repetition
        is_repeated = known == identity(command)
        work.counts["repeated_command" if is_repeated else "reused_command_id"] += 1
        return
    deadline_ms = sent_ms + command.timeout_ms if command.timeout_ms else 0
    if 0 < deadline_ms < work.now_ms:
        reason = (
            f"it was read later than its timeout of {command.timeout_ms} ms and not begun: the "
            "balancer was away or behind; send it again"
        )
        write_outcome(work, command, Outcome(status=TIMED_OUT, reason=reason))
    else:
        _queue_or_carry_out(work, command, deadline_ms)
    while len(work.commands) > REMEMBERED_COMMANDS:
        del work.commands[next(iter(work.commands))]


def take_queued_of(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Begin those of these commands whose bundle is no longer busy, in their order.

    Those whose time is over are left to `settle_commands`.
    """
    for command_id in command_ids:
        waiting = work.waiting[command_id]
        arguments = parse_arguments(waiting.command.kind, waiting.command.arguments)
        if waiting.deadline_ms >= work.now_ms and not _is_busy(work, arguments):
            del work.waiting[command_id]
            _queue_or_carry_out(work, waiting.command, waiting.deadline_ms)
    carry_out_assignments(work)


def carry_out_assignments(work: BatchContext) -> None:
    """Carry out the commands that wait for a place: assignments, then splits.

    Places all assignments without a broker in one pass, then all children of splits with unload in
    another. Later commands on these bundles have waited for this. O(bundles).
    """
    unplaced = [
        (command, parse_arguments(command.kind, command.arguments), deadline_ms)
        for command, deadline_ms in work.unplaced.values()
    ]
    assigned = [asked for _, asked, _ in unplaced if isinstance(asked, AssignBundle)]
    splits = [asked for _, asked, _ in unplaced if isinstance(asked, SplitBundle)]
    work.unplaced, work.unplaced_bundles, work.unplaced_splits = {}, {}, {}
    records = {one.bundle: work.ledger.record(one.bundle) for one in assigned}
    free = [name for name, one in records.items() if one is not None and one.state is State.FREE]
    rows = [] if is_external(work) else [work.ledger.index[name] for name in free]
    for kind in (AssignBundle, SplitBundle):
        places = place(work, rows, {}) if kind is AssignBundle else place_splits(work, splits)
        work.places = places.found
        for command, asked, deadline_ms in unplaced:
            if isinstance(asked, kind):
                _carry_out(work, command, asked, deadline_ms)
        write_places(work, places)


def _queue_or_carry_out(work: BatchContext, command: Command, deadline_ms: int) -> None:
    arguments = parse_arguments(command.kind, command.arguments)
    if len(work.waiting) < MAX_WAITING and _is_busy(work, arguments):
        begin_wait(work, command, Outcome(status=ACCEPTED), deadline_ms, is_queued=True)
        return
    if isinstance(arguments, SplitBundle) and arguments.unload:
        bundle = split_target(work, arguments)
        work.unplaced_splits[arguments.namespace or bundle.rpartition("/")[0]] = None
    elif isinstance(arguments, AssignBundle) and not arguments.destination:
        bundle = arguments.bundle
    else:
        _carry_out(work, command, arguments, deadline_ms)
        return
    work.unplaced[command.command_id] = command, deadline_ms
    work.unplaced_bundles[bundle] = None


def _carry_out(
    work: BatchContext,
    command: Command,
    arguments: CommandArguments | RefusedArguments,
    deadline_ms: int,
) -> None:
    outcome = _outcome(work, command, arguments)
    if outcome.status == ACCEPTED:
        # only WAIT_MAX_MS limits the wait of these
        ignores_timeout = command.kind == "create_namespace" or AFTER in outcome.result
        begin_wait(work, command, outcome, 0 if ignores_timeout else deadline_ms)
    else:
        write_outcome(work, command, outcome)


def _is_busy(work: BatchContext, arguments: CommandArguments | RefusedArguments) -> bool:
    """True if the command must wait for the operation in progress on its bundle.

    All commands but an override wait for a split or merge. An assignment also waits for an unload
    without a destination, and a split for any transition. A command that follows an unplaced
    assignment or split of its bundle waits for the end of the batch's commands.
    """
    ledger = work.ledger
    if isinstance(arguments, UnloadNamespace | SplitBundle) and arguments.namespace:
        states = ledger.state[ledger.live_rows(arguments.namespace)]
        is_reshaped = np.isin(states, [STATE_CODE[state] for state in RESHAPING]).any()
        if is_reshaped or arguments.namespace in work.unplaced_splits:
            return True
    bundle = str(getattr(arguments, "bundle", ""))
    if isinstance(arguments, SplitBundle):
        bundle = split_target(work, arguments)
    is_unplaced = isinstance(arguments, AssignBundle) and not arguments.destination
    if bundle and bundle in work.unplaced_bundles and not is_unplaced:
        return True
    record = ledger.record(bundle) if bundle else None
    if record is None or isinstance(arguments, OverrideBundle):
        return False
    is_freed = record.state is State.RELEASING and not record.destination
    wants_it_split = isinstance(arguments, SplitBundle) and record.state in IN_FLIGHT
    wants_it_free = isinstance(arguments, AssignBundle) and is_freed
    return record.state in RESHAPING or wants_it_free or wants_it_split


def _outcome(
    work: BatchContext, command: Command, arguments: CommandArguments | RefusedArguments
) -> Outcome:
    if isinstance(arguments, RefusedArguments):
        return Outcome(status=REFUSED, reason=arguments.detail)
    # rules are set at any time: a pause may be what ends a flood of other commands
    if len(work.waiting) >= MAX_WAITING and command.kind not in POLICY_HANDLERS:
        reason = f"{MAX_WAITING} commands are under way; send it again when some have ended"
        return Outcome(status=REFUSED, reason=reason)
    if is_external(work) and arguments.spec.is_refused_when_external:
        return Outcome(status=REFUSED, reason=_ELSEWHERE.format(kind=command.kind))
    try:
        return HANDLERS[command.kind](work, command, arguments)
    except RefusedCommandError as error:
        return Outcome(status=REFUSED, reason=str(error))

"""Commands on bundles: assign, unload, override, split, and namespaces in slices."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import (
    ACCEPTED,
    AFTER,
    DONE,
    FAILED,
    SPLIT_ALGORITHM,
    Outcome,
    RefusedCommandError,
    refuse_if,
)
from lbcore.balancer.brokers import reason_not_to_take
from lbcore.balancer.intake import created_topics
from lbcore.balancer.namespaces import (
    BUNDLES,
    has_namespace,
    is_deleting,
    is_placeholder,
    reason_not_to_add,
    reason_not_to_change,
)
from lbcore.balancer.placement import place
from lbcore.balancer.transitions import known_topics, without_topics
from lbcore.balancer.waiting import begin_wait, end_wait, finish_command
from lbcore.config.splitting import SPECIFIED_POSITIONS
from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.names import format_bundle, parse_bundle, split_bundle_name, tenant_of
from lbcore.ownership.changes import NOBODY, Origin
from lbcore.ownership.protocol import assign, reassign, split, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import Places
from lbcore.plan.snapshot import THROUGHPUT_IN, THROUGHPUT_OUT
from lbcore.plan.split.algorithms import TopicLoads, resolve_algorithm
from lbcore.plan.split.decision import (
    SplitDecision,
    SplitReason,
    SplitRequest,
    requested_boundaries,
)
from lbcore.wire.kinds.bundle_commands import (
    HOT,
    MAX_CHILDREN,
    AssignBundle,
    OverrideBundle,
    SplitBundle,
    UnloadBundle,
)
from lbcore.wire.kinds.namespace_commands import UnloadNamespace
from lbcore.wire.messages import Command


def find_record(work: BatchContext, bundle: str) -> OwnershipRecord:
    """Return the record of a live bundle. Raises RefusedCommandError without one."""
    record = work.ledger.record(bundle)
    if record is None:
        raise RefusedCommandError(f"there is no bundle {bundle}; table bundle_ownership lists them")
    refuse_if(
        record.state is State.DELETED,
        f"bundle {bundle} is gone: its range was split, or its namespace deleted; "
        "look at the namespace's present bundles",
    )
    refuse_if(
        is_deleting(work, bundle.rpartition("/")[0]),
        f"the namespace of {bundle} is being deleted; create it anew when that is done",
    )
    refuse_if(
        is_placeholder(work, bundle),
        f"bundle {bundle} stands for those that are still being made; ask again when "
        "the create_namespace of its namespace is done",
    )
    return record


def refuse_unsupported(work: BatchContext, algorithm: str) -> None:
    """Raise RefusedCommandError for an algorithm of splits that is not supported.

    algorithm: "" = none is named.
    """
    supported = work.config.splitting.supported_algorithms
    refuse_if(
        algorithm and algorithm not in supported,
        f"split algorithm {algorithm} is not supported; choose one of {', '.join(supported)}",
    )


def _reason_not_to_release(
    work: BatchContext, record: OwnershipRecord, origin: Origin, destination: str
) -> str:
    """Take an owned bundle from its owner; why that can't be, or ""."""
    problem = _pinned_elsewhere(work, record.bundle, destination)
    if problem:
        return problem
    target = work.instance(destination) if destination else NOBODY
    refused = work.apply(unload(record, origin, target))
    return f"{refused} ({_shown(record)}): wait, and look at its ownership" if refused else ""


def _pinned_elsewhere(work: BatchContext, bundle: str, destination: str) -> str:
    pin = work.rules.pins.get(bundle)
    if not destination or pin is None or pin.broker == destination:
        return ""
    return f"it is pinned to {pin.broker}: unpin it first"


def _shown(record: OwnershipRecord) -> str:
    return f"{record.state.value} {record.destination or record.source}".strip()


def _unload_bundle(work: BatchContext, command: Command, arguments: UnloadBundle) -> Outcome:
    bundle, destination = arguments.bundle, arguments.destination
    record = find_record(work, bundle)
    refuse_if(reason_not_to_take(work, destination))
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    problem = _reason_not_to_release(work, record, origin, destination)
    refuse_if(problem, f"bundle {bundle} can't be unloaded now: {problem}")
    _note(work, origin, "transfer" if destination else "unload", record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination})


def _assign_bundle(work: BatchContext, command: Command, arguments: AssignBundle) -> Outcome:
    """Also what lookups ask for; many may ask for the same bundle, and one assigns it.

    Without a destination it goes where `commands.carry_out_assignments` has found a place for it.
    """
    bundle, wanted = arguments.bundle, arguments.destination
    record = find_record(work, bundle)
    owner, is_free = record.destination, record.state is State.FREE
    if not is_free and owner and wanted in ("", owner):
        return Outcome(status=DONE, result={"owner": owner, "state": record.state.value})
    refuse_if(not is_free, f"bundle {bundle} is not free ({_shown(record)}); unload it to {wanted}")
    destination = wanted or work.places.get(bundle, "")
    refuse_if(
        not destination, f"no broker may take {bundle} now; start one, or look at the policies"
    )
    pinned = _pinned_elsewhere(work, bundle, wanted)
    refuse_if(pinned, f"bundle {bundle} can't go to {wanted}: {pinned}")
    refuse_if(reason_not_to_take(work, wanted))
    origin = work.origin(Cause.ASSIGN, work.next_decision(), command.command_id)
    refused = work.apply(assign(record, work.instance(destination), origin))
    refuse_if(refused, f"bundle {bundle} can't be assigned now: {refused}; ask again")
    _note(work, origin, "assign", record, destination)
    return Outcome(status=ACCEPTED, result={"owner": destination}, moving={bundle: ""})


def _override_bundle(work: BatchContext, command: Command, arguments: OverrideBundle) -> Outcome:
    """By force, also under a live owner's feet: for when nothing else helps."""
    bundle, destination = arguments.bundle, arguments.destination
    record = find_record(work, bundle)
    refuse_if(reason_not_to_take(work, destination))
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    change = assign if record.state is State.FREE else reassign
    refused = work.apply(change(record, work.instance(destination), origin))
    refuse_if(refused, f"bundle {bundle} can't be overridden: {refused}; ask again")
    _note(work, origin, "override", record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination or record.source})


def _note(
    work: BatchContext, origin: Origin, kind: str, record: OwnershipRecord, destination: str
) -> None:
    work.write_decision(
        decision_id=origin.decision_id,
        kind=kind,
        reason="Admin",
        inputs={"command_id": origin.command_id},
        bundle=record.bundle,
        source="" if record.state is State.FREE else record.destination or record.source,
        destination=destination,
    )


UNLOAD_NAMESPACE = "unload_namespace"
WHY_SKIPPED = "why_skipped"


def _unload_namespace(work: BatchContext, command: Command, arguments: UnloadNamespace) -> Outcome:
    """Unload it, or a first slice; `continue_unloads` does the rest in later batches."""
    name = arguments.namespace
    refuse_if(reason_not_to_change(work, name) or reason_not_to_take(work, arguments.destination))
    room = max(work.max_usual - work.unloaded, 0)
    begun, problem = _release_slice(work, command, {AFTER: ""}, room)
    is_under_way = begun.moving or AFTER in begun.result
    refuse_if(problem and not is_under_way, f"nothing of {name} can be unloaded now: {problem}")
    return begun if is_under_way else replace(begun, status=DONE)


def continue_unloads(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Begin the next slice of namespaces whose last one has come to rest.

    The smallest rest first; each has an equal part of what is left of the batch's share.
    """
    asked = ((one, work.waiting[one]) for one in command_ids)
    rests = {one: len(_rest(work, waiting.command, waiting.result)) for one, waiting in asked}
    for at, command_id in enumerate(sorted(rests, key=lambda one: (rests[one], one))):
        part = max((work.max_usual - work.unloaded) // (len(rests) - at), 1)
        waiting = work.waiting[command_id]
        name, destination = _asked(waiting.command)
        problem = reason_not_to_change(work, name) or reason_not_to_take(work, destination)
        if problem:
            reason = f"it was given up before its end: {problem}"
            finish_command(work, command_id, Outcome(status=FAILED, reason=reason))
            continue
        begun, _ = _release_slice(work, waiting.command, waiting.result, part)
        begin_wait(work, waiting.command, begun, 0)
        if not begun.moving and AFTER not in begun.result:
            end_wait(work, command_id)


def _release_slice(
    work: BatchContext, command: Command, before: Mapping[str, Any], part: int
) -> tuple[Outcome, str]:
    """Let owners release the next `part` bundles of a namespace.

    before: the result of the slices until now. The outcome has that of all. The text says why the
    first bundle with an owner stayed, "" = none did.
    """
    name, destination = _asked(command)
    rest = _rest(work, command, before)
    rows = rest[:part]
    work.unloaded += len(rows)
    decision_id = work.next_decision()
    origin = work.origin(Cause.ADMIN, decision_id, command.command_id)
    moving: dict[str, str] = {}
    problem = ""
    for row in rows:
        record = work.ledger.record_at(row)
        if record.state is not State.OWNED or record.destination == destination:
            continue
        refused = _reason_not_to_release(work, record, origin, destination)
        if not refused:
            moving[record.bundle] = record.destination
        problem = problem or (refused and f"{record.bundle} stays: {refused}")
    counts = {"bundles": len(moving), "skipped": len(rows) - len(moving)}
    result: dict[str, Any] = {key: n + int(before.get(key, 0)) for key, n in counts.items()}
    if why := before.get(WHY_SKIPPED, problem):
        result[WHY_SKIPPED] = why
    if len(rows) < len(rest):
        result[AFTER] = work.ledger.names[rows[-1]] if rows else before[AFTER]
    work.write_decision(
        decision_id=decision_id,
        kind="transfer" if destination else "unload",
        reason="Admin",
        inputs={"command_id": command.command_id, "namespace": name, **counts},
        destination=destination,
    )
    return Outcome(status=ACCEPTED, result=result, moving=moving), problem


def _rest(work: BatchContext, command: Command, result: Mapping[str, Any]) -> list[int]:
    """Return rows of the namespace's bundles after the last of those begun."""
    rows = work.ledger.live_rows(_asked(command)[0])
    return rows[bisect_right(rows, str(result[AFTER]), key=work.ledger.names.__getitem__) :]


def _asked(command: Command) -> tuple[str, str]:
    arguments = command.arguments
    return str(arguments["namespace"]), str(arguments.get("destination") or "")


def split_target(work: BatchContext, arguments: SplitBundle) -> str:
    """The bundle that is to be split; "" when there is none."""
    with suppress(RefusedCommandError):
        return arguments.bundle or _chosen(work, arguments.namespace, arguments.which)
    return ""


def place_splits(work: BatchContext, several: Sequence[SplitBundle]) -> Places:
    """Return brokers for the children of the executable splits, placed together."""
    decisions: dict[str, SplitDecision] = {}
    for arguments in several:
        with suppress(RefusedCommandError):
            _, decision, _ = _decided(work, arguments)
            decisions[decision.name] = decision
    wanted = [one for name, one in decisions.items() if name not in work.rules.pins]
    return place(work, (), {}, splits=wanted)


def _split_bundle(work: BatchContext, command: Command, arguments: SplitBundle) -> Outcome:
    """Split a bundle.

    With `unload` the children go where `commands.carry_out_assignments` has found places for them.
    """
    record, decision, topics = _decided(work, arguments)
    bundle, children = record.bundle, decision.children
    empty = without_topics(topics, children)
    if len(empty) > work.config.splitting.max_empty_children and not arguments.force:
        advice = "wait for its owner's report" if topics is None else "correct the positions"
        raise RefusedCommandError(
            f"{len(empty)} of the {len(children)} children of {bundle} would have no "
            f"known topic, {empty[0]} for one; {advice}, or force it"
        )
    refuse_if(reason_not_to_add(work, tenant_of(bundle), {BUNDLES: len(children) - 1}))
    places = {child: work.places.get(child, "") for child in children}
    origin = work.origin(Cause.SPLIT, work.next_decision(), command.command_id)
    refused = work.apply(split(record, places, origin))
    refuse_if(refused, f"bundle {bundle} can't be split now: {refused}; ask again")
    result = {
        "bundle": bundle,
        "algorithm": decision.algorithm.value,
        "children": list(children),
        "without_topics": list(empty),
    }
    work.write_decision(
        decision_id=origin.decision_id,
        kind="split",
        reason=decision.reason.value,
        inputs={"command_id": command.command_id, **result, "places": dict(places)},
        strategy=decision.algorithm.value,
        bundle=bundle,
        source=decision.broker,
    )
    return Outcome(status=ACCEPTED, result=result, moving={bundle: decision.broker})


def _decided(
    work: BatchContext, arguments: SplitBundle
) -> tuple[OwnershipRecord, SplitDecision, TopicLoads | None]:
    """Return the bundle's record, where it is cut, and its known topics.

    The algorithm is the one that is named; else what positions need; else the namespace's; else
    the configured one.
    """
    bundle = arguments.bundle or _chosen(work, arguments.namespace, arguments.which)
    record, config = find_record(work, bundle), work.config.splitting
    refuse_if(
        record.state is not State.OWNED,
        f"bundle {bundle} has no owner that could split it; assign it first",
    )
    refuse_unsupported(work, arguments.algorithm)
    namespace, text = split_bundle_name(bundle)
    by_positions = SPECIFIED_POSITIONS if arguments.positions else ""
    own = str(work.namespaces[namespace].properties.get(SPLIT_ALGORITHM, ""))
    algorithm = resolve_algorithm(arguments.algorithm or by_positions or own, config.algorithm)
    topics, row = known_topics(work, bundle), work.ledger.index[bundle]
    request = SplitRequest(
        target=BundleRange.parse(text),
        algorithm=algorithm,
        topics=topics,
        topic_count=max(int(work.ledger.topics[row]), 0 if topics is None else len(topics.hashes)),
        positions=arguments.positions,
        parts=arguments.parts,
        is_forced=arguments.force,
    )
    found = requested_boundaries(request, config)
    if isinstance(found, str):
        raise RefusedCommandError(f"bundle {bundle} can't be split: {found}")
    refuse_if(
        len(found) >= MAX_CHILDREN,
        f"{bundle} would have {len(found) + 1} children, at most are {MAX_CHILDREN}",
    )
    decision = SplitDecision(
        bundle=row,
        name=bundle,
        broker=record.destination,
        reason=SplitReason.ADMIN,
        algorithm=algorithm,
        boundaries=found,
        children=tuple(
            format_bundle(namespace, child.lower, child.upper)
            for child in children_of(request.target, found)
        ),
        place_children=arguments.unload,
        hits=0,
        excess=0.0,
    )
    return record, decision, topics


def _chosen(work: BatchContext, namespace: str, which: str) -> str:
    """Return the first bundle with the highest throughput or the most topics.

    A bundle's topics are those reported or those created here, whichever are more.
    """
    refuse_if(
        not has_namespace(work, namespace) or is_deleting(work, namespace),
        f"there is no namespace {namespace}; look at the list of namespaces",
    )
    ledger = work.ledger
    rows = ledger.live_rows(namespace)
    traffic = ledger.short[rows][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
    values = np.where(ledger.short_count[rows] > 0, traffic, 0.0)
    if which != HOT or values.max(initial=0.0) <= 0:
        lowers = np.array([parse_bundle(ledger.names[row])[1] for row in rows], dtype=np.int64)
        hashes, stands_for = created_topics(work, namespace)
        of = np.searchsorted(lowers, hashes, side="right") - 1
        counts = np.bincount(of, minlength=len(rows)) * stands_for
        values = np.maximum(ledger.topics[rows], counts)
    refuse_if(
        values.max(initial=0) <= 0,
        f"nobody has reported topics of {namespace}, so no bundle is {which}: name one",
    )
    return ledger.names[rows[int(np.argmax(values))]]


BUNDLE_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "unload_bundle": _unload_bundle,
    "assign_bundle": _assign_bundle,
    "override_bundle": _override_bundle,
    "split_bundle": _split_bundle,
    UNLOAD_NAMESPACE: _unload_namespace,
}

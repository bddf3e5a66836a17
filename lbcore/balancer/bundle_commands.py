"""Commands on bundles: assign, unload, override, split, and namespaces in slices."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
    refuse,
)
from lbcore.balancer.brokers import reason_not_to_take
from lbcore.balancer.intake import created_topics
from lbcore.balancer.namespaces import (
    BUNDLES,
    is_deleting,
    is_rest,
    reason_not_to_add,
    reason_not_to_change,
)
from lbcore.balancer.placement import place_children
from lbcore.balancer.transitions import known_topics, without_topics
from lbcore.balancer.waiting import begin_wait, drive_resting, end_wait, finish_command
from lbcore.config.splitting import SPECIFIED_POSITIONS
from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.names import format_bundle, parse_bundle, split_bundle_name, tenant_of
from lbcore.ownership.changes import NOBODY, Origin, Refused, Transition
from lbcore.ownership.protocol import assign, reassign, split, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import Places
from lbcore.plan.snapshot import THROUGHPUT_IN, THROUGHPUT_OUT
from lbcore.plan.split.algorithms import SplitAlgorithm, resolve_algorithm
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
from lbcore.wire.messages import Command


def find_record(work: BatchContext, bundle: str) -> OwnershipRecord | Outcome:
    """Return the record of a live bundle, or the refusal of a command without one."""
    record = work.ledger.record(bundle)
    if record is None:
        return refuse(f"there is no bundle {bundle}; table bundle_ownership lists them")
    if record.state is State.DELETED:
        return refuse(f"bundle {bundle} is gone: its range was split, or its namespace deleted; "
                      "look at the namespace's present bundles")  # fmt: skip
    if is_deleting(work, bundle.rpartition("/")[0]):
        return refuse(
            f"the namespace of {bundle} is being deleted; create it anew when that is done"
        )
    if is_rest(work, bundle):
        return refuse(f"bundle {bundle} stands for those that are still being made; ask again when "
                      "the create_namespace of its namespace is done")  # fmt: skip
    return record


def release(work: BatchContext, record: OwnershipRecord, origin: Origin, destination: str) -> str:
    """Take an owned bundle from its owner; why that can't be, or ""."""
    problem = _pinned_elsewhere(work, record.bundle, destination)
    if problem:
        return problem
    answer = unload(record, origin, work.instance(destination) if destination else NOBODY)
    if isinstance(answer, Refused):
        return f"{answer.reason.value} ({_shown(record)}): wait, and look at its ownership"
    work.apply(answer)
    return ""


def _find_movable(work: BatchContext, bundle: str, destination: str) -> OwnershipRecord | Outcome:
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    problem = reason_not_to_take(work, destination)
    return refuse(problem) if problem else record


def _pinned_elsewhere(work: BatchContext, bundle: str, destination: str) -> str:
    pin = work.rules.pins.get(bundle)
    if not destination or pin is None or pin.broker == destination:
        return ""
    return f"it is pinned to {pin.broker}: unpin it first"


def _shown(record: OwnershipRecord) -> str:
    broker = record.destination or record.source
    return f"{record.state.value} {broker}".strip()


def _unload_bundle(work: BatchContext, command: Command, arguments: UnloadBundle) -> Outcome:
    bundle, destination = arguments.bundle, arguments.destination
    record = _find_movable(work, bundle, destination)
    if isinstance(record, Outcome):
        return record
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    problem = release(work, record, origin, destination)
    if problem:
        return refuse(f"bundle {bundle} can't be unloaded now: {problem}")
    kind = "transfer" if destination else "unload"
    _note(work, origin, kind, record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination})


def _assign_bundle(work: BatchContext, command: Command, arguments: AssignBundle) -> Outcome:
    """Also what lookups ask for; many may ask for the same bundle, and one assigns it.

    Without a destination it goes where `commands.carry_out_assignments` has found a place for it.
    """
    bundle, wanted = arguments.bundle, arguments.destination
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    owner = record.destination
    if record.state is not State.FREE and owner and wanted in ("", owner):
        return Outcome(status=DONE, result={"owner": owner, "state": record.state.value})
    if record.state is not State.FREE:
        return refuse(f"bundle {bundle} is not free ({_shown(record)}); unload it to {wanted}")
    problem = reason_not_to_take(work, wanted)
    if _pinned_elsewhere(work, bundle, wanted):
        problem = f"bundle {bundle} can't go to {wanted}: {_pinned_elsewhere(work, bundle, wanted)}"
    destination = wanted or work.places.get(bundle, "")
    if not destination:
        problem = f"no broker may take {bundle} now; start one, or look at the policies"
    if problem:
        return refuse(problem)
    origin = work.origin(Cause.ASSIGN, work.next_decision(), command.command_id)
    answer = assign(record, work.instance(destination), origin)
    if isinstance(answer, Refused):
        return refuse(f"bundle {bundle} can't be assigned now: {answer.reason.value}; ask again")
    work.apply(answer)
    _note(work, origin, "assign", record, destination)
    return Outcome(status=ACCEPTED, result={"owner": destination}, moving={bundle: ""})


def _override_bundle(work: BatchContext, command: Command, arguments: OverrideBundle) -> Outcome:
    """By force, also under a live owner's feet: for when nothing else helps."""
    bundle, destination = arguments.bundle, arguments.destination
    record = _find_movable(work, bundle, destination)
    if isinstance(record, Outcome):
        return record
    origin = work.origin(Cause.ADMIN, work.next_decision(), command.command_id)
    change = assign if record.state is State.FREE else reassign
    answer = change(record, work.instance(destination), origin)
    if not isinstance(answer, Transition):
        return refuse(f"bundle {bundle} can't be overridden: {answer.reason.value}; ask again")
    work.apply(answer)
    _note(work, origin, "override", record, destination)
    return Outcome(status=ACCEPTED, moving={bundle: record.destination or record.source})


def _note(
    work: BatchContext, origin: Origin, kind: str, record: OwnershipRecord, destination: str
) -> None:
    work.write_decision(
        origin.decision_id,
        kind=kind,
        reason="Admin",
        inputs={"command_id": origin.command_id},
        bundle=record.bundle,
        source="" if record.state is State.FREE else record.destination or record.source,
        destination=destination,
    )


BUNDLE_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "unload_bundle": _unload_bundle,
    "assign_bundle": _assign_bundle,
    "override_bundle": _override_bundle,
}


KIND = "unload_namespace"
WHY_SKIPPED = "why_skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    """Outcome of a slice of an unload.

    result: of all slices until now. moving: bundle → its previous owner. problem: why the first
    bundle with an owner stayed, "" = none did.
    """

    result: Mapping[str, Any]
    moving: Mapping[str, str]
    problem: str = ""


def begin_unload(work: BatchContext, command: Command) -> Outcome:
    """Let the owners of the first slice give it up; the namespace must be there."""
    part = _release(work, command, {AFTER: ""}, max(_room(work), 0))
    is_under_way = part.moving or AFTER in part.result
    if part.problem and not is_under_way:
        return refuse(f"nothing of {_asked(command)[0]} can be unloaded now: {part.problem}")
    status = ACCEPTED if is_under_way else DONE
    return Outcome(status=status, result=part.result, moving=part.moving)


def drive_unloads(work: BatchContext) -> None:
    """Begin the next slice of each namespace whose last one has come to rest."""
    drive_resting(work, "unload", KIND, _drive)


def _drive(work: BatchContext, command_ids: Sequence[str]) -> None:
    """Share a batch among unloads.

    The smallest rest first; each has an equal part of what is left.
    """
    sizes = sorted((len(_rest(work, one)), one) for one in command_ids)
    for at, (_, command_id) in enumerate(sizes):
        _advance(work, command_id, max(_room(work) // (len(sizes) - at), 1))


def _advance(work: BatchContext, command_id: str, part: int) -> None:
    waiting = work.waiting[command_id]
    command = waiting.command
    name, destination = _asked(command)
    problem = reason_not_to_change(work, name) or reason_not_to_take(work, destination)
    if problem:
        reason = f"it was given up before its end: {problem}"
        finish_command(work, command_id, Outcome(status=FAILED, reason=reason))
        return
    done = _release(work, command, waiting.result, part)
    begin_wait(work, command, Outcome(status=ACCEPTED, result=done.result, moving=done.moving), 0)
    again = work.waiting[command_id]
    work.waiting[command_id] = replace(again, faults=waiting.faults, failed=waiting.failed)
    if not done.moving and AFTER not in done.result:
        end_wait(work, command_id)


def _release(work: BatchContext, command: Command, before: Mapping[str, Any], part: int) -> _Slice:
    """Let owners release the next `part` bundles.

    before: the result of the slices until now.
    """
    name, destination = _asked(command)
    rest = _rows_after(work, name, str(before[AFTER]))
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
        had, refused = record.destination, release(work, record, origin, destination)
        if not refused:
            moving[record.bundle] = had
        problem = problem or (refused and f"{record.bundle} stays: {refused}")
    counts = {"bundles": len(moving), "skipped": len(rows) - len(moving)}
    result: dict[str, Any] = {key: n + int(before.get(key, 0)) for key, n in counts.items()}
    if why := before.get(WHY_SKIPPED, problem):
        result[WHY_SKIPPED] = why
    if len(rows) < len(rest):
        result[AFTER] = work.ledger.names[rows[-1]] if rows else before[AFTER]
    work.write_decision(
        decision_id,
        kind="transfer" if destination else "unload",
        reason="Admin",
        inputs={"command_id": command.command_id, "namespace": name, **counts},
        destination=destination,
    )
    return _Slice(result=result, moving=moving, problem=problem)


def _room(work: BatchContext) -> int:
    return work.share - work.unloaded


def _rest(work: BatchContext, command_id: str) -> Sequence[int]:
    waiting = work.waiting[command_id]
    return _rows_after(work, _asked(waiting.command)[0], str(waiting.result[AFTER]))


def _rows_after(work: BatchContext, name: str, bundle: str) -> list[int]:
    """Return rows of the namespace's bundles after one in name order; "" = all."""
    rows = work.ledger.live_rows(name)
    return rows[bisect_right(rows, bundle, key=work.ledger.names.__getitem__) :]


def _asked(command: Command) -> tuple[str, str]:
    arguments = command.arguments
    return str(arguments["namespace"]), str(arguments.get("destination") or "")


def split_target(work: BatchContext, arguments: SplitBundle) -> str:
    """The bundle that is to be split; "" when there is none."""
    bundle = arguments.bundle or _chosen(work, arguments.namespace, arguments.which)
    return "" if isinstance(bundle, Outcome) else bundle


def place_splits(work: BatchContext, several: Sequence[SplitBundle]) -> Places:
    """Return brokers for the children of the executable splits, placed together."""
    found = [_decided(work, arguments) for arguments in several]
    decisions = {one[1].name: one[1] for one in found if not isinstance(one, Outcome)}
    wanted = [one for name, one in decisions.items() if name not in work.rules.pins]
    return place_children(work, wanted)


def _split_bundle(work: BatchContext, command: Command, arguments: SplitBundle) -> Outcome:
    """Split a bundle.

    With `unload` the children go where `commands.carry_out_assignments` has found places for them.
    """
    decided = _decided(work, arguments)
    if isinstance(decided, Outcome):
        return decided
    record, decision = decided
    bundle = record.bundle
    topics = known_topics(work, bundle)
    empty = without_topics(topics, decision.children)
    if len(empty) > work.config.splitting.max_empty_children and not arguments.force:
        advice = "wait for its owner's report" if topics is None else "correct the positions"
        return refuse(
            f"{len(empty)} of the {len(decision.children)} children of {bundle} would have no "
            f"known topic, {empty[0]} for one; {advice}, or force it"
        )
    more = {BUNDLES: len(decision.children) - 1}
    problem = reason_not_to_add(work, tenant_of(bundle), more)
    return refuse(problem) if problem else _carry_out(work, command, record, decision, empty)


def _decided(
    work: BatchContext, arguments: SplitBundle
) -> tuple[OwnershipRecord, SplitDecision] | Outcome:
    bundle = arguments.bundle or _chosen(work, arguments.namespace, arguments.which)
    if isinstance(bundle, Outcome):
        return bundle
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    if record.state is not State.OWNED:
        return refuse(f"bundle {bundle} has no owner that could split it; assign it first")
    decision = _decision(work, arguments, record)
    return decision if isinstance(decision, Outcome) else (record, decision)


def _chosen(work: BatchContext, namespace: str, which: str) -> str | Outcome:
    """The bundle with the most topics, or the highest throughput; the first of equals."""
    entry = work.namespaces.get(namespace)
    if entry is None or entry.is_deleted or is_deleting(work, namespace):
        return refuse(f"there is no namespace {namespace}; look at the list of namespaces")
    names = [work.ledger.names[row] for row in work.ledger.live_rows(namespace)]
    rates = _throughput(work, names)
    is_by_rate = which == HOT and bool(rates.max(initial=0.0) > 0)
    values = rates if is_by_rate else _topic_counts(work, namespace, names)
    if not len(values) or values.max() <= 0:
        reason = f"nobody has reported topics of {namespace}, so no bundle is {which}: name one"
        return refuse(reason)
    return names[int(np.argmax(values))]


def _throughput(work: BatchContext, names: list[str]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    ledger = work.ledger
    rows = [ledger.index[name] for name in names]
    rates = ledger.short[rows][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
    return np.where(ledger.short_count[rows] > 0, rates, 0.0)


def _topic_counts(
    work: BatchContext, namespace: str, names: list[str]
) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return each bundle's number of topics: reported or created here, the larger."""
    reported = work.ledger.topics[[work.ledger.index[name] for name in names]]
    lowers = np.array([parse_bundle(name)[1] for name in names], dtype=np.int64)
    created = created_topics(work, namespace)
    of = np.searchsorted(lowers, created.hashes, side="right") - 1
    return np.maximum(reported, np.bincount(of, minlength=len(names)) * created.stands_for)


def _decision(
    work: BatchContext, arguments: SplitBundle, record: OwnershipRecord
) -> SplitDecision | Outcome:
    bundle = record.bundle
    namespace, text = split_bundle_name(bundle)
    algorithm = _algorithm(work, namespace, arguments)
    if isinstance(algorithm, Outcome):
        return algorithm
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
    found = requested_boundaries(request, work.config.splitting)
    if isinstance(found, str):
        return refuse(f"bundle {bundle} can't be split: {found}")
    if len(found) >= MAX_CHILDREN:
        most = MAX_CHILDREN
        return refuse(f"{bundle} would have {len(found) + 1} children, at most are {most}")
    return SplitDecision(
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
        is_adjusted=False,
        place_children=arguments.unload,
        hits=0,
        excess=0.0,
    )


def _algorithm(
    work: BatchContext, namespace: str, arguments: SplitBundle
) -> SplitAlgorithm | Outcome:
    """Return the split algorithm.

    The one that is named; else what positions need; else the namespace's; else configured.
    """
    config = work.config.splitting
    supported = config.supported_algorithms
    if arguments.algorithm and arguments.algorithm not in supported:
        listed = ", ".join(supported)
        return refuse(
            f"split algorithm {arguments.algorithm} is not supported; choose one of {listed}"
        )
    by_positions = SPECIFIED_POSITIONS if arguments.positions else ""
    own = str(work.namespaces[namespace].properties.get(SPLIT_ALGORITHM, ""))
    return resolve_algorithm(arguments.algorithm or by_positions or own, config.algorithm)


def _carry_out(
    work: BatchContext,
    command: Command,
    record: OwnershipRecord,
    decision: SplitDecision,
    empty: tuple[str, ...],
) -> Outcome:
    places = {child: work.places.get(child, "") for child in decision.children}
    origin = work.origin(Cause.SPLIT, work.next_decision(), command.command_id)
    answer = split(record, places, origin)
    if isinstance(answer, Refused):
        return refuse(
            f"bundle {decision.name} can't be split now: {answer.reason.value}; ask again"
        )
    work.apply(answer)
    result = {
        "bundle": decision.name,
        "algorithm": decision.algorithm.value,
        "children": list(decision.children),
        "without_topics": list(empty),
    }
    work.write_decision(
        origin.decision_id,
        kind="split",
        reason=decision.reason.value,
        inputs={"command_id": command.command_id, **result, "places": dict(places)},
        strategy=decision.algorithm.value,
        bundle=decision.name,
        source=decision.broker,
    )
    return Outcome(status=ACCEPTED, result=result, moving={decision.name: decision.broker})


SPLIT_HANDLERS: Mapping[str, Callable[[BatchContext, Command, Any], Outcome]] = {
    "split_bundle": _split_bundle
}

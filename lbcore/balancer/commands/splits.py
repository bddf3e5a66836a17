"""The command that splits a bundle: the named one, or the largest or hottest of a namespace.

Decides whether the split is possible now, and that too many children without topics are a slip;
where it cuts is `plan.split.split_request`'s to say, where children go `splits`'. One whose bundle
is in flight has waited for its end before it comes here. Part of `commands`. Source: Pulsar 4.0.8
NamespacesBase.internalSplitNamespaceBundleAsync; parts, force and the list of children are ours.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lbcore.balancer.commands.bundles import find_record
from lbcore.balancer.decisions.placing import place_children
from lbcore.balancer.intake.topics import created_topics
from lbcore.balancer.state.book import SPLIT_ALGORITHM
from lbcore.balancer.state.outcome import ACCEPTED, Outcome, refuse
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.deletions import is_deleting
from lbcore.balancer.tasks.usage import BUNDLES, reason_not_to_add
from lbcore.balancer.transitions.splits import known_topics, without_topics
from lbcore.config.splitting import SPECIFIED_POSITIONS
from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.names import format_bundle, parse_bundle, split_bundle_name, tenant_of
from lbcore.ownership.changes import Refused
from lbcore.ownership.protocol import split
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import Places
from lbcore.plan.snapshot import THROUGHPUT_IN, THROUGHPUT_OUT
from lbcore.plan.split.algorithms import SplitAlgorithm, resolve_algorithm
from lbcore.plan.split.decision import SplitDecision, SplitReason
from lbcore.plan.split.split_request import SplitRequest, requested_boundaries
from lbcore.wire.kinds.bundle_commands import HOT, MAX_CHILDREN, SplitBundle
from lbcore.wire.messages import Command


def split_target(work: Work, arguments: SplitBundle) -> str:
    """The bundle that is to be split; "" when there is none."""
    bundle = _target(work, arguments)
    return "" if isinstance(bundle, Outcome) else bundle


def place_splits(work: Work, several: Sequence[SplitBundle]) -> Places:
    """Brokers for the children of the splits that can be carried out now, placed together."""
    found = [_decided(work, arguments) for arguments in several]
    decisions = {one[1].name: one[1] for one in found if not isinstance(one, Outcome)}
    wanted = [one for name, one in decisions.items() if name not in work.rules.pins]
    return place_children(work, wanted)


def _split_bundle(work: Work, command: Command, arguments: SplitBundle) -> Outcome:
    """With `unload` the children go where `commands.carry_out_placed` has found places for them."""
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


def _decided(work: Work, arguments: SplitBundle) -> tuple[OwnershipRecord, SplitDecision] | Outcome:
    bundle = _target(work, arguments)
    if isinstance(bundle, Outcome):
        return bundle
    record = find_record(work, bundle)
    if isinstance(record, Outcome):
        return record
    if record.state is not State.OWNED:
        return refuse(f"bundle {bundle} has no owner that could split it; assign it first")
    decision = _decision(work, arguments, record)
    return decision if isinstance(decision, Outcome) else (record, decision)


def _target(work: Work, arguments: SplitBundle) -> str | Outcome:
    return arguments.bundle or _chosen(work, arguments.namespace, arguments.which)


def _chosen(work: Work, namespace: str, which: str) -> str | Outcome:
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


def _throughput(work: Work, names: list[str]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    ledger = work.ledger
    rows = [ledger.index[name] for name in names]
    rates = ledger.short[rows][:, [THROUGHPUT_IN, THROUGHPUT_OUT]].sum(axis=1)
    return np.where(ledger.short_count[rows] > 0, rates, 0.0)


def _topic_counts(
    work: Work, namespace: str, names: list[str]
) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return each bundle's number of topics: reported or created here, the larger."""
    reported = work.ledger.topics[[work.ledger.index[name] for name in names]]
    lowers = np.array([parse_bundle(name)[1] for name in names], dtype=np.int64)
    created = created_topics(work, namespace)
    of = np.searchsorted(lowers, created.hashes, side="right") - 1
    return np.maximum(reported, np.bincount(of, minlength=len(names)) * created.stands_for)


def _decision(
    work: Work, arguments: SplitBundle, record: OwnershipRecord
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


def _algorithm(work: Work, namespace: str, arguments: SplitBundle) -> SplitAlgorithm | Outcome:
    """The one that is named; else what positions need; else the namespace's; else configured."""
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
    work: Work,
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


SPLIT_HANDLERS: Mapping[str, Callable[[Work, Command, Any], Outcome]] = {
    "split_bundle": _split_bundle
}

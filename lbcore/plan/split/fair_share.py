"""Bundles that make their broker too hot by themselves: divided whatever the limits say.

Decides the splits that `ballast` asks for, because no move can place these bundles; where they are
cut is `boundaries`'. Part of the plan's split phase, after the limits' own splits. The shed phase
has counted the hits already. After Slicer, which splits what is twice the mean.
"""

from dataclasses import replace

import numpy as np

from lbcore.config.splitting import Splitting
from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.names import format_bundle, split_bundle_name
from lbcore.plan.shed.common import TooBig, message_rate, throughput
from lbcore.plan.snapshot import Bools, Snapshot
from lbcore.plan.split.boundaries import CutRequest, RangeCut, find_cut
from lbcore.plan.split.decision import (
    REASONS,
    UNSPLITTABLE,
    VERDICTS,
    SplitDecision,
    SplitReason,
    SplitState,
    SplitTrace,
    SplitVerdict,
)

_REASON = SplitReason.FAIR_SHARE


def divide_too_big(
    snapshot: Snapshot, too_big: TooBig, state: SplitState, config: Splitting, blocked: Bools
) -> tuple[tuple[SplitDecision, ...], SplitState, SplitTrace]:
    """The splits, the largest bundle first, with the next state and what was seen.

    state: after the limits' splits, which count against the namespace's bundles. blocked: bool[m],
    not at rest, or divided already. O(k), k bundles that are too big.
    """
    order = np.argsort(-too_big.excess, kind="stable")
    pending, unsplittable = dict(state.pending), dict(state.unsplittable)
    decisions: list[SplitDecision] = []
    verdicts: list[SplitVerdict] = []
    for at in order.tolist():
        row = int(too_big.rows[at])
        name = snapshot.bundles.names[row]
        found: SplitDecision | SplitVerdict = SplitVerdict.IN_FLIGHT
        if not blocked[row]:
            room = _room(snapshot, row, pending, config)
            found = _divide(snapshot, too_big, at, room, config)
        if isinstance(found, SplitDecision):
            decisions.append(found)
            pending[name] = len(found.boundaries)
        elif found in UNSPLITTABLE:
            unsplittable[name] = int(snapshot.bundles.topics[row])
        verdicts.append(SplitVerdict.SPLIT if isinstance(found, SplitDecision) else found)
    trace = SplitTrace(
        bundle=too_big.rows[order],
        reason=np.full(len(order), REASONS.index(_REASON)),
        excess=too_big.excess[order],
        hits=np.full(len(order), config.hit_count_threshold + 1),
        verdict=np.array([VERDICTS.index(verdict) for verdict in verdicts], dtype=np.int64),
    )
    after = replace(state, pending=pending, unsplittable=unsplittable)
    return tuple(decisions), after, trace


def _room(snapshot: Snapshot, row: int, pending: dict[str, int], config: Splitting) -> int:
    """Return the number of bundles that its namespace may still get."""
    bundles = snapshot.bundles
    namespace = int(bundles.namespace[row])
    count = int(np.count_nonzero(bundles.namespace == namespace))
    name = bundles.namespaces[namespace]
    more = [n for each, n in pending.items() if split_bundle_name(each)[0] == name]
    return config.max_namespace_bundles - count - sum(more)


def _divide(
    snapshot: Snapshot, too_big: TooBig, at: int, room: int, config: Splitting
) -> SplitDecision | SplitVerdict:
    """at: of `too_big`'s rows; room: bundles more that its namespace may have."""
    row, excess = int(too_big.rows[at]), float(too_big.excess[at])
    stays = too_big.stays is not None and bool(too_big.stays[at])
    bundles = snapshot.bundles
    if bundles.topics[row] <= 1:
        return SplitVerdict.SINGLE_TOPIC
    if room < 1:
        return SplitVerdict.NAMESPACE_FULL
    name = bundles.names[row]
    namespace, text = split_bundle_name(name)
    request = CutRequest(
        target=BundleRange.parse(text),
        topics=snapshot.topics_of(name),
        reason=_REASON,
        excess=excess,
        max_parts=min(config.max_children, room + 1),
        algorithm=snapshot.split_algorithms.get(namespace, ""),
    )
    cut = find_cut(request, _limited(snapshot, row, too_big, config, excess))
    if not isinstance(cut, RangeCut):
        return cut
    children = children_of(request.target, cut.boundaries)
    return SplitDecision(
        bundle=row,
        name=name,
        broker=snapshot.brokers.names[int(bundles.owner[row])],
        reason=_REASON,
        algorithm=cut.algorithm,
        boundaries=cut.boundaries,
        children=tuple(format_bundle(namespace, child.lower, child.upper) for child in children),
        is_adjusted=cut.is_adjusted,
        place_children=config.auto_unload_split_bundles and not stays,
        hits=config.hit_count_threshold + 1,
        excess=excess,
    )


def _limited(
    snapshot: Snapshot, row: int, too_big: TooBig, config: Splitting, excess: float
) -> Splitting:
    """The settings with what a part may carry as the limit that algorithms cut by."""
    short = snapshot.bundles.short[[row]]
    if too_big.by_rate:
        return replace(config, max_msg_rate_per_s=max(1, int(message_rate(short)[0] / excess)))
    return replace(config, max_throughput_bytes_per_s=max(1, int(throughput(short)[0] / excess)))

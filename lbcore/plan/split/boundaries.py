"""Boundaries of one automatic split: the algorithm's, adapted to the needed parts.

Or the reason that the bundle can't be cut. Asked for the few bundles that reached their hit count,
and for those that `ballast` wants divided because no move can place them. Source: the algorithms of
Pulsar 4.0.8; after Slicer, which splits what is twice the mean.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.splitting import BY_REASON, Splitting
from lbcore.model.bundles import BundleRange, children_of
from lbcore.model.names import format_bundle, range_end, split_bundle_name
from lbcore.plan.shed.common import TooBig
from lbcore.plan.snapshot import (
    Bools,
    BundleTable,
    Floats,
    Ints,
    Snapshot,
    message_rate,
    throughput,
)
from lbcore.plan.split.algorithms import (
    BY_POSITIONS,
    Boundaries,
    SplitAlgorithm,
    TopicLoads,
    boundaries_without_positions,
    inside_of,
    load_boundaries,
    resolve_algorithm,
)
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

COUNT_REASONS = (SplitReason.TOPICS, SplitReason.SESSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRequest:
    """One bundle to cut.

    topics: None = unknown. excess: highest value / limit. max_parts: at least 2. algorithm: of its
    namespace, "" = none.
    """

    target: BundleRange
    topics: TopicLoads | None
    reason: SplitReason
    excess: float
    max_parts: int
    algorithm: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeCut:
    """Cut of a bundle range.

    boundaries: ascending, strictly inside. The algorithm's, or others that divide the load in no
    more children than allowed.
    """

    algorithm: SplitAlgorithm
    boundaries: Boundaries


def find_cut(request: CutRequest, config: Splitting) -> RangeCut | SplitVerdict:
    """Return the cut of the bundle, or the verdict why there is none.

    Into as many parts as the excess, rounded up, at most `max_parts`; flow_or_qps_equally_divide
    makes its own number. With `require_division`, each part has a topic that counts.
    """
    if not request.target.can_split:
        return SplitVerdict.NARROW_RANGE
    topics = None if request.topics is None else _within(request.topics, request.target)
    hashes, weights = _weighted(topics, request.reason, config)
    is_checked = topics is not None and config.require_division
    if is_checked and len(np.unique(hashes)) < 2:  # noqa: PLR2004 one hash can't be divided
        return SplitVerdict.SINGLE_HASH
    algorithm = _algorithm_for(request, topics, config)
    wanted = math.ceil(min(request.excess, request.max_parts))
    parts = min(max(wanted, 2), request.target.upper - request.target.lower)
    proposed = boundaries_without_positions(algorithm, request.target, topics, parts, config)
    if proposed is None and algorithm is SplitAlgorithm.FLOW_OR_QPS and topics is not None:
        return SplitVerdict.WITHIN_TOLERANCE
    if proposed is None:
        return SplitVerdict.NO_BOUNDARY
    boundaries = inside_of(request.target, proposed)
    if is_checked:
        below = np.searchsorted(np.sort(hashes), np.array(boundaries, dtype=np.int64))
        kept: list[int] = []
        counted = 0
        for boundary, count in zip(boundaries, below.tolist(), strict=True):
            if counted < count < len(hashes):
                kept.append(boundary)
                counted = count
        boundaries = tuple(kept)
    if len(boundaries) >= request.max_parts or (is_checked and not boundaries):
        parts = request.max_parts if boundaries else parts
        boundaries = inside_of(request.target, load_boundaries(hashes, weights, parts))
    if not boundaries:
        return SplitVerdict.NO_BOUNDARY
    return RangeCut(algorithm=algorithm, boundaries=boundaries)


def _within(topics: TopicLoads, target: BundleRange) -> TopicLoads:
    inside = (topics.hashes >= target.lower) & (topics.hashes < range_end(target.upper))
    return TopicLoads(
        hashes=topics.hashes[inside],
        msg_rate=topics.msg_rate[inside],
        throughput=topics.throughput[inside],
    )


def _weighted(
    topics: TopicLoads | None, reason: SplitReason, config: Splitting
) -> tuple[Ints, Floats]:
    """Return hashes of topics that count, and weights: 1, or share of a limit."""
    if topics is None:
        return np.empty(0, dtype=np.int64), np.empty(0)
    loaded = topics.is_loaded
    if reason in COUNT_REASONS or not loaded.any():
        return topics.hashes, np.ones(len(topics.hashes))
    share = np.maximum(
        topics.msg_rate / max(config.max_msg_rate_per_s, 1),
        topics.throughput / max(config.max_throughput_bytes_per_s, 1),
    )
    return topics.hashes[loaded], share[loaded]


def _algorithm_for(
    request: CutRequest, topics: TopicLoads | None, config: Splitting
) -> SplitAlgorithm:
    """Return the namespace's algorithm or the configured one, if it is supported.

    The setting `algorithm`, always supported (`validation.check`), replaces an unsupported one.
    Where halves are unsupported, a bundle waits until its topics are known. Pulsar checks commands
    only.
    """
    supported = config.supported_algorithms
    own = resolve_algorithm(request.algorithm, "")
    if request.algorithm and own not in BY_POSITIONS and own.value in supported:
        is_halved = topics is None and SplitAlgorithm.RANGE.value in supported
        return SplitAlgorithm.RANGE if is_halved else own
    configured = resolve_algorithm(None, config.algorithm)
    if config.automatic_algorithm != BY_REASON:
        return configured
    wanted = SplitAlgorithm.RANGE
    if topics is not None:
        by_count = request.reason in COUNT_REASONS
        wanted = SplitAlgorithm.TOPIC_COUNT if by_count else SplitAlgorithm.FLOW_OR_QPS
    return wanted if wanted.value in supported else configured


def split_of(
    snapshot: Snapshot, row: int, over: tuple[SplitReason, float, int], room: int, config: Splitting
) -> SplitDecision | SplitVerdict:
    """Return the split of an owned bundle, or the verdict why there is none.

    over: reason, excess and hits, as in SplitDecision. room: how many more bundles its namespace
    may have.
    """
    if room < 1:
        return SplitVerdict.NAMESPACE_FULL
    reason, excess, hits = over
    name = snapshot.bundles.names[row]
    namespace, text = split_bundle_name(name)
    request = CutRequest(
        target=BundleRange.parse(text),
        topics=snapshot.topics_of(name),
        reason=reason,
        excess=excess,
        max_parts=min(config.max_children, room + 1),
        algorithm=snapshot.split_algorithms.get(namespace, ""),
    )
    cut = find_cut(request, config)
    if isinstance(cut, SplitVerdict):
        return cut
    children = children_of(request.target, cut.boundaries)
    return SplitDecision(
        bundle=row,
        name=name,
        broker=snapshot.brokers.names[int(snapshot.bundles.owner[row])],
        reason=reason,
        algorithm=cut.algorithm,
        boundaries=cut.boundaries,
        children=tuple(format_bundle(namespace, child.lower, child.upper) for child in children),
        place_children=config.auto_unload_split_bundles,
        hits=hits,
        excess=excess,
    )


_REASON = SplitReason.FAIR_SHARE


def divide_too_big(
    snapshot: Snapshot, too_big: TooBig, state: SplitState, config: Splitting, deferred: Bools
) -> tuple[tuple[SplitDecision, ...], SplitState, SplitTrace]:
    """Return the splits, largest bundle first, with the next state and the trace.

    state: after the limits' splits, which count against the namespace's bundles. deferred: bool[m],
    not to be split now, or divided already. O(k), k bundles that are too big.
    """
    order = np.argsort(-too_big.excess, kind="stable")
    pending, unsplittable = dict(state.pending), dict(state.unsplittable)
    rooms = rooms_of(snapshot.bundles, pending, config)
    decisions: list[SplitDecision] = []
    verdicts: list[SplitVerdict] = []
    for at in order.tolist():
        row = int(too_big.rows[at])
        name, namespace = snapshot.bundles.names[row], int(snapshot.bundles.namespace[row])
        found: SplitDecision | SplitVerdict = SplitVerdict.DEFERRED
        if not deferred[row]:
            found = _divide(snapshot, too_big, at, int(rooms[namespace]), config)
        if isinstance(found, SplitDecision):
            decisions.append(found)
            pending[name] = len(found.boundaries)
            rooms[namespace] -= pending[name]
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


def rooms_of(bundles: BundleTable, pending: Mapping[str, int], config: Splitting) -> Ints:
    """Return how many more bundles each namespace may have, int64[namespaces].

    pending: of splits under way, bundle → bundles that it adds to its namespace. O(bundles).
    """
    counts = np.bincount(bundles.namespace, minlength=len(bundles.namespaces))
    at = {name: index for index, name in enumerate(bundles.namespaces)} if pending else {}
    for name, more in pending.items():
        namespace = split_bundle_name(name)[0]
        if namespace in at:
            counts[at[namespace]] += more
    return config.max_namespace_bundles - counts


def _divide(
    snapshot: Snapshot, too_big: TooBig, at: int, room: int, config: Splitting
) -> SplitDecision | SplitVerdict:
    """Divide one bundle. at: row of `too_big`; room: more bundles of its namespace."""
    row, excess = int(too_big.rows[at]), float(too_big.excess[at])
    if snapshot.bundles.topics[row] <= 1:
        return SplitVerdict.SINGLE_TOPIC
    short = snapshot.bundles.short[[row]]
    if too_big.by_rate[at]:  # algorithms cut by the load of a part
        limit = max(1, int(message_rate(short)[0] / excess))
        config = replace(config, max_msg_rate_per_s=limit)
    else:
        limit = max(1, int(throughput(short)[0] / excess))
        config = replace(config, max_throughput_bytes_per_s=limit)
    over = (_REASON, excess, config.hit_count_threshold + 1)
    found = split_of(snapshot, row, over, room, config)
    if isinstance(found, SplitVerdict) or not too_big.stays[at]:
        return found
    return replace(found, place_children=False)

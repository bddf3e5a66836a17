"""Phase 4: bundles that are split in this cycle, and where.

A bundle must be over one of four limits in more fresh observations in a row than a threshold,
owned, at rest, and divisible; the worst go first. Bundles that the strategy wants divided follow. A
bundle is not split if it moves in this plan, is in flight, paused, about to merge, or in a
rejected plan. Placement finds the children's owners. Limits, hit counts and caps as in Pulsar
4.0.8's DefaultNamespaceBundleSplitStrategyImpl, which tests/conformance/reference follows to the
letter.
"""

from dataclasses import dataclass, replace
from itertools import compress, repeat

import numpy as np

from lbcore.config.splitting import LONG_TERM, Splitting
from lbcore.plan.decision import Columns
from lbcore.plan.draft import Draft
from lbcore.plan.phases.adjust import newly_reported
from lbcore.plan.phases.eligible import paused
from lbcore.plan.snapshot import (
    Bools,
    BundleTable,
    Floats,
    Ints,
    Snapshot,
    message_rate,
    throughput,
)
from lbcore.plan.split.boundaries import divide_too_big, rooms_of, split_of
from lbcore.plan.split.decision import (
    LIMIT_REASONS,
    REASONS,
    UNSPLITTABLE,
    VERDICTS,
    SplitDecision,
    SplitState,
    SplitTrace,
    SplitVerdict,
)

ATTEMPTS_PER_SPLIT = 10
"""Bundles whose topics are read, per split that a cycle may decide."""

_CODE = {verdict: code for code, verdict in enumerate(VERDICTS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overloaded:
    """The bundles over a limit, k rows, columns as in SplitTrace."""

    bundle: Ints
    reason: Ints
    excess: Floats


def decide_splits(
    snapshot: Snapshot, state: SplitState, config: Splitting, deferred: Bools
) -> tuple[tuple[SplitDecision, ...], SplitState, SplitTrace]:
    """Decide the splits of this cycle, worst first; return next state and trace.

    deferred: bool[m]: such a bundle keeps its hits and is not split now, so
    children are split again only once they are Owned. A hit counts if the owner `is_fresh`: for
    this phase, newer than the report it judged last. The caller checks `config.enabled`. O(m + k
    log k), m bundles, k of them over a limit.
    """
    bundles = snapshot.bundles
    over = find_overloaded(bundles, config)
    hits = _count_hits(snapshot, over, state)
    verdict = _first_verdicts(snapshot, over, hits, config, deferred)
    rows = bundles.rows_of(sorted(state.pending)) if state.pending else {}
    pending = {name: state.pending[name] for name, row in rows.items() if deferred[row]}
    rooms = rooms_of(bundles, pending, config)
    ready, unsplittable = _ready_rows(bundles, over, verdict, state)
    decisions: list[SplitDecision] = []
    for row in ready[: config.max_splits_per_cycle * ATTEMPTS_PER_SPLIT].tolist():
        if len(decisions) >= config.max_splits_per_cycle:
            break
        bundle, reason = int(over.bundle[row]), LIMIT_REASONS[int(over.reason[row])]
        name, namespace = bundles.names[bundle], int(bundles.namespace[bundle])
        why = (reason, float(over.excess[row]), int(hits[row]))
        found = split_of(snapshot, bundle, why, int(rooms[namespace]), config)
        unsplittable.pop(name, None)
        if isinstance(found, SplitDecision):
            decisions.append(found)
            pending[name] = len(found.boundaries)
            rooms[namespace] -= pending[name]
        elif found in UNSPLITTABLE:
            unsplittable[name] = int(bundles.topics[bundle])
        verdict[row] = _CODE[SplitVerdict.SPLIT if isinstance(found, SplitDecision) else found]
    single = over.bundle[verdict == _CODE[SplitVerdict.SINGLE_TOPIC]].tolist()
    unsplittable |= {bundles.names[at]: int(bundles.topics[at]) for at in single}
    is_kept = (hits > 0) & (verdict != _CODE[SplitVerdict.SPLIT])
    kept = map(bundles.names.__getitem__, over.bundle[is_kept].tolist())
    after = SplitState(
        hits=dict(zip(kept, hits[is_kept].tolist(), strict=True)),
        unsplittable=unsplittable,
        pending=pending,
    )
    trace = SplitTrace(
        bundle=over.bundle, reason=over.reason, excess=over.excess, hits=hits, verdict=verdict
    )
    return tuple(decisions), after, trace


def find_overloaded(bundles: BundleTable, config: Splitting) -> Overloaded:
    """Return the bundles over any limit, in the table's order, whatever their state."""
    average = bundles.long if config.averages == LONG_TERM else bundles.short
    values = (
        bundles.topics.astype(np.float64),
        bundles.sessions.astype(np.float64),
        message_rate(average),
        throughput(average),
    )
    limits = (
        config.max_topics,
        config.max_sessions if config.max_sessions > 0 else np.inf,
        config.max_msg_rate_per_s,
        config.max_throughput_bytes_per_s,
    )
    is_over = [value > limit for value, limit in zip(values, limits, strict=True)]
    found = np.flatnonzero(is_over[0] | is_over[1] | is_over[2] | is_over[3])
    reason = np.argmax(np.stack([column[found] for column in is_over]), axis=0)
    excess = np.max(
        [value[found] / max(limit, 1) for value, limit in zip(values, limits, strict=True)], axis=0
    )
    return Overloaded(bundle=found, reason=reason, excess=excess)


def _count_hits(snapshot: Snapshot, over: Overloaded, state: SplitState) -> Ints:
    no_owner = np.zeros(1, dtype=np.bool_)  # what the owner -1 finds
    is_reported = np.append(snapshot.brokers.is_fresh, no_owner)[
        snapshot.bundles.owner[over.bundle]
    ]
    if not state.hits:
        return is_reported.astype(np.int64)
    names = map(snapshot.bundles.names.__getitem__, over.bundle.tolist())
    before = np.fromiter(map(state.hits.get, names, repeat(0)), np.int64, len(over.bundle))
    return before + is_reported


def _first_verdicts(
    snapshot: Snapshot, over: Overloaded, hits: Ints, config: Splitting, deferred: Bools
) -> Ints:
    """Return verdicts before topics are read; CYCLE_LIMIT = ready to be split."""
    bundles, at = snapshot.bundles, over.bundle
    in_namespace = np.bincount(bundles.namespace, minlength=len(bundles.namespaces))
    verdict = np.full(len(at), _CODE[SplitVerdict.CYCLE_LIMIT], dtype=np.int64)
    for holds, reached in (
        (in_namespace[bundles.namespace[at]] >= config.max_namespace_bundles, "NAMESPACE_FULL"),
        (bundles.topics[at] <= 1, "SINGLE_TOPIC"),
        (deferred[at], "DEFERRED"),
        (bundles.owner[at] < 0, "UNOWNED"),
        (hits <= config.hit_count_threshold, "HIT_COUNT"),
    ):
        verdict[holds] = _CODE[SplitVerdict[reached]]
    return verdict


def _ready_rows(
    bundles: BundleTable, over: Overloaded, verdict: Ints, state: SplitState
) -> tuple[Ints, dict[str, int]]:
    """Return the ready rows, by excess, then by name, known unsplittable ones last.

    Notes the latter in `verdict`, until they are judged again, and returns them with their number
    of topics.
    """
    ready = np.flatnonzero(verdict == _CODE[SplitVerdict.CYCLE_LIMIT])
    order = ready[np.argsort(-over.excess[ready], kind="stable")]
    if not state.unsplittable:
        return order, {}
    indices = over.bundle[order].tolist()
    topics = {bundles.names[at]: int(bundles.topics[at]) for at in indices}
    is_known = np.array(
        [state.unsplittable.get(name) == count for name, count in topics.items()], dtype=np.bool_
    )
    verdict[order[is_known]] = _CODE[SplitVerdict.SINGLE_HASH]
    known = {name: topics[name] for name in compress(topics, is_known.tolist())}
    return np.concatenate([order[~is_known], order[is_known]]), known


PHASE = "split"
LABELS = tuple(verdict.value for verdict in VERDICTS)


def split(draft: Draft) -> Draft:
    """The draft with its splits, or the reason for none."""
    if not draft.scope.splits:
        return draft.skip(PHASE, "NotThisCycle")
    if not draft.config.splitting.enabled:
        return draft.skip(PHASE, "Disabled")
    # fresh where owners have reported since splits were judged
    has_new_report = np.ones(len(draft.reported.brokers.names), dtype=np.bool_)
    if draft.config.shedding.fresh_hits:
        has_new_report, judged = newly_reported(draft, draft.state.split_judged)
        draft = replace(draft, state=replace(draft.state, split_judged=judged))
    brokers = replace(draft.reported.brokers, is_fresh=has_new_report)
    snapshot = replace(draft.reported, brokers=brokers)
    deferred = ~draft.reported.bundles.can_move | paused(draft.reported.bundles)
    kept = [*draft.reported.rejected, *draft.reported.merging]
    deferred |= draft.reported.bundles.are_named(kept)
    deferred[draft.sheddings.bundle] = True
    deferred[draft.forced.bundle] = True
    decisions, state, seen = decide_splits(
        snapshot, draft.state.split, draft.config.splitting, deferred
    )
    state = replace(state, unsplittable={**_still_too_big(draft, seen), **state.unsplittable})
    draft = replace(draft, splits=decisions, state=replace(draft.state, split=state))
    draft = _divided(draft.show(_columns(draft, seen)), snapshot, deferred)
    if draft.splits:
        return draft
    return draft.skip(PHASE, "HitCount" if np.any(seen.hits) else "NoBundles")


def _still_too_big(draft: Draft, seen: SplitTrace) -> dict[str, int]:
    """Return unsplittable bundles over no limit, on brokers still too hot.

    Only `divide_too_big` judges them. Until then they may move whole.
    """
    known, hits = draft.state.split.unsplittable, draft.state.shed.hits_low
    bundles, names = draft.reported.bundles, draft.reported.brokers.names
    hot = {at for at, name in enumerate(names) if hits.get(name, 0) > 0}
    judged = {*seen.bundle.tolist()}
    rows = bundles.rows_of(known) if hot else {}
    return {
        name: known[name]
        for name, row in rows.items()
        if row not in judged and int(bundles.owner[row]) in hot
    }


def _divided(draft: Draft, snapshot: Snapshot, deferred: Bools) -> Draft:
    """Return the draft with the splits that the strategy asks for."""
    if draft.too_big is None or not len(draft.too_big.rows):
        return draft
    deferred = deferred.copy()
    deferred[[one.bundle for one in draft.splits]] = True
    decisions, state, seen = divide_too_big(
        snapshot, draft.too_big, draft.state.split, draft.config.splitting, deferred
    )
    splits = (*draft.splits, *decisions)
    draft = replace(draft, splits=splits, state=replace(draft.state, split=state))
    return draft.show(_columns(draft, seen))


def _columns(draft: Draft, seen: SplitTrace) -> Columns:
    bundles = draft.reported.bundles
    return Columns(
        phase=PHASE,
        subjects=bundles.names,
        verdicts=LABELS,
        subject=seen.bundle,
        broker=bundles.owner[seen.bundle],
        verdict=seen.verdict,
        number=seen.excess,
        hits=seen.hits,
        needed=draft.config.splitting.hit_count_threshold + 1,
        reason=seen.reason,
        reasons=[reason.value for reason in REASONS],
    )

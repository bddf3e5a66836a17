"""Phase 4: which bundles are split.

Decides through `plan.split.decide`, and `plan.split.fair_share` for what the strategy wants
divided; what it adds is who is blocked (a bundle that moves in this plan, is at work or paused, is
not split) and whose hits may advance.
"""

from dataclasses import replace

import numpy as np

from lbcore.plan.draft import Draft
from lbcore.plan.phases.adjust import newly_reported
from lbcore.plan.phases.eligible import paused
from lbcore.plan.snapshot import Bools, Snapshot
from lbcore.plan.split.boundaries import divide_too_big
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.decision import REASONS, VERDICTS, SplitTrace
from lbcore.plan.trace import Columns

PHASE = "split"
LABELS = tuple(verdict.value for verdict in VERDICTS)


def split(draft: Draft) -> Draft:
    """The draft with its splits, or the reason for none."""
    if not draft.scope.splits:
        return draft.skip(PHASE, "NotThisCycle")
    if not draft.config.splitting.enabled:
        return draft.skip(PHASE, "Disabled")
    draft, snapshot = _with_new_reports(draft)
    blocked = ~draft.reported.bundles.can_move | paused(draft.reported.bundles)
    blocked[draft.sheddings.bundle] = True
    blocked[draft.forced.bundle] = True
    decisions, state, seen = decide_splits(
        snapshot,
        draft.state.split,
        draft.config.splitting,
        draft.reported.topics_of,
        blocked,
    )
    draft = replace(draft, splits=decisions, state=replace(draft.state, split=state))
    draft = draft.show(_columns(draft, seen)) if draft.scope.is_traced else draft
    draft = _divided(draft, snapshot, blocked)
    if draft.splits:
        return draft
    return draft.skip(PHASE, "HitCount" if np.any(seen.hits) else "NoBundles")


def _divided(draft: Draft, snapshot: Snapshot, blocked: Bools) -> Draft:
    """The draft with the splits that the strategy asked for."""
    if draft.too_big is None or not len(draft.too_big.rows):
        return draft
    blocked = blocked.copy()
    blocked[[one.bundle for one in draft.splits]] = True
    decisions, state, seen = divide_too_big(
        snapshot, draft.too_big, draft.state.split, draft.config.splitting, blocked
    )
    splits = (*draft.splits, *decisions)
    draft = replace(draft, splits=splits, state=replace(draft.state, split=state))
    return draft.show(_columns(draft, seen)) if draft.scope.is_traced else draft


def _with_new_reports(draft: Draft) -> tuple[Draft, Snapshot]:
    """Return the snapshot, fresh where owners reported since splits were judged."""
    brokers = draft.reported.brokers
    if draft.config.shedding.fresh_hits:
        is_due, judged = newly_reported(draft, draft.state.split_judged)
        draft = replace(draft, state=replace(draft.state, split_judged=judged))
    else:
        is_due = np.ones(len(brokers.names), dtype=np.bool_)
    return draft, replace(draft.reported, brokers=replace(brokers, is_fresh=is_due))


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

"""Phase 4: which bundles are split.

Decides through `plan.split.decide`; what it adds is who is blocked: a bundle that moves in this
plan, or is at work, is not split. Source: ours.
"""

from dataclasses import replace

import numpy as np

from lbcore.plan.draft import Draft
from lbcore.plan.split.decide import decide_splits
from lbcore.plan.split.decision import VERDICTS
from lbcore.plan.trace import Columns

PHASE = "split"


def split(draft: Draft) -> Draft:
    """The draft with its splits, or the reason for none."""
    if not draft.scope.splits:
        return draft.skip(PHASE, "NotThisCycle")
    if not draft.config.splitting.enabled:
        return draft.skip(PHASE, "Disabled")
    bundles = draft.reported.bundles
    blocked = ~bundles.can_move
    blocked[draft.sheddings.bundle] = True
    decisions, state, seen = decide_splits(
        replace(draft.reported, bundles=bundles),
        draft.state.split,
        draft.config.splitting,
        draft.reported.topics_of,
        blocked,
    )
    draft = replace(draft, splits=decisions, state=replace(draft.state, split=state))
    draft = draft.show(
        Columns(
            phase=PHASE,
            subjects=bundles.names,
            verdicts=[verdict.value for verdict in VERDICTS],
            subject=seen.bundle,
            broker=bundles.owner[seen.bundle],
            verdict=seen.verdict,
            number=seen.excess,
        )
    )
    if decisions:
        return draft
    return draft.skip(PHASE, "NoBundles" if not np.any(seen.hits) else "HitCount")

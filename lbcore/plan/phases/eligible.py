"""Phase 2: which bundles may be shed and which brokers may take some, before anything is decided.

Decides that alone; whether a single bundle may go to a single broker is the filters' work in the
assign phase. Source: Pulsar 4.0.8 LoadData's shedding view, the grace period of
ModularLoadManagerImpl; draining and moves in flight are ours.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from lbcore.plan.draft import Draft
from lbcore.plan.snapshot import Bools, Ints
from lbcore.plan.trace import CODE, VERDICTS, Columns, Verdict

PHASE = "eligible"


def eligible(draft: Draft) -> Draft:
    """The draft with the bundles that may be shed, and without graces that are over."""
    bundles, brokers = draft.snapshot.bundles, draft.snapshot.brokers
    draft = _forget_old(draft)
    verdict = np.full(len(bundles.names), CODE[Verdict.ELIGIBLE], dtype=np.int64)
    verdict[_named(draft, draft.state.unloaded_ms)] = CODE[Verdict.RECENTLY_UNLOADED]
    verdict[_in_excluded(draft)] = CODE[Verdict.EXCLUDED_NAMESPACE]
    verdict[_named(draft, draft.state.moves)] = CODE[Verdict.MOVE_IN_FLIGHT]
    verdict[~bundles.can_move] = CODE[Verdict.AT_WORK]
    verdict[bundles.owner < 0] = CODE[Verdict.UNOWNED]
    is_eligible = verdict == CODE[Verdict.ELIGIBLE]
    draft = replace(
        draft,
        is_eligible=is_eligible,
        may_take=~brokers.is_draining,
        snapshot=replace(draft.snapshot, bundles=replace(bundles, can_move=is_eligible)),
    )
    return _show(draft, verdict) if draft.scope.is_traced else draft


def _forget_old(draft: Draft) -> Draft:
    since_ms = draft.now_ms - draft.config.shedding.grace_period_ms
    kept = {name: at for name, at in draft.state.unloaded_ms.items() if at >= since_ms}
    return replace(draft, state=replace(draft.state, unloaded_ms=kept))


def _named(draft: Draft, names: Collection[str]) -> Ints:
    """The rows of bundles by name; those that are gone are left out."""
    found = [draft.rows[name] for name in names if name in draft.rows]
    return np.array(found, dtype=np.int64)


def _in_excluded(draft: Draft) -> Bools:
    bundles, excluded = draft.snapshot.bundles, draft.config.shedding.excluded_namespaces
    if not excluded:
        return np.zeros(len(bundles.names), dtype=np.bool_)
    chosen = np.array([name in excluded for name in bundles.namespaces], dtype=np.bool_)
    found: Bools = chosen[bundles.namespace]
    return found


def _show(draft: Draft, verdict: Ints) -> Draft:
    bundles = draft.snapshot.bundles
    return draft.show(
        Columns(
            phase=PHASE,
            subjects=bundles.names,
            verdicts=[found.value for found in VERDICTS],
            subject=np.arange(len(bundles.names)),
            broker=bundles.owner,
            verdict=verdict,
            number=bundles.short.sum(axis=1),
        )
    )

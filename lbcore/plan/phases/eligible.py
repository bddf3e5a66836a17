"""Phase 2: bundles that may be shed, and isolation groups of brokers.

The assign phase decides whether a bundle may go to a certain broker. Source: Pulsar 4.0.8
LoadData's shedding view and the grace period of ModularLoadManagerImpl; draining, flapping, pins,
pauses, cool-downs and moves in flight are Ballast's.
"""

from dataclasses import replace

import numpy as np

from lbcore.plan.decision import Columns
from lbcore.plan.draft import Draft
from lbcore.plan.filter.index import LABELS, FilterVerdict, Verdicts
from lbcore.plan.filter.unload import system_namespaces, unload_verdicts
from lbcore.plan.groups import (
    excluded_from_shedding,
    isolation_groups,
    named_groups,
    with_strays,
    without_brokers,
)
from lbcore.plan.registry import effective_grace_ms, find_shedding
from lbcore.plan.snapshot import NOBODY, Bools, BundleTable, Ints, throughput
from lbcore.plan.strategy import Grouping

PHASE = "eligible"
STRANDED = "stranded"
"""Name of the number of owned bundles that policies admit on no broker; left out if it is 0."""


def eligible(draft: Draft) -> Draft:
    """Return the draft with the bundles that may be shed, without ended grace periods."""
    bundles, since_ms = draft.snapshot.bundles, draft.now_ms - draft.config.shedding.grace_period_ms
    kept = {name: at for name, at in draft.state.unloaded_ms.items() if at >= since_ms}
    draft = replace(draft, state=replace(draft.state, unloaded_ms=kept))
    verdicts = _bundle_verdicts(draft)
    can_move = (verdicts == FilterVerdict.OK) & (bundles.owner >= 0)
    if _chooses_admitted(draft) and draft.index.groups:
        rows = np.flatnonzero(can_move)
        left = unload_verdicts(draft.snapshot, draft.index, rows)
        stays = rows[left == FilterVerdict.ANTI_AFFINITY]
        can_move[stays], verdicts[stays] = False, FilterVerdict.ANTI_AFFINITY
    snapshot = replace(draft.snapshot, bundles=replace(bundles, can_move=can_move))
    draft = _grouped(replace(draft, snapshot=snapshot))
    if not draft.scope.is_traced:
        return draft
    reported = len(draft.reported.bundles.names)
    return draft.show(
        Columns(
            phase=PHASE,
            subjects=bundles.names,
            verdicts=LABELS,
            subject=np.arange(reported),
            broker=bundles.owner[:reported],
            verdict=verdicts[:reported].astype(np.int64),
            number=throughput(bundles.short[:reported]),
        )
    )


def _bundle_verdicts(draft: Draft) -> Verdicts:
    """Return the reason each bundle must stay, int8[m]; OK = it may be shed.

    Of several reasons the last below wins. PINNED only at its pin: elsewhere it may be moved there.
    RECENTLY_UNLOADED: within its grace period, within the cool-down after any change of owner, or
    in a rejected plan.
    """
    snapshot, config, bundles = draft.snapshot, draft.config.shedding, draft.snapshot.bundles
    since_ms = draft.now_ms - effective_grace_ms(draft.config)
    shed = [name for name, at_ms in draft.state.unloaded_ms.items() if at_ms >= since_ms]
    is_recent = bundles.are_named([*shed, *snapshot.rejected])
    if bundles.moved_ms is not None and config.cool_down_ms:
        is_recent |= bundles.moved_ms > draft.now_ms - config.cool_down_ms
    pin, namespaces = pins(draft), bundles.namespaces
    is_excluded = np.array([name in config.excluded_namespaces for name in namespaces] or [False])
    verdicts = np.zeros(len(bundles.names), dtype=np.int8)
    for verdict, stays in (
        (FilterVerdict.RECENTLY_UNLOADED, is_recent),
        (FilterVerdict.PINNED, (pin >= 0) & (pin == bundles.owner)),
        (FilterVerdict.EXCLUDED_NAMESPACE, is_excluded[bundles.namespace]),
        (FilterVerdict.SYSTEM_NAMESPACE, system_namespaces(namespaces)[bundles.namespace]),
        (FilterVerdict.PAUSED, paused(bundles)),
        (FilterVerdict.MERGING, bundles.are_named(snapshot.merging)),
        (FilterVerdict.IN_FLIGHT, ~bundles.can_move | bundles.are_named(draft.state.moves)),
    ):
        verdicts[stays] = verdict
    return verdicts


def _grouped(draft: Draft) -> Draft:
    """Return the draft with the isolation groups, and their names in the state."""
    brokers = draft.snapshot.brokers
    subset = without_brokers(draft.snapshot, excluded_from_shedding(draft.snapshot))
    group = np.zeros(len(subset.original), dtype=np.int64)
    if draft.snapshot.policies.isolation and len(group) > 1:
        row, admits = draft.index.row, draft.index.policy_admits[:, subset.original]
        is_closed: Bools = admits.sum(axis=1) == 0
        stranded = int((is_closed[row] & (draft.snapshot.bundles.owner >= 0)).sum())
        draft = draft.note(PHASE, {STRANDED: stranded} if stranded else {})
        group = isolation_groups(row, admits)
        if _chooses_admitted(draft):
            # it moves bundles away from brokers that their policy does not admit
            group = with_strays(group, subset.snapshot.bundles, row, admits)
    named = named_groups([brokers.names[at] for at in subset.original.tolist()], group)
    return replace(draft, group=group, state=replace(draft.state, groups=named))


def _chooses_admitted(draft: Draft) -> bool:
    """True if the strategy chooses only destinations that filters admit."""
    strategy = find_shedding(draft.config)
    return strategy is not None and strategy.grouping == Grouping.ALWAYS


def pins(draft: Draft) -> Ints:
    """Return the pinned broker of each bundle, int64[m], -1 = none."""
    bundles = draft.snapshot.bundles
    if bundles.pin is not None:
        return bundles.pin
    return np.full(len(bundles.names), NOBODY, dtype=np.int64)


def paused(bundles: BundleTable) -> Bools:
    """Return the bundles whose balancing is paused, bool[m]."""
    if bundles.is_paused is not None:
        return bundles.is_paused
    return np.zeros(len(bundles.names), dtype=np.bool_)

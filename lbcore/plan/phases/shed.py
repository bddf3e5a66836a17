"""Phase 3: bundles that leave their brokers, by operators' moves and the strategy.

Some strategies choose destinations too; the assign phase finds the others. Brokers that drain take
no part in balancing: their load is on its way out. Source: Pulsar 4.0.8's strategies in
`plan.registry`, and ModularLoadManagerImpl.doLoadShedding for what is dropped afterwards.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.plan.decision import CODE, VERDICTS, CandidateVerdict, Columns, TriggerRows, exchanges
from lbcore.plan.draft import Draft, Moves
from lbcore.plan.filter.index import LABELS, FilterVerdict
from lbcore.plan.filter.unload import admitted_brokers, unload_verdicts
from lbcore.plan.groups import (
    Subset,
    excluded_from_shedding,
    observe_by_group,
    shed_by_group,
    trigger_by_group,
    without_brokers,
)
from lbcore.plan.phases.eligible import paused, pins
from lbcore.plan.registry import observer, shedding_strategy
from lbcore.plan.shed.common import Selection, Shed, ShedView, TriggerStatus, owner_index
from lbcore.plan.snapshot import NOBODY, Ints
from lbcore.plan.strategy import Grouping, ShedCycle
from lbcore.signals.usage import resource_weights


def forced_moves(draft: Draft) -> Moves:
    """Return moves to pins, then off draining brokers, in table order.

    Destination NOBODY (-1): the phase `assign` chooses the broker.
    """
    bundles, brokers = draft.reported.bundles, draft.reported.brokers
    pin = pins(draft)[: len(bundles.names)]
    at_rest = bundles.can_move & (bundles.owner >= 0) & ~paused(bundles)
    is_strayed = at_rest & (pin >= 0) & (pin != bundles.owner)
    is_strayed &= ~np.append(brokers.is_draining, True)[pin]  # pin -1 reads the last
    on_draining = at_rest & ~is_strayed & brokers.is_draining[bundles.owner]
    rows = np.concatenate([np.flatnonzero(is_strayed), np.flatnonzero(on_draining)])
    room = brokers.room
    if room is None:
        most = draft.config.shedding.max_drains_in_flight
        room = np.full(len(brokers.names), most, dtype=np.int64)
    rows = rows[_fits(bundles.owner[rows], room)]
    return Moves(
        bundle=rows,
        source=bundles.owner[rows],
        destination=np.where(is_strayed[rows], pin[rows], NOBODY),
        origin=np.full(len(rows), NOBODY, dtype=np.int64),
    )


def _fits(source: Ints, room: Ints) -> Ints:
    """Return the positions of the first `room` bundles of each source, in order."""
    order = np.argsort(source, kind="stable")
    _, starts, counts = np.unique(source[order], return_index=True, return_counts=True)
    rank = np.empty(len(source), dtype=np.int64)
    rank[order] = np.arange(len(source)) - np.repeat(starts, counts)
    return np.flatnonzero(rank < room[source])


PHASE = "shed"
NOT_YET = "NotThisCycle"
STRATEGY = "strategy"
"""Key of a skip for the fault of a custom strategy."""


def shed(draft: Draft) -> Draft:
    """Return the draft with forced moves and selections, or the reason for none."""
    if draft.scope.drains:
        draft = replace(draft, forced=forced_moves(draft))
    refusal = _refusal(draft)
    if refusal:
        return draft.skip(PHASE, refusal)
    subset = without_brokers(draft.snapshot, excluded_from_shedding(draft.snapshot))
    row, admits = admitted_brokers(draft.snapshot, draft.index)
    view = ShedView(
        snapshot=subset.snapshot,
        usage=draft.usage[subset.original],
        has_new_report=draft.has_new_report[subset.original],
        owned=owner_index(subset.snapshot),
        keys=subset.snapshot.bundles.names,
        now_ms=draft.now_ms,
        usage_lags=draft.config.signals.usage_lag_ms > 0,
        grace_ms=draft.config.shedding.grace_period_ms,
        gave=draft.in_role(draft.state.gave_ms),
        took=draft.in_role(draft.state.took_ms),
        weighted=subset.snapshot.brokers.percent * resource_weights(draft.config.signals),
        admitted=(row, admits[:, subset.original]),
    )
    strategy = shedding_strategy(draft.config)
    is_by_group = strategy.grouping == Grouping.UNLESS_EXACT and draft.config.shedding.by_group
    is_grouped = is_by_group or strategy.grouping == Grouping.ALWAYS
    group = draft.group if is_grouped else np.zeros_like(draft.group)
    known = strategy.forget(draft.state.shed, view.snapshot.brokers.names)
    cycle = ShedCycle(
        view=view,
        state=replace(draft.state, shed=known),
        config=draft.config,
        now_ms=draft.now_ms,
        everyone=draft.snapshot.brokers.names,
    )
    if observer(draft.config, draft.scope) is not None:
        state = observe_by_group(strategy, cycle, group)
        return replace(draft, state=state).skip(PHASE, NOT_YET)
    answer, state, groups = shed_by_group(strategy, cycle, group)
    draft = replace(draft, state=state)
    selections = subset.selections(answer.selections, {})
    moves = _moves(selections)
    draft = replace(draft, exchanges=exchanges(moves.steps()))
    kept, verdicts = _able_to_leave(draft, moves)
    draft = replace(draft, selections=selections, sheddings=moves.at(kept), too_big=answer.too_big)
    if draft.scope.is_traced:
        trigger = trigger_by_group(strategy, replace(cycle, state=state), answer, groups)
        draft = draft.show(_trigger_rows(draft, trigger, answer, subset))
    draft = _show(draft, answer, subset, moves, verdicts)
    if answer.detail:
        draft = draft.skip(STRATEGY, answer.detail)
    if not selections:
        return draft.skip(PHASE, answer.reason)
    return draft if len(kept) else draft.skip(PHASE, "NoDestination")


def _refusal(draft: Draft) -> str:
    """Return the reason why this cycle asks no strategy; "" = it asks one."""
    config = draft.config.shedding
    if not draft.scope.sheds and observer(draft.config, draft.scope) is None:
        return NOT_YET
    if not (config.is_balancing and config.is_shedding):
        return "Disabled"
    return "NoBrokers" if len(draft.group) <= 1 else ""


def _moves(selections: tuple[Selection, ...]) -> Moves:
    """Return the selections' moves in the strategy's order, most important first."""
    rows = [selection.rows for selection in selections]
    counts = [len(found) for found in rows]
    origin = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
    source = np.array([selection.source for selection in selections], dtype=np.int64)
    destination = np.array([selection.destination for selection in selections], dtype=np.int64)
    nothing = np.zeros(0, dtype=np.int64)
    return Moves(
        bundle=np.concatenate(rows) if rows else nothing,
        source=source[origin],
        destination=destination[origin],
        origin=origin,
    )


def _able_to_leave(draft: Draft, moves: Moves) -> tuple[Ints, Ints]:
    """Return positions of moves that another broker may take, and all verdicts."""
    verdicts = unload_verdicts(draft.snapshot, draft.index, moves.bundle)
    verdicts[np.isin(moves.bundle, draft.forced.bundle)] = FilterVerdict.IN_FLIGHT
    verdicts = np.where(verdicts == FilterVerdict.OK, verdicts[draft.partners(moves)], verdicts)
    return np.flatnonzero(verdicts == FilterVerdict.OK), verdicts.astype(np.int64)


def _show(draft: Draft, answer: Shed, subset: Subset, moves: Moves, verdicts: Ints) -> Draft:
    """Return the draft with the answer's numbers and, if traced, its candidates."""
    draft = draft.note(PHASE, answer.numbers)
    if not draft.scope.is_traced:
        return draft
    taken = [_selection_columns(draft, selection) for selection in draft.selections]
    unable = np.flatnonzero(verdicts)
    left_out = Columns(
        phase=PHASE,
        subjects=draft.snapshot.bundles.names,
        verdicts=LABELS,
        subject=moves.bundle[unable],
        broker=moves.source[unable],
        verdict=verdicts[unable],
        number=np.full(len(unable), np.nan),
    )
    texts = sorted(set(answer.verdicts.values()))
    chosen = sorted(answer.verdicts)
    brokers = subset.back(np.array(chosen, dtype=np.int64))
    sources = Columns(
        phase=PHASE,
        subjects=draft.snapshot.brokers.names,
        verdicts=texts,
        subject=brokers,
        broker=brokers,
        verdict=np.array([texts.index(answer.verdicts[one]) for one in chosen], dtype=np.int64),
        number=draft.usage[brokers],
    )
    return draft.show(sources, *taken, left_out)


def _trigger_rows(draft: Draft, judged: TriggerStatus, answer: Shed, subset: Subset) -> TriggerRows:
    """Return each broker's distance from shedding; of a pair only the hotter one.

    judged: of the brokers that take part.
    """
    trigger = judged.for_all_brokers(subset.original, len(draft.snapshot.brokers.names))
    verdicts = [
        "" if np.isnan(number) else CandidateVerdict.BELOW_THRESHOLD.value
        for number in trigger.number.tolist()
    ]
    low = np.min([level.threshold for level in trigger.levels], axis=0, initial=np.inf)
    for at in np.flatnonzero(trigger.number >= low).tolist():
        verdicts[at] = CandidateVerdict.TOO_FEW_HITS.value
    for at, text in answer.verdicts.items():
        verdicts[int(subset.original[at])] = text
    for selection in draft.selections:
        verdicts[selection.source] = CandidateVerdict.TAKEN.value
    partner = trigger.partner
    is_colder = (partner >= 0) & (draft.usage < np.append(draft.usage, 0.0)[partner])
    for at in np.flatnonzero(is_colder).tolist():
        verdicts[at] = ""
    return _with_takers(draft, trigger, verdicts)


def _with_takers(draft: Draft, trigger: TriggerStatus, judged: Sequence[str]) -> TriggerRows:
    """Return the rows with movable bundles, takers and refusals. O(bundles + brokers).

    judged: verdict on each broker, "" = none.
    """
    bundles, index = draft.snapshot.bundles, draft.index
    movable = np.flatnonzero(bundles.can_move)
    brokers, policies = len(judged), len(index.verdicts)
    pairs = bundles.owner[movable] * policies + index.row[movable]
    counts = np.bincount(pairs, minlength=brokers * policies).reshape(brokers, policies)
    takers, refusals = np.zeros(brokers, dtype=np.int64), [""] * brokers
    for at in np.flatnonzero([bool(text) for text in judged]).tolist():
        verdicts = index.verdicts[np.flatnonzero(counts[at])]
        admitted = (verdicts == FilterVerdict.OK).any(axis=0)
        admitted[at] = False
        takers[at] = admitted.sum()
        partner = int(trigger.partner[at])
        if partner >= 0 and len(verdicts) and not admitted[partner]:
            refusals[at] = LABELS[int(verdicts[0, partner])]
    return TriggerRows(
        trigger=trigger,
        verdicts=judged,
        movable=counts.sum(axis=1),
        takers=takers,
        refusals=refusals,
    )


def _selection_columns(draft: Draft, selection: Selection) -> Columns:
    """Return the verdicts on eligible bundles of one source. number: their traffic."""
    lost = (
        CandidateVerdict.NOT_NEEDED
        if selection.destination == NOBODY
        else CandidateVerdict.OVER_BUDGET
    )
    verdict = np.where(selection.is_taken, CODE[CandidateVerdict.TAKEN], CODE[lost])
    return Columns(
        phase=PHASE,
        subjects=draft.snapshot.bundles.names,
        verdicts=[found.value for found in VERDICTS],
        subject=selection.candidates,
        broker=np.full(len(verdict), selection.source, dtype=np.int64),
        verdict=verdict,
        number=selection.traffic,
    )

"""Phase 1: from reported to adjusted load, and who may be judged.

Decides what each broker's load is once the moves are counted that were decided and that reports
don't show yet: the source minus, the destination plus, fading as newer reports come in (`pending`
says how). Does not touch the averages of bundles. Source: ours; it answers the over-unload of
smoothed scores (true 90/10 goes on unloading after 50/50 is reached) and the plan that is made
before the last one's effect is reported.
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from lbcore.plan.decision import PlanState
from lbcore.plan.draft import Draft
from lbcore.plan.pending import Arrival, EmaShifts, Look, Move, seen_arrival, seen_move
from lbcore.plan.snapshot import Bools, Snapshot
from lbcore.signals.usage import weighted_usage

PHASE = "adjust"


def adjust(draft: Draft) -> Draft:
    """The draft with adjusted loads, usages, and whose observations are fresh."""
    draft = _looked(draft)
    if draft.config.shedding.adjust_load:
        draft = replace(draft, snapshot=_adjusted(draft))
    is_due, state = _fresh(draft)
    signals = draft.config.signals
    usage = weighted_usage(draft.snapshot.brokers.percent, signals)
    draft = replace(draft, usage=usage, is_due=is_due, state=state)
    if not draft.scope.is_traced:
        return draft
    reported = weighted_usage(draft.reported.brokers.percent, signals)
    return draft.show_brokers(PHASE, {"reported_usage": reported, "adjusted_usage": usage})


def shift_averages(state: PlanState, shifts: EmaShifts) -> PlanState:
    """The state with the strategy's smoothed usages moved along with decided (or undone) moves."""
    known = state.shed.ema
    if not shifts or not known:
        return state
    ema = {broker: max(0.0, known[broker] + shifts.get(broker, 0.0)) for broker in known}
    return replace(state, shed=replace(state.shed, ema=ema))


def _looked(draft: Draft) -> Draft:
    """The draft with the moves and arrivals that still count; what was given up is given back."""
    state = draft.state
    if not (state.moves or state.arrivals):
        return draft
    brokers, config = draft.reported.brokers, draft.config.shedding
    look = Look(
        snapshot=draft.reported,
        now_ms=draft.now_ms,
        rows=draft.rows,
        updated_ms=dict(zip(brokers.names, brokers.updated_at_ms.tolist(), strict=True)),
    )
    since_ms = draft.now_ms - config.adjust_max_ms
    moves, shifts = _seen_moves(state, look, since_ms)
    seen = (seen_arrival(look, one) for one in state.arrivals if one.decided_ms >= since_ms)
    landed = {one.source: one.landed_ms for one in moves.values() if one.landed_ms == draft.now_ms}
    transfer = state.transfer
    state = replace(
        state,
        moves={
            name: move
            for name, move in moves.items()
            if min(move.source_reports, move.destination_reports) < config.adjust_reports
        },
        arrivals=tuple(one for one in seen if one.reports < config.adjust_reports),
        transfer=replace(transfer, unloaded_brokers={**transfer.unloaded_brokers, **landed}),
    )
    return replace(draft, state=shift_averages(state, shifts))


def _seen_moves(state: PlanState, look: Look, since_ms: int) -> tuple[dict[str, Move], EmaShifts]:
    """The moves after this look, and what those that did not happen give back to the averages."""
    kept: dict[str, Move] = {}
    shifts: EmaShifts = {}
    for name, move in state.moves.items():
        seen = seen_move(look, name, move) if move.decided_ms >= since_ms else None
        if seen is not None:
            kept[name] = seen
        elif not move.landed_ms and name in look.rows:
            shifts[move.source] = shifts.get(move.source, 0.0) + move.ema_points
            taken = move.ema_points * move.destination_scale
            shifts[move.destination] = shifts.get(move.destination, 0.0) - taken
    return kept, shifts


Line: TypeAlias = tuple[float, ...]


@dataclass(slots=True, kw_only=True)
class _Changes:
    """What is added to brokers' loads, a row a broker and move."""

    at: dict[str, int]
    steps: int
    broker: list[int] = field(default_factory=list)
    percent: list[Line] = field(default_factory=list)
    traffic: list[Line] = field(default_factory=list)
    percent_factor: list[float] = field(default_factory=list)
    traffic_factor: list[float] = field(default_factory=list)

    def add(self, broker: str, reports: int, scale: float, of: Move | Arrival) -> None:
        """Count a move at one of its ends; scale: of its points there, negative at the source."""
        index = self.at.get(broker)
        if index is None or reports >= self.steps:
            return
        left = (self.steps - reports) / self.steps
        self.broker.append(index)
        self.percent.append(of.percent)
        self.traffic.append(of.traffic)
        self.percent_factor.append(left * scale)
        self.traffic_factor.append(left if scale > 0 else -left)


def _adjusted(draft: Draft) -> Snapshot:
    """The reported snapshot with the moves counted; a load never gets negative."""
    brokers, bundles = draft.reported.brokers, draft.reported.bundles
    at = {name: index for index, name in enumerate(brokers.names)}
    changes = _changes(draft, at)
    if not changes.broker:
        return draft.reported
    percent, traffic = brokers.percent.copy(), brokers.traffic.copy()
    points = np.array(changes.percent_factor)[:, np.newaxis] * np.array(changes.percent)
    np.add.at(percent, changes.broker, points)
    volume = np.array(changes.traffic_factor)[:, np.newaxis] * np.array(changes.traffic)
    np.add.at(traffic, changes.broker, volume)
    owner = bundles.owner.copy()
    for name, move in draft.state.moves.items():
        if not move.landed_ms and move.destination in at:
            owner[draft.rows[name]] = at[move.destination]
    percent, traffic = np.maximum(percent, 0.0), np.maximum(traffic, 0.0)
    return replace(
        draft.reported,
        brokers=replace(brokers, percent=percent, traffic=traffic),
        bundles=replace(bundles, owner=owner),
    )


def _changes(draft: Draft, at: dict[str, int]) -> _Changes:
    changes = _Changes(at=at, steps=draft.config.shedding.adjust_reports)
    for move in draft.state.moves.values():
        changes.add(move.source, move.source_reports, -1.0, move)
        changes.add(move.destination, move.destination_reports, move.destination_scale, move)
    for arrival in draft.state.arrivals:
        changes.add(arrival.broker, arrival.reports, 1.0, arrival)
    return changes


def _fresh(draft: Draft) -> tuple[Bools, PlanState]:
    """Whose observations count: a report newer than the one judged last, once a hit period."""
    brokers, now_ms = draft.reported.brokers, draft.now_ms
    if not draft.config.shedding.fresh_hits:
        return np.ones(len(brokers.names), dtype=np.bool_), draft.state
    if not draft.scope.sheds:
        return np.zeros(len(brokers.names), dtype=np.bool_), draft.state
    period_ms, judged = draft.config.pipeline.hit_period_ms, draft.state.judged
    reports, may_be = brokers.updated_at_ms.tolist(), brokers.is_fresh.tolist()
    never = (0, now_ms - period_ms)
    due: list[bool] = []
    kept: dict[str, tuple[int, int]] = {}
    for index, name in enumerate(brokers.names):
        report_ms, at_ms = judged.get(name, never)
        is_newer = may_be[index] and reports[index] > report_ms
        due.append(is_newer and now_ms - at_ms >= period_ms)
        kept[name] = (reports[index], now_ms) if due[-1] else (report_ms, at_ms)
    return np.array(due, dtype=np.bool_), replace(draft.state, judged=kept)

"""Phase 1: from reported to adjusted load, and the brokers that may be judged.

Adds to each broker's load the decided moves that reports don't show yet (`pending`), and does not
change the averages of bundles. Without it, strategies with smoothed scores would shed too much
(from a true 90/10 they go on after 50/50 is reached), and so would a plan that is made before the
last one's effect is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from lbcore.plan.decision import PlanState
from lbcore.plan.draft import Draft
from lbcore.plan.pending import (
    MoveOutcome,
    PendingMove,
    move_outcome,
    remaining_unreported_load,
    unreported_by_broker,
    with_load,
)
from lbcore.plan.registry import observer, shedding_strategy
from lbcore.plan.snapshot import Bools, Floats, Snapshot
from lbcore.signals.usage import weighted_usage


def adjust(draft: Draft) -> Draft:
    """Return the draft with adjusted loads and usages, and fresh observations."""
    draft = _with_adjusted_load(draft)
    has_new_report, state = _fresh(draft)
    signals = draft.config.signals
    usage = weighted_usage(draft.snapshot.brokers.percent, signals)
    return replace(draft, usage=usage, has_new_report=has_new_report, state=state)


def shift_averages(state: PlanState, moves: Iterable[PendingMove], sign: float) -> PlanState:
    """Return the state with the strategy's smoothed usages shifted by moves.

    sign: of the sources' change, -1.0 = decided moves, 1.0 = moves that were given up.
    """
    known, shifts = state.shed.ema, dict[str, float]()
    for move in moves:
        taken = move.ema_points * move.destination_scale
        shifts[move.source] = shifts.get(move.source, 0.0) + sign * move.ema_points
        shifts[move.destination] = shifts.get(move.destination, 0.0) - sign * taken
    if not shifts or not known:
        return state
    ema = {broker: max(0.0, known[broker] + shifts.get(broker, 0.0)) for broker in known}
    return replace(state, shed=replace(state.shed, ema=ema))


def _with_adjusted_load(draft: Draft) -> Draft:
    """Update the unreported load; drop moves that arrived or were given up."""
    state, brokers, config = draft.state, draft.reported.brokers, draft.config.shedding
    if not (state.moves or state.unseen):
        return draft
    since_ms = draft.now_ms - config.adjust_max_ms
    rows = draft.reported.bundles.rows_of(state.moves)
    outcomes = [
        (name, move, move_outcome(draft.reported, rows.get(name), move))
        for name, move in state.moves.items()
    ]
    moves = {
        name: move
        for name, move, outcome in outcomes
        if outcome is MoveOutcome.UNDER_WAY and move.decided_ms >= since_ms  # older ones are gone
    }
    given_up, arrived = (
        [move for _, move, outcome in outcomes if outcome is wanted]
        for wanted in (MoveOutcome.GIVEN_UP, MoveOutcome.ARRIVED)
    )
    at = {name: index for index, name in enumerate(brokers.names)}
    concerned = [*moves.values(), *arrived, *given_up]
    busy = {name for move in concerned for name in (move.source, move.destination)}
    is_busy = np.array([name in busy for name in brokers.names], dtype=np.bool_)
    lag_ms = draft.config.signals.usage_lag_ms
    load = remaining_unreported_load(state.unseen, brokers, is_busy, config.adjust_keep, lag_ms)
    # what has not shown for too long is forgotten
    outdated = (name for name, one in state.unseen.items() if one.busy_ms < since_ms)
    load[[at[name] for name in outdated if name in at]] = 0.0
    for move in given_up:
        if move.source in at:
            load[at[move.source]] += move.load
        if move.destination in at:
            load[at[move.destination]] -= move.at_destination()
    landed = dict.fromkeys((move.source for move in arrived), draft.now_ms)
    transfer = state.transfer
    state = replace(
        state,
        moves=moves,
        unseen=unreported_by_broker(
            load,
            state.unseen,
            brokers,
            dict.fromkeys(np.flatnonzero(is_busy).tolist(), draft.now_ms),
        ),
        transfer=replace(transfer, unloaded_brokers={**transfer.unloaded_brokers, **landed}),
    )
    if not config.adjust_load:
        return replace(draft, state=state)
    snapshot = _adjusted(draft.reported, moves, load, at)
    return replace(draft, snapshot=snapshot, state=shift_averages(state, given_up, 1.0))


def _adjusted(
    reported: Snapshot, moves: Mapping[str, PendingMove], load: Floats, at: Mapping[str, int]
) -> Snapshot:
    """Return the reported snapshot plus unreported load, at least 0.

    at: broker → index.
    """
    owner, rows = reported.bundles.owner, reported.bundles.rows_of(moves)
    if moves:
        owner = owner.copy()
        for name, move in moves.items():
            owner[rows[name]] = at.get(move.destination, owner[rows[name]])
    return replace(
        reported,
        brokers=with_load(reported.brokers, load),
        bundles=replace(reported.bundles, owner=owner),
    )


def _fresh(draft: Draft) -> tuple[Bools, PlanState]:
    """Return the brokers whose observations count for shedding, and the new state.

    The state notes the reports that are judged now. If usages lag, a strategy that observes has
    updated them by traffic, so each recent report counts. A broker that reports only changes
    confirms its load by silence.
    """
    brokers, config = draft.reported.brokers, draft.config
    if not config.shedding.fresh_hits:
        return np.ones(len(brokers.names), dtype=np.bool_), draft.state
    if not draft.scope.sheds and observer(config, draft.scope) is None:
        return np.zeros(len(brokers.names), dtype=np.bool_), draft.state
    if shedding_strategy(config).observe is not None and config.signals.usage_lag_ms:
        oldest_ms = draft.now_ms - config.pipeline.report_age_max_ms
        return np.asarray(brokers.updated_at_ms > oldest_ms, dtype=np.bool_), draft.state
    has_new_report, judged = newly_reported(draft, draft.state.judged)
    return has_new_report, replace(draft.state, judged=judged)


def newly_reported(
    draft: Draft, judged: Mapping[str, tuple[int, int]]
) -> tuple[Bools, dict[str, tuple[int, int]]]:
    """Return the brokers with a report to judge now, and `judged` with these.

    At most one per hit period, in whole cycles. judged: broker → (time of the report judged last,
    time of that judgement).
    """
    brokers, now_ms = draft.reported.brokers, draft.now_ms
    cycle_ms = draft.config.pipeline.decision_interval_ms
    cycles = -(-draft.config.pipeline.hit_period_ms // cycle_ms)
    period_ms = max(0, cycles * cycle_ms - cycle_ms // 2)  # less half a cycle, as cycles jitter
    never = (0, now_ms - period_ms)
    due: list[bool] = []
    kept: dict[str, tuple[int, int]] = {}
    for name, report_ms in zip(brokers.names, brokers.updated_at_ms.tolist(), strict=True):
        last_ms, at_ms = judged.get(name, never)
        due.append(report_ms > last_ms and now_ms - at_ms >= period_ms)
        kept[name] = (report_ms, now_ms) if due[-1] else (last_ms, at_ms)
    return np.array(due, dtype=np.bool_), kept

"""Phase 1: from reported to adjusted load, and the brokers that may be judged.

Adds to each broker's load the decided moves that reports don't show yet (`pending`), and does not
change the averages of bundles. Without it, strategies with smoothed scores would shed too much
(from a true 90/10 they go on after 50/50 is reached), and so would a plan that is made before the
last one's effect is reported.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from lbcore.config.tree import Config
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
    state = draft.state
    if not (state.moves or state.unseen):
        return draft
    moves, given_up, arrived = _moves_by_outcome(draft)
    brokers = draft.reported.brokers
    at = {name: index for index, name in enumerate(brokers.names)}
    config = draft.config.shedding
    is_busy = _busy(at, [*moves.values(), *arrived, *given_up])
    lag_ms = draft.config.signals.usage_lag_ms
    load = remaining_unreported_load(state.unseen, brokers, is_busy, config.adjust_keep, lag_ms)
    load[_outdated(draft)] = 0.0
    for move in given_up:
        _add(load, at.get(move.source), move.load)
        _add(load, at.get(move.destination), tuple(-value for value in move.at_destination()))
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
    draft = replace(draft, state=state)
    if not config.adjust_load:
        return draft
    draft = replace(draft, snapshot=_adjusted(draft, load, at))
    return replace(draft, state=shift_averages(draft.state, given_up, 1.0))


def _moves_by_outcome(
    draft: Draft,
) -> tuple[dict[str, PendingMove], list[PendingMove], list[PendingMove]]:
    """Return the moves under way, those given up, and those that arrived."""
    since_ms = draft.now_ms - draft.config.shedding.adjust_max_ms
    under_way: dict[str, PendingMove] = {}
    given_up: list[PendingMove] = []
    arrived: list[PendingMove] = []
    rows = draft.reported.bundles.rows_of(draft.state.moves)
    for name, move in draft.state.moves.items():
        outcome = move_outcome(draft.reported, rows.get(name), move)
        if outcome is MoveOutcome.GIVEN_UP:
            given_up.append(move)
        elif outcome is MoveOutcome.ARRIVED:
            arrived.append(move)
        elif outcome is MoveOutcome.UNDER_WAY and move.decided_ms >= since_ms:
            under_way[name] = move
    return under_way, given_up, arrived


def _busy(at: dict[str, int], moves: list[PendingMove]) -> Bools:
    is_busy = np.zeros(len(at), dtype=np.bool_)
    for move in moves:
        for broker in (move.source, move.destination):
            if broker in at:
                is_busy[at[broker]] = True
    return is_busy


def _outdated(draft: Draft) -> list[int]:
    """Return the brokers whose unreported load has not shown for too long."""
    since_ms = draft.now_ms - draft.config.shedding.adjust_max_ms
    unseen = draft.state.unseen
    return [
        index
        for index, name in enumerate(draft.reported.brokers.names)
        if name in unseen and unseen[name].busy_ms < since_ms
    ]


def _add(load: Floats, broker: int | None, line: tuple[float, ...]) -> None:
    if broker is not None:
        load[broker] += line


def _adjusted(draft: Draft, load: Floats, at: dict[str, int]) -> Snapshot:
    """Return the reported snapshot plus unreported load, at least 0."""
    brokers, bundles = draft.reported.brokers, draft.reported.bundles
    owner = bundles.owner
    if draft.state.moves:
        owner, rows = owner.copy(), bundles.rows_of(draft.state.moves)
        for name, move in draft.state.moves.items():
            if move.destination in at:
                owner[rows[name]] = at[move.destination]
    return replace(
        draft.reported,
        brokers=with_load(brokers, load),
        bundles=replace(bundles, owner=owner),
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

    At most one per hit period. judged: broker → (time of the report judged last, time of that
    judgement).
    """
    brokers, now_ms = draft.reported.brokers, draft.now_ms
    period_ms = _hit_period_ms(draft.config)
    never = (0, now_ms - period_ms)
    due: list[bool] = []
    kept: dict[str, tuple[int, int]] = {}
    for name, report_ms in zip(brokers.names, brokers.updated_at_ms.tolist(), strict=True):
        last_ms, at_ms = judged.get(name, never)
        due.append(report_ms > last_ms and now_ms - at_ms >= period_ms)
        kept[name] = (report_ms, now_ms) if due[-1] else (last_ms, at_ms)
    return np.array(due, dtype=np.bool_), kept


def _hit_period_ms(config: Config) -> int:
    """Return hit_period_ms in whole cycles, less half of one, as cycles jitter."""
    cycle_ms = config.pipeline.decision_interval_ms
    cycles = -(-config.pipeline.hit_period_ms // cycle_ms)
    return max(0, cycles * cycle_ms - cycle_ms // 2)

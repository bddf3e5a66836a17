"""Phase 1: from reported to adjusted load, and who may be judged.

Decides what each broker's load is once the moves are counted that were decided and that reports
don't show yet: the source minus, the destination plus, fading as newer reports come in. Does not
touch the averages of bundles. Source: ours; it answers the over-unload of smoothed scores (true
90/10 goes on unloading after 50/50 is reached) and the plan made before the last one's effect is
reported.

A move counts wholly until its destination owns the bundle; then the first `adjust_reports` newer
reports of either broker take it out in equal steps on that side. A move that was given up (the
source still owns the bundle, at rest) is taken back, from the smoothed usages too.
"""

from dataclasses import replace
from typing import TypeAlias

import numpy as np

from lbcore.plan.decision import Move, PlanState
from lbcore.plan.draft import Draft
from lbcore.plan.snapshot import BrokerTable, Floats
from lbcore.signals.usage import weighted_usage

PHASE = "adjust"
EmaShifts: TypeAlias = dict[str, float]


def adjust(draft: Draft) -> Draft:
    """The draft with adjusted loads, usages, and whose observations are fresh."""
    draft = _count_moves(draft) if draft.config.shedding.adjust_load else draft
    is_due, state = _fresh(draft)
    brokers = draft.snapshot.brokers
    usage = weighted_usage(brokers.percent, draft.config.signals)
    draft = replace(draft, usage=usage, is_due=is_due, state=state)
    return draft.show_brokers(
        PHASE,
        {
            "reported_usage": weighted_usage(draft.reported.brokers.percent, draft.config.signals),
            "adjusted_usage": usage,
        },
    )


def _count_moves(draft: Draft) -> Draft:
    moves, shifts = _seen_moves(draft)
    brokers, owner = draft.reported.brokers, draft.reported.bundles.owner.copy()
    at = {name: index for index, name in enumerate(brokers.names)}
    row = _rows_of(draft, moves)
    percent, traffic = brokers.percent.copy(), brokers.traffic.copy()
    steps = draft.config.shedding.adjust_reports
    for name, move in moves.items():
        source, destination = at.get(move.source), at.get(move.destination)
        points, volume = np.array(move.percent), np.array(move.traffic)
        if source is not None:
            left = _left(move.source_reports, steps)
            percent[source] -= left * points
            traffic[source] -= left * volume
        if destination is not None:
            left = _left(move.destination_reports, steps)
            percent[destination] += left * move.destination_scale * points
            traffic[destination] += left * volume
            if not move.landed_ms:
                owner[row[name]] = destination
    adjusted = replace(
        draft.snapshot,
        brokers=replace(
            brokers, percent=np.maximum(percent, 0.0), traffic=np.maximum(traffic, 0.0)
        ),
        bundles=replace(draft.reported.bundles, owner=owner),
    )
    state = replace(draft.state, moves=moves)
    return replace(draft, snapshot=adjusted, state=shift_averages(state, shifts))


def _left(reports: int, steps: int) -> float:
    return max(0, steps - reports) / steps


def _rows_of(draft: Draft, moves: dict[str, Move]) -> dict[str, int]:
    if not moves:
        return {}
    names = draft.reported.bundles.names
    return {name: row for row, name in enumerate(names) if name in moves}


def _seen_moves(draft: Draft) -> tuple[dict[str, Move], EmaShifts]:
    """The moves still to be counted, and what those given up give back to the averages."""
    rows = _rows_of(draft, dict(draft.state.moves))
    config, now_ms = draft.config.shedding, draft.now_ms
    updated = dict(
        zip(
            draft.reported.brokers.names, draft.reported.brokers.updated_at_ms.tolist(), strict=True
        )
    )
    kept: dict[str, Move] = {}
    shifts: EmaShifts = {}
    for name, move in draft.state.moves.items():
        if name not in rows or now_ms - move.decided_ms > config.adjust_max_ms:
            continue
        seen = _seen(draft, rows[name], move, updated)
        if seen is None:
            _give_back(move, shifts)
        elif min(seen.source_reports, seen.destination_reports) < config.adjust_reports:
            kept[name] = seen
    return kept, shifts


def _seen(draft: Draft, row: int, move: Move, updated: dict[str, int]) -> Move | None:
    """The move after this cycle's look at it; None when it was given up."""
    names, bundles = draft.reported.brokers.names, draft.reported.bundles
    owner = int(bundles.owner[row])
    holder = names[owner] if owner >= 0 else ""
    if not move.landed_ms:
        if holder == move.source and bundles.can_move[row]:
            return None
        if holder != move.destination or not bundles.can_move[row]:
            return move
        now_ms = draft.now_ms
        move = replace(move, landed_ms=now_ms, source_seen_ms=now_ms, destination_seen_ms=now_ms)
    return _with_reports(move, updated.get(move.source, 0), updated.get(move.destination, 0))


def _with_reports(move: Move, source_ms: int, destination_ms: int) -> Move:
    is_source_new = source_ms > move.source_seen_ms
    is_destination_new = destination_ms > move.destination_seen_ms
    return replace(
        move,
        source_seen_ms=max(move.source_seen_ms, source_ms),
        destination_seen_ms=max(move.destination_seen_ms, destination_ms),
        source_reports=move.source_reports + is_source_new,
        destination_reports=move.destination_reports + is_destination_new,
    )


def _give_back(move: Move, shifts: EmaShifts) -> None:
    given = move.ema_points
    shifts[move.source] = shifts.get(move.source, 0.0) + given
    taken = given * move.destination_scale
    shifts[move.destination] = shifts.get(move.destination, 0.0) - taken


def shift_averages(state: PlanState, shifts: EmaShifts) -> PlanState:
    """The state with the strategy's smoothed usages moved along with decided (or undone) moves."""
    if not shifts or not state.shed.ema:
        return state
    ema = {
        broker: max(0.0, value + shifts.get(broker, 0.0))
        for broker, value in state.shed.ema.items()
    }
    return replace(state, shed=replace(state.shed, ema=ema))


def _fresh(draft: Draft) -> tuple["np.ndarray[tuple[int], np.dtype[np.bool_]]", PlanState]:
    """Whose observations count: a report newer than the one judged last, once a hit period."""
    brokers = draft.reported.brokers
    if not draft.config.shedding.fresh_hits:
        return np.ones(len(brokers.names), dtype=np.bool_), draft.state
    if not draft.scope.sheds:
        return np.zeros(len(brokers.names), dtype=np.bool_), draft.state
    period_ms, now_ms = draft.config.pipeline.hit_period_ms, draft.now_ms
    judged = draft.state.judged
    reports = brokers.updated_at_ms.tolist()
    fresh = brokers.is_fresh.tolist()
    never = (0, now_ms - period_ms)
    due: list[bool] = []
    kept: dict[str, tuple[int, int]] = {}
    for index, name in enumerate(brokers.names):
        report_ms, at_ms = judged.get(name, never)
        is_due = fresh[index] and reports[index] > report_ms and now_ms - at_ms >= period_ms
        due.append(is_due)
        kept[name] = (reports[index], now_ms) if is_due else (report_ms, at_ms)
    return np.array(due, dtype=np.bool_), replace(draft.state, judged=kept)


def move_of(draft: Draft, bundle: int, source: int, destination: int) -> Move:
    """The move of a bundle as it is to be remembered.

    Its share of the source's load is its share of the source's bytes, or of the messages where
    no bytes flow.
    """
    brokers: BrokerTable = draft.snapshot.brokers
    volume = draft.snapshot.bundles.short[bundle]
    share = _share(volume, brokers.traffic[source])
    scale = float(brokers.capacity[source] / brokers.capacity[destination])
    return Move(
        source=brokers.names[source],
        destination=brokers.names[destination],
        decided_ms=draft.now_ms,
        percent=tuple((brokers.percent[source] * share).tolist()),
        traffic=tuple(volume.tolist()),
        destination_scale=scale,
        ema_points=float(draft.usage[source]) * share,
    )


def _share(bundle: Floats, broker: Floats) -> float:
    for first, second in ((2, 3), (0, 1)):
        total = float(broker[first] + broker[second])
        if total > 0:
            return min(1.0, float(bundle[first] + bundle[second]) / total)
    return 0.0

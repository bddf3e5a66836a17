"""Planning state that the tables can restore, for rebuilds and dry runs.

Rows of `decisions` become grace periods of bundles and roles of brokers (when each last gave or
took a shed bundle); the table `planning_memory` has hits and averages.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BalancerState, BatchContext
from lbcore.balancer.brokers import usable_brokers
from lbcore.balancer.ledger import NOBODY
from lbcore.balancer.placement import make_snapshot, next_on_grid_ms
from lbcore.config.placement import LEAST_LONG_TERM_MESSAGE_RATE
from lbcore.config.tree import Config
from lbcore.plan.decision import PlanState
from lbcore.plan.pending import (
    COLUMNS,
    UnreportedLoad,
    move_of,
    placed_load,
    remaining_unreported_load,
    reported_load,
    with_load,
)
from lbcore.plan.registry import placement_name, shedding_name, shedding_strategy
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Bools, BrokerTable, Floats, Snapshot
from lbcore.plan.strategy import SCORE_WEIGHTS
from lbcore.signals.usage import weighted_usage
from lbcore.validation.check import in_force

Row = Mapping[str, Any]
REMEMBERED_MS = 7_200_000
"""Age limit of the decisions from which planning state is restored."""
_BY_LONG_TERM = frozenset({LEAST_LONG_TERM_MESSAGE_RATE})
_MADE = frozenset({"transfer", "unload", "split"})
_NO_CYCLE = frozenset({"NotThisCycle", "unsplittable"})
_REQUESTED = frozenset({"Draining", "Pinned"})


def with_recalled_plan(
    state: BalancerState, decisions: Iterable[Row], config: Config, now_ms: int
) -> BalancerState:
    """Return a rebuilt state with grace periods and roles at now_ms.

    They follow the settings in force. decisions: rows of its cluster since `REMEMBERED_MS` before,
    in any order. O(rows log rows).
    """
    config, _ = in_force(config, state.settings, state.rules.set_aside)
    return replace(state, plan=recalled_plan(state.plan, decisions, config, now_ms))


def recalled_plan(
    plan: PlanState, decisions: Iterable[Row], config: Config, now_ms: int
) -> PlanState:
    """Return the plan with grace periods and roles of rows of decisions, in any order.

    plan: as a rebuild restores it. O(rows log rows).
    """
    moved = [row for row in sorted(decisions, key=lambda row: int(row["at_ms"])) if is_planned(row)]
    shedding = config.shedding
    grace_ms, role_ms = now_ms - shedding.grace_period_ms, now_ms - shedding.role_cool_down_ms
    shed = [row for row in moved if row["reason"] not in _REQUESTED and row["at_ms"] > role_ms]
    return replace(
        plan,
        unloaded_ms=_last_ms("bundle", (row for row in moved if row["at_ms"] >= grace_ms)),
        gave_ms=_last_ms("source", shed),
        took_ms=_last_ms("destination", (row for row in shed if row["destination"])),
    )


def next_cycle_ms(decisions: Iterable[Row], now_ms: int, interval_ms: int, offset_ms: int) -> int:
    """Return the time of the next cycle that sheds, by the last one known; else now.

    offset_ms: as in `placement.cycle_offset_ms`.
    """
    last_ms = max((int(row["at_ms"]) for row in decisions if _is_of_cycle(row)), default=0)
    return max(now_ms, next_on_grid_ms(min(last_ms, now_ms), interval_ms, offset_ms))


def unknowns(config: Config, plan: PlanState, load_age_ms: int) -> tuple[str, ...]:
    """Return what a dry run cannot know, in sentences.

    load_age_ms: age of the newest load, -1 = none.
    """
    shedding, lag_ms = config.shedding, config.signals.usage_lag_ms
    age = f"is {load_age_ms // 1_000} s old" if load_age_ms >= 0 else "is not known"
    longest_ms = max(shedding.grace_period_ms, shedding.role_cool_down_ms)
    rests = ", and a grace that ends in between may hold or not" if longest_ms else ""
    sentences = (
        (
            plan.strategy != shedding_name(shedding.strategy),
            f"hits and averages begin at 0, {plan.strategy or 'those of no strategy'} has some",
        ),
        (True, f"load {age}: what was reported since, and moves that reports don't show yet"),
        (True, f"which report was judged last: a hit may count a report earlier or later{rests}"),
        (True, "topics of bundles: splits are cut as if nobody had reported them"),
        (
            lag_ms > 0,
            f"changes of the last {lag_ms // 1_000} s, by which usages lag, but for planned moves",
        ),
        (
            {*SCORE_WEIGHTS}.issubset(shedding_strategy(config).settings),
            "how smoothed scores go on: others may be paired",
        ),
        (
            placement_name(config.placement.strategy) in _BY_LONG_TERM,
            "averages over a long time: bundles may go to another broker",
        ),
        (longest_ms > REMEMBERED_MS, "graces of bundles that moved more than two hours ago"),
    )
    return tuple(words for applies, words in sentences if applies)


def _is_of_cycle(row: Row) -> bool:
    """True if a cycle that sheds wrote the row.

    Each such cycle writes a move, a split or a skip.
    """
    if row["kind"] == "skip":
        return row["reason"] not in _NO_CYCLE
    is_own = row["kind"] in _MADE and row["reason"] not in _REQUESTED
    return is_own and "command_id" not in json.loads(row["inputs"])


def is_planned(row: Row) -> bool:
    """True if a cycle moved a bundle, not a command."""
    if row["kind"] not in _MOVES or not row["bundle"]:
        return False
    return row["reason"] in _REQUESTED or "command_id" not in json.loads(row["inputs"])


def _last_ms(column: str, rows: Iterable[Row]) -> dict[str, int]:
    """Return the time of the last row of each name in the column, in name order."""
    return dict(sorted({str(row[column]): int(row["at_ms"]) for row in rows}.items()))


_MOVES = frozenset({"transfer", "unload", "drain"})
_REPORTS = 2
"""Age limit of moves that reports may not show yet, in longest report intervals."""


def add_unreported_moves(
    work: BatchContext, load: Iterable[Mapping[str, Any]], decisions: Iterable[Mapping[str, Any]]
) -> int:
    """Add moves that reports don't show to live brokers' loads; return their number.

    A report is older than a move when what the broker's bundles carry has changed by more than it
    shows. Worked: a broker reported 100 msg/s and owns bundles of 60 now; one of 40 has just left.
    60 is 40 below 100, so the report is from before the move, and the broker is taken to carry 60.

    Remembered unreported load (`plan.pending`) counts in full until the broker reports after its
    last move; planning itself then discounts it, report by report. Does nothing where planning
    counts no moves (under `shedding.is_pulsar_exact`). O(bundles). load: the newest row of each
    broker; decisions: rows in any order.
    """
    if not work.config.shedding.adjust_load:
        return 0
    snapshot, _ = make_snapshot(work, usable_brokers(work))
    # a report since the last move arrived, and the lag of usages passed, should show that move
    lag_ms = work.config.signals.usage_lag_ms
    discounted = {
        name: one for name, one in work.plan.unseen.items() if one.report_ms > one.busy_ms + lag_ms
    }
    decided, is_decided = _with_remembered_load(work, snapshot, load, discounted)
    known = replace(snapshot, brokers=decided)
    moved = _recent_moves(work, known, decisions, is_decided)
    is_late = _are_late(known, moved)
    late = (
        replace(
            one,
            gives=one.gives and bool(is_late[one.source]),
            gets=one.gets and bool(is_late[one.destination]),
        )
        for one in moved
    )
    shown = with_load(decided, moved_load(work, known, late))
    for at in np.flatnonzero(is_late | is_decided).tolist():
        name = snapshot.brokers.names[at]
        work.brokers[name] = replace(
            work.brokers[name],
            percent=tuple(shown.percent[at].tolist()),
            traffic=tuple(shown.traffic[at].tolist()),
            weighted_max_ema=float(shown.weighted_max_ema[at]),
            throughput_ema=float(shown.throughput_ema[at]),
        )
    work.plan = replace(work.plan, unseen=discounted)
    is_late |= is_decided & (decided.traffic != snapshot.brokers.traffic).any(axis=1)
    return sum(bool(is_late[one.destination]) for one in moved)


def _with_remembered_load(
    work: BatchContext,
    snapshot: Snapshot,
    load: Iterable[Mapping[str, Any]],
    discounted: Mapping[str, UnreportedLoad],
) -> tuple[BrokerTable, Bools]:
    """Return brokers with remembered unreported load added, and which, bool[n].

    Where planning remembers a newer report than the table has, that report counts.
    """
    brokers, unseen = snapshot.brokers, work.plan.unseen
    reported_ms = {str(row["broker"]): int(row["reported_ms"] or row["at_ms"]) for row in load}
    updated_ms = np.array([reported_ms.get(name, 0) for name in brokers.names], dtype=np.int64)
    change = np.zeros((len(brokers.names), COLUMNS))
    vectors = reported_load(brokers)
    for at, name in enumerate(brokers.names):
        if name in unseen and unseen[name].report_ms > updated_ms[at]:
            change[at] = np.array(unseen[name].shown) - vectors[at]
    newest = replace(with_load(brokers, change), updated_at_ms=updated_ms)
    everyone: Bools = np.ones(len(brokers.names), dtype=np.bool_)
    counted = {name: one for name, one in unseen.items() if name not in discounted}
    added = remaining_unreported_load(counted, newest, everyone, work.config.shedding.adjust_keep)
    return with_load(newest, added), np.array([name in unseen for name in brokers.names], np.bool_)


@dataclass(frozen=True, slots=True, kw_only=True)
class LandedMove:
    """A change of a bundle's owner, by indices. source: NOBODY = not live.

    gives, gets: whether it is missing in the load of its source, and of its destination.
    """

    row: int
    source: int
    destination: int
    gives: bool = True
    gets: bool = True


def _recent_moves(
    work: BatchContext,
    snapshot: Snapshot,
    decisions: Iterable[Mapping[str, Any]],
    is_decided: Bools,
) -> list[LandedMove]:
    """Return the moves that reports may not show.

    Planning remembers what they don't show of a cycle's move, for the brokers of is_decided.
    """
    since_ms = work.now_ms - _REPORTS * work.config.signals.report_max_interval_ms
    last = {
        str(row["bundle"]): row
        for row in sorted(decisions, key=lambda row: int(row["at_ms"]))
        if row["kind"] in _MOVES and row["bundle"] and row["at_ms"] >= since_ms
    }
    index = {name: at for at, name in enumerate(snapshot.brokers.names)}
    owners = snapshot.bundles.owner.tolist()
    found = []
    for at, (bundle, owner) in enumerate(zip(snapshot.bundles.names, owners, strict=True)):
        if bundle not in last or owner == NOBODY:
            continue
        source = index.get(str(last[bundle]["source"]), NOBODY)
        if source == owner:
            continue
        planned = is_planned(last[bundle])
        found.append(
            LandedMove(
                row=at,
                source=source,
                destination=owner,
                gives=source != NOBODY and not (planned and bool(is_decided[source])),
                gets=not (planned and bool(is_decided[owner])),
            )
        )
    return found


def _are_late(snapshot: Snapshot, moved: Iterable[LandedMove]) -> Bools:
    """Return True per broker if its load is nearer to that before the moves, bool[n]."""
    count = len(snapshot.brokers.names)
    rates = snapshot.bundles.short[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    owned = np.bincount(snapshot.bundles.owner + 1, weights=rates, minlength=count + 1)[1:]
    lacking = owned - snapshot.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    net = np.zeros(count)
    for move in moved:
        if move.gets:
            net[move.destination] += rates[move.row]
        if move.gives:
            net[move.source] -= rates[move.row]
    found: Bools = np.abs(lacking - net) < np.abs(lacking)
    return found


def moved_load(work: BatchContext, snapshot: Snapshot, moves: Iterable[LandedMove]) -> Floats:
    """Return the load that moves add to each broker's row, float64[n, COLUMNS]."""
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    added = np.zeros((len(snapshot.brokers.names), COLUMNS))
    gained: list[tuple[int, int]] = []
    for one in moves:
        if one.source == NOBODY:
            gained += [(one.row, one.destination)] if one.gets else []
            continue
        step = (one.row, one.source, one.destination)
        move = move_of(snapshot, usage, step, work.now_ms)
        if one.gives:
            added[one.source] -= move.load
        if one.gets:
            added[one.destination] += move.at_destination()
    pairs = np.array(gained, dtype=np.int64).reshape(-1, 2)
    return added + placed_load(snapshot, pairs[:, 0], pairs[:, 1])

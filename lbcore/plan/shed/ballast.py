"""Ballast's own strategy: everybody to the fair level, the hottest broker with the coldest first.

Decides which bundles leave which broker for which one, and which are to be divided because no move
can place them. One of the strategies of the plan's shed phase; placement by `ballast` goes by the
same load. Source: ours; the pairing is AvgShedder's, the budget Slicer's.

Promises, which `tests/property/test_ballast.py` holds it to: a receiver never ends above its
source; a round moves at most the budget and one bundle; a cluster within the tolerance is left
alone; with unchanging load the moves come to an end.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from functools import reduce
from heapq import heapify, heappop, heappush
from operator import add

import numpy as np

from lbcore.config.fair_level import FairLevelConfig
from lbcore.plan.readings import Readings, readings_of
from lbcore.plan.shed.ballast_level import fair_level
from lbcore.plan.shed.common import (
    Selection,
    Shed,
    ShedState,
    ShedView,
    TooBig,
    sequential_sum,
)
from lbcore.plan.snapshot import Bools, Floats, Ints

_PERCENT = 100.0
_NEAR = 0.25
"""So near to the level, in tolerances, is near enough for a broker that gives or is given to."""
_EQUAL = 1e-9
"""Loads are called equal within this part of them: they are sums in different orders."""


def shed_ballast(view: ShedView, state: ShedState, config: FairLevelConfig) -> Shed:
    """The bundles that leave each hot broker, coldest receiver first, until the level is reached.

    A broker that is a tolerance above or below the level hits; when its counter is full it gives,
    or others give to it. Worked: traffic 90 and 10, level 50, tolerance 5: forty points are to
    move, fifteen in each round under a budget of 15 %, and none when 1.25 are left.
    O(bundles + brokers log brokers + bundles of the giving brokers).
    """
    readings = readings_of(view.snapshot, view.usage)
    level = fair_level(view, readings)
    tolerance = max(config.tolerance_points, level * config.tolerance_percent / _PERCENT)
    away = _deviation(readings, level)
    low, high = _count(view, state, away, (tolerance, config))
    cycle = _Round(
        view=view,
        config=config,
        readings=readings,
        level=level,
        tolerance=tolerance,
        is_full=(np.abs(low) >= config.low_hits) | (np.abs(high) >= config.high_hits),
        hits=(low, high),
        hot=readings.hot.tolist(),
        cold=readings.cold.tolist(),
        ceiling=[math.inf] * len(readings.cold),
        size=readings.capacity.tolist(),
        left=config.churn_budget * sequential_sum(readings.traffic * readings.capacity),
    )
    if cycle.is_full.any():
        cycle.run()
        low, high = cycle.hits_left()
    return Shed(
        selections=tuple(cycle.selections),
        state=replace(state, hits_low=_named(view, low), hits_high=_named(view, high)),
        reason="" if cycle.selections else _why_none(cycle),
        columns={"usage": readings.usage, "traffic": readings.traffic, "deviation": away},
        numbers={"level": level, "tolerance": tolerance},
        verdicts=cycle.verdicts,
        too_big=_too_big(cycle),
    )


def _too_big(cycle: "_Round") -> TooBig:
    """What is to be divided, and into how many parts at least; what moves is not."""
    moving = {row for one in cycle.selections for row in one.rows.tolist()}
    rows = np.array(sorted(cycle.too_big - moving), dtype=np.int64)
    limit = cycle.config.split_share * cycle.level
    return TooBig(
        rows=rows,
        excess=cycle.readings.bundle[rows] / max(limit, 1e-9),
        by_rate=cycle.readings.by_rate,
    )


def _deviation(readings: Readings, level: float) -> Floats:
    """Points above the level (positive), or below it, as far as both readings agree; float64[n]."""
    above, below = readings.hot - level, level - readings.cold
    away: Floats = np.where(above > 0, above, np.where(below > 0, -below, 0.0))
    return away


def _count(
    view: ShedView, state: ShedState, away: Floats, limits: tuple[float, FairLevelConfig]
) -> tuple[Ints, Ints]:
    """Hits in a row of each broker, negative below the level: int64[n] low, and high.

    One side's hits don't count for the other. Within the threshold none are left, fresh or not;
    who was full and is not done (the budget ended before) goes on until it is near the level.
    """
    names, (tolerance, config) = view.snapshot.brokers.names, limits
    side = np.sign(away).astype(np.int64)
    found = []
    for before, threshold, needed in (
        (state.hits_low, tolerance, config.low_hits),
        (state.hits_high, config.high_points, config.high_hits),
    ):
        kept = np.array([before.get(name, 0) for name in names], dtype=np.int64)
        kept = np.where(kept * side > 0, kept, 0)
        wanted = np.where(np.abs(kept) >= needed, tolerance * _NEAR, threshold)
        found.append(np.where(np.abs(away) >= wanted, kept + side * view.is_due, 0))
    return found[0], found[1]


def _named(view: ShedView, hits: Ints) -> dict[str, int]:
    names = view.snapshot.brokers.names
    return {names[at]: int(hits[at]) for at in np.flatnonzero(hits).tolist()}


def _why_none(cycle: "_Round") -> str:
    if not cycle.hits[0].any():
        return "NoOverloadedBroker"
    return "NoBundles" if cycle.is_full.any() else "HitCount"


@dataclass(slots=True, kw_only=True)
class _Round:
    """One round.

    hot, cold: of each broker, as they will be. ceiling: a receiver rises no higher: the lowest of
    those that have given to it. size: capacities. Lists: single numbers are read faster than from
    arrays. left: of the budget, in points of capacity 1.
    """

    view: ShedView
    config: FairLevelConfig
    readings: Readings
    level: float
    tolerance: float
    is_full: Bools
    hits: tuple[Ints, Ints]
    hot: list[float]
    cold: list[float]
    ceiling: list[float]
    size: list[float]
    left: float
    selections: list[Selection] = field(default_factory=list)
    verdicts: dict[int, str] = field(default_factory=dict)
    too_big: set[int] = field(default_factory=set)
    takers: list[tuple[float, int]] = field(default_factory=list)

    def hits_left(self) -> tuple[Ints, Ints]:
        """The hits after the round: who acts starts anew, unless the budget ended before it did."""
        if self.left <= 0:
            return self.hits
        away = np.maximum(np.array(self.hot) - self.level, self.level - np.array(self.cold))
        is_done = self.is_full & (away < self.tolerance)
        return np.where(is_done, 0, self.hits[0]), np.where(is_done, 0, self.hits[1])

    def run(self) -> None:
        """Each giver in turn, the hottest first, until everyone is at the level or budget ends."""
        self.takers = [(cold, at) for at, cold in enumerate(self.cold) if cold < self.level]
        heapify(self.takers)
        heat = self.hot.copy()
        for giver in np.argsort(-np.array(heat), kind="stable").tolist():
            if heat[giver] <= self.level:
                return
            if self.left <= 0:
                self.verdicts[giver] = "churn_budget"
                return
            if self.is_full[giver] or (self.takers and self.is_full[self.takers[0][1]]):
                self._give(giver, _Shelf.of(self, giver))

    def _give(self, giver: int, shelf: "_Shelf") -> None:
        """Take from one broker for the coldest ones, each in turn."""
        slack = self._points(giver, self.tolerance * _NEAR)
        takers: set[int] = set()
        excess = self._points(giver, self.hot[giver] - self.level)
        while self.takers and self.left > 0 and excess > 0:
            if excess <= slack and not self._is_waiting(self.takers[0][1]):
                break
            _, taker = heappop(self.takers)
            deficit = self._points(taker, self._top(taker) - self.cold[taker])
            taken = shelf.take(min(excess, deficit), slack, self.left)
            taken = taken or shelf.take_one(self._reach(giver, taker, excess, takers))
            if taken:
                self._move(giver, taker, shelf, taken)
                takers.add(taker)
            if not taken or self._top(taker) - self.cold[taker] > self.tolerance * _NEAR:
                heappush(self.takers, (self.cold[taker], taker))
            excess = self._points(giver, self.hot[giver] - self.level)
            if not taken:
                break
        for taker in takers:
            self.ceiling[taker] = min(self.ceiling[taker], self.hot[giver])
        if self.is_full[giver] and excess * _NEAR >= slack and self.left > 0:
            self.verdicts.setdefault(giver, "no_fitting_bundle")
            self.too_big.update(shelf.too_big(self._points(giver, self._part)))

    def _is_waiting(self, taker: int) -> bool:
        """Whether others are to make room for a receiver although they are near the level."""
        return bool(self.is_full[taker] and self._top(taker) - self.cold[taker] > self.tolerance)

    def _top(self, taker: int) -> float:
        """How high a receiver is filled."""
        return min(self.level, self.ceiling[taker])

    def _reach(self, giver: int, taker: int, excess: float, takers: set[int]) -> float:
        """How large one bundle may be where none fits: it must leave both nearer to the level.

        And never more than half of the difference: no receiver ends above a source of its own.
        """
        gap = self.hot[giver] - self.cold[taker]
        half = gap / (1.0 / self.size[giver] + 1.0 / self.size[taker])
        below = self._points(taker, self.level - self.cold[taker]) if self.is_full[taker] else 0.0
        room = self._points(taker, self.ceiling[taker] - self.cold[taker])
        lowest = max((self.cold[one] for one in takers), default=0.0)
        spare = self._points(giver, self.hot[giver] - lowest)
        return min(half, max(2.0 * excess, below), room, spare)

    def _move(self, giver: int, taker: int, shelf: "_Shelf", taken: list[int]) -> None:
        moved = reduce(add, (shelf.loads[at] for at in taken))
        is_taken = np.zeros(len(shelf.rows), dtype=np.bool_)
        is_taken[taken] = True
        actor = giver if self.is_full[giver] else taker
        self.selections.append(
            Selection(
                source=giver,
                destination=taker,
                considered=shelf.rows,
                traffic=shelf.points,
                is_taken=is_taken,
                reason="Overloaded" if actor == giver else "Underloaded",
                numbers=self._numbers(giver, taker, actor),
            )
        )
        self.left -= moved
        self.hot[giver] -= moved / self.size[giver]
        self.cold[taker] += moved / self.size[taker]

    def _numbers(self, giver: int, taker: int, actor: int) -> dict[str, float]:
        low, high = self.hits
        return {
            "score": self.hot[giver],
            "score_of_destination": self.cold[taker],
            "by_rate": float(self.readings.by_rate),
            "hits_low": float(abs(low[actor])),
            "hits_high": float(abs(high[actor])),
            "hits_low_needed": float(self.config.low_hits),
            "hits_high_needed": float(self.config.high_hits),
            "threshold_low": self.tolerance,
            "threshold_high": self.config.high_points,
        }

    @property
    def _part(self) -> float:
        return self.config.split_share * self.level

    def _points(self, broker: int, own: float) -> float:
        """Points of a broker in points of capacity 1."""
        return own * self.size[broker]


@dataclass(slots=True, kw_only=True)
class _Shelf:
    """The bundles that one broker can give, k of them, most load first.

    points: float64[k], of capacity 1; loads: the same as a list. left: positions of those not taken
    yet; falling: their loads, negated, ascending.
    """

    rows: Ints
    points: Floats
    loads: list[float]
    left: list[int]
    falling: list[float]

    @staticmethod
    def of(cycle: _Round, broker: int) -> "_Shelf":
        """Those that may move and carry something.

        One above the fair share of the largest broker is divided first, if it has several topics.
        """
        bundles, load = cycle.view.snapshot.bundles, cycle.readings.bundle
        rows = cycle.view.owned.of(broker)
        rows = rows[bundles.can_move[rows] & (load[rows] > 0)]
        rows = rows[np.argsort(-load[rows], kind="stable")]
        points = load[rows]
        share = cycle.level * float(cycle.readings.capacity.max())
        is_whole = (points > share) & (bundles.topics[rows] > 1)
        if cycle.is_full[broker]:
            cycle.too_big.update(rows[is_whole].tolist())
        left = np.flatnonzero(~is_whole)
        return _Shelf(
            rows=rows,
            points=points,
            loads=points.tolist(),
            left=left.tolist(),
            falling=(-points[left]).tolist(),
        )

    def take(self, goal: float, slack: float, budget: float) -> list[int]:
        """Positions of the largest bundles that fit into the goal, until only the slack is left.

        budget: points; one bundle may exceed it. O(taken x k), in fast steps.
        """
        at, taken = 0, []
        while goal > slack and budget > 0:
            at = bisect_left(self.falling, -goal, at)
            if at >= len(self.falling):
                break
            load = self.falling.pop(at)
            taken.append(self.left.pop(at))
            goal += load
            budget += load
        return taken

    def take_one(self, most: float) -> list[int]:
        """The position of the smallest bundle, if it is not larger than that."""
        if not self.left or -self.falling[-1] > most * (1.0 + _EQUAL):
            return []
        self.falling.pop()
        return [self.left.pop()]

    def too_big(self, limit: float) -> list[int]:
        """The row of the largest bundle, if it alone makes more than the limit."""
        if not self.left or -self.falling[0] <= limit:
            return []
        return [int(self.rows[self.left[0]])]

"""The search of `ballast`: moves, and swaps where no move helps, until the budget of steps ends.

Decides which bundle goes where, given what a layout costs (`ballast_objective`). Each step takes
the broker that costs most and makes the one change of its bundles that lowers the objective most;
a broker that nothing helps is left. It can be stopped after any step: every one makes it better.
Deterministic: no clock and no chance; ties go to the earlier broker and bundle. Source: ours, after
Rebalancer's local search (Meta) and CockroachDB's allocator.
"""

from dataclasses import dataclass, field

import numpy as np

from lbcore.plan.shed.ballast_objective import (
    OVER,
    UNDER,
    SearchProblem,
    broker_costs,
    lower_bound,
    objective,
)
from lbcore.plan.snapshot import Bools, Floats, Ints

EVERYBODY_MAX = 40
"""So many receivers are all looked at; of more, the TAKERS that have most room."""
TAKERS, SWAPPERS = 8, 4
SWAP_STEPS = 4
"""What looking for a swap costs, in steps."""
LEAST_GAIN = 1e-9
RETURN_PRICE = 8.0
"""Times its price that a bundle costs which goes back to a broker that it left lately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A better layout.

    moves: (bundle row, destination), in the order found. before, after, bound: objectives. steps:
    taken. stopped: "done" = nothing helps any more, "steps" or "budget" = one of them ended.
    crowded: rows that move so that a topic's partitions are on more brokers. beyond: partitions
    that brokers have beyond their part of such topics, before and after; None = there is none.
    too_crowded: rows with more partitions of such a topic than a broker should have.
    """

    moves: tuple[tuple[int, int], ...]
    load: Floats
    before: float
    after: float
    bound: float
    steps: int
    stopped: str
    crowded: frozenset[int] = frozenset()
    too_crowded: tuple[int, ...] = ()
    beyond: tuple[int, int] | None = None


@dataclass(slots=True, kw_only=True)
class _Search:
    """The layout in the making. rows: of each broker that was looked at, the bundles it may give.

    cost: float64[n]. held: as `Crowding.held`. owner: of the bundles that have moved. left: points
    that may still move.
    """

    problem: SearchProblem
    load: Floats
    cost: Floats
    held: Ints
    steps_left: int
    left: float
    is_done: Bools
    rows: dict[int, Ints] = field(default_factory=dict)
    owner: dict[int, int] = field(default_factory=dict)
    crowded: set[int] = field(default_factory=set)
    too_crowded: set[int] = field(default_factory=set)

    def run(self) -> str:
        """Load first, then crowds; why it ended."""
        ended = self._even_out()
        return self._thin_out() if ended == "done" else ended

    def _thin_out(self) -> str:
        """Move partitions from brokers that have too many of a topic, the most crowded first."""
        crowding = self.problem.crowding
        if crowding is None:
            return "done"
        for group in crowding.acting:
            is_open = crowding.may_give.copy()
            while self.steps_left > 0 and self.left > 0:
                beyond = np.where(is_open, self.held[group] - crowding.part[group], 0)
                giver = int(np.argmax(beyond))
                if beyond[giver] <= 0:
                    break
                self.steps_left -= 1
                rows = self._bundles(giver)
                at, groups, counts = crowding.members(rows)
                row = self._move(giver, rows[at[groups == group]])
                is_open[giver] = row >= 0
                if row >= 0:
                    self.crowded.add(row)
                is_too_many = (groups == group) & (counts > crowding.part[group, giver])
                self.too_crowded.update(rows[at[is_too_many]].tolist())
        if self.left <= 0:
            return "budget"
        return "done" if self.steps_left > 0 else "steps"

    def _even_out(self) -> str:
        """Step by step, until no broker's load is worth a move."""
        while self.steps_left > 0:
            giver = self._next()
            if giver < 0:
                return "done"
            if self.left <= 0:
                return "budget"
            self.steps_left -= 1
            if self._move(giver, self._bundles(giver)) < 0 and not self._swap(giver):
                self.is_done[giver] = True
        return "steps"

    def _next(self) -> int:
        """The giver that is the highest above the level; -1: none is worth a look.

        What a part of a bundle gains is at most what its first part does, on both sides.
        """
        problem = self.problem
        heat = self.load.max(axis=1)
        above = np.maximum(heat / problem.level - 1.0, 0.0)
        below = np.where(problem.may_take, 1.0 - self.load[:, 0] / problem.level, 0.0)
        worth = 2.0 * OVER * above + 2.0 * UNDER * max(float(below.max(initial=0.0)), 0.0)
        is_open = problem.may_give & ~self.is_done & (worth > problem.min_price)
        if problem.enough is not None:
            is_open &= heat > problem.enough
        heat = np.where(is_open, heat, -1.0)
        giver = int(np.argmax(heat))
        return giver if heat[giver] >= 0.0 else -1

    def _takers(self, giver: int, most: int) -> Ints:
        """Who may take, the emptiest first."""
        room = self.load.max(axis=1)
        room = np.where(self.problem.may_take, room, np.inf)
        room[giver] = np.inf
        count = int(np.count_nonzero(np.isfinite(room)))
        if len(room) <= EVERYBODY_MAX:
            return np.argsort(room, kind="stable")[:count]
        kept = np.zeros(min(most, count), dtype=np.int64)
        for at in range(len(kept)):
            kept[at] = np.argmin(room)
            room[kept[at]] = np.inf
        return kept

    def _move(self, giver: int, rows: Ints) -> int:
        """Make the best move of one of these bundles, and say which; -1: none helps."""
        takers = self._takers(giver, TAKERS)
        if not len(rows) or not len(takers):
            return _NO_ROW
        problem, weight = self.problem, self.problem.weight[rows]
        away = self._cost(giver, self.load[giver] - weight / problem.size[giver])
        here = self.load[takers][:, np.newaxis] + (
            weight[np.newaxis] / problem.size[takers][:, np.newaxis, np.newaxis]
        )
        there = broker_costs(here, problem.size[takers][:, np.newaxis], problem.level)
        gain = (self.cost[giver] - away)[np.newaxis] + (self.cost[takers][:, np.newaxis] - there)
        gain = gain - self._prices(giver, rows, takers)
        best = int(np.argmax(gain))
        taker, at = divmod(best, len(rows))
        if gain[taker, at] <= LEAST_GAIN:
            return _NO_ROW
        self._carry(int(rows[at]), giver, int(takers[taker]))
        return int(rows[at])

    def _swap(self, giver: int) -> bool:
        """Make the best exchange of two bundles; False: none helps.

        The lighter one fits into the budget: no change exceeds it by more than one bundle.
        """
        self.steps_left -= SWAP_STEPS
        rows, problem = self._bundles(giver), self.problem
        heaviest = problem.weight[rows].max(axis=1)
        best = (LEAST_GAIN, -1, -1, -1)
        for taker in self._takers(giver, SWAPPERS).tolist() if len(rows) else ():
            others = self._bundles(taker)
            if not len(others):
                continue
            net = problem.weight[rows][:, np.newaxis] - problem.weight[others][np.newaxis]
            away = self._cost(giver, self.load[giver] - net / problem.size[giver])
            here = self._cost(taker, self.load[taker] + net / problem.size[taker])
            gain = (self.cost[giver] + self.cost[taker]) - away - here
            gain = gain - self._prices(giver, rows, np.array([taker]))[0][:, np.newaxis]
            gain = gain - self._prices(taker, others, np.array([giver]))[0][np.newaxis]
            smaller = np.minimum.outer(heaviest, problem.weight[others].max(axis=1))
            gain = np.where(smaller <= self.left, gain, -np.inf)
            at = int(np.argmax(gain))
            if gain.flat[at] > best[0]:
                mine, other = divmod(at, len(others))
                best = (float(gain.flat[at]), int(rows[mine]), int(others[other]), taker)
        if best[1] < 0:
            return False
        self._carry(best[1], giver, best[3])
        self._carry(best[2], best[3], giver)
        return True

    def _cost(self, broker: int, load: Floats) -> Floats:
        return broker_costs(load, self.problem.size[broker], self.problem.level)

    def _bundles(self, broker: int) -> Ints:
        """What it may give now, int64[k]."""
        return self.rows.get(broker, _NOTHING)

    def _prices(self, giver: int, rows: Ints, takers: Ints) -> Floats:
        """What each move adds to the objective, float64[takers, rows]; inf = it may not be made."""
        problem = self.problem
        price = np.where(problem.home[rows] == giver, problem.price[rows], 0.0)
        admitted = problem.admits[problem.row[rows][np.newaxis], takers[:, np.newaxis]]
        price = np.where(admitted, price[np.newaxis], np.inf)
        is_home = problem.home[rows][np.newaxis] == takers[:, np.newaxis]
        price = np.where(is_home, -problem.price[rows][np.newaxis], price)
        if problem.left:
            left = np.array([problem.left.get(row, -1) for row in rows.tolist()])
            is_back = (left[np.newaxis] == takers[:, np.newaxis]) & ~is_home
            price = price + np.where(is_back, RETURN_PRICE * problem.price[rows], 0.0)
        if problem.crowding is not None and problem.crowding.concerns(rows):
            price = price + problem.crowding.prices(self.held, giver, rows, takers)
        return price

    def _carry(self, row: int, source: int, taker: int) -> None:
        problem = self.problem
        weight = problem.weight[row]
        for broker, sign in ((source, -1.0), (taker, 1.0)):
            self.load[broker] = self.load[broker] + sign * weight / problem.size[broker]
            self.cost[broker] = float(self._cost(broker, self.load[broker]))
            self.is_done[broker] = False
        mine = self._bundles(source)
        self.rows[source] = mine[mine != row]
        self.rows[taker] = np.append(self._bundles(taker), row)
        if problem.crowding is not None:
            problem.crowding.carry(self.held, row, source, taker)
        home = int(problem.home[row])
        self.left -= float(weight.max()) * (int(source == home) - int(taker == home))
        self.owner[row] = taker


_NOTHING = np.zeros(0, dtype=np.int64)
_NO_ROW = -1


def search(problem: SearchProblem, steps: int, budget: float) -> Found:
    """The best layout found within a budget of steps, and of points of size 1 that move.

    O(bundles + brokers), and for each step O(brokers log brokers + bundles of the giver x takers).
    """
    crowding = problem.crowding
    is_idle = problem.weight.max(axis=1) <= 0.0
    if crowding is not None:
        is_idle[crowding.rows_acting()] = False
    moving = np.flatnonzero(problem.can_move & ~is_idle)
    home = problem.home[moving]
    order = np.argsort(home, kind="stable")
    start = np.searchsorted(home[order], np.arange(len(problem.size) + 1))
    ordered = moving[order]
    found = _Search(
        problem=problem,
        load=problem.load.copy(),
        cost=broker_costs(problem.load, problem.size, problem.level),
        held=_NOTHING if crowding is None else crowding.held.copy(),
        steps_left=steps,
        left=budget,
        is_done=np.zeros(len(problem.size), dtype=np.bool_),
        rows={
            at: ordered[begin:end]
            for at, (begin, end) in enumerate(
                zip(start[:-1].tolist(), start[1:].tolist(), strict=True)
            )
        },
    )
    stopped = found.run()
    moves = tuple((row, to) for row, to in found.owner.items() if to != int(problem.home[row]))
    return Found(
        moves=moves,
        load=found.load,
        before=objective(problem, problem.load, _NOTHING),
        after=objective(
            problem, found.load, np.array([row for row, _ in moves], dtype=np.int64), found.held
        ),
        bound=lower_bound(problem),
        steps=steps - found.steps_left,
        stopped=stopped,
        crowded=frozenset(found.crowded),
        too_crowded=tuple(sorted(found.too_crowded)),
        beyond=(crowding.beyond(crowding.held), crowding.beyond(found.held))
        if crowding is not None and crowding.acting
        else None,
    )

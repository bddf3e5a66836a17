"""The search of `ballast`: moves, or exchanges where none helps, within a budget.

Each step takes the hottest broker and makes the one change of its bundles that lowers the
objective most; a broker that no change helps is left alone. The search may stop after any step. It
is deterministic, the same bits on every machine: ties go to the earlier broker and bundle,
arithmetic is elementwise, sums are in order. After Rebalancer's local search (Meta) and
CockroachDB's allocator.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from lbcore.model.names import are_on_too_few
from lbcore.plan.snapshot import Bools, Floats, Ints, Partitions, Snapshot, sequential_sum

TOPIC_PRICE = 0.1
"""Cost of each partition above a broker's limit."""
BUNDLE_PRICE = 0.02
"""Cost of moving as many bundles as an average broker has, or of as many above a limit."""
_SHARES = 2.0
_LEAST_TOPIC, _LEAST_NAMESPACE = 2, 4
_CELLS_MAX = 4_000_000
"""Largest number of groups times brokers in one search; the smallest groups are left out."""
_KEPT_MAX = 1_000
"""Largest number of crowded topics that are counted and acted on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """Topics and namespaces of which some broker has its limit or more.

    Partitions of a topic grow together, so a broker that has them all fills up first. The limit is
    twice a broker's fair share (by capacity, rounded up) of a topic's partitions, at least two, and
    of a namespace's bundles, at least four. A partition above it costs TOPIC_PRICE, so it moves if
    its bundle is less than some fifth of a broker's load. A bundle above it costs only as much as
    a move's fixed price, so by itself it never causes a move.

    g groups, n brokers. Bundle row r's memberships are start[r] : start[r + 1] of group (int64[k])
    and count (int64[k], partitions in it, or 1). limit: int64[g, n], the limits. beyond: int64[g,
    n], items above the limit, negative = room. price: float64[g], cost of each item above it.
    acting: groups (crowded topics) that justify a move by themselves. may_give: bool[n], brokers
    that may give bundles away to spread these.
    """

    start: Ints
    group: Ints
    count: Ints
    limit: Ints
    beyond: Ints
    price: Floats
    acting: tuple[int, ...]
    may_give: Bools

    def cost(self, beyond: Ints) -> float:
        """Return the cost of a layout. beyond: int64[g, n], as of this layout."""
        each = np.maximum(beyond, 0).sum(axis=1)
        return sequential_sum(each * self.price)

    def partitions_beyond(self, beyond: Ints) -> int:
        """Return the partitions above brokers' limits, of the topics in `acting`."""
        return int(np.maximum(beyond[list(self.acting)], 0).sum())

    def members(self, rows: Ints) -> tuple[Ints, Ints, Ints]:
        """Return each membership's position in `rows`, its group and its count."""
        first, counts = self.start[rows], self.start[rows + 1] - self.start[rows]
        if (counts <= 1).all():
            at = counts.nonzero()[0]
            return at, self.group[first[at]], self.count[first[at]]
        at = np.repeat(np.arange(len(rows), dtype=np.int64), counts)
        ends = np.cumsum(counts)
        each = np.arange(len(at), dtype=np.int64) + np.repeat(first - (ends - counts), counts)
        return at, self.group[each], self.count[each]

    def prices(self, beyond: Ints, giver: int, rows: Ints, takers: Ints) -> Floats:
        """Return the cost that moving each row to each taker adds.

        float64[takers, rows]; negative: the move spreads the group.
        """
        found = np.zeros((len(takers), len(rows)))
        at, group, count = self.members(rows)
        here = beyond[group, giver]
        less = np.maximum(here, 0) - np.maximum(here - count, 0)
        there = beyond[group, takers[:, np.newaxis]]
        more = np.maximum(there + count, 0) - np.maximum(there, 0)
        price = self.price[group] * (more - less)
        if (at[1:] > at[:-1]).all():  # no row twice, the common case
            found[:, at] = price
        else:
            np.add.at(found.T, at, price.T)
        return found

    def carry(self, beyond: Ints, row: int, source: int, taker: int) -> None:
        """Count the row at its new broker, in place."""
        of = slice(int(self.start[row]), int(self.start[row + 1]))
        if of.start < of.stop:
            beyond[self.group[of], source] -= self.count[of]
            beyond[self.group[of], taker] += self.count[of]


def crowded_topics(
    partitions: Partitions, owner: Ints, brokers: int, admitted: Ints | None = None
) -> tuple[int, ...]:
    """Topics whose partitions are on too few brokers. O(partitions log partitions).

    owner: int64[m], -1 = none; a topic with an unowned partition is not judged. admitted: int64[m],
    number of brokers that may take each bundle; None = all.
    """
    if not len(partitions.rows):
        return ()
    topics = len(partitions.keys)
    total = np.bincount(partitions.topic, weights=partitions.count, minlength=topics)
    on = owner[partitions.rows]
    is_whole = np.bincount(partitions.topic[on < 0], minlength=topics) == 0
    pairs = np.unique(partitions.topic * brokers + np.maximum(on, 0))
    used = np.bincount(pairs // brokers, minlength=topics)
    most = np.full(topics, brokers)
    if admitted is not None:
        most[partitions.topic] = admitted[partitions.rows]
    found = np.flatnonzero(is_whole & are_on_too_few(used, total, most))
    return tuple(found[:_KEPT_MAX].tolist())


def crowding_of(
    problem: "SearchProblem",
    snapshot: Snapshot,
    partitions: Partitions,
    acting: tuple[int, ...],
    may_give: Bools,
) -> Crowding | None:
    """Return the groups for the search, None if no broker has reached a limit.

    problem: a group's items are shared among its brokers that filters allow. acting: numbers of
    topics in `partitions`. may_give: as in `Crowding`. O((bundles + partitions) log of them).
    """
    bundles, size, brokers = snapshot.bundles, problem.size, len(problem.size)
    spaces = len(bundles.namespaces)
    rows = np.concatenate([np.arange(len(bundles.names), dtype=np.int64), partitions.rows])
    group = np.concatenate([bundles.namespace, spaces + partitions.topic])
    count = np.concatenate([np.ones(len(bundles.names), dtype=np.int64), partitions.count])
    groups = spaces + len(partitions.keys)
    total = np.bincount(group, weights=count, minlength=groups)
    least = np.where(np.arange(groups) < spaces, _LEAST_NAMESPACE, _LEAST_TOPIC)
    size_of_row = np.cumsum(np.where(problem.admits, size, 0.0), axis=1)[:, -1]
    shared = np.ones(groups)
    shared[group] = np.maximum(size_of_row[problem.row[rows]], float(size.min()))
    is_owned = bundles.owner[rows] >= 0
    pairs = group[is_owned] * brokers + bundles.owner[rows][is_owned]
    keys, inverse = np.unique(pairs, return_inverse=True)
    held = np.bincount(inverse, weights=count[is_owned], minlength=len(keys))
    of, at = keys // brokers, keys % brokers
    full = np.unique(
        of[(held >= _limit(total[of], size[at] / shared[of], least[of])) & (total[of] > least[of])]
    )
    full = full[np.argsort(-total[full], kind="stable")][: _CELLS_MAX // brokers]
    if not len(full):
        return None
    number = np.full(groups, -1, dtype=np.int64)
    number[full] = np.arange(len(full))
    matrix = np.zeros((len(full), brokers), dtype=np.int64)
    is_kept = number[of] >= 0
    matrix[number[of[is_kept]], at[is_kept]] = held[is_kept].astype(np.int64)
    kept = np.flatnonzero(number[group] >= 0)
    kept = kept[np.argsort(rows[kept], kind="stable")]
    column = full[:, np.newaxis]
    limit = _limit(total[column], size / shared[column], least[column]).astype(np.int64)
    return Crowding(
        start=np.searchsorted(rows[kept], np.arange(len(bundles.names) + 1)),
        group=number[group[kept]],
        count=count[kept],
        limit=limit,
        beyond=matrix - limit,
        price=np.where(full < spaces, BUNDLE_PRICE * brokers / len(bundles.names), TOPIC_PRICE),
        acting=tuple(int(number[spaces + one]) for one in acting if number[spaces + one] >= 0),
        may_give=may_give,
    )


def _limit(total: Floats, share: Floats, least: Ints) -> Floats:
    """Return the limit of a broker for a group of that total."""
    return np.maximum(np.ceil(_SHARES * total * share), least)


OVER, UNDER = 4.0, 1.0
_DUALS = 64
"""Ways tried to divide a price between giver and taker; the best is within 0.1 % of the optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProblem:
    """Input of the search: n brokers, m bundles, r resources, the busiest in column 0.

    load: float64[n, r], in percent of the broker's own capacity. size: float64[n], capacity over
    the mean capacity. weight: float64[m, r], points that a bundle makes on a broker of size 1.
    home: int64[m], the owner, -1 = none. price: float64[m], of moving the bundle off its owner.
    min_price: lowest price of moving load, for each level's worth. level: points, above 0.
    can_move: bool[m]. may_give, may_take: bool[n]. row: int64[m], each bundle's row of admits;
    admits: bool[rows, n], brokers that filters allow. left: int64[m], the broker that each bundle
    left lately, -1 = none; None = unknown. crowding: None = no broker has its limit of any group.
    room: float64[n], load it may still take, in points of an average broker; None = any.
    demand_factor: float64[m], growth of a bundle's load once it leaves a full broker; used only
    with `room`.
    """

    load: Floats
    size: Floats
    weight: Floats
    home: Ints
    price: Floats
    min_price: float
    level: float
    can_move: Bools
    may_give: Bools
    may_take: Bools
    row: Ints
    admits: Bools
    left: Ints | None = None
    crowding: Crowding | None = None
    room: Floats | None = None
    demand_factor: Floats | None = None


def broker_costs(load: Floats, size: Floats, level: float) -> Floats:
    """Return the cost of each broker: size × (OVER × over² + UNDER × under²).

    over: how far its worst resource is above the level; under: how far the cluster's busiest
    resource is below it; both in parts of the level. Overshoot is four times as expensive as
    undershoot, as in Dicer (16 and 4). load: float64[..., n, r]; size: float64[n] or a number.
    """
    worst = load[..., 0]
    for resource in range(1, load.shape[-1]):  # they are few: quicker than `max(axis=-1)`
        worst = np.maximum(worst, load[..., resource])
    over = np.maximum(worst / level - 1.0, 0.0)
    under = np.maximum(1.0 - load[..., 0] / level, 0.0)
    return size * (OVER * over * over + UNDER * under * under)


def objective(
    problem: SearchProblem, load: Floats, moved: Ints, beyond: Ints | None = None
) -> float:
    """Return the number to minimise: costs of brokers, prices of moves, and crowding.

    load: float64[n, r], after the moves; moved: rows of the moved bundles. beyond: int64[g, n],
    `Crowding.beyond` after the moves; None = before them.

    Worked: two brokers of size 1 at 60 and 20 points, level 40: 4 x 0.5^2 + 1 x 0.5^2 = 1.25.
    """
    uneven = sequential_sum(broker_costs(load, problem.size, problem.level))
    crowds = 0.0
    if problem.crowding is not None:
        crowds = problem.crowding.cost(problem.crowding.beyond if beyond is None else beyond)
    return uneven + sequential_sum(problem.price[moved]) + crowds


def lower_bound(problem: SearchProblem) -> float:
    """Return a lower bound of the objective over all layouts. O(brokers).

    It takes load as divisible, charges for leaving only, and ignores crowding. Weak duality: split
    min_price between giver and taker. Then each broker can be optimised alone, and the sum is a
    lower bound. Tries _DUALS + 1 splits, returns the best.
    """
    above = problem.load.max(axis=1) / problem.level - 1.0
    below = problem.load[:, 0] / problem.level - 1.0
    stays = broker_costs(problem.load, problem.size, problem.level) / problem.size
    taken = problem.min_price * np.arange(_DUALS + 1)[:, np.newaxis] / _DUALS
    given = problem.min_price - taken
    top, bottom = given / (2.0 * OVER), -taken / (2.0 * UNDER)
    gives = OVER * top * top + given * (above - top)
    takes = UNDER * bottom * bottom + taken * (bottom - below)
    least = np.where(
        problem.may_give & (above > top),
        gives + np.where(below < bottom, takes, np.where(below < 0, UNDER * below * below, 0)),
        np.where(problem.may_take & (below < bottom), takes, stays),
    )
    sums = np.cumsum(problem.size * np.minimum(least, stays), axis=1)[:, -1]
    return max(0.0, float(sums.max()))


EVERYBODY_MAX = 40
"""With at most this many brokers, all are tried as takers; otherwise the emptiest few."""
TAKERS, SWAPPERS = 8, 4
"""Emptiest brokers tried for a move, and for a swap."""
SWAP_STEPS = 4
"""Steps that the search for a swap counts as."""
LEAST_GAIN = 1e-9
RETURN_PRICE = 8.0
"""Extra price of returning to a broker left lately, as a multiple of the normal price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A better layout.

    moves: (bundle row, destination), in the order found. before, after, bound: objectives. steps:
    taken. stopped: "done" = nothing helps any more; "steps", "budget" = that limit. crowded: rows
    that move to spread a topic's partitions. beyond: partitions above brokers' limits of such
    topics, before and after; None = none. too_crowded: rows with more partitions of such a topic
    than a broker should have. room: what is left of `SearchProblem.room`.
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
    room: Floats | None = None


_AWAY_AND_THERE = np.array([[-1.0], [1.0]])
_CLOSED = -1.0


@dataclass(slots=True, kw_only=True)
class _Search:
    """Layout of n brokers under construction.

    load: float64[n, r]. cost: float64[n]. heat: float64[n], the load of brokers that may give; -1 =
    may not, or nothing helps. below: float64[n], distance below the level of brokers that may take,
    in parts of it. takers_by_load: (load, broker) of those, sorted. rows: of each broker, the
    bundles that it may give now. beyond: as `Crowding.beyond`. owner: of the bundles that have
    moved. budget_left: points that may still move. is_open: every broker may take every bundle.
    room: as `SearchProblem.room`, now.
    """

    problem: SearchProblem
    load: Floats
    cost: Floats
    heat: Floats
    below: Floats
    takers_by_load: list[tuple[float, int]]
    beyond: Ints
    steps_left: int
    budget_left: float
    is_open: bool
    rows: list[Ints]
    room: Floats | None
    owner: dict[int, int] = field(default_factory=dict)
    crowded: set[int] = field(default_factory=set)
    too_crowded: set[int] = field(default_factory=set)

    @staticmethod
    def of(problem: SearchProblem, steps: int, budget: float) -> "_Search":
        """Return the layout before the first move."""
        crowding = problem.crowding
        heat, takers = problem.load.max(axis=1), np.flatnonzero(problem.may_take).tolist()
        is_idle = problem.weight.max(axis=1) <= 0.0
        if crowding is not None:
            acting = np.flatnonzero(np.isin(crowding.group, crowding.acting))
            is_idle[np.searchsorted(crowding.start, acting, side="right") - 1] = False
        moving = np.flatnonzero(problem.can_move & ~is_idle)
        ordered = moving[np.argsort(problem.home[moving], kind="stable")]
        start = np.searchsorted(problem.home[ordered], np.arange(len(problem.size) + 1))
        return _Search(
            problem=problem,
            load=problem.load.copy(),
            cost=broker_costs(problem.load, problem.size, problem.level),
            heat=np.where(problem.may_give, heat, _CLOSED),
            below=np.where(problem.may_take, 1.0 - problem.load[:, 0] / problem.level, 0.0),
            takers_by_load=sorted(zip(heat[takers].tolist(), takers, strict=True)),
            beyond=_NOTHING if crowding is None else crowding.beyond.copy(),
            steps_left=steps,
            budget_left=budget,
            is_open=bool(problem.admits.all()),
            rows=[ordered[begin:end] for begin, end in pairwise(start.tolist())],
            room=None if problem.room is None else problem.room.copy(),
        )

    def thin_out(self, crowding: Crowding) -> str:
        """Move partitions off brokers with too many of a topic, most crowded first.

        Returns why it ended.
        """
        for group in crowding.acting:
            may_give = crowding.may_give.copy()
            while self.steps_left > 0 and self.budget_left > 0:
                beyond = np.where(may_give, self.beyond[group], 0)
                giver = int(np.argmax(beyond))
                if beyond[giver] <= 0:
                    break
                self.steps_left -= 1
                rows = self.rows[giver]
                at, groups, counts = crowding.members(rows)
                row = self._move(giver, rows[at[groups == group]])
                may_give[giver] = row >= 0
                if row >= 0:
                    self.crowded.add(row)
                is_too_many = (groups == group) & (counts > crowding.limit[group, giver])
                self.too_crowded.update(rows[at[is_too_many]].tolist())
        if self.budget_left <= 0:
            return "budget"
        return "done" if self.steps_left > 0 else "steps"

    def even_out(self) -> str:
        """Make moves and swaps until none pays; return why it ended."""
        while self.steps_left > 0:
            # each further bit of load gains less than the first, so its gain bounds them all
            giver = int(self.heat.argmax())
            heat = float(self.heat[giver])
            above = max(heat / self.problem.level - 1.0, 0.0)
            worth = 2.0 * OVER * above + 2.0 * UNDER * max(float(self.below.max()), 0.0)
            if not (heat >= 0.0 and worth > self.problem.min_price):  # NaN ends it, too
                return "done"
            if self.budget_left <= 0:
                return "budget"
            self.steps_left -= 1
            if self._move(giver, self.rows[giver]) < 0 and not self._swap(giver):
                self.heat[giver] = _CLOSED  # left out until its load changes
        return "steps"

    def _move(self, giver: int, rows: Ints) -> int:
        """Make the best move of one of these bundles; return its row, -1 = none helps."""
        takers = self._takers(TAKERS, giver, rows)
        if not len(rows) or not len(takers):
            return _NO_ROW
        problem, weight = self.problem, self.problem.weight[rows]
        load, cost = self.load, self.cost
        giver_cost = self._cost(giver, load[giver] - weight / problem.size[giver])
        taker_load = load[takers][:, np.newaxis] + (
            weight[np.newaxis] / problem.size[takers][:, np.newaxis, np.newaxis]
        )
        taker_cost = broker_costs(taker_load, problem.size[takers][:, np.newaxis], problem.level)
        gain = (cost[giver] - giver_cost)[np.newaxis] + (cost[takers][:, np.newaxis] - taker_cost)
        gain -= self._prices(giver, rows, takers)
        best = int(gain.argmax())
        taker, at = divmod(best, len(rows))
        if gain[taker, at] <= LEAST_GAIN:
            return _NO_ROW
        self._carry(int(rows[at]), giver, int(takers[taker]))
        return int(rows[at])

    def _swap(self, giver: int) -> bool:
        """Make the best exchange of two bundles; False = none helps.

        Only the lighter bundle must fit the budget, so a swap may exceed it by the heavier one.
        A giver that may not take has none: half an exchange would move the hot spot.
        """
        if not self.problem.may_take[giver]:
            return False
        self.steps_left -= SWAP_STEPS
        rows, problem = self.rows[giver], self.problem
        load, cost = self.load, self.cost
        heaviest = problem.weight[rows].max(axis=1)
        best = (LEAST_GAIN, -1, -1, -1)
        for taker in self._takers(SWAPPERS, giver, rows).tolist() if len(rows) else ():
            others = self.rows[taker]
            if not len(others):
                continue
            net = problem.weight[rows][:, np.newaxis] - problem.weight[others][np.newaxis]
            giver_cost = self._cost(giver, load[giver] - net / problem.size[giver])
            taker_cost = self._cost(taker, load[taker] + net / problem.size[taker])
            gain = (cost[giver] + cost[taker]) - giver_cost - taker_cost
            gain = gain - self._prices(giver, rows, np.array([taker]))[0][:, np.newaxis]
            gain = gain - self._prices(taker, others, np.array([giver]))[0][np.newaxis]
            smaller = np.minimum.outer(heaviest, problem.weight[others].max(axis=1))
            gain = np.where(smaller <= self.budget_left, gain, -np.inf)
            at = int(np.argmax(gain))
            if gain.flat[at] > best[0]:
                mine, other = divmod(at, len(others))
                best = (float(gain.flat[at]), int(rows[mine]), int(others[other]), taker)
        if best[1] < 0:
            return False
        self._carry(best[1], giver, best[3])
        self._carry(best[2], best[3], giver)
        return True

    def _takers(self, most: int, giver: int, rows: Ints) -> Ints:
        """Return the brokers that may take these bundles, the emptiest first.

        All where there are few, else the emptiest `most` for each bundle, all together.
        """
        if len(self.load) <= EVERYBODY_MAX:
            most = len(self.takers_by_load)
        takers = self.takers_by_load[: most + 1 if self.is_open else None]
        found = np.array([broker for _, broker in takers if broker != giver], dtype=np.int64)
        if self.is_open:
            return found[:most]
        allowed = self.problem.admits[np.unique(self.problem.row[rows])][:, found]
        is_first = allowed & (np.cumsum(allowed, axis=1) <= most)
        return found[is_first.any(axis=0)]

    def _cost(self, broker: int, load: Floats) -> Floats:
        return broker_costs(load, self.problem.size[broker], self.problem.level)

    def _prices(self, giver: int, rows: Ints, takers: Ints) -> Floats:
        """Return what each move adds to the objective; inf = forbidden.

        float64[takers, rows], or [1, rows] where it is the same for every taker.
        """
        problem = self.problem
        home, leaving = problem.home[rows], problem.price[rows]
        is_at_home = home == giver
        price = np.where(is_at_home, leaving, 0.0)[np.newaxis]
        if not self.is_open:
            admitted = problem.admits[problem.row[rows][np.newaxis], takers[:, np.newaxis]]
            price = np.where(admitted, price, np.inf)
        is_home = None
        if not is_at_home.all():
            is_home = home[np.newaxis] == takers[:, np.newaxis]
            price = np.where(is_home, -leaving, price)
        if problem.left is not None:
            is_back = problem.left[rows][np.newaxis] == takers[:, np.newaxis]
            if is_home is not None:
                is_back &= ~is_home
            price = price + np.where(is_back, RETURN_PRICE * leaving, 0.0)
        if self.room is not None:
            fits = self._claims(rows)[np.newaxis] <= self.room[takers][:, np.newaxis]
            price = np.where(fits | (home[np.newaxis] == takers[:, np.newaxis]), price, np.inf)
        crowding = problem.crowding
        # in most searches few rows are in a group
        if crowding is not None and (crowding.start[rows] < crowding.start[rows + 1]).any():
            price = price + crowding.prices(self.beyond, giver, rows, takers)
        return price

    def _claims(self, rows: Ints) -> Floats:
        """Return the room that each bundle needs on another broker."""
        problem = self.problem
        claims: Floats = problem.weight[rows].max(axis=1)
        return claims if problem.demand_factor is None else claims * problem.demand_factor[rows]

    def _carry(self, row: int, source: int, taker: int) -> None:
        """Move a bundle. O(brokers), a few microseconds."""
        problem, weight, pair = self.problem, self.problem.weight[row], np.array([source, taker])
        before = self.load[pair]
        after = before + _AWAY_AND_THERE * weight / problem.size[pair][:, np.newaxis]
        self.load[pair] = after
        self.cost[pair] = broker_costs(after, problem.size[pair], problem.level)
        for broker, old, new in zip((source, taker), before.tolist(), after.tolist(), strict=True):
            heat = max(new)
            if problem.may_give[broker]:
                self.heat[broker] = heat
            if problem.may_take[broker]:
                self.below[broker] = 1.0 - new[0] / problem.level
                del self.takers_by_load[bisect_left(self.takers_by_load, (max(old), broker))]
                insort(self.takers_by_load, (heat, broker))
        mine = self.rows[source]
        self.rows[source] = mine[mine != row]
        self.rows[taker] = np.concatenate((self.rows[taker], [row]))
        if problem.crowding is not None:
            problem.crowding.carry(self.beyond, row, source, taker)
        home = int(problem.home[row])
        self.budget_left -= float(weight.max()) * (int(source == home) - int(taker == home))
        if self.room is not None:
            claim = float(self._claims(np.array([row]))[0])
            self.room[source] += claim if source != home else float(weight.max())
            self.room[taker] -= claim if taker != home else float(weight.max())
        self.owner[row] = taker


_NOTHING = np.zeros(0, dtype=np.int64)
_NO_ROW = -1


def search(problem: SearchProblem, steps: int, budget: float) -> Found:
    """Return the best layout found within the steps and the points that may move.

    budget: points of size 1. O(bundles + brokers), and for each step O(brokers log brokers +
    bundles of the giver x takers).
    """
    crowding, layout = problem.crowding, _Search.of(problem, steps, budget)
    stopped = layout.even_out()
    if stopped == "done" and crowding is not None:
        stopped = layout.thin_out(crowding)
    moves = tuple((row, to) for row, to in layout.owner.items() if to != int(problem.home[row]))
    return Found(
        moves=moves,
        load=layout.load,
        before=objective(problem, problem.load, _NOTHING),
        after=objective(
            problem, layout.load, np.array([row for row, _ in moves], dtype=np.int64), layout.beyond
        ),
        bound=lower_bound(problem),
        steps=steps - layout.steps_left,
        stopped=stopped,
        crowded=frozenset(layout.crowded),
        too_crowded=tuple(sorted(layout.too_crowded)),
        room=layout.room,
        beyond=(
            crowding.partitions_beyond(crowding.beyond),
            crowding.partitions_beyond(layout.beyond),
        )
        if crowding is not None and crowding.acting
        else None,
    )

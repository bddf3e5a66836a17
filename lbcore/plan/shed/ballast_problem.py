"""The objective's problem from a cycle's view: readings, ideal load, prices.

Decides what `ballast` takes a broker's load for, and what moving a bundle costs. A broker has two
readings of each resource: what it reports, and what its bundles carry (`plan.score`). It counts as
far above the level as both say, and as far below as both say; where they disagree about the side,
it stands at the level.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.config.splitting import Splitting
from lbcore.plan.readings import ROOM_POINTS, Readings, growth_of, readings_of, with_demand
from lbcore.plan.shed.ballast_costs import learnt, other_resources, usable_costs, with_costs
from lbcore.plan.shed.ballast_crowding import BUNDLE_PRICE, crowding_of
from lbcore.plan.shed.ballast_ideal_load import attainable_level, ideal_load
from lbcore.plan.shed.ballast_ineffective import grown
from lbcore.plan.shed.ballast_objective import SearchProblem
from lbcore.plan.shed.common import ShedState, ShedView, sequential_sum
from lbcore.plan.snapshot import Bools, Floats, Ints, Partitions, Snapshot
from lbcore.signals.cost import Costs, Evidence

_PERCENT = 100.0
MOVE_PRICE = 0.4
"""Of a broker's whole load: stops at MOVE_PRICE / (2 x OVER) above the level, 5 %."""
TOPICS_PRICE, SESSIONS_PRICE = 0.05, 0.05
"""The same for a broker's topics and sessions; `BUNDLE_PRICE` for its bundles."""
RECENT_PRICE = 2.0
"""Added times its price for a bundle that moved just now, falling to 0 in the grace period."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallastRound:
    """Data of one cycle, n brokers.

    away: float64[n], points above the level (positive) or below it, as far as both readings agree.
    load: float64[n, r], points of a broker's own size, the busiest resource first. size:
    float64[n], capacity over mean capacity. weight: float64[m, r], points on a broker of size 1.
    costs: as fitted, None = not known. state: includes what was learnt. can_divide: bool[m].
    hot_limit: points; a broker below it is hot by no bundle, so none of its bundles is divided.
    """

    view: ShedView
    state: ShedState
    costs: Costs | None
    readings: Readings
    level: float
    tolerance: float
    split_share: float
    away: Floats
    load: Floats
    size: Floats
    weight: Floats
    can_divide: Bools
    hot_limit: float

    def whole_rows(self, is_full: Bools) -> Ints:
        """Return the bundles that no broker could carry and a split can divide, int64[k].

        Only those of brokers that are full. A bundle that some broker can carry moves whole.
        """
        bundles = self.view.snapshot.bundles
        share = self.hot_limit * float(self.readings.capacity.max())
        is_whole = bundles.can_move & (self.readings.bundle > share) & self.can_divide
        rows: Ints = np.flatnonzero(is_whole & (bundles.owner >= 0))
        return rows[is_full[bundles.owner[rows]]]

    def problem(
        self, is_full: Bools, is_left: Bools, partitions: Partitions, acting: tuple[int, ...]
    ) -> SearchProblem:
        """Return the input of the search.

        is_full: bool[n], brokers with a counter that lets them act. is_left: bool[n], brokers that
        are left alone. acting: topics of the partitions that are too crowded.
        """
        bundles, brokers = self.view.snapshot.bundles, len(self.size)
        is_cold = bool((is_full & (self.away < 0)).any())
        may_give = is_full & (self.away > 0)
        may_give |= is_cold & (self.load[:, 0] >= self.level * (1.0 - _SLACK))
        can_move = bundles.can_move.copy()
        can_move[self.whole_rows(np.ones(brokers, dtype=np.bool_))] = False
        price = self._prices()
        row, admits = self.view.admitted or (
            np.zeros(len(bundles.names), dtype=np.int64),
            np.ones((1, brokers), dtype=np.bool_),
        )
        is_free = ~is_left & ~self._resting(self.view.took)
        return SearchProblem(
            load=self.load,
            size=self.size,
            weight=self.weight,
            home=bundles.owner,
            price=price,
            min_price=MOVE_PRICE,
            level=self.level,
            can_move=can_move,
            may_give=may_give & is_free,
            may_take=~self._resting(self.view.gave),
            row=row,
            admits=admits,
            left=bundles.left,
            crowding=crowding_of(self.view.snapshot, partitions, self.size, acting, is_free),
            room=self._room(),
            growth=self.growth(),
        )

    def _room(self) -> Floats | None:
        """Return the load that each broker may take while some broker is full.

        Points of size 1; None = any load.
        """
        if not self.readings.is_full:
            return None
        room: Floats = (ROOM_POINTS - self.readings.cold) * self.size
        return room

    def growth(self) -> Floats:
        """Times what each bundle shows that it may come to on another broker, float64[m]."""
        return np.append(self.broker_growth(), 1.0)[self.view.snapshot.bundles.owner]

    def broker_growth(self) -> Floats:
        """The same of the bundles of each broker, float64[n]."""
        growth = growth_of(self.readings.usage, self.view.snapshot.brokers.demand)
        return np.minimum(growth, grown(self.view, self.state, self.readings))

    def _resting(self, roles: frozenset[str]) -> Bools:
        """Brokers that had the other role a short while ago."""
        names = self.view.snapshot.brokers.names
        return np.array([name in roles for name in names], dtype=np.bool_)

    def _prices(self) -> Floats:
        """Return the price of moving each bundle from its broker.

        Based on the bundle's parts of what a broker of mean size has.
        """
        bundles, brokers = self.view.snapshot.bundles, len(self.size)

        def part(values: Floats) -> Floats:
            total = sequential_sum(values)
            parts: Floats = values * (brokers / total) if total > 0 else np.zeros(len(values))
            return parts

        price = MOVE_PRICE * self.weight.max(axis=1) / self.level
        price = price + TOPICS_PRICE * part(bundles.topics.astype(np.float64))
        price = price + SESSIONS_PRICE * part(bundles.sessions.astype(np.float64))
        price = price + BUNDLE_PRICE * part(np.ones(len(price)))
        if bundles.moved_ms is None:
            return np.asarray(price, dtype=np.float64)
        grace_ms = max(self.view.grace_ms, 1)
        age = np.clip((self.view.now_ms - bundles.moved_ms) / grace_ms, 0.0, 1.0)
        return np.asarray(price * (1.0 + RECENT_PRICE * (1.0 - age)), dtype=np.float64)


_SLACK = 0.02
"""Fraction of the level; a broker at most this far below it may still give.

It gives only to a broker that is far below the level.
"""


def learn_costs(view: ShedView, state: ShedState) -> ShedState:
    """The state with what this cycle's reports tell of costs. O(bundles + brokers)."""
    readings = readings_of(view.snapshot, view.usage, lags=view.usage_lags)
    evidence = learnt(view, readings, Evidence.from_plain(state.evidence))
    return replace(state, evidence=evidence.to_plain())


def divisible(snapshot: Snapshot, config: Splitting, unsplittable: Mapping[str, int]) -> Bools:
    """Return bundles that a split may divide, bool[m].

    unsplittable: bundle → its topics when one failed. O(bundles). What can't be divided has to move
    as it is, or its broker stays hot for ever.
    """
    bundles = snapshot.bundles
    counts = np.bincount(bundles.namespace, minlength=len(bundles.namespaces))
    is_open = counts[bundles.namespace] < config.max_namespace_bundles
    found: Bools = is_open & (bundles.topics > 1) & config.enabled
    if unsplittable:
        known = (unsplittable.get(name, 0) for name in bundles.names)
        found &= bundles.topics != np.fromiter(known, dtype=np.int64, count=len(found))
    return found


def round_of(
    view: ShedView, state: ShedState, config: IdealLoadConfig, can_divide: Bools | None = None
) -> BallastRound:
    """Return the round's readings. O(bundles + n log n).

    can_divide: None = all of two topics.
    """
    readings = readings_of(view.snapshot, view.usage, lags=view.usage_lags)
    evidence = Evidence.from_plain(state.evidence)
    if view.part == 1.0:
        evidence = learnt(view, readings, evidence)
    costs = usable_costs(evidence) if readings.by_rate else None
    readings = with_costs(readings, view, costs) if costs else readings
    readings = with_demand(readings, view.snapshot)
    hot_limit = ideal_load(readings) + config.high_points
    level = max(attainable_level(view, readings, hot_limit), 1e-9)
    above, below = readings.hot - level, level - readings.cold
    away: Floats = np.where(above > 0, above, np.where(below > 0, -below, 0.0))
    mean = sequential_sum(readings.capacity) / len(readings.capacity)
    size = readings.capacity / mean
    others = other_resources(view, level)
    load = np.stack([level + away, *(load for load, _ in others)], axis=1)
    away = np.where(load.max(axis=1) > level, load.max(axis=1) - level, away)
    return BallastRound(
        view=view,
        state=replace(state, evidence=evidence.to_plain()),
        costs=costs,
        readings=readings,
        level=level,
        tolerance=max(config.tolerance_points, level * config.tolerance_percent / _PERCENT),
        split_share=config.split_share,
        away=away,
        load=load,
        size=size,
        weight=np.stack([readings.bundle, *(weight for _, weight in others)], axis=1) / mean,
        can_divide=view.snapshot.bundles.topics > 1 if can_divide is None else can_divide,
        hot_limit=max(level, hot_limit),
    )

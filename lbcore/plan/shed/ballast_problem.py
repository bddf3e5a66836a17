"""From a cycle's view to the objective's problem: readings, the fair level, prices, who may.

Decides what `ballast` takes a broker's load for, and what moving a bundle costs. A broker has two
readings of each resource: what it reports, and what its bundles carry (`plan.score`). It counts as
far above the level as both say, and as far below as both say; where they disagree about the side,
it stands at the level. Source: ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.fair_level import FairLevelConfig
from lbcore.plan.others import is_own
from lbcore.plan.readings import Readings, readings_of
from lbcore.plan.shed.ballast_costs import learnt, other_resources, usable_costs, with_costs
from lbcore.plan.shed.ballast_crowding import BUNDLE_PRICE, crowding_of
from lbcore.plan.shed.ballast_level import fair_level
from lbcore.plan.shed.ballast_objective import SearchProblem
from lbcore.plan.shed.common import ShedState, ShedView, sequential_sum
from lbcore.plan.snapshot import Bools, Floats, Ints, Partitions
from lbcore.signals.cost import Costs, Evidence

_PERCENT = 100.0
_RECENT_MS = 3_600_000
MOVE_PRICE = 0.4
"""Of a broker's whole load: stops at MOVE_PRICE / (2 x OVER) above the level, 5 %."""
TOPICS_PRICE, SESSIONS_PRICE = 0.05, 0.05
"""The same for a broker's topics and sessions; `BUNDLE_PRICE` for its bundles."""
RECENT_PRICE = 2.0
"""Added times its price for a bundle that moved just now, falling to 0 in an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BallastRound:
    """What a cycle looks at, n brokers.

    away: float64[n], points above the level (positive) or below it, as far as both readings agree.
    load: float64[n, r], points of a broker's own size, the busiest resource first. size:
    float64[n], capacity over mean capacity. weight: float64[m, r], points on a broker of size 1.
    costs: as fitted, None = not known. state: with what was learnt.
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

    def whole_rows(self, is_full: Bools) -> Ints:
        """Bundles that no broker could carry and that can be divided, of brokers that are full."""
        bundles = self.view.snapshot.bundles
        share = self.level * float(self.readings.capacity.max())
        is_whole = bundles.can_move & (self.readings.bundle > share) & (bundles.topics > 1)
        rows: Ints = np.flatnonzero(is_whole & (bundles.owner >= 0))
        return rows[is_full[bundles.owner[rows]]]

    def problem(
        self, is_full: Bools, is_left: Bools, partitions: Partitions, acting: tuple[int, ...]
    ) -> SearchProblem:
        """What the search is given. bool[n]: whose counter lets it act; who is left alone.

        acting: topics of the partitions that are too crowded.
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
            left=self._left(),
            crowding=crowding_of(self.view.snapshot, partitions, self.size, acting, is_free),
            enough=self._enough(),
        )

    def _enough(self) -> Floats | None:
        """Down to where each broker is relieved now: by its part of what it is above the level."""
        gives = self.view.snapshot.gives
        if gives is None:
            return None
        heat = self.load.max(axis=1)
        enough: Floats = np.where(
            gives < 1.0, heat - gives * np.maximum(heat - self.level, 0.0), -np.inf
        )
        return enough

    def own_part(self) -> float:
        """The part of all load that may be moved at all by this shard, 0..1."""
        if self.view.snapshot.others is None:
            return 1.0
        total = sequential_sum(self.weight[:, 0])
        own = self.weight[is_own(self.view.snapshot.bundles), 0]
        return sequential_sum(own) / total if total > 0 else 1.0

    def _resting(self, roles: frozenset[str]) -> Bools:
        """Brokers that had the other role a short while ago."""
        names = self.view.snapshot.brokers.names
        return np.array([name in roles for name in names], dtype=np.bool_)

    def _prices(self) -> Floats:
        """What leaving costs each bundle: its parts of what a broker of mean size has."""
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
        age = np.clip((self.view.now_ms - bundles.moved_ms) / _RECENT_MS, 0.0, 1.0)
        return np.asarray(price * (1.0 + RECENT_PRICE * (1.0 - age)), dtype=np.float64)

    def _left(self) -> dict[int, int]:
        if not self.state.left:
            return {}
        names = self.view.snapshot.brokers.names
        at = {name: index for index, name in enumerate(names)}
        known = self.state.left
        rows = self.view.snapshot.bundles.rows_of(known)
        return {row: at[known[name]] for name, row in rows.items() if known[name] in at}


_SLACK = 0.02
"""Who is this part below the level may still give to somebody who is far below it."""


def round_of(view: ShedView, state: ShedState, config: FairLevelConfig) -> BallastRound:
    """The round's readings. O(bundles + brokers log brokers)."""
    readings = readings_of(view.snapshot, view.usage, lags=view.usage_lags)
    evidence = learnt(view, readings, Evidence.from_plain(state.evidence))
    costs = usable_costs(evidence) if readings.by_rate else None
    readings = with_costs(readings, view, costs) if costs else readings
    level = max(fair_level(view, readings), 1e-9)
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
    )

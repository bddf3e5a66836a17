"""Least load: an unowned bundle goes where it leaves the least load, read as the shedder reads it.

Decides one bundle's broker among its candidates under placement by `ballast`. A bundle that the
shedder planned a destination for gets it; if a filter forbids that, another broker only where it
ends no higher than its source does. Among brokers that are about equally good a bundle without a
plan goes where fewer of its topic's partitions are, and not to the one that it left lately.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.crowding import PlacedCrowding, placed_crowding
from lbcore.plan.place.request import NOBODY, PlacementState, PlaceRequest
from lbcore.plan.place.rules import Draw
from lbcore.plan.place.weights import awaited_rates, least_rates
from lbcore.plan.readings import readings_of
from lbcore.plan.snapshot import Floats, Ints

IDLE_POINTS = 10.0
"""Usage that a broker has without any traffic: it must not decide where idle bundles go."""
NEAR_POINTS = 5.0
"""Brokers that differ by less are about equally good: then it counts who is less crowded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoadRule:
    """A `Rule`. cold: float64[n], points, growing; weight: float64[k], points of capacity 1."""

    request: PlaceRequest
    cold: Floats
    weight: Floats
    draw: Draw
    crowding: PlacedCrowding

    @staticmethod
    def of(request: PlaceRequest, config: PlacementConfig, draw: Draw) -> "LeastLoadRule":
        """The rule at the start of a plan. A bundle counts at least the floor, however idle."""
        readings = readings_of(request.snapshot, request.usage, lags=request.usage_lags)
        cold = np.maximum(readings.traffic, readings.usage - IDLE_POINTS)
        least: Floats | float = 0.0
        if readings.by_rate:
            least = least_rates(request, config) * readings.cost
            awaited = awaited_rates(request.snapshot, config) * readings.cost
            cold = cold + awaited / request.snapshot.brokers.capacity
        return LeastLoadRule(
            request=request,
            cold=cold,
            weight=np.maximum(readings.bundle[request.bundles], least),
            draw=draw,
            crowding=placed_crowding(request),
        )

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`."""
        return self.draw.one_of(self.best(candidates, position), position)

    def best(self, candidates: Ints, position: int) -> Ints:
        """The planned broker, else those with the least load once they have the bundle."""
        planned = int(self.request.planned[position])
        kept: Ints = candidates[candidates == planned]
        if len(kept) or not len(candidates):
            return kept
        size = self.request.snapshot.brokers.capacity
        after = self.cold[candidates] + self.weight[position] / size[candidates]
        left = self.request.snapshot.bundles.left
        if left is not None and planned == NOBODY:
            after = after + NEAR_POINTS * (candidates == left[self.request.bundles[position]])
        least = float(after.min())
        if planned != NOBODY and least > self._source_after(position):
            return kept
        best: Ints = candidates[after == least]
        if planned != NOBODY or position not in self.crowding.members:
            return best
        return self._uncrowded(candidates, after, best, position)

    def _uncrowded(self, candidates: Ints, after: Floats, best: Ints, position: int) -> Ints:
        """Of those that are about as good as the best, the least crowded, and the best of these."""
        if len(best) == 1 and self.crowding.fits(int(best[0]), position):
            return best
        is_near = after <= float(after.min()) + NEAR_POINTS
        near, load = candidates[is_near], after[is_near]
        beyond = self.crowding.beyond(near, position)
        is_least = beyond == int(beyond.min())
        near, load = near[is_least], load[is_least]
        chosen: Ints = near[load == float(load.min())]
        return chosen

    def numbers(self, candidates: Ints) -> Floats:
        """Load in points."""
        return self.cold[candidates]

    def placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        size = float(self.request.snapshot.brokers.capacity[broker])
        self.cold[broker] += float(self.weight[position]) / size
        self.crowding.placed(broker, position)

    def remembered(self, state: PlacementState) -> PlacementState:
        """Nothing is remembered."""
        return state

    def _source_after(self, position: int) -> float:
        """The load that the bundle's source is left with."""
        source = int(self.request.excluded[position])
        size = float(self.request.snapshot.brokers.capacity[source])
        return float(self.cold[source]) - float(self.weight[position]) / size

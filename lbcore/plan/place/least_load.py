"""Placement by `ballast`: an unowned bundle goes where it leaves the least load.

Load is read as the shedder reads it. A bundle that the shedder planned a destination for gets it;
if a filter forbids that, another broker only where it ends no higher than its source does. Among
brokers that are about equally good a bundle without a plan goes where fewer of its topic's
partitions are, and not back to the one that it left lately. A topic's partitions go by fair shares
(by capacity, rounded up); shedding tolerates twice that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.request import PlacementState, PlaceRequest
from lbcore.plan.place.rules import Draw, awaited_rates, least_rates
from lbcore.plan.readings import readings_of
from lbcore.plan.snapshot import NOBODY, Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCrowding:
    """Topics of which a broker may get too many partitions; others cost nothing.

    members: position in the request → (topic, number of its partitions). held: by topic, broker →
    its partitions so far, without zeros. limit: by topic, int64[n], most that each should have.
    """

    members: Mapping[int, Sequence[tuple[int, int]]]
    held: Sequence[dict[int, int]]
    limit: Sequence[Ints]

    def fits(self, broker: int, position: int) -> bool:
        """True if the broker stays within its limit, this bundle included."""
        for group, count in self.members.get(position, ()):
            if self.held[group].get(broker, 0) + count > self.limit[group].item(broker):
                return False
        return True

    def beyond(self, candidates: Ints, position: int) -> Ints:
        """Return partitions beyond each candidate's limit with this bundle. O(brokers)."""
        found = np.zeros(len(candidates), dtype=np.int64)
        for group, count in self.members.get(position, ()):
            beyond, held = -self.limit[group], self.held[group]
            beyond[np.fromiter(held, np.int64)] += np.fromiter(held.values(), np.int64)
            more = beyond[candidates]
            found += np.maximum(more + count, 0) - np.maximum(more, 0)
        return found

    def count_placed(self, broker: int, position: int) -> None:
        """Count the bundle at its broker."""
        for group, count in self.members.get(position, ()):
            held = self.held[group]
            held[broker] = held.get(broker, 0) + count


def placed_crowding(request: PlaceRequest) -> PlacedCrowding:
    """Return the crowding at the start of a plan, by owned bundles.

    O(bundles + partitions), and nothing where no partitions are known.
    """
    bundles, capacity = request.snapshot.bundles, request.snapshot.brokers.capacity
    brokers, topics = len(capacity), request.snapshot.partitions()
    if not len(topics.rows) or not brokers:
        return PlacedCrowding(members={}, held=(), limit=())
    position = np.full(len(bundles.names), NOBODY, dtype=np.int64)
    position[request.bundles] = np.arange(len(request.bundles))
    group, count, groups = topics.topic, topics.count, len(topics.keys)
    at, owner = position[topics.rows], bundles.owner[topics.rows]
    is_placed = at >= 0
    total = np.bincount(group, weights=count, minlength=groups).astype(np.float64)
    coming = np.bincount(group[is_placed], weights=count[is_placed], minlength=groups)
    stays = (coming[group] > 0) & ~is_placed & (owner >= 0)
    pairs, inverse = np.unique(group[stays] * brokers + owner[stays], return_inverse=True)
    held = np.bincount(inverse, weights=count[stays], minlength=len(pairs)).astype(np.int64)
    most = np.zeros(groups)
    np.maximum.at(most, pairs // brokers, held)
    size = capacity / float(np.cumsum(capacity)[-1])
    full = np.flatnonzero((coming > 0) & (most + coming > np.ceil(total * float(size.min()))))
    number = np.full(groups, NOBODY, dtype=np.int64)
    number[full] = np.arange(len(full))
    kept = is_placed & (number[group] >= 0)
    return PlacedCrowding(
        members=_members(at[kept], number[group[kept]], count[kept]),
        held=_held(number[pairs // brokers], pairs % brokers, held, len(full)),
        limit=_limits(total[full].tolist(), size),
    )


def _members(position: Ints, group: Ints, count: Ints) -> dict[int, list[tuple[int, int]]]:
    found: dict[int, list[tuple[int, int]]] = {}
    for at, one, many in zip(position.tolist(), group.tolist(), count.tolist(), strict=True):
        found.setdefault(at, []).append((one, many))
    return found


def _held(group: Ints, broker: Ints, held: Ints, groups: int) -> list[dict[int, int]]:
    found: list[dict[int, int]] = [{} for _ in range(groups)]
    for one, at, many in zip(group.tolist(), broker.tolist(), held.tolist(), strict=True):
        if one != NOBODY:
            found[one][at] = many
    return found


def _limits(totals: Sequence[float], size: Floats) -> list[Ints]:
    """Return the limits of each topic, computed once for topics of one size."""
    known = {total: np.ceil(total * size).astype(np.int64) for total in dict.fromkeys(totals)}
    return [known[total] for total in totals]


IDLE_POINTS = 10.0
"""Usage of a broker without traffic, which must not decide where idle bundles go."""
NEAR_POINTS = 5.0
"""Difference below which brokers are equally good, so that the less crowded one wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastLoadRule:
    """The placement rule of `ballast`.

    load: float64[n], points, growing with each placement; weight: float64[k], points of capacity 1.
    """

    request: PlaceRequest
    load: Floats
    weight: Floats
    draw: Draw
    crowding: PlacedCrowding

    @staticmethod
    def of(request: PlaceRequest, config: PlacementConfig, draw: Draw) -> "LeastLoadRule":
        """Return the rule at the start of a plan; each bundle counts at least the floor."""
        readings = readings_of(request.snapshot, request.usage, lags=request.usage_lags)
        load = np.maximum(readings.traffic, readings.usage - IDLE_POINTS)
        least: Floats | float = 0.0
        if readings.by_rate:
            least = least_rates(request, config) * readings.cost
            awaited = awaited_rates(request.snapshot, config) * readings.cost
            load = load + awaited / request.snapshot.brokers.capacity
        return LeastLoadRule(
            request=request,
            load=load,
            weight=np.maximum(readings.bundle[request.bundles], least),
            draw=draw,
            crowding=placed_crowding(request),
        )

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`."""
        return self.draw.one_of(self.best(candidates, position), position)

    def best(self, candidates: Ints, position: int) -> Ints:
        """Return the planned broker, else those with the least load including the bundle."""
        planned = int(self.request.planned[position])
        kept: Ints = candidates[candidates == planned]
        if len(kept) or not len(candidates):
            return kept
        size = self.request.snapshot.brokers.capacity
        after = self.load[candidates] + self.weight[position] / size[candidates]
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
        """Return the least crowded of the nearly best candidates, and the best of these."""
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
        return self.load[candidates]

    def count_placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        size = self.request.snapshot.brokers.capacity
        self.load[broker] += self.weight[position] / size[broker]
        if self.request.planned[position] != NOBODY:
            source = self.request.excluded[position]
            self.load[source] -= self.weight[position] / size[source]
        self.crowding.count_placed(broker, position)

    def updated_state(self, state: PlacementState) -> PlacementState:
        """Nothing is remembered."""
        return state

    def _source_after(self, position: int) -> float:
        """Return the load that the bundle's source is left with."""
        source = int(self.request.excluded[position])
        size = float(self.request.snapshot.brokers.capacity[source])
        return float(self.load[source]) - float(self.weight[position]) / size

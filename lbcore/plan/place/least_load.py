"""Placement by `ballast`: an unowned bundle goes where it leaves the least load.

Load is read as the shedder reads it. A bundle that the shedder planned a destination for gets it;
if a filter forbids that, another broker only where it ends no higher than its source does. Among
brokers that are about equally good a bundle without a plan goes where fewer of its topic's
partitions are, and not back to the one that it left lately. A topic's partitions go by fair shares
(by capacity, rounded up); shedding tolerates twice that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings
from lbcore.plan.place.rules import Rule, awaited_rates, least_rates
from lbcore.plan.readings import readings_of
from lbcore.plan.snapshot import NOBODY, Floats, Ints, sequential_sum

Members: TypeAlias = Mapping[int, Sequence[tuple[int, int]]]
"""Position in the request → (crowded topic, number of its partitions); others cost nothing."""


def placed_crowding(
    request: PlaceRequest,
) -> tuple[Members, Sequence[dict[int, int]], Sequence[Ints]]:
    """Return `members`, `held` and `limit` of `LeastLoadRule` at the start of a plan.

    Crowded are topics of which a broker may get too many partitions, owned bundles counted.
    O(bundles + partitions), and nothing where no partitions are known.
    """
    bundles, capacity = request.snapshot.bundles, request.snapshot.brokers.capacity
    brokers, topics = len(capacity), request.snapshot.partitions()
    if not len(topics.rows) or not brokers:
        return {}, (), ()
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
    size = capacity / sequential_sum(capacity)
    full = np.flatnonzero((coming > 0) & (most + coming > np.ceil(total * float(size.min()))))
    number = np.full(groups, NOBODY, dtype=np.int64)
    number[full] = np.arange(len(full))
    kept = is_placed & (number[group] >= 0)
    members: dict[int, list[tuple[int, int]]] = {}
    placed = (at[kept].tolist(), number[group[kept]].tolist(), count[kept].tolist())
    for one, topic, many in zip(*placed, strict=True):
        members.setdefault(one, []).append((topic, many))
    holders: list[dict[int, int]] = [{} for _ in full]
    pair_topic, pair_broker = number[pairs // brokers], pairs % brokers
    for pair in np.flatnonzero(pair_topic != NOBODY).tolist():
        holders[pair_topic[pair]][int(pair_broker[pair])] = int(held[pair])
    totals = total[full].tolist()  # topics of one size share their limits
    limits = {one: np.ceil(one * size).astype(np.int64) for one in dict.fromkeys(totals)}
    return members, holders, [limits[one] for one in totals]


IDLE_POINTS = 10.0
"""Usage of a broker without traffic, which must not decide where idle bundles go."""
NEAR_POINTS = 5.0
"""Difference below which brokers are equally good, so that the less crowded one wins."""


@dataclass(slots=True, kw_only=True)
class LeastLoadRule(Rule):
    """The placement rule of `ballast`.

    load: float64[n], points, growing with each placement; weight: float64[k], points of capacity 1.
    members: see `Members`. held: by topic, broker → its partitions so far, without zeros.
    limit: by topic, int64[n], most that each should have.
    """

    load: Floats
    weight: Floats
    members: Members
    held: Sequence[dict[int, int]]
    limit: Sequence[Ints]

    @staticmethod
    def of(
        request: PlaceRequest, _state: PlacementState, settings: PlaceSettings, seed: int
    ) -> "LeastLoadRule":
        """Return the rule at the start of a plan; each bundle counts at least the floor."""
        config = settings.placement
        readings = readings_of(request.snapshot, request.usage, lags=request.usage_lags)
        load = np.maximum(readings.traffic, readings.usage - IDLE_POINTS)
        least: Floats | float = 0.0
        if readings.by_rate:
            least = least_rates(request, config) * readings.cost
            awaited = awaited_rates(request.snapshot, config) * readings.cost
            load = load + awaited / request.snapshot.brokers.capacity
        members, held, limit = placed_crowding(request)
        return LeastLoadRule(
            request=request,
            load=load,
            weight=np.maximum(readings.bundle[request.bundles], least),
            seed=seed,
            members=members,
            held=held,
            limit=limit,
        )

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
        best: Ints = candidates[after == least]
        if planned != NOBODY:
            source = int(self.request.excluded[position])
            left_there = float(self.load[source] - self.weight[position] / size[source])
            return kept if least > left_there else best
        if position not in self.members:
            return best
        if len(best) == 1 and self._fits(int(best[0]), position):
            return best
        # the least crowded of the nearly best candidates, and the best of these
        is_near = after <= least + NEAR_POINTS
        near, load = candidates[is_near], after[is_near]
        beyond = self._beyond(near, position)
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
        for group, count in self.members.get(position, ()):
            self.held[group][broker] = self.held[group].get(broker, 0) + count

    def _fits(self, broker: int, position: int) -> bool:
        """True if the broker stays within its limits of partitions, this bundle included."""
        return all(
            self.held[group].get(broker, 0) + count <= self.limit[group].item(broker)
            for group, count in self.members.get(position, ())
        )

    def _beyond(self, candidates: Ints, position: int) -> Ints:
        """Return partitions beyond each candidate's limit with this bundle. O(brokers)."""
        found = np.zeros(len(candidates), dtype=np.int64)
        for group, count in self.members.get(position, ()):
            beyond, held = -self.limit[group], self.held[group]
            beyond[np.fromiter(held, np.int64)] += np.fromiter(held.values(), np.int64)
            more = beyond[candidates]
            found += np.maximum(more + count, 0) - np.maximum(more, 0)
        return found

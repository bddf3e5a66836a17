"""Crowding where bundles get a broker: partitions of one topic that come together.

Decides what a broker has too much of while bundles are placed, one after the other; whether that
matters is `least_load`'s. A bundle must go somewhere, and one broker costs as little as another: so
a topic's partitions go by fair shares (by capacity, rounded up), where shedding, which would have
to move them, bears twice of that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lbcore.plan.place.request import NOBODY, PlaceRequest
from lbcore.plan.snapshot import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedCrowding:
    """Of the topics of which some broker may get more than its part; the others cost nothing.

    members: position in the request → (topic, how many of its partitions). held: by topic,
    broker → what it has, growing; without what none has. part: by topic, int64[n].
    """

    members: Mapping[int, Sequence[tuple[int, int]]]
    held: Sequence[dict[int, int]]
    part: Sequence[Ints]

    def fits(self, broker: int, position: int) -> bool:
        """True if the broker has at most its part, with this bundle."""
        for group, count in self.members.get(position, ()):
            if self.held[group].get(broker, 0) + count > self.part[group].item(broker):
                return False
        return True

    def beyond(self, candidates: Ints, position: int) -> Ints:
        """Partitions that this bundle adds beyond the part of each. O(brokers)."""
        found = np.zeros(len(candidates), dtype=np.int64)
        for group, count in self.members.get(position, ()):
            beyond, held = -self.part[group], self.held[group]
            beyond[np.fromiter(held, np.int64)] += np.fromiter(held.values(), np.int64)
            more = beyond[candidates]
            found += np.maximum(more + count, 0) - np.maximum(more, 0)
        return found

    def placed(self, broker: int, position: int) -> None:
        """Count the bundle at its broker."""
        for group, count in self.members.get(position, ()):
            held = self.held[group]
            held[broker] = held.get(broker, 0) + count


def placed_crowding(request: PlaceRequest) -> PlacedCrowding:
    """At the start of a plan: what is owned, without what is placed.

    O(bundles + partitions), and nothing where no partitions are known.
    """
    bundles, capacity = request.snapshot.bundles, request.snapshot.brokers.capacity
    brokers, topics = len(capacity), request.snapshot.partitions()
    if not len(topics.rows) or not brokers:
        return PlacedCrowding(members={}, held=(), part=())
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
        part=_parts(total[full].tolist(), size),
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


def _parts(totals: Sequence[float], size: Floats) -> list[Ints]:
    """Of each topic; worked out once for those of one size."""
    known = {total: np.ceil(total * size).astype(np.int64) for total in dict.fromkeys(totals)}
    return [known[total] for total in totals]

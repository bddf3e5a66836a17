"""Crowding: a topic's partitions, or a namespace's bundles, on too few brokers.

Decides what it costs when a broker has more of them than it should, and which topics are crowded:
what belongs together grows together, so a broker that has all of it is the first to be too full.
Part of what `ballast` makes small (`ballast_search`).

A broker should have at most twice its fair share of a topic's partitions (by capacity, rounded up,
at least two), of a namespace's bundles likewise (at least four). Each beyond costs: a partition
TOPIC_PRICE, so that it moves where its bundle is less than some fifth of a broker's load; a bundle
as much as the fixed part of any move's price, so that it decides only what moves anyway.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from lbcore.model.spread import are_on_too_few
from lbcore.plan.snapshot import Bools, Floats, Ints, Partitions, Snapshot

TOPIC_PRICE = 0.1
"""Of a partition beyond a broker's part, in the objective's unit."""
BUNDLE_PRICE = 0.02
"""Of all bundles of a mean broker, whatever they carry: when they move, or are beyond its part."""
_SHARES = 2.0
_LEAST_TOPIC, _LEAST_NAMESPACE = 2, 4
_CELLS_MAX = 4_000_000
"""Groups times brokers that are looked at in one search; the smallest groups are left out."""
_KEPT_MAX = 1_000
"""Crowded topics that are remembered and acted on at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowding:
    """g groups of which some broker has its part or more, n brokers.

    Bundle row r's memberships are start[r] : start[r + 1] of group (int64[k]) and count (int64[k],
    partitions in it, or 1). part: int64[g, n], what each broker should have at most. beyond:
    int64[g, n], what it has beyond that, below 0 = room. price: float64[g], of each beyond.
    acting: the groups for whose sake alone bundles move. may_give: bool[n], who gives for that.
    """

    start: Ints
    group: Ints
    count: Ints
    part: Ints
    beyond: Ints
    price: Floats
    acting: tuple[int, ...]
    may_give: Bools

    def cost(self, beyond: Ints) -> float:
        """Return the cost of a layout.

        beyond: int64[g, n], as of this layout.
        """
        each = np.maximum(beyond, 0).sum(axis=1)
        return float(np.cumsum(each * self.price)[-1]) if len(self.price) else 0.0

    def partitions_beyond(self, beyond: Ints) -> int:
        """Partitions that brokers have beyond their part, of the topics acted for."""
        return int(np.maximum(beyond[list(self.acting)], 0).sum())

    def concerns(self, rows: Ints) -> bool:
        """True if any of the rows is in one of the groups.

        In most searches few rows are.
        """
        return bool((self.start[rows] < self.start[rows + 1]).any())

    def rows_acting(self) -> Ints:
        """The bundles with partitions of topics that are acted for."""
        is_acting = np.isin(self.group, self.acting)
        rows: Ints = np.searchsorted(self.start, np.flatnonzero(is_acting), side="right") - 1
        return rows

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

        float64[takers, rows]; below 0 = it spreads.
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


def crowded_topics(partitions: Partitions, owner: Ints, brokers: int) -> tuple[int, ...]:
    """Topics whose partitions are on too few of the brokers.

    owner: int64[m], -1 = none; a topic with a partition that nobody has waits.
    O(partitions log partitions).
    """
    if not len(partitions.rows):
        return ()
    topics = len(partitions.keys)
    total = np.bincount(partitions.topic, weights=partitions.count, minlength=topics)
    on = owner[partitions.rows]
    is_whole = np.bincount(partitions.topic[on < 0], minlength=topics) == 0
    pairs = np.unique(partitions.topic * brokers + np.maximum(on, 0))
    used = np.bincount(pairs // brokers, minlength=topics)
    found = np.flatnonzero(is_whole & are_on_too_few(used, total, brokers))
    return tuple(found[:_KEPT_MAX].tolist())


def count_rounds(
    before: Mapping[str, int], names: Iterable[str], *, is_news: bool
) -> dict[str, int]:
    """Return topic → rounds in a row in which it was crowded.

    is_news: some broker has reported since.
    """
    return {name: before.get(name, 0) + int(is_news) for name in names}


def crowding_of(
    snapshot: Snapshot,
    partitions: Partitions,
    size: Floats,
    acting: tuple[int, ...],
    may_give: Bools,
) -> Crowding | None:
    """Return the groups for the search, None if no broker has too much of any.

    size: float64[n], capacity over mean capacity. acting: topics, by their number in `partitions`.
    may_give: bool[n], brokers that give because of them. O((bundles + partitions) log of them).
    """
    bundles, brokers = snapshot.bundles, len(size)
    spaces = len(bundles.namespaces)
    rows = np.concatenate([np.arange(len(bundles.names), dtype=np.int64), partitions.rows])
    group = np.concatenate([bundles.namespace, spaces + partitions.topic])
    count = np.concatenate([np.ones(len(bundles.names), dtype=np.int64), partitions.count])
    groups = spaces + len(partitions.keys)
    total = np.bincount(group, weights=count, minlength=groups)
    least = np.where(np.arange(groups) < spaces, _LEAST_NAMESPACE, _LEAST_TOPIC)
    share = size / float(np.cumsum(size)[-1])
    is_owned = bundles.owner[rows] >= 0
    pairs = group[is_owned] * brokers + bundles.owner[rows][is_owned]
    keys, inverse = np.unique(pairs, return_inverse=True)
    held = np.bincount(inverse, weights=count[is_owned], minlength=len(keys))
    of, at = keys // brokers, keys % brokers
    full = np.unique(of[(held >= _part(total[of], share[at], least[of])) & (total[of] > least[of])])
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
    part = _part(total[column], share, least[column]).astype(np.int64)
    return Crowding(
        start=np.searchsorted(rows[kept], np.arange(len(bundles.names) + 1)),
        group=number[group[kept]],
        count=count[kept],
        part=part,
        beyond=matrix - part,
        price=np.where(full < spaces, BUNDLE_PRICE * brokers / len(bundles.names), TOPIC_PRICE),
        acting=tuple(int(number[spaces + one]) for one in acting if number[spaces + one] >= 0),
        may_give=may_give,
    )


def _part(total: Floats, share: Floats, least: Ints) -> Floats:
    """Return the most that a broker should have of a group of that total."""
    part: Floats = np.maximum(np.ceil(_SHARES * total * share), least)
    return part

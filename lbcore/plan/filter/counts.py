"""Counts per broker: bundles of a namespace, and namespaces of a group.

The numbers that filters compare, of what each broker holds or will hold. Made once per plan for the
bundles to place, and updated with every placement. Source: Pulsar 4.0.8's
brokerToNamespaceToBundleRange map and LoadManagerShared.getAntiAffinityNamespaceOwnedBrokers; the
arrays are ours.
"""

from dataclasses import dataclass

import numpy as np

from lbcore.plan.snapshot import Bools, BundleTable, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCounts:
    """Brokers of the bundles of each namespace that has bundles to place.

    holders: flat brokers, one stretch a namespace with room for what will be placed. start, fill:
    int64[namespaces], where each stretch begins and ends so far.
    """

    brokers: int
    holders: Ints
    start: Ints
    fill: Ints

    @staticmethod
    def of(bundles: BundleTable, placing: Ints, brokers: int) -> "NamespaceCounts":
        """placing: indices of the bundles to place, owned ones count for their owner till then."""
        spaces = len(bundles.namespaces)
        room = np.bincount(bundles.namespace[placing], minlength=spaces)
        is_held = (bundles.owner >= 0) & (room[bundles.namespace] > 0)
        namespace = bundles.namespace[is_held]
        held = np.bincount(namespace, minlength=spaces)
        start = np.concatenate(([0], np.cumsum(held + room)[:-1])).astype(np.int64)
        order = np.argsort(namespace, kind="stable")
        before = np.cumsum(held) - held
        ordered = namespace[order]
        holders = np.zeros(int(np.sum(held + room)), dtype=np.int64)
        holders[start[ordered] + np.arange(len(order)) - before[ordered]] = bundles.owner[is_held][
            order
        ]
        return NamespaceCounts(brokers=brokers, holders=holders, start=start, fill=start + held)

    def counts(self, namespace: int) -> Ints | None:
        """Bundles of the namespace a broker, int64[brokers]; None when nobody has one."""
        start, end = self.start[namespace], self.fill[namespace]
        if start == end:
            return None
        return np.bincount(self.holders[start:end], minlength=self.brokers)

    def add(self, namespace: int, broker: int) -> None:
        """Count one more bundle."""
        self.holders[self.fill[namespace]] = broker
        self.fill[namespace] += 1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """Namespaces of each anti-affinity group that a broker holds with at least one bundle.

    counts: int64[groups, brokers]. held: int64[], ascending, a number a (namespace, broker) pair
    counted at the start; added: those counted since.
    """

    counts: Ints
    held: Ints
    added: set[int]

    @staticmethod
    def of(bundles: BundleTable, group: Ints, groups: int, brokers: int) -> "GroupCounts":
        """group: int64[namespaces], -1 = in none. O(bundles of grouped namespaces x log)."""
        counts = np.zeros((groups, brokers), dtype=np.int64)
        if not groups:
            return GroupCounts(counts=counts, held=np.zeros(0, dtype=np.int64), added=set())
        is_counted: Bools = (bundles.owner >= 0) & (group[bundles.namespace] >= 0)
        pairs = bundles.namespace[is_counted] * brokers + bundles.owner[is_counted]
        held = np.unique(pairs)
        np.add.at(counts, (group[held // brokers], held % brokers), 1)
        return GroupCounts(counts=counts, held=held, added=set())

    def add(self, namespace: int, group: int, broker: int) -> None:
        """Count the namespace on the broker, once."""
        pair = namespace * self.counts.shape[1] + broker
        at = int(np.searchsorted(self.held, pair))
        if pair in self.added or (at < len(self.held) and self.held[at] == pair):
            return
        self.added.add(pair)
        self.counts[group, broker] += 1

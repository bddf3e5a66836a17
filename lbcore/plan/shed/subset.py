"""A snapshot without some brokers: those that drain take no part in balancing.

Decides nothing. The shed phase shows strategies the others and translates their indices back.
Source: ours.
"""

from dataclasses import dataclass, replace

import numpy as np

from lbcore.plan.snapshot import Bools, BrokerTable, Ints, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The smaller snapshot, and each of its brokers' index in the larger one, int64[kept].

    is_whole: nobody is left out, so that indices are the same in both.
    """

    snapshot: Snapshot
    original: Ints
    is_whole: bool = False

    def back(self, brokers: Ints) -> Ints:
        """Indices of the larger snapshot; -1 stays -1."""
        padded: Ints = np.append(self.original, -1)
        found: Ints = padded[brokers]
        return found


def without_brokers(snapshot: Snapshot, is_left_out: Bools) -> Subset:
    """The snapshot without some brokers; their bundles have no owner in it."""
    kept = np.flatnonzero(~is_left_out)
    if len(kept) == len(is_left_out):
        return Subset(snapshot=snapshot, original=kept, is_whole=True)
    number = np.full(len(is_left_out) + 1, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    bundles = snapshot.bundles
    return Subset(
        snapshot=replace(
            snapshot,
            brokers=_chosen(snapshot.brokers, kept),
            bundles=replace(bundles, owner=number[bundles.owner]),
            others=None if snapshot.others is None else snapshot.others[kept],
            gives=None if snapshot.gives is None else snapshot.gives[kept],
        ),
        original=kept,
    )


def _chosen(brokers: BrokerTable, kept: Ints) -> BrokerTable:
    rows = kept.tolist()
    return BrokerTable(
        names=tuple(brokers.names[row] for row in rows),
        percent=brokers.percent[kept],
        traffic=brokers.traffic[kept],
        bundle_count=brokers.bundle_count[kept],
        topic_count=brokers.topic_count[kept],
        weighted_max_ema=brokers.weighted_max_ema[kept],
        throughput_ema=brokers.throughput_ema[kept],
        updated_at_ms=brokers.updated_at_ms[kept],
        is_fresh=brokers.is_fresh[kept],
        is_draining=brokers.is_draining[kept],
        versions=tuple(brokers.versions[row] for row in rows),
        load_manager_classes=tuple(brokers.load_manager_classes[row] for row in rows),
        failure_domains=tuple(brokers.failure_domains[row] for row in rows),
        capacity=brokers.capacity[kept],
        is_flapping=None if brokers.is_flapping is None else brokers.is_flapping[kept],
        is_suspected=None if brokers.is_suspected is None else brokers.is_suspected[kept],
        room=None if brokers.room is None else brokers.room[kept],
    )

"""Snapshots of some of the brokers, planned as clusters of their own.

The shed phase leaves draining brokers out, and asks group by group where policies divide the
cluster (`plan.groups`). Indices are translated back to those of the whole snapshot.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore.plan.shed.common import Selection
from lbcore.plan.snapshot import Bools, BrokerTable, BundleTable, Ints, Partitions, Snapshot

T = TypeVar("T", bound=np.generic)
_NONE = -1
_PAIR = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Subset:
    """The smaller snapshot, and where its brokers and bundles are in the larger one.

    original: int64[kept], each broker's index. rows: int64[kept], each bundle's row, None = all
    bundles are there. is_whole: no broker is left out, so that indices are the same in both.
    """

    snapshot: Snapshot
    original: Ints
    rows: Ints | None = None
    is_whole: bool = False

    def back(self, brokers: Ints) -> Ints:
        """Indices of the larger snapshot; -1 stays -1."""
        padded: Ints = np.append(self.original, _NONE)
        found: Ints = padded[brokers]
        return found

    def selections(
        self, selections: Sequence[Selection], numbers: Mapping[str, float] = MappingProxyType({})
    ) -> tuple[Selection, ...]:
        """Return the selections in the larger snapshot's indices.

        numbers: of all, recorded too.
        """
        if self.is_whole:
            return tuple(selections)
        pairs = np.array([(one.source, one.destination) for one in selections], dtype=np.int64)
        found = self.back(pairs.reshape(-1, 2)).tolist()
        return tuple(
            replace(
                one,
                source=source,
                destination=destination,
                candidates=one.candidates if self.rows is None else self.rows[one.candidates],
                numbers={**numbers, **one.numbers},
            )
            for one, (source, destination) in zip(selections, found, strict=True)
        )


def without_brokers(snapshot: Snapshot, is_left_out: Bools) -> Subset:
    """The snapshot without some brokers; their bundles have no owner in it."""
    kept = np.flatnonzero(~is_left_out)
    if len(kept) == len(is_left_out):
        return Subset(snapshot=snapshot, original=kept, is_whole=True)
    number, bundles = _numbers(kept, len(is_left_out)), snapshot.bundles
    owner = number[bundles.owner]
    left = None if bundles.left is None else number[bundles.left]
    return Subset(
        snapshot=replace(
            snapshot,
            brokers=_chosen(snapshot.brokers, kept),
            bundles=replace(bundles, owner=owner, left=left),
        ),
        original=kept,
    )


def part_of(snapshot: Snapshot, kept: Ints, rows: Ints) -> Subset:
    """Return the snapshot of these brokers and bundles, ascending, as a cluster.

    O(brokers + bundles), most of it for the bundles that are kept.
    """
    brokers = len(snapshot.brokers.names)
    return Subset(
        snapshot=replace(
            snapshot,
            brokers=_chosen(snapshot.brokers, kept),
            bundles=_bundles(snapshot.bundles, rows, _numbers(kept, brokers)),
            partitions=lambda: _partitions(snapshot, rows),
        ),
        original=kept,
        rows=rows,
    )


def _numbers(kept: Ints, count: int) -> Ints:
    """Return each index's place among the kept, int64[count + 1], -1 = left out.

    The last is -1.
    """
    number = np.full(count + 1, _NONE, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return number


def _partitions(snapshot: Snapshot, rows: Ints) -> Partitions:
    whole = snapshot.partitions()
    place = _numbers(rows, len(snapshot.bundles.names))[whole.rows]
    is_kept = place >= 0
    return Partitions(
        rows=place[is_kept],
        topic=whole.topic[is_kept],
        count=whole.count[is_kept],
        keys=whole.keys,
    )


def _bundles(bundles: BundleTable, rows: Ints, broker: Ints) -> BundleTable:
    """The rows of the table. broker: int64[n + 1], each broker's new index."""
    pin, avoid, left = (_at(one, rows) for one in (bundles.pin, bundles.avoid, bundles.left))
    return BundleTable(
        names=_chosen_names(bundles.names, rows),
        namespaces=bundles.namespaces,
        namespace=bundles.namespace[rows],
        owner=broker[bundles.owner[rows]],
        short=bundles.short.take(rows, axis=0),
        long=bundles.long.take(rows, axis=0),
        topics=bundles.topics[rows],
        sessions=bundles.sessions[rows],
        can_move=bundles.can_move[rows],
        versions=bundles.versions[rows],
        needs_owner=_at(bundles.needs_owner, rows),
        avoid=None if avoid is None else broker[avoid],
        is_load_known=_at(bundles.is_load_known, rows),
        is_awaited=_at(bundles.is_awaited, rows),
        pin=None if pin is None else broker[pin],
        is_non_persistent=_at(bundles.is_non_persistent, rows),
        is_paused=_at(bundles.is_paused, rows),
        moved_ms=_at(bundles.moved_ms, rows),
        left=None if left is None else broker[left],
    )


def _chosen_names(names: tuple[str, ...], rows: Ints) -> tuple[str, ...]:
    """The names at these rows; `itemgetter` takes a fifth of a loop's time."""
    if len(rows) < _PAIR:  # it answers one name with no tuple
        return tuple(names[row] for row in rows.tolist())
    found: tuple[str, ...] = itemgetter(*rows.tolist())(names)
    return found


def _at(column: NDArray[T] | None, rows: Ints) -> NDArray[T] | None:
    return None if column is None else column[rows]


def _chosen(brokers: BrokerTable, kept: Ints) -> BrokerTable:
    rows = kept.tolist()
    return BrokerTable(
        names=_chosen_names(brokers.names, kept),
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
        demand=None if brokers.demand is None else brokers.demand[kept],
    )

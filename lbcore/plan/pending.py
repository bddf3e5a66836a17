"""Moves that were decided and that reports don't wholly show yet.

Decides when a move counts as seen, and when it was given up. The adjust phase works out what they
add up to; `finish` adds this cycle's. Source: ours.

A move counts wholly until its destination owns the bundle; then the first `adjust_reports` newer
reports of either broker take it out in equal steps on that side. A move that was given up (the
source owns the bundle, at rest) is taken back. An arrival stands for all bundles without an owner
that a cycle gave to one broker; it fades with the broker's reports from the start.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    BundleTable,
    Floats,
    Ints,
    Snapshot,
)

EmaShifts: TypeAlias = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One bundle on its way.

    percent: the points of each resource that go along, on the source's scale, five. traffic: the
    bundle's, four. destination_scale: × percent = on the destination's scale. ema_points: what the
    move took from the source's smoothed usage (1.0 = 100 %). landed_ms: when the destination first
    was the owner, 0 = not yet. *_seen_ms: newest report counted; *_reports: since it landed.
    """

    source: str
    destination: str
    decided_ms: int
    percent: tuple[float, ...]
    traffic: tuple[float, ...]
    destination_scale: float = 1.0
    ema_points: float = 0.0
    landed_ms: int = 0
    source_seen_ms: int = 0
    destination_seen_ms: int = 0
    source_reports: int = 0
    destination_reports: int = 0

    def to_row(self) -> dict[str, Any]:
        """The move as a JSON object."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Move":
        """The inverse of `to_row`."""
        return cls(**{**row, "percent": tuple(row["percent"]), "traffic": tuple(row["traffic"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What one cycle gave to one broker from nobody. Fields as in Move, on the broker's scale."""

    broker: str
    decided_ms: int
    percent: tuple[float, ...]
    traffic: tuple[float, ...]
    seen_ms: int
    reports: int = 0

    def to_row(self) -> dict[str, Any]:
        """The arrival as a JSON object."""
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> "Arrival":
        """The inverse of `to_row`."""
        return cls(**{**row, "percent": tuple(row["percent"]), "traffic": tuple(row["traffic"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a cycle looks at: the snapshot as reported, its time, and each wanted bundle's row.

    updated_ms: broker → its newest report.
    """

    snapshot: Snapshot
    now_ms: int
    rows: Mapping[str, int]
    updated_ms: Mapping[str, int]


def seen_move(look: Look, name: str, move: Move) -> Move | None:
    """The move after this look; None when its bundle is gone or stayed with its source."""
    row = look.rows.get(name)
    if row is None:
        return None
    brokers, bundles = look.snapshot.brokers.names, look.snapshot.bundles
    if not move.landed_ms:
        owner = int(bundles.owner[row])
        holder = brokers[owner] if owner >= 0 else ""
        at_rest = bool(bundles.can_move[row])
        if holder == move.source and at_rest:
            return None
        if holder != move.destination or not at_rest:
            return move
        now_ms = look.now_ms
        move = replace(move, landed_ms=now_ms, source_seen_ms=now_ms, destination_seen_ms=now_ms)
    return _with_reports(
        move, look.updated_ms.get(move.source, 0), look.updated_ms.get(move.destination, 0)
    )


def _with_reports(move: Move, source_ms: int, destination_ms: int) -> Move:
    is_source_new = source_ms > move.source_seen_ms
    is_destination_new = destination_ms > move.destination_seen_ms
    if not (is_source_new or is_destination_new):
        return move
    return replace(
        move,
        source_seen_ms=max(move.source_seen_ms, source_ms),
        destination_seen_ms=max(move.destination_seen_ms, destination_ms),
        source_reports=move.source_reports + is_source_new,
        destination_reports=move.destination_reports + is_destination_new,
    )


def seen_arrival(look: Look, arrival: Arrival) -> Arrival:
    """The arrival after this look."""
    updated_ms = look.updated_ms.get(arrival.broker, 0)
    if updated_ms <= arrival.seen_ms:
        return arrival
    return replace(arrival, seen_ms=updated_ms, reports=arrival.reports + 1)


def move_of(snapshot: Snapshot, usage: Floats, step: tuple[int, int, int], now_ms: int) -> Move:
    """A decided move. step: bundle row, source and destination index; usage: of each broker.

    The bundle's share of its source's load is its share of the source's bytes, or of the messages
    where no bytes flow.
    """
    bundle, source, destination = step
    brokers = snapshot.brokers
    volume = snapshot.bundles.short[bundle].tolist()
    share = _share(volume, brokers.traffic[source].tolist())
    return Move(
        source=brokers.names[source],
        destination=brokers.names[destination],
        decided_ms=now_ms,
        percent=tuple(points * share for points in brokers.percent[source].tolist()),
        traffic=tuple(volume),
        destination_scale=float(brokers.capacity[source] / brokers.capacity[destination]),
        ema_points=float(usage[source]) * share,
    )


def _share(bundle: list[float], broker: list[float]) -> float:
    for first, second in ((THROUGHPUT_IN, THROUGHPUT_OUT), (RATE_IN, RATE_OUT)):
        total = broker[first] + broker[second]
        if total > 0:
            return min(1.0, (bundle[first] + bundle[second]) / total)
    return 0.0


def arrivals_of(
    snapshot: Snapshot, bundles: Ints, destination: Ints, now_ms: int
) -> tuple[Arrival, ...]:
    """One arrival a broker for bundles without an owner that were just placed.

    Their points follow from their bytes by the cluster's ratio of points to bytes, because no
    broker shows yet what they cost.
    """
    brokers, table = snapshot.brokers, snapshot.bundles
    traffic = _sums(destination, _columns(table, bundles), len(brokers.names))
    points = _sums(np.zeros(len(brokers.names), dtype=np.int64), _points(snapshot), 1)[0]
    total = _sums(np.zeros(len(brokers.names), dtype=np.int64), brokers.traffic, 1)[0]
    bytes_in_all = float(total[THROUGHPUT_IN] + total[THROUGHPUT_OUT])
    ratio = points / bytes_in_all if bytes_in_all > 0 else points * 0.0
    arrivals = []
    for broker in np.unique(destination).tolist():
        volume = traffic[broker]
        size = float(volume[THROUGHPUT_IN] + volume[THROUGHPUT_OUT])
        percent = ratio * size / float(brokers.capacity[broker])
        arrivals.append(
            Arrival(
                broker=brokers.names[broker],
                decided_ms=now_ms,
                percent=tuple(percent.tolist()),
                traffic=tuple(volume.tolist()),
                seen_ms=max(now_ms, int(brokers.updated_at_ms[broker])),
            )
        )
    return tuple(arrivals)


def _columns(table: BundleTable, bundles: Ints) -> Floats:
    chosen: Floats = table.short[bundles]
    return chosen


def _points(snapshot: Snapshot) -> Floats:
    points: Floats = snapshot.brokers.percent * snapshot.brokers.capacity[:, np.newaxis]
    return points


def _sums(index: Ints, values: Floats, length: int) -> Floats:
    """Sums of rows by index, in row order; float64[length, columns]."""
    columns = [
        np.bincount(index, weights=values[:, column], minlength=length)
        for column in range(values.shape[1])
    ]
    return np.stack(columns, axis=1)

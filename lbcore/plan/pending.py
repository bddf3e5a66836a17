"""Load that was decided to move and that reports don't show yet.

A broker's unreported load is what decided moves will add to its reports (negative: take from them).
With each newer report it is reduced by the report's change in that direction. The rest shrinks with
each report that comes after the broker's last move has arrived, so that a wrong estimate is
forgotten. Usages may be older than their report (`signals.usage_lag_ms`); until they can show a
move, the rest does not shrink. The adjust phase adds unreported load to what brokers report;
`finish` adds this cycle's.

Worked: the load is 90 points, of which 40 are to leave: unreported −40, adjusted 50. The next
report is still 90 (measured too early): unchanged. A report of 60: unreported −10, adjusted 50. A
report of 50: unreported 0.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

import numpy as np

from lbcore.model.resources import COUNT, complete
from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Bools,
    BrokerTable,
    Floats,
    Ints,
    Snapshot,
    sums_by_owner,
    throughput,
)

LoadVector: TypeAlias = tuple[float, ...]

SCORE = COUNT
SCALED = COUNT + 1
THROUGHPUT_EMA = SCALED + 4
COLUMNS = THROUGHPUT_EMA + 1
"""A vector of load: each resource in points, the smoothed score (1.0 = 100 %), msg/s in and out,
bytes/s in and out, the smoothed throughput. Those up to the score depend on the broker's size."""
NEGLIGIBLE_LOAD = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingMove:
    """One move under way.

    load: its vector, in points of the source. destination_scale: factor that turns these points
    into the destination's. ema_points: part that it took from the source's average usage
    (1.0 = 100 %).
    """

    source: str
    destination: str
    decided_ms: int
    load: LoadVector
    destination_scale: float = 1.0
    ema_points: float = 0.0

    def at_destination(self) -> LoadVector:
        """Return the load in points of the destination."""
        scaled = (value * self.destination_scale for value in self.load[:SCALED])
        return (*scaled, *self.load[SCALED:])


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreportedLoad:
    """One broker's unreported load.

    report_ms, shown: time and load of the newest report that was counted. load: the unreported
    load. busy_ms: last time at which a move of the broker was decided, under way, or arrived.
    """

    report_ms: int
    shown: LoadVector
    load: LoadVector
    busy_ms: int


def complete_vector(vector: LoadVector) -> LoadVector:
    """Return a vector with 0 for resources that its writer did not know."""
    others = COLUMNS - COUNT
    return (*complete(vector[:-others]), *vector[-others:])


class MoveOutcome(Enum):
    """Outcome of a move."""

    UNDER_WAY = "under_way"
    ARRIVED = "arrived"
    GIVEN_UP = "given_up"
    GONE = "gone"


def move_outcome(snapshot: Snapshot, row: int | None, move: PendingMove) -> MoveOutcome:
    """Return the outcome of a move, judged by its bundle's present owner.

    row: the bundle's row in the snapshot, None = it is gone.
    """
    if row is None:
        return MoveOutcome.GONE
    owner = int(snapshot.bundles.owner[row])
    holder = snapshot.brokers.names[owner] if owner >= 0 else ""
    if not snapshot.bundles.can_move[row]:
        return MoveOutcome.UNDER_WAY
    if holder == move.destination:
        return MoveOutcome.ARRIVED
    return MoveOutcome.GIVEN_UP if holder == move.source else MoveOutcome.GONE


def reported_load(brokers: BrokerTable) -> Floats:
    """Return each broker's reported load, float64[n, COLUMNS]."""
    score, volume = brokers.weighted_max_ema[:, np.newaxis], brokers.throughput_ema[:, np.newaxis]
    return np.concatenate([brokers.percent, score, brokers.traffic, volume], axis=1)


def with_load(brokers: BrokerTable, added: Floats) -> BrokerTable:
    """Add float64[n, COLUMNS] to the brokers' vectors; loads stay at least 0."""
    vectors = np.maximum(reported_load(brokers) + added, 0.0)
    return replace(
        brokers,
        percent=vectors[:, :COUNT],
        weighted_max_ema=vectors[:, SCORE],
        traffic=vectors[:, SCALED:THROUGHPUT_EMA],
        throughput_ema=vectors[:, THROUGHPUT_EMA],
    )


def remaining_unreported_load(
    unreported: Mapping[str, UnreportedLoad],
    brokers: BrokerTable,
    is_busy: Bools,
    keep: float,
    usage_lag_ms: int = 0,
) -> Floats:
    """Return unreported loads after the newest reports, float64[n, COLUMNS].

    is_busy: bool[n], a move of the broker is under way or has just arrived. keep: share of the rest
    that is kept after a report of a broker that was not busy; smoothed columns are kept whole, as
    they change slowly. usage_lag_ms: for resources, a report counts as such only this long after
    the broker was busy.
    """
    result = np.zeros((len(brokers.names), COLUMNS))
    rows = [index for index, name in enumerate(brokers.names) if name in unreported]
    if not rows:
        return result
    known = [unreported[brokers.names[row]] for row in rows]
    load, updated_ms = np.array([one.load for one in known]), brokers.updated_at_ms[rows]
    change = reported_load(brokers)[rows] - np.array([one.shown for one in known])
    left = np.where(
        load < 0,
        np.minimum(load - np.minimum(change, 0.0), 0.0),
        np.maximum(load - np.maximum(change, 0.0), 0.0),
    )
    busy_ms = np.array([one.busy_ms for one in known])
    lag_ms = np.zeros(COLUMNS, dtype=np.int64)
    lag_ms[:COUNT] = usage_lag_ms
    is_quiet = (updated_ms > busy_ms + lag_ms[:, np.newaxis]).T & ~is_busy[rows][:, np.newaxis]
    is_quiet[:, [SCORE, THROUGHPUT_EMA]] = False
    left = np.where(is_quiet, left * keep, left)
    is_newer = updated_ms > np.array([one.report_ms for one in known])
    result[rows] = np.where(is_newer[:, np.newaxis], left, load)
    return result


def unreported_by_broker(
    load: Floats,
    before: Mapping[str, UnreportedLoad],
    brokers: BrokerTable,
    touched: Mapping[int, int],
) -> dict[str, UnreportedLoad]:
    """Return the unreported load to remember, without brokers that have none.

    load: float64[n, COLUMNS]. touched: brokers that are busy now, index → time.
    """
    shown, updated = reported_load(brokers), brokers.updated_at_ms
    load = np.where(np.abs(load) < NEGLIGIBLE_LOAD, 0.0, load)
    at = np.flatnonzero(load.any(axis=1))
    busy_ms = {name: before[name].busy_ms if name in before else 0 for name in brokers.names}
    busy_ms |= {brokers.names[index]: at_ms for index, at_ms in touched.items()}
    columns = (at.tolist(), updated[at].tolist(), shown[at].tolist(), load[at].tolist())
    return {
        brokers.names[index]: UnreportedLoad(
            report_ms=report_ms,
            shown=tuple(shown_there),
            load=tuple(load_there),
            busy_ms=busy_ms[brokers.names[index]],
        )
        for index, report_ms, shown_there, load_there in zip(*columns, strict=True)
    }


def move_of(
    snapshot: Snapshot, usage: Floats, step: tuple[int, int, int], now_ms: int
) -> PendingMove:
    """Return a decided move.

    step: bundle row, source and destination index. usage: of each broker. The move's load is the
    bundle's share of the source's load, by bytes, or by messages if no bytes flow.
    """
    bundle, source, destination = step
    brokers = snapshot.brokers
    volume = snapshot.bundles.short[bundle]
    share = load_share(volume, brokers.traffic[source])
    points = (value * share for value in brokers.percent[source].tolist())
    score = float(brokers.weighted_max_ema[source]) * share
    smoothed_volume = float(brokers.throughput_ema[source]) * share
    return PendingMove(
        source=brokers.names[source],
        destination=brokers.names[destination],
        decided_ms=now_ms,
        load=(*points, score, *volume.tolist(), smoothed_volume),
        destination_scale=float(brokers.capacity[source] / brokers.capacity[destination]),
        ema_points=float(usage[source]) * share,
    )


def load_share(bundle: Floats, broker: Floats) -> float:
    """Return a bundle's share of its broker's load, 0..1, by bytes, else by messages."""
    mine, all_of_it = bundle.tolist(), broker.tolist()
    for first, second in ((THROUGHPUT_IN, THROUGHPUT_OUT), (RATE_IN, RATE_OUT)):
        total = all_of_it[first] + all_of_it[second]
        if total > 0:
            return float(min(1.0, (mine[first] + mine[second]) / total))
    return 0.0


def placed_load(snapshot: Snapshot, bundles: Ints, destination: Ints) -> Floats:
    """Return the load that placed bundles add to their brokers, float64[n, COLUMNS].

    Points are computed from bytes by the cluster's ratio, because no report shows the bundles yet.
    """
    brokers, count = snapshot.brokers, len(snapshot.brokers.names)
    if not len(bundles):
        return np.zeros((count, COLUMNS))
    placed = snapshot.bundles.short[bundles].T
    traffic = np.stack([sums_by_owner(one, destination, count) for one in placed], axis=1)
    shown = reported_load(brokers)[:, :SCALED] * brokers.capacity[:, np.newaxis]
    points = np.cumsum(shown, axis=0)[-1]
    everything = float(throughput(np.cumsum(brokers.traffic, axis=0)[-1:])[0])
    per_byte = points / everything if everything > 0 else np.zeros(SCALED)
    size = throughput(traffic)
    scaled = (size / brokers.capacity)[:, np.newaxis] * per_byte
    return np.concatenate([scaled, traffic, size[:, np.newaxis]], axis=1)

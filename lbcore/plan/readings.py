"""Load as the strategy `ballast` reads it: of brokers, and of their bundles.

In points: 100 = a broker of its size is full. Two readings: *usage* is what a broker reports, moves
under way counted (where usages lag, plus what traffic has changed by since); *traffic* is what the
bundles that it will own carry, wherever they were measured. A broker is hot, or cold, only as far
as both say so. Another process on the machine, a gauge that lags or a report from before a move
then don't look like load that can be moved. After Mimir's rates per owner and bundle, and the
prediction store of its rebalancer.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from lbcore.plan.snapshot import (
    BrokerTable,
    Floats,
    Ints,
    Snapshot,
    message_rate,
    sequential_sum,
    sums_by_owner,
    throughput,
)
from lbcore.signals.usage import BANDWIDTH_IN, BANDWIDTH_OUT, CPU

PERCENT = 100.0
JUMP, WITH_A_JUMP = 1.4, 1.1
"""Ratio of a broker's own count to its bundles' averages that still counts as noise.

The second one holds while some broker's count has jumped: averages are old then, also those of
bundles that it has given away."""
_CHANGED_MIN = 0.02
"""Share of a broker's load that must have begun to change, to attribute the rest of a jump."""
_UNKNOWN_COST = 1e-3
"""Points per unit of traffic while no broker shows any: enough to count bundles by."""


FULL_POINTS, SURE_POINTS, DEMAND_FACTOR_MAX = 95.0, 98.0, 3.0
"""From the first on usage is a lower bound of demand; at the second the demand factor is full."""
ROOM_POINTS = 90.0
"""Brokers take load of a full one only up to here."""


TARGET_POINTS = 75.0
"""Mean usage after adding the missing brokers, once the mean is above `ROOM_POINTS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Readings of n brokers and m bundles, in points.

    by_rate: traffic is messages, else bytes. cost: points of capacity 1 per msg/s or byte/s.
    bundle: float64[m], points of a broker of capacity 1. usage, traffic, shown: float64[n], of the
    broker's own capacity; shown: the traffic that the broker itself reports, moves under way
    counted. capacity: float64[n].
    """

    by_rate: bool
    cost: float
    bundle: Floats
    usage: Floats
    traffic: Floats
    shown: Floats
    capacity: Floats

    @property
    def hot(self) -> Floats:
        """Return the lowest reading: load that all readings confirm, float64[n]."""
        return np.minimum(np.minimum(self.usage, self.traffic), self.shown)

    @property
    def cold(self) -> Floats:
        """Return the higher of usage and traffic, float64[n]."""
        return np.maximum(self.usage, self.traffic)


def readings_of(snapshot: Snapshot, usage: Floats, *, lags: bool = False) -> Readings:
    """Return the readings of a snapshot. usage: float64[n], weighted, 1.0 = 100 %.

    lags: usages are averages of the past (`SignalsConfig.usage_lag_ms`), about as old as the
    averages of ten reports. They are corrected by the change of traffic since; after a jump up they
    are at least the present traffic's cost.

    Worked: brokers of 10, 50 and 2 points of traffic that use 10, 50 and 70 % (the last one's is
    another process's): hot 10, 50, 2, cold 10, 50, 70. Traffic that has trebled on a broker that
    shows 10 %, and 10 by the averages: with a lag it uses 30, else 10. O(bundles + brokers log
    brokers).
    """
    brokers, bundles = snapshot.brokers, snapshot.bundles
    used = brokers.percent[:, (CPU, BANDWIDTH_IN, BANDWIDTH_OUT)] * brokers.capacity[:, np.newaxis]
    cpu, *network = (sequential_sum(column) for column in used.T)
    by_rate = not max(network) > cpu  # by bytes if the cluster uses more of its network
    traffic_of = message_rate if by_rate else throughput
    averaged, shown = traffic_of(bundles.short), traffic_of(brokers.traffic)
    load = _as_of_now(averaged, traffic_of(bundles.long), bundles.owner, shown)
    owned = sums_by_owner(load, bundles.owner, len(usage))
    by_averages = sums_by_owner(averaged, bundles.owner, len(usage)) if lags else owned
    cost = unit_cost(PERCENT * usage * brokers.capacity, by_averages)
    traffic = owned * cost / brokers.capacity
    usage_now = PERCENT * usage + (owned - by_averages) * cost / brokers.capacity
    if lags:  # a gauge that was read before the jump, or while it was going on, can't deny it
        has_jumped = owned > JUMP * by_averages
        usage_now = np.where(has_jumped, np.maximum(usage_now, traffic), usage_now)
    return Readings(
        by_rate=by_rate,
        cost=cost,
        bundle=load * cost,
        usage=np.clip(usage_now, 0.0, None),
        traffic=traffic,
        shown=shown * cost / brokers.capacity,
        capacity=brokers.capacity,
    )


def with_demand(readings: Readings, snapshot: Snapshot) -> Readings:
    """Return the readings with offered instead of served load, where it is reported."""
    demand = snapshot.brokers.demand
    if demand is None:
        return readings
    times = np.where(np.isnan(demand), 1.0, demand)
    return replace(
        readings,
        bundle=readings.bundle * np.append(times, 1.0)[snapshot.bundles.owner],
        usage=readings.usage * times,
        traffic=readings.traffic * times,
        shown=readings.shown * times,
    )


def missing_brokers(brokers: BrokerTable, usage: Floats, of: Ints) -> tuple[int, float]:
    """Return the number of brokers to add for the target mean, and the mean in points.

    They have the mean capacity. 0 while the mean is below `ROOM_POINTS`. usage: float64[n], 1.0 =
    100 %. of: int64[k], the group, whose draining brokers don't count. Worked: six at 100 %: 6 x
    (100 / 75 - 1) = 2.
    """
    times = np.ones(len(of)) if brokers.demand is None else np.nan_to_num(brokers.demand[of], nan=1)
    size = np.where(brokers.is_draining[of], 0.0, brokers.capacity[of])
    total = sequential_sum(size)
    if not total > 0.0:
        return 0, 0.0
    mean = sequential_sum(PERCENT * usage[of] * times * size) / total
    if mean < ROOM_POINTS:
        return 0, mean
    return math.ceil(int(np.count_nonzero(size)) * (mean / TARGET_POINTS - 1.0) - 1e-9), mean


def demand_factor_of(usage: Floats, demand: Floats | None) -> Floats:
    """Return the demand factor of each broker: demand over served load, float64[n].

    Load that leaves a full broker is served elsewhere, so it grows by this factor. 1 where clients'
    demand is known or the broker has room; up to `DEMAND_FACTOR_MAX` where it is full. usage:
    points.
    """
    part = np.clip((usage - FULL_POINTS) / (SURE_POINTS - FULL_POINTS), 0.0, 1.0)
    demand_factor: Floats = 1.0 + (DEMAND_FACTOR_MAX - 1.0) * part
    return demand_factor if demand is None else np.where(np.isnan(demand), demand_factor, 1.0)


def _as_of_now(load: Floats, before: Floats, owner: Ints, shown: Floats) -> Floats:
    """Return the present load of each bundle, float64[m], by its broker's own count.

    load, before: float64[m], averages of ten reports and of a thousand. An average of ten follows a
    jump in minutes, the broker's own count (`shown`) at once. A difference above noise belongs to
    the bundles that began to change, in proportion to their change; without any, the report is old
    and the difference is ignored. Worked: 10 and 10 by averages, 60 counted, the second one's long
    average 5: it jumped, so 10 and 50.
    """
    owned = sums_by_owner(load, owner, len(shown))
    ratio = np.where((owned > 0) & (shown > 0), shown / np.where(owned > 0, owned, 1.0), 1.0)
    apart = np.maximum(ratio, 1.0 / ratio)
    if not (apart > JUMP).any():
        return load
    side = np.append(np.sign(ratio - 1.0), 0.0)[owner]
    begun = np.maximum((load - before) * side, 0.0)
    total = sums_by_owner(begun, owner, len(shown))
    is_new = (apart > WITH_A_JUMP) & (total > _CHANGED_MIN * owned)
    each = np.where(is_new, (shown - owned) / np.where(is_new, total, 1.0), 0.0)
    found: Floats = np.clip(load + begun * np.append(each, 0.0)[owner], 0.0, None)
    return found


def unit_cost(points: Floats, owned: Floats) -> float:
    """Return the points that a unit of traffic makes.

    The median over brokers, weighted by traffic, so that another process on one machine does not
    count.
    """
    busy: Ints = np.flatnonzero((owned > 0) & (points > 0))
    if not len(busy):
        return _UNKNOWN_COST
    ratio = points[busy] / owned[busy]
    order = np.argsort(ratio, kind="stable")
    weight = np.cumsum(owned[busy][order])
    return float(ratio[order[int(np.searchsorted(weight, weight[-1] / 2.0))]])

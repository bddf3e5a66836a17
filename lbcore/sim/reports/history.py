"""History of a run from its `load_history`: brokers, owners, imbalance.

Decides how the rows become a history. A broker is away while it owns nothing and reports nothing
new. A bundle has moved when another broker has it an interval later. Usage is a linear function of
load, fitted to all rows. `backtest` makes a scenario of it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from lbcore.bounds.moves import Brokers, least_imbalance
from lbcore.model.names import parse_bundle
from lbcore.model.resources import local_max
from lbcore.plan.groups import members_by_group
from lbcore.signals.imbalance import floor_adjusted_imbalance, imbalance, worst_of
from lbcore.sim.judge.bounds import BesideBound, beside
from lbcore.sim.judge.measures import statistic
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, Floats
from lbcore.sim.scenario.metrics import MEAN
from lbcore.sim.summary import ObservedMove, Owned, moves, thrash

Row = Mapping[str, Any]

MINUTE_MS = 60_000
"""An interval's length where there is no other to tell it."""
AWAY_INTERVALS = 3
"""So many rows in a row without anything new, and the broker was away."""
_PERCENT = 100.0
_FITTED_MIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Usage in percent = idle + 100 × msg/s / (full_rate × capacity), over some rows.

    rows: 0 = nothing to fit; then full_rate is the simulator's own and idle 0.
    """

    full_rate: float
    idle: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """One interval.

    owners: bundle → broker; rates: bundle → msg/s in + out; there: brokers. groups: of
    `plan.groups`, broker → the first broker of its isolation group; empty: all are one.
    """

    at_ms: int
    owners: Mapping[str, str]
    rates: Mapping[str, float]
    there: frozenset[str]
    groups: Mapping[str, str]

    def parts(self) -> "list[Interval]":
        """The interval of each isolation group that has a broker."""
        if not self.groups:
            return [self]
        there = sorted(self.there)
        members = members_by_group(there, self.groups).values()
        return [self._part(frozenset(there[at] for at in own.tolist())) for own in members]

    def _part(self, there: frozenset[str]) -> "Interval":
        owners = {bundle: broker for bundle, broker in self.owners.items() if broker in there}
        rates = {bundle: self.rates[bundle] for bundle in owners}
        return replace(self, owners=owners, rates=rates, there=there)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Recorded intervals of a run, in order.

    capacities: of each broker that was ever present.
    """

    intervals: Sequence[Interval]
    capacities: Mapping[str, float]
    fit: Fit

    def loads(self, interval: Interval) -> dict[str, float]:
        """Usage in percent of each broker that was there, as the fitted line says."""
        rates = dict.fromkeys(sorted(interval.there), 0.0)
        for bundle, broker in sorted(interval.owners.items()):
            if broker in rates:
                rates[broker] += interval.rates[bundle]
        return {
            name: self.fit.idle + _PERCENT * rate / (self.fit.full_rate * self.capacities[name])
            for name, rate in rates.items()
        }

    def floor(self, interval: Interval) -> float:
        """Percent that the hottest bundle alone makes on a broker of the mean capacity."""
        there = [self.capacities[name] for name in sorted(interval.there)]
        mean = math.fsum(there) / len(there) if there else 1.0
        return _PERCENT * max(interval.rates.values(), default=0.0) / (self.fit.full_rate * mean)

    def least(self, interval: Interval) -> float:
        """The least imbalance that its bundles, left whole, could have had on its brokers."""
        capacity = np.array([self.capacities[name] for name in sorted(interval.there)])
        brokers = Brokers(capacity=capacity, foreign=np.full(len(capacity), self.fit.idle))
        rates = np.array([interval.rates[name] for name in sorted(interval.rates)])
        return least_imbalance(rates * (_PERCENT / self.fit.full_rate), brokers)

    def moves(self) -> list[ObservedMove]:
        """Each change of owner between two intervals."""
        return moves(
            Owned(bundle=bundle, broker=broker, at_ms=interval.at_ms)
            for interval in self.intervals
            for bundle, broker in sorted(interval.owners.items())
        )

    def splits(self) -> int:
        """Bundles that were gone and parts of them there."""
        return sum(_splits_between(a.owners, b.owners) for a, b in pairwise(self.intervals))


def make_history(rows: Iterable[Row], capacities: Mapping[str, float]) -> History:
    """The history of `load_history`'s rows of one cluster, at least one.

    Without a last interval that is being written: the rows of a large cluster come in several
    batches.
    """
    known = sorted(rows, key=lambda row: (row["minute_ms"], row["broker"]))
    by_time: dict[int, list[Row]] = {}
    for row in known:
        by_time.setdefault(int(row["minute_ms"]), []).append(row)
    if _is_begun(list(by_time.values())):
        known = known[: -len(by_time.popitem()[1])]
    away = _away(known)
    weights = {row["broker"]: capacities.get(row["broker"]) or 1.0 for row in known}
    intervals = [_interval(at_ms, found, away) for at_ms, found in sorted(by_time.items())]
    return History(intervals=intervals, capacities=weights, fit=_fit(known, weights, away))


def _is_begun(intervals: Sequence[Sequence[Row]]) -> bool:
    """True if the last interval is incomplete.

    It has only the first names of the interval before. intervals: rows by name.
    """
    if not intervals[1:]:
        return False
    before, last = ([row["broker"] for row in rows] for rows in intervals[-2:])
    return len(last) < len(before) and last == before[: len(last)]


def what_happened(history: History) -> dict[str, float | None]:
    """Return the run's own numbers, by the simulator's metric names.

    Once an interval. Moves and splits that were undone within an interval are not seen.
    """
    plain, adjusted = [], []
    for interval in history.intervals:
        loads = [(list(history.loads(part).values()), part) for part in interval.parts()]
        plain.append(worst_of(imbalance(own) for own, _ in loads))
        adjusted.append(
            worst_of(floor_adjusted_imbalance(own, history.floor(part)) for own, part in loads)
        )
    made = history.moves()
    return {
        **_statistics("imbalance", plain),
        **_statistics("floor_adjusted", adjusted),
        "moves": float(len(made)),
        "thrash": thrash(made),
        "splits": float(history.splits()),
    }


def beside_least(history: History) -> BesideBound:
    """Compare the run's imbalance with the least possible one.

    Each interval lasts until the next one. The bound is that of the bundles at that time; splitting
    one may go below it.
    """
    times = [interval.at_ms for interval in history.intervals]
    lasted = [after - before for before, after in pairwise(times)]
    lasted.append(lasted[-1] if lasted else MINUTE_MS)
    moments = []
    for interval, lasted_ms in zip(history.intervals, lasted, strict=True):
        parts = interval.parts()
        value = worst_of(imbalance(history.loads(part).values()) for part in parts)
        if value is not None:
            moments.append((value, max(map(history.least, parts)), lasted_ms))
    return beside(moments)


def _statistics(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {f"{name}.{stat}": statistic(known, stat) for stat in (MEAN, "p50", "p95")}


def _interval(at_ms: int, rows: Sequence[Row], away: frozenset[tuple[str, int]]) -> Interval:
    owners, rates = {}, {}
    for row in rows:
        columns = (row["bundles"], row["msg_rate_in"], row["msg_rate_out"])
        for bundle, rate_in, rate_out in zip(*columns, strict=True):
            owners[bundle], rates[bundle] = row["broker"], rate_in + rate_out
    there = frozenset(row["broker"] for row in rows if (row["broker"], at_ms) not in away)
    groups = {row["broker"]: group for row in rows if (group := row.get("broker_group"))}
    return Interval(at_ms=at_ms, owners=owners, rates=rates, there=there, groups=groups)


def _away(rows: Sequence[Row]) -> frozenset[tuple[str, int]]:
    """Return (broker, minute_ms) of rows that repeat an absent broker's earlier row."""
    still: dict[str, list[int]] = {}
    last: dict[str, Sequence[float]] = {}
    found: set[tuple[str, int]] = set()
    for row in rows:
        name, percent = row["broker"], tuple(row.get("percent") or ())
        is_same = bool(percent) and last.get(name) == percent and not row["bundles"]
        still[name] = [*still.get(name, []), int(row["minute_ms"])] if is_same else []
        last[name] = percent
        if len(still[name]) >= AWAY_INTERVALS:
            found |= {(name, at_ms) for at_ms in still[name]}
    return frozenset(found)


def _fit(
    rows: Sequence[Row], capacities: Mapping[str, float], away: frozenset[tuple[str, int]]
) -> Fit:
    """Least squares of the highest usage (memory left out, as in usage) over the rate."""
    pairs = [
        (_rate(row) / capacities[row["broker"]], local_max(row["percent"]))
        for row in rows
        if row.get("percent") and (row["broker"], row["minute_ms"]) not in away
    ]
    nothing = Fit(full_rate=FULL_RATE_MSG_PER_S, idle=0.0, rows=0)
    if len(pairs) < _FITTED_MIN:
        return nothing
    rates, usages = np.array(pairs).T
    varied = _sum((rates - rates.mean()) ** 2)
    slope = _sum((rates - rates.mean()) * (usages - usages.mean())) / varied if varied else 0.0
    idle = float(usages.mean() - slope * rates.mean())
    if slope <= 0.0 or idle < 0.0:
        slope, idle = float(usages.mean() / rates.mean()) if rates.mean() else 0.0, 0.0
    if slope <= 0.0:
        return nothing
    return Fit(full_rate=_PERCENT / slope, idle=idle, rows=len(pairs))


def _rate(row: Row) -> float:
    return math.fsum(row["msg_rate_in"]) + math.fsum(row["msg_rate_out"])


def _sum(values: Floats) -> float:
    return float(np.cumsum(values)[-1])


def _splits_between(before: Mapping[str, str], after: Mapping[str, str]) -> int:
    """Bundles of `before` that have a smaller one in their place."""
    starts: dict[tuple[str, int], int] = {}
    for bundle in sorted(after.keys() - before.keys()):
        namespace, lower, upper = parse_bundle(bundle)
        starts[namespace, lower] = upper
    return sum(
        starts.get((namespace, lower), upper) < upper
        for namespace, lower, upper in map(parse_bundle, sorted(before.keys() - after.keys()))
    )

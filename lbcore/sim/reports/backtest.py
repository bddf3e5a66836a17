"""A recorded run as a scenario: same brokers, bundles and load, other balancing.

Taken over from a history (rows of `load_history`): owners at its start, brokers that came and went,
the load of each stretch of the hash space. Balancing is left out: a strategy shall do it now. Open
loop: load goes with its bundle as it was recorded, whatever it would have been elsewhere.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Any

import numpy as np

from lbcore.bounds.moves import Brokers, least_imbalance
from lbcore.model.bundles import NamespaceBundles
from lbcore.model.names import FULL_UPPER, namespace_of_bundle, parse_bundle
from lbcore.model.resources import local_max
from lbcore.model.times import HOUR_MS
from lbcore.plan.groups import members_by_group
from lbcore.signals.shown_load import floor_adjusted_imbalance, imbalance, worst_of
from lbcore.sim.judge.bounds import BoundComparison, compare_with_bound
from lbcore.sim.judge.measures import statistic
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, total
from lbcore.sim.load.recording import RecordedNamespace, Recording, positions_of
from lbcore.sim.scenario.metrics import MEAN
from lbcore.sim.scenario.model import (
    AS_RECORDED,
    BrokerSpec,
    LoadSpec,
    NamespaceSpec,
    OwnerSpec,
    Scenario,
    ScenarioEvent,
)
from lbcore.sim.scenario.tokens import Rate
from lbcore.sim.summary import BundleOpened, ObservedMove, moves, thrash

Row = Mapping[str, Any]

MINUTE_MS = 60_000
"""Assumed length of a single interval."""
AWAY_INTERVALS = 3
"""Consecutive rows without anything new after which a broker counts as away."""
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

    owners: bundle → broker; rates: bundle → msg/s in + out; there: brokers that run. groups: of
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
        parts = []
        for own in members:
            part = frozenset(there[at] for at in own.tolist())
            owners = {bundle: broker for bundle, broker in self.owners.items() if broker in part}
            rates = {bundle: self.rates[bundle] for bundle in owners}
            parts.append(replace(self, owners=owners, rates=rates, there=part))
        return parts


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
            BundleOpened(bundle=bundle, broker=broker, at_ms=interval.at_ms)
            for interval in self.intervals
            for bundle, broker in sorted(interval.owners.items())
        )

    def splits(self) -> int:
        """Bundles that were gone and parts of them there."""
        return sum(_splits_between(a.owners, b.owners) for a, b in pairwise(self.intervals))


def make_history(rows: Iterable[Row], capacities: Mapping[str, float]) -> History:
    """The history of `load_history`'s rows of one cluster, at least one.

    A broker is away while it owns nothing and reports nothing new. A bundle has moved when another
    broker has it an interval later. Usage is a linear function of load, fitted to all rows. Left
    out is a last interval that is being written: the rows of a large cluster come in several
    batches.
    """
    known = sorted(rows, key=lambda row: (row["minute_ms"], row["broker"]))
    by_time = {at: list(own) for at, own in groupby(known, key=lambda row: int(row["minute_ms"]))}
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


def recorded_metrics(history: History) -> dict[str, float | None]:
    """Return the run's own numbers, by the simulator's metric names.

    Once an interval. Moves and splits that were undone within an interval are not seen.
    """
    series: dict[str, list[float | None]] = {"imbalance": [], "floor_adjusted": []}
    for interval in history.intervals:
        loads = [(list(history.loads(part).values()), part) for part in interval.parts()]
        series["imbalance"].append(worst_of(imbalance(own) for own, _ in loads))
        series["floor_adjusted"].append(
            worst_of(floor_adjusted_imbalance(own, history.floor(part)) for own, part in loads)
        )
    made = history.moves()
    return {
        **{
            f"{name}.{stat}": statistic([value for value in values if value is not None], stat)
            for name, values in series.items()
            for stat in (MEAN, "p50", "p95")
        },
        "moves": float(len(made)),
        "thrash": thrash(made),
        "splits": float(history.splits()),
    }


def compare_history_with_bound(history: History) -> BoundComparison:
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
    return compare_with_bound(moments)


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
        (
            (math.fsum(row["msg_rate_in"]) + math.fsum(row["msg_rate_out"]))
            / capacities[row["broker"]],
            local_max(row["percent"]),
        )
        for row in rows
        if row.get("percent") and (row["broker"], row["minute_ms"]) not in away
    ]
    nothing = Fit(full_rate=FULL_RATE_MSG_PER_S, idle=0.0, rows=0)
    if len(pairs) < _FITTED_MIN:
        return nothing
    rates, usages = np.array(pairs).T
    varied = total((rates - rates.mean()) ** 2)
    slope = total((rates - rates.mean()) * (usages - usages.mean())) / varied if varied else 0.0
    idle = float(usages.mean() - slope * rates.mean())
    if slope <= 0.0 or idle < 0.0:
        slope, idle = float(usages.mean() / rates.mean()) if rates.mean() else 0.0, 0.0
    if slope <= 0.0:
        return nothing
    return Fit(full_rate=_PERCENT / slope, idle=idle, rows=len(pairs))


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


MOVE_PRICE = 0.2
"""Points for a percent of the bundles that moves in an hour."""
_SAMPLE_MS = 10_000
_FILE = "history"


def backtest_scenario(
    history: History, recording: Recording, domains: Mapping[str, str], seed: int = 1
) -> Scenario:
    """Return the scenario of a recorded run.

    domains: failure domains of brokers, where they have any.
    """
    first: dict[str, str] = {}
    seen: set[str] = set()
    for interval in history.intervals:
        new = {
            name: owner
            for name, owner in interval.owners.items()
            if namespace_of_bundle(name) not in seen
        }
        first |= new
        seen |= {namespace_of_bundle(name) for name in new}
    there = next(interval.there for interval in history.intervals if interval.there)
    spaces = [_namespace(name, space, first) for name, space in recording.namespaces.items()]
    loads = [
        LoadSpec(
            namespace=space.name,
            spread="replay",
            rate=Rate(value=1.0, unit=AS_RECORDED),
            last=space.bundles - 1,
            file=_FILE,
        )
        for space in spaces
    ]
    return Scenario(
        title="what was recorded",
        seed=seed,
        run_ms=recording.length_ms,
        sample_ms=min(_SAMPLE_MS, recording.length_ms),
        brokers=tuple(
            BrokerSpec(
                name=name,
                capacity=history.capacities[name],
                domain=domains.get(name, ""),
                foreign=history.fit.idle,
                is_absent=name not in there,
            )
            for name in sorted(history.capacities)
        ),
        namespaces=tuple(sorted(spaces, key=lambda space: space.name)),
        owners=tuple(spec for space in spaces for spec in _owners(space, first, there, history)),
        loads=tuple(loads),
        scenario_events=(*_policies(history), *_broker_events(history)),
        full_rate=history.fit.full_rate,
        recordings={loads[0].recording: recording},
    )


def run_cost(floor_adjusted: float | None, moves: float, bundles: int, length_ms: float) -> float:
    """Return a run's cost in points: imbalance in percent, and moves at MOVE_PRICE.

    floor_adjusted: its mean, from 1.0; None: there was no load. length_ms: above 0.
    """
    imbalance = 0.0 if floor_adjusted is None else _PERCENT * (floor_adjusted - 1.0)
    moved_percent = _PERCENT * moves / max(1, bundles)
    return imbalance + MOVE_PRICE * moved_percent / (length_ms / HOUR_MS)


def _namespace(name: str, space: RecordedNamespace, first: Mapping[str, str]) -> NamespaceSpec:
    """Return a namespace with its first bundles.

    A gap (a bundle on its way) is a bundle, too.
    """
    ends = {0, FULL_UPPER}
    for bundle in first:
        if namespace_of_bundle(bundle) == name:
            ends.update(parse_bundle(bundle)[1:])
    return NamespaceSpec(
        name=name,
        bundles=len(ends) - 1,
        boundaries=tuple(sorted(ends)),
        positions=tuple(positions_of(space).tolist()),
    )


def _owners(
    space: NamespaceSpec, first: Mapping[str, str], there: Collection[str], history: History
) -> list[OwnerSpec]:
    """Return the owner of each bundle at the start.

    A bundle that had no owner then goes to the first broker, of its isolation group where there are
    several.
    """
    homes = sorted(
        owner
        for name, owner in first.items()
        if namespace_of_bundle(name) == space.name and owner in there
    )
    spare = homes[0] if homes and history.intervals[-1].groups else min(there)
    names = NamespaceBundles(space.name, space.edges).names()
    return [
        OwnerSpec(
            namespace=space.name,
            first=number,
            last=number,
            brokers=(first[name] if first.get(name) in there else spare,),
        )
        for number, name in enumerate(names)
    ]


def _policies(history: History) -> tuple[ScenarioEvent, ...]:
    """An isolation policy for each group of the last interval."""
    return tuple(
        ScenarioEvent(
            at_ms=0,
            verb="command",
            options={
                "kind": "set_isolation_policy",
                "arguments": {
                    "policy": f"group-{number}",
                    "namespaces": sorted(
                        {re.escape(namespace_of_bundle(name)) for name in part.owners}
                    ),
                    "primary": sorted(map(re.escape, part.there)),
                },
            },
        )
        for number, part in enumerate(history.intervals[-1].parts())
        if part.groups and part.owners
    )


def _broker_events(history: History) -> tuple[ScenarioEvent, ...]:
    """Brokers that came and went."""
    begin_ms = history.intervals[0].at_ms
    return tuple(
        ScenarioEvent(at_ms=new.at_ms - begin_ms, verb=verb, brokers=tuple(sorted(names)))
        for old, new in pairwise(history.intervals)
        for verb, names in (("crash", old.there - new.there), ("start", new.there - old.there))
        if names
    )

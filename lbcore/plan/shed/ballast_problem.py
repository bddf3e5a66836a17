"""The search problem of a cycle: readings, the ideal load, prices of moves.

A broker has two readings of each resource: its report, and what its bundles carry
(`plan.readings`). It counts as far from the level as both say; if they disagree about the side, it
counts as at the level. Resources weigh by the cost of a message and of a byte on the CPU
(`signals.cost`), and by bytes on the network. A broker that gets worse although it carries less is
left alone: its bundles' load is not its problem.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from lbcore.config.shedding import IdealLoadConfig
from lbcore.config.splitting import Splitting
from lbcore.plan.readings import (
    DEMAND_FACTOR_MAX,
    FULL_POINTS,
    PERCENT,
    ROOM_POINTS,
    Readings,
    demand_factor_of,
    readings_of,
    unit_cost,
    with_demand,
)
from lbcore.plan.shed.ballast_search import BUNDLE_PRICE, SearchProblem, crowding_of
from lbcore.plan.shed.common import Relief, ShedState, ShedView
from lbcore.plan.snapshot import (
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Bools,
    Floats,
    Ints,
    Partitions,
    Snapshot,
    message_rate,
    sequential_sum,
    sums_by_owner,
    throughput,
)
from lbcore.signals.cost import Costs, Evidence, fit_costs, with_reports
from lbcore.signals.usage import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, DIRECT_MEMORY

SUSPENDED = "suspended"
"""Verdict on a broker that is left alone, because shedding did not help it."""
_LESS, _MORE = 0.98, 1.1
"""Share of the former traffic: below the first the broker carries less, above the
second it has another load."""
_WORSE_POINTS = 0.5
Reliefs = Mapping[str, Relief]


def are_suspended(view: ShedView, state: ShedState, rounds: int) -> Bools:
    """Return the brokers with at least so many ineffective rounds, bool[n]."""
    names = view.snapshot.brokers.names
    counts = [relief.rounds if (relief := state.reliefs.get(name)) else 0 for name in names]
    return np.array(counts, dtype=np.int64) >= rounds


def checked_reliefs(view: ShedView, state: ShedState, readings: Readings, is_hot: Bools) -> Reliefs:
    """Return the reliefs that still count, with the ineffective rounds of each.

    Brokers that are no longer hot are forgotten. A round was ineffective if a fresh report shows
    more usage and less traffic than before it.
    """
    found: dict[str, Relief] = {}
    carried = _carried(view, readings)
    for at, name in enumerate(view.snapshot.brokers.names):
        before = state.reliefs.get(name)
        if before is None or not is_hot[at]:
            continue
        usage, traffic = float(readings.usage[at]), float(carried[at])
        if traffic > before.traffic * _MORE:
            continue
        is_worse = usage > before.usage + _WORSE_POINTS and traffic < before.traffic * _LESS
        found[name] = before
        if before.is_open and view.has_new_report[at] and is_worse:
            found[name] = replace(before, rounds=before.rounds + 1, is_open=False)
    return found


_LEARNT_MS = 600_000
"""Time until averages of ten reports show what a bundle carries on its new owner."""
_LANDED_MS = 60_000
"""Time after a round within which changes of owner count as its moves."""
_MARGIN = 1.1


def departed_demand_factor(view: ShedView, state: ShedState, readings: Readings) -> Floats:
    """Return the demand factor of each broker as measured on bundles that left it.

    float64[n]. What stays is served better with each bundle that leaves, so its factor is lower.
    DEMAND_FACTOR_MAX where nothing has left, or too lately.
    """
    bundles, names = view.snapshot.bundles, view.snapshot.brokers.names
    found = np.full(len(names), DEMAND_FACTOR_MAX)
    for at, name in enumerate(names):
        before = state.reliefs.get(name)
        if before is None or not before.count:
            continue
        found[at], gone_ms = before.demand_factor, before.gone_ms
        if bundles.left is None or bundles.moved_ms is None or view.now_ms - gone_ms < _LEARNT_MS:
            continue
        landed_ms = bundles.moved_ms - gone_ms
        rows = np.flatnonzero((bundles.left == at) & (landed_ms >= 0) & (landed_ms < _LANDED_MS))
        if len(rows) == before.count:  # all of them: none was refused or went on
            times = sequential_sum(readings.bundle[rows]) / before.gone
            found[at] = min(found[at], max(1.0, times * _MARGIN))
    return found


def with_reliefs(
    view: ShedView, before: Reliefs, readings: Readings, rows: Ints, demand_factor: Floats
) -> Reliefs:
    """Return the reliefs after these bundles have left their brokers.

    Those of full brokers have the load that left.

    rows: int64[k] of the bundles that move. demand_factor: float64[n].
    """
    found, carried, brokers = dict(before), _carried(view, readings), len(demand_factor)
    owner = view.snapshot.bundles.owner[rows]
    gone = np.bincount(owner, readings.bundle[rows], brokers)
    count = np.bincount(owner, minlength=brokers)
    for at in np.flatnonzero(count).tolist():
        name = view.snapshot.brokers.names[at]
        known = before.get(name)
        rounds = 0 if known is None or known.is_open else known.rounds
        usage, traffic = float(readings.usage[at]), float(carried[at])
        found[name] = Relief(usage=usage, traffic=traffic, rounds=rounds)
        if demand_factor[at] > 1.0 and gone[at] > 0.0:
            found[name] = replace(
                found[name],
                gone=float(gone[at]),
                count=int(count[at]),
                demand_factor=float(demand_factor[at]),
                gone_ms=view.now_ms,
            )
    return found


def _carried(view: ShedView, readings: Readings) -> Floats:
    """Return the traffic that each broker reports, msg/s or bytes/s.

    Not in points, whose meaning changes with the fitted costs.
    """
    traffic = view.snapshot.brokers.traffic
    return message_rate(traffic) if readings.by_rate else throughput(traffic)


KEEP = 0.98
"""Weight of older evidence after each round with new reports."""
_REPORTS_MIN = 20.0
_EXPLAINED_MIN = 0.9
"""Fitted costs that explain less of the variance are not used."""
_UNEXPLAINED = 2.0
_IDLE_POINTS = 10.0
"""A broker that uses so many times what its traffic costs, and points more, is no evidence."""
_MATTERS = 0.5
"""A resource counts if some broker uses at least this part of the level."""


def with_observations(view: ShedView, readings: Readings, before: Evidence) -> Evidence:
    """Return the evidence with the new reports of brokers. O(brokers)."""
    brokers = view.snapshot.brokers
    explained = _UNEXPLAINED * readings.shown + _IDLE_POINTS
    is_usable = view.has_new_report & (brokers.percent[:, CPU] < explained) & (readings.shown > 0)
    if not is_usable.any():
        return before
    columns = (
        brokers.percent[:, CPU],
        brokers.capacity,
        message_rate(brokers.traffic),
        throughput(brokers.traffic),
    )
    return with_reports(before, np.stack(columns, axis=1)[is_usable], KEEP)


def with_costs(readings: Readings, view: ShedView, costs: Costs) -> Readings:
    """Return the readings by fitted costs of messages, of bytes and of an idle broker."""
    brokers, bundles = view.snapshot.brokers, view.snapshot.bundles
    load = costs.expected(message_rate(bundles.short), throughput(bundles.short))
    plain = message_rate(bundles.short) * readings.cost
    jump = np.where(plain > 0, readings.bundle / np.where(plain > 0, plain, 1.0), 1.0)
    bundle: Floats = load * jump
    owned = sums_by_owner(bundle, bundles.owner, len(brokers.names))
    shown = costs.expected(message_rate(brokers.traffic), throughput(brokers.traffic))
    return replace(
        readings,
        bundle=bundle,
        traffic=costs.idle + owned / brokers.capacity,
        shown=costs.idle + shown / brokers.capacity,
    )


def other_resources(view: ShedView, level: float) -> list[tuple[Floats, Floats]]:
    """Return load and weight of each other resource that matters, as [n] and [m].

    Load is in points of the broker's own size, as far from the level as reports and bundles both
    say; weight is in points on a broker of capacity 1. Bandwidth follows bytes. Direct memory
    follows topics and sessions, whose buffers it holds; it is scaled so that its mean is at most
    the level. The heap is left out, as in Pulsar: it fills until garbage is collected. O(bundles +
    brokers log brokers).
    """
    brokers, bundles = view.snapshot.brokers, view.snapshot.bundles
    used = brokers.percent if view.weighted is None else view.weighted
    held = (bundles.topics + bundles.sessions).astype(np.float64)
    found = []
    for column, carried in (
        (BANDWIDTH_IN, bundles.short[:, THROUGHPUT_IN]),
        (BANDWIDTH_OUT, bundles.short[:, THROUGHPUT_OUT]),
        (DIRECT_MEMORY, held),
    ):
        if float(used[:, column].max(initial=0.0)) < _MATTERS * level:
            continue
        shown = used[:, column]
        if column == DIRECT_MEMORY:
            mean = sequential_sum(shown * brokers.capacity) / sequential_sum(brokers.capacity)
            shown = shown * min(1.0, level / mean)
        owned = sums_by_owner(carried, bundles.owner, len(brokers.names))
        cost = unit_cost(shown * brokers.capacity, owned)
        traffic = owned * cost / brokers.capacity
        low, high = np.minimum(shown, traffic), np.maximum(shown, traffic)
        load = np.where(low > level, low, np.minimum(high, level))
        found.append((load, carried * cost))
    return found


def recorded_costs(costs: Costs | None) -> dict[str, float]:
    """Return the costs for the inputs of decisions, in points."""
    if costs is None:
        return {}
    return {
        "cost_idle": costs.idle,
        "cost_1000_messages": costs.per_message * 1e3,
        "cost_megabyte": costs.per_byte * 1e6,
        "cost_explained_percent": PERCENT * costs.explained,
    }


ROUNDS_MAX = 16


def mean_load(readings: Readings) -> float:
    """Return the mean load if all of it were infinitely divisible, points."""
    size = readings.capacity
    return sequential_sum(readings.traffic * size) / sequential_sum(size)


def attainable_level(view: ShedView, readings: Readings, hot_limit: float) -> float:
    """The level of the brokers that can reach one, points. O(bundles + brokers).

    By water filling: a broker whose largest bundle is above the level keeps that, one that is busy
    with something else takes nothing, the others share the rest. hot_limit: points; a broker that
    can't get below it keeps what it has.

    Worked: traffic 60, 30, 30, the 60 a single bundle: the level is 30, not 40. Traffic 10, 50, 2
    with the last one at 70 % usage: 30, not 20.7. Three bundles of 20 points on four brokers, the
    limit 23: 15, not 13.3.
    """
    floor = _floor(view, readings)
    size = readings.capacity
    level = mean_load(readings)
    stuck, shut = floor < 0, floor < 0
    for _ in range(ROUNDS_MAX):
        now_stuck = stuck | (floor > max(level, hot_limit))
        now_shut = shut | ((readings.usage > level) & (readings.traffic < level) & ~now_stuck)
        is_open = ~(now_stuck | now_shut)
        if not is_open.any() or ((now_stuck == stuck).all() and (now_shut == shut).all()):
            break
        stuck, shut = now_stuck, now_shut
        kept = np.where(
            stuck, np.minimum(floor, readings.traffic), np.where(shut, readings.traffic, 0)
        )
        left = sequential_sum((readings.traffic - kept) * size)
        level = left / sequential_sum(np.where(is_open, size, 0.0))
    return level


def _floor(view: ShedView, readings: Readings) -> Floats:
    """Return the load that each broker can't give, float64[n].

    Its largest bundle, or the sum of its bundles that may not move, if that is more.
    """
    bundles, brokers = view.snapshot.bundles, len(readings.usage)
    carried = readings.bundle
    largest = np.zeros(brokers + 1)
    np.maximum.at(largest, bundles.owner + 1, carried)
    fixed = np.where(bundles.can_move, 0.0, carried)
    held = sums_by_owner(fixed, bundles.owner, brokers)
    return np.maximum(largest[1:], held) / readings.capacity


MOVE_PRICE = 0.4
"""Price of moving a broker's whole load; moves stop at MOVE_PRICE / (2 x OVER) above the
level, 5 %."""
TOPICS_PRICE, SESSIONS_PRICE = 0.05, 0.05
"""Price of moving all of a broker's topics and sessions; `BUNDLE_PRICE` is that of its bundles."""
RECENT_PRICE = 2.0
"""Added share of the price of a bundle that has just moved, falling to 0 in the grace period."""


@dataclass(frozen=True, kw_only=True)
class BallastRound:
    """Readings of one cycle, n brokers.

    deviation: float64[n], points above the level (positive) or below it (negative), as far as both
    readings agree.
    load: float64[n, r], points of a broker's own size, the busiest resource first. size:
    float64[n], capacity over mean capacity. weight: float64[m, r], points on a broker of size 1.
    costs: fitted, None = unknown. state: with the costs learnt in this cycle. can_divide: bool[m].
    hot_limit: points from which a broker is hot; a bundle that makes any broker hot is divided.
    """

    view: ShedView
    state: ShedState
    costs: Costs | None
    readings: Readings
    level: float
    tolerance: float
    split_share: float
    deviation: Floats
    load: Floats
    size: Floats
    weight: Floats
    can_divide: Bools
    hot_limit: float

    @cached_property
    def broker_factor(self) -> Floats:
        """Demand factor of each broker, float64[n]. O(bundles x relieved brokers)."""
        factor = demand_factor_of(self.readings.usage, self.view.snapshot.brokers.demand)
        return np.minimum(factor, departed_demand_factor(self.view, self.state, self.readings))

    @cached_property
    def bundle_factor(self) -> Floats:
        """Demand factor of each bundle's broker, float64[m]."""
        return np.append(self.broker_factor, 1.0)[self.view.snapshot.bundles.owner]

    def oversized_rows(self, is_triggered: Bools) -> Ints:
        """Return the triggered brokers' bundles that must be divided, int64[k].

        No broker could carry one whole, and a split can divide it.
        """
        bundles = self.view.snapshot.bundles
        limit = self.hot_limit * float(self.readings.capacity.max())
        is_oversized = bundles.can_move & (self.readings.bundle > limit) & self.can_divide
        rows: Ints = np.flatnonzero(is_oversized & (bundles.owner >= 0))
        return rows[is_triggered[bundles.owner[rows]]]

    def problem(
        self,
        is_triggered: Bools,
        is_suspended: Bools,
        partitions: Partitions,
        acting: tuple[int, ...],
    ) -> SearchProblem:
        """Return the input of the search.

        is_triggered: bool[n], brokers whose counters let them act. is_suspended: bool[n], brokers
        that are left alone. acting: numbers of crowded topics, in `partitions`, for which bundles
        move.
        """
        bundles, brokers = self.view.snapshot.bundles, len(self.size)
        is_cold = bool((is_triggered & (self.deviation < 0)).any())
        may_give = is_triggered & (self.deviation > 0)
        may_give |= is_cold & (self.load[:, 0] >= self.level * (1.0 - _SLACK))
        can_move = bundles.can_move.copy()
        can_move[self.oversized_rows(np.ones(brokers, dtype=np.bool_))] = False
        is_free = ~is_suspended & ~self._resting(self.view.took)
        can_move &= np.append(is_free, False)[bundles.owner]  # nor may they leave by an exchange
        # while some broker is full, others take load only up to here
        is_full = bool((self.readings.usage >= FULL_POINTS).any())
        room = (ROOM_POINTS - self.readings.cold) * self.size if is_full else None
        row, admits = self.view.admitted or (
            np.zeros(len(bundles.names), dtype=np.int64),
            np.ones((1, brokers), dtype=np.bool_),
        )
        problem = SearchProblem(
            load=self.load,
            size=self.size,
            weight=self.weight,
            home=bundles.owner,
            price=self._prices(),
            min_price=MOVE_PRICE,
            level=self.level,
            can_move=can_move,
            may_give=may_give & is_free,
            may_take=~self._resting(self.view.gave),
            row=row,
            admits=admits,
            left=bundles.left,
            room=room,
            demand_factor=self.bundle_factor,
        )
        crowding = crowding_of(problem, self.view.snapshot, partitions, acting, is_free)
        return replace(problem, crowding=crowding)

    def _resting(self, roles: frozenset[str]) -> Bools:
        """Return the brokers that had the other role lately, bool[n]."""
        names = self.view.snapshot.brokers.names
        return np.array([name in roles for name in names], dtype=np.bool_)

    def _prices(self) -> Floats:
        """Return the price of moving each bundle from its broker, float64[m].

        By its shares of the load, topics, sessions and bundles of a broker of mean size.
        """
        bundles, brokers = self.view.snapshot.bundles, len(self.size)
        price = MOVE_PRICE * self.weight.max(axis=1) / self.level
        for whole, values in (
            (TOPICS_PRICE, bundles.topics.astype(np.float64)),
            (SESSIONS_PRICE, bundles.sessions.astype(np.float64)),
            (BUNDLE_PRICE, np.ones(len(price))),
        ):
            total = sequential_sum(values)
            if total > 0:
                price = price + whole * (values * (brokers / total))
        if bundles.moved_ms is None:
            return np.asarray(price, dtype=np.float64)
        grace_ms = max(self.view.grace_ms, 1)
        age = np.clip((self.view.now_ms - bundles.moved_ms) / grace_ms, 0.0, 1.0)
        return np.asarray(price * (1.0 + RECENT_PRICE * (1.0 - age)), dtype=np.float64)


_SLACK = 0.02
"""A broker at most this part below the level may still give, to one that is far below it."""


def learn_costs(view: ShedView, state: ShedState) -> ShedState:
    """Return the state with this cycle's evidence. O(bundles + brokers)."""
    readings = readings_of(view.snapshot, view.usage, lags=view.usage_lags)
    return replace(state, evidence=with_observations(view, readings, state.evidence))


def divisible(snapshot: Snapshot, config: Splitting, unsplittable: Mapping[str, int]) -> Bools:
    """Return bundles that a split may divide, bool[m]. O(bundles).

    unsplittable: bundle → its number of topics when a split failed. A bundle that can't be divided
    may move whole, else its broker would stay hot for ever.
    """
    bundles = snapshot.bundles
    counts = np.bincount(bundles.namespace, minlength=len(bundles.namespaces))
    is_open = counts[bundles.namespace] < config.max_namespace_bundles
    found: Bools = is_open & (bundles.topics > 1) & config.enabled
    if unsplittable:
        known = (unsplittable.get(name, 0) for name in bundles.names)
        found &= bundles.topics != np.fromiter(known, dtype=np.int64, count=len(found))
    return found


def deviation_of(load: Floats, level: float) -> Floats:
    """Return the distance from the level of each broker's worst resource above it.

    Of the first resource where none is above.

    load: float64[n, r], the busiest resource first. Points, negative below the level.
    """
    worst = load.max(axis=1)
    return np.where(worst > level, worst, load[:, 0]) - level


def measure_round(
    view: ShedView, state: ShedState, config: IdealLoadConfig, can_divide: Bools | None = None
) -> BallastRound:
    """Return the round's readings. O(bundles + n log n).

    can_divide: None = all with two or more topics.
    """
    readings = readings_of(view.snapshot, view.usage, lags=view.usage_lags)
    evidence = state.evidence
    if view.broker_share == 1.0:
        evidence = with_observations(view, readings, evidence)
    is_enough = readings.by_rate and evidence.reports >= _REPORTS_MIN
    costs = fit_costs(evidence) if is_enough else None
    if costs and costs.explained < _EXPLAINED_MIN:
        costs = None
    readings = with_costs(readings, view, costs) if costs else readings
    readings = with_demand(readings, view.snapshot)
    hot_limit = mean_load(readings) + config.high_points
    level = max(attainable_level(view, readings, hot_limit), 1e-9)
    above, below = readings.hot - level, level - readings.cold
    away: Floats = np.where(above > 0, above, np.where(below > 0, -below, 0.0))
    mean = sequential_sum(readings.capacity) / len(readings.capacity)
    size = readings.capacity / mean
    others = other_resources(view, level)
    load = np.stack([level + away, *(load for load, _ in others)], axis=1)
    return BallastRound(
        view=view,
        state=replace(state, evidence=evidence),
        costs=costs,
        readings=readings,
        level=level,
        tolerance=max(config.tolerance_points, level * config.tolerance_percent / PERCENT),
        split_share=config.split_share,
        deviation=deviation_of(load, level),
        load=load,
        size=size,
        weight=np.stack([readings.bundle, *(weight for _, weight in others)], axis=1) / mean,
        can_divide=view.snapshot.bundles.topics > 1 if can_divide is None else can_divide,
        hot_limit=max(level, hot_limit),
    )

"""Pulsar's placement strategies as rules: made for a plan, asked for each bundle.

`place` makes a rule from the state for one plan, asks it for a broker among the candidates, and
keeps its state. Among equally good brokers a hash chooses, not chance as in Pulsar: a repeated
micro-batch must choose the same one. Source: Pulsar 4.0.8 LeastLongTermMessageRate,
LeastResourceUsageWithWeight (both variants), RoundRobinBrokerSelector. `count_planned`, which
counts what the plan has placed, and the spread over overloaded brokers by rate are Ballast's.
"""

import math
from dataclasses import dataclass, replace

import mmh3
import numpy as np

from lbcore.config.placement import EXTENSIBLE, PlacementConfig
from lbcore.plan.place.request import PlacementState, PlaceRequest, PlaceSettings, Rotation
from lbcore.plan.snapshot import (
    NOBODY,
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Bools,
    Floats,
    Ints,
    Snapshot,
    message_rate,
    sequential_sum,
    sums_by_owner,
    throughput,
)


def choose(count: int, bundle: str, version: int, seed: int) -> int:
    """Return an index in 0..count-1, uniform over bundles and deterministic.

    count: > 0. seed: 0..2^32-1, the cluster's.
    """
    return mmh3.hash(f"{bundle}@{version}", seed, signed=False) % count


def smooth_usage(
    history: Floats, usage: Floats, is_forgotten: Bools, history_weight: float
) -> Floats:
    """One step of the modular variant's average: float64[n].

    history: NaN = none yet. is_forgotten: brokers without bundles or messages, which start again.
    """
    is_new = np.isnan(history) | is_forgotten
    with np.errstate(invalid="ignore"):
        smoothed = history * history_weight + (1 - history_weight) * usage
    return np.where(is_new, usage, smoothed)


def below_average(candidates: Ints, smoothed: Floats, difference_percent: float) -> Ints:
    """The candidates at least `difference_percent` points below their average, or all.

    Worked: usages 0.9, 0.9, 0.2 and 0.3, average 0.575. A difference of 10 points leaves the last
    two; 50 leaves nobody, so all four are equal; -40 admits all four.

    smoothed: float64[n], 1.0 = 100 %; NaN = no load data: the average leaves such a broker out, and
    only "all" includes it. The average is summed in the order of the candidates.
    """
    own = smoothed[candidates]
    if not len(own):
        return candidates
    total, count = float(np.cumsum(own)[-1]), len(own)
    if math.isnan(total):
        known = own[~np.isnan(own)]
        if not len(known):
            return candidates
        total, count = float(np.cumsum(known)[-1]), len(known)
    best = candidates[own + difference_percent / 100.0 <= total / count]
    return best if len(best) else candidates


def of_least_usage(candidates: Ints, usage: Floats) -> Ints:
    """Return the candidates with the least known usage; all when none is known.

    NaN = unknown. Not in Pulsar.
    """
    own = usage[candidates]
    least = float(np.fmin.reduce(own, initial=np.inf))
    best: Ints = candidates[own == least]
    return best if len(best) else candidates


def usage_per_throughput(usage: Floats, volume: Floats, capacity: Floats) -> float:
    """Return the usage that one byte/s adds to a broker of capacity 1; not in Pulsar.

    The cluster's mean; 0.0 without traffic. usage: 1.0 = 100 %; volume: bytes/s in plus out.
    """
    total = sequential_sum(volume)
    return sequential_sum(usage * capacity) / total if total > 0 else 0.0


@dataclass(slots=True, kw_only=True)
class MessageRates:
    """Message rates of brokers, which grow with every placement.

    base: float64[n], long-term msg/s of each broker's own bundles. planned: float64[n], of bundles
    placed in this plan. is_overloaded: bool[n], weighted usage strictly above the threshold, or
    planned more than its room. counted: float64[n], base plus planned, infinite where overloaded.
    room: float64[n], msg/s that may be planned.
    """

    base: Floats
    planned: Floats
    is_overloaded: Bools
    counted: Floats
    room: Floats

    @staticmethod
    def of(
        base: Floats, usage: Floats, threshold_percent: float, room: Floats | None = None
    ) -> "MessageRates":
        """Return the rates with nothing planned.

        usage: float64[n], weighted, 1.0 = 100 %. room: None = infinite.
        """
        if room is None:
            room = np.full(len(base), np.inf)
        is_overloaded = (usage > threshold_percent / 100.0) | (room < 0.0)
        return MessageRates(
            base=base,
            planned=np.zeros(len(base)),
            is_overloaded=is_overloaded,
            counted=np.where(is_overloaded, np.inf, 0.0 + base),
            room=room,
        )

    def add(self, broker: int, rate: float) -> None:
        """Count `rate` msg/s more on a broker, in the order of calls, as Pulsar does."""
        self.planned[broker] += rate
        if self.planned[broker] > self.room[broker]:
            self.is_overloaded[broker] = True
            self.counted[broker] = np.inf
        if not self.is_overloaded[broker]:
            self.counted[broker] = self.planned[broker] + self.base[broker]

    def best(self, candidates: Ints, *, spread_overloaded: bool) -> Ints:
        """The candidates with the least rate; when all are overloaded, all of them.

        spread_overloaded: in that case the least loaded of them instead (not in Pulsar).
        """
        if not len(candidates):
            return candidates
        own = self.counted[candidates]
        least = own[own.argmin()]
        if spread_overloaded and least == np.inf:
            own = self.planned[candidates] + self.base[candidates]
            least = own[own.argmin()]
        best: Ints = candidates[own == least]
        return best


def long_term_rates(snapshot: Snapshot) -> Floats:
    """Return TimeAverageBrokerData's long-term msg/s of each broker; float64[n].

    In and out of its bundles are summed apart, in table order, as Pulsar does, then added.
    """
    bundles, brokers = snapshot.bundles, len(snapshot.brokers.names)
    rate_in = sums_by_owner(bundles.long[:, RATE_IN], bundles.owner, brokers)
    return rate_in + sums_by_owner(bundles.long[:, RATE_OUT], bundles.owner, brokers)


def present_rates(snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return msg/s, in plus out, of brokers, float64[n], and bundles, float64[m].

    At least the long-term rate; a broker's reported rate is spread over its bundles. Not in Pulsar:
    a bundle that turned hot a minute ago has a low long-term rate, and averages of ten reports lag
    as well. By them a drain would send all hot bundles to one broker.

    Worked: a broker reports 900 msg/s, its bundles 100 and 200: they count 300 and 600.
    """
    bundles, count = snapshot.bundles, len(snapshot.brokers.names)
    rates = np.maximum(message_rate(bundles.long), message_rate(bundles.short))
    total = sums_by_owner(rates, bundles.owner, count)
    broker = np.maximum(total, message_rate(snapshot.brokers.traffic))
    factor = np.divide(broker, total, out=np.ones(count), where=total > 0.0)
    return broker, rates * np.append(factor, 1.0)[bundles.owner]


_IDLE_PART = 0.001  # of the floor: idle bundles of an idle cluster are spread, too


def least_rates(request: PlaceRequest, config: PlacementConfig) -> Floats:
    """Return the least msg/s that each bundle counts for: float64[k], at least 0.

    From `planned_rate_floor_msg_per_s` and the mean of bundles with known load. A bundle of unknown
    load counts the larger one: else thousands made at once would all go to the broker that is a
    little below the others. One of known load counts the smaller one: else in a cluster of small
    bundles a broker that came back empty would be full after a few.
    """
    floor, known = config.planned_rate_floor_msg_per_s, request.snapshot.bundles.is_load_known
    if not floor:
        return np.zeros(len(request.bundles))
    mean = _mean_known_rate(request.snapshot)
    least: Floats = np.full(len(request.bundles), max(floor, mean))
    if known is not None:
        least[known[request.bundles]] = min(floor, max(mean, floor * _IDLE_PART))
    return least


def awaited_rates(snapshot: Snapshot, config: PlacementConfig) -> Floats:
    """Return msg/s of bundles that could not be reported yet, by broker; float64[n].

    Each counts as one of unknown load in `least_rates`: else bundles made in several batches would
    go to the same broker until it reports. 0 without a floor, or without `count_planned`.
    """
    bundles, count = snapshot.bundles, len(snapshot.brokers.names)
    floor = config.planned_rate_floor_msg_per_s
    if bundles.is_awaited is None or not floor or not config.count_planned:
        return np.zeros(count)
    awaited = np.bincount(bundles.owner[bundles.is_awaited], minlength=count)
    return np.asarray(awaited * max(floor, _mean_known_rate(snapshot)), dtype=np.float64)


def room_below(request: PlaceRequest, threshold_percent: float, rates: Floats) -> Floats:
    """Return msg/s that each broker may take below the usage threshold; float64[n].

    By the cluster's mean usage per message; infinite where that is unknown. Without it thousands of
    bundles would go to the one broker below the threshold.
    """
    capacity = request.snapshot.brokers.capacity
    total, used = float(rates.sum()), float((request.usage * capacity).sum())
    if total <= 0.0 or used <= 0.0:
        return np.full(len(rates), np.inf)
    left = threshold_percent / 100.0 - request.usage
    return np.asarray(left * capacity * (total / used), dtype=np.float64)


def _mean_known_rate(snapshot: Snapshot) -> float:
    """Return the mean msg/s, in plus out, of bundles of known load; 0 without any."""
    bundles = snapshot.bundles
    known = bundles.is_load_known
    if known is None or not known.any():
        return 0.0
    return float(message_rate(bundles.short[known]).mean())


def bundle_rates(request: PlaceRequest, config: PlacementConfig) -> Floats:
    """Return msg/s, in plus out, of each bundle of the request.

    Long-term; with `count_planned` at least the present rate, so a hot bundle counts as hot on its
    new broker.
    """
    if config.count_planned:
        return present_rates(request.snapshot)[1][request.bundles]
    return message_rate(request.snapshot.bundles.long[request.bundles])


@dataclass(slots=True, kw_only=True)
class Rule:
    """A placement strategy during one plan; here all candidates are equally good.

    seed: of the choice among equally good brokers.
    """

    request: PlaceRequest
    seed: int

    def select(self, candidates: Ints, position: int) -> int:
        """Return a broker for the bundle at this position; NOBODY without candidates."""
        best = self.best(candidates, position)
        if len(best) <= 1:
            return int(best[0]) if len(best) else NOBODY
        bundles, row = self.request.snapshot.bundles, int(self.request.bundles[position])
        at = choose(len(best), bundles.names[row], int(bundles.versions[row]), self.seed)
        return int(best[at])

    def best(self, candidates: Ints, _position: int) -> Ints:
        """Return the candidates that are equally good; changes nothing."""
        return candidates

    def numbers(self, candidates: Ints) -> Floats:
        """Return the number compared of each candidate, less is better; NaN = none."""
        return np.full(len(candidates), np.nan)

    def count_placed(self, broker: int, position: int) -> None:
        """Count the bundle on its broker."""

    def updated_state(self, state: PlacementState) -> PlacementState:
        """Return the state with what this rule keeps between plans."""
        return state


@dataclass(slots=True, kw_only=True)
class MessageRateRule(Rule):
    """Least long-term message rate. weights: float64[k], msg/s of each bundle."""

    rates: MessageRates
    weights: Floats
    spread_overloaded: bool

    @staticmethod
    def of(
        request: PlaceRequest, _state: PlacementState, settings: PlaceSettings, seed: int
    ) -> "MessageRateRule":
        """The rule at the start of a plan."""
        config = settings.placement
        base, room = long_term_rates(request.snapshot), None
        threshold = config.overloaded_threshold_percent
        if config.count_planned:
            awaited = awaited_rates(request.snapshot, config)
            base, _ = present_rates(request.snapshot)
            room = room_below(request, threshold, base) - awaited
            base = base + awaited
        weights = bundle_rates(request, config)
        return MessageRateRule(
            request=request,
            seed=seed,
            rates=MessageRates.of(base, request.usage, threshold, room),
            weights=np.maximum(weights, least_rates(request, config)),
            spread_overloaded=config.count_planned,
        )

    def best(self, candidates: Ints, _position: int) -> Ints:
        """See `Rule`."""
        return self.rates.best(candidates, spread_overloaded=self.spread_overloaded)

    def numbers(self, candidates: Ints) -> Floats:
        """Message rates with this plan's bundles, msg/s; infinite if overloaded."""
        return self.rates.counted[candidates]

    def count_placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        self.rates.add(broker, float(self.weights[position]))


@dataclass(slots=True, kw_only=True)
class UsageRule(Rule):
    """Least resource usage with weight, modular or extensible.

    smoothed: float64[n], NaN = none yet. planned: float64[n], usage added by this plan. usage:
    float64[n], both together. per_call: the candidates' averages advance with every call.
    is_remembered: they are kept in the state (modular). is_forgotten: bool[n], history doesn't
    count. unit_usage: usage of a byte/s.
    """

    config: PlacementConfig
    history_weight: float
    smoothed: Floats
    planned: Floats
    usage: Floats
    per_call: bool
    is_remembered: bool
    is_forgotten: Bools
    unit_usage: float

    @staticmethod
    def of(
        request: PlaceRequest, state: PlacementState, settings: PlaceSettings, seed: int
    ) -> "UsageRule":
        """Return the rule at the start of a plan.

        The modular manager keeps averages of its own; the extensible one reads the scores of
        brokers that have reported.
        """
        brokers, config = request.snapshot.brokers, settings.placement
        is_modular = settings.filters.pipeline != EXTENSIBLE
        smoothed = np.where(brokers.updated_at_ms > 0, brokers.weighted_max_ema, np.nan)
        if is_modular:
            known = [state.smoothed_usage.get(name, np.nan) for name in brokers.names]
            smoothed = np.array(known, dtype=np.float64)
        rule = UsageRule(
            request=request,
            config=config,
            history_weight=settings.history_weight,
            seed=seed,
            smoothed=smoothed,
            planned=np.zeros(len(brokers.names)),
            usage=smoothed.copy(),
            per_call=is_modular and not config.smooth_once_per_plan,
            is_remembered=is_modular,
            is_forgotten=(brokers.bundle_count == 0) | (message_rate(brokers.traffic) == 0),
            unit_usage=usage_per_throughput(
                request.usage, throughput(brokers.traffic), brokers.capacity
            ),
        )
        if is_modular and config.smooth_once_per_plan:
            rule.advance(np.flatnonzero(brokers.is_fresh | np.isnan(smoothed)))
        return rule

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`; in Pulsar's way the candidates' averages advance with every call."""
        if self.per_call:
            self.advance(candidates)
        return Rule.select(self, candidates, position)  # super() fails in a class with slots

    def best(self, candidates: Ints, _position: int) -> Ints:
        """See `Rule`; where all are equal, `count_planned` takes the least usage."""
        best = below_average(candidates, self.usage, self.config.usage_difference_percent)
        if not self.config.count_planned or len(best) < len(candidates):
            return best
        return of_least_usage(candidates, self.usage)

    def numbers(self, candidates: Ints) -> Floats:
        """Smoothed plus planned usage, 1.0 = 100 %."""
        return self.usage[candidates]

    def count_placed(self, broker: int, position: int) -> None:
        """Count the usage that the bundle's throughput adds, by the cluster's mean cost."""
        if not self.config.count_planned:
            return
        brokers, bundles = self.request.snapshot.brokers, self.request.snapshot.bundles
        short = bundles.short[self.request.bundles[position]]
        volume = float(short[THROUGHPUT_IN] + short[THROUGHPUT_OUT])
        self.planned[broker] += volume * self.unit_usage / float(brokers.capacity[broker])
        self.usage[broker] = self.smoothed[broker] + self.planned[broker]

    def updated_state(self, state: PlacementState) -> PlacementState:
        """Return the state with the averages of the brokers looked at."""
        if not self.is_remembered:
            return state
        names = self.request.snapshot.brokers.names
        known = zip(names, self.smoothed.tolist(), strict=True)
        smoothed = {name: value for name, value in known if not np.isnan(value)}
        return replace(state, smoothed_usage={**state.smoothed_usage, **smoothed})

    def advance(self, brokers: Ints) -> None:
        """Advance some brokers' averages by one step."""
        self.smoothed[brokers] = smooth_usage(
            self.smoothed[brokers],
            self.request.usage[brokers],
            self.is_forgotten[brokers],
            self.history_weight,
        )
        self.usage[brokers] = self.smoothed[brokers] + self.planned[brokers]


@dataclass(slots=True, kw_only=True)
class RoundRobinRule(Rule):
    """Round robin. is_for_excluded: of namespaces excluded from shedding."""

    rotation: Rotation
    is_for_excluded: bool

    @staticmethod
    def of(
        request: PlaceRequest,
        state: PlacementState,
        _settings: PlaceSettings,
        seed: int,
        *,
        is_for_excluded: bool = False,
    ) -> "RoundRobinRule":
        """The rule at the start of a plan."""
        known = state.excluded_round_robin if is_for_excluded else state.round_robin
        rotation = Rotation.of(request.snapshot.brokers.names, known)
        return RoundRobinRule(
            request=request, seed=seed, rotation=rotation, is_for_excluded=is_for_excluded
        )

    def select(self, candidates: Ints, _position: int) -> int:
        """See `Rule`."""
        return self.rotation.next(candidates)

    def best(self, candidates: Ints, _position: int) -> Ints:
        """The one whose turn it is."""
        best: Ints = candidates[candidates == replace(self.rotation).next(candidates)]
        return best

    def updated_state(self, state: PlacementState) -> PlacementState:
        """Return the state with the position of the rotation."""
        if self.is_for_excluded:
            return replace(state, excluded_round_robin=self.rotation.state())
        return replace(state, round_robin=self.rotation.state())


@dataclass(slots=True, kw_only=True)
class AvgRule(Rule):
    """The avg shedder's planned broker, else any by hash, or by another rule.

    otherwise: the other rule; in Pulsar all candidates are equally good. Pulsar 4.0.8's
    AvgShedder.selectBroker keeps the broker it draws as the new plan, also when a filter took the
    planned one away. So the caller writes each answer into its plan.
    """

    otherwise: Rule

    @staticmethod
    def of(
        request: PlaceRequest, state: PlacementState, settings: PlaceSettings, seed: int
    ) -> "AvgRule":
        """The rule at the start of a plan."""
        counts = settings.placement.count_planned
        anyone = Rule(request=request, seed=seed)
        least = MessageRateRule.of(request, state, settings, seed) if counts else anyone
        return AvgRule(request=request, seed=seed, otherwise=least)

    def best(self, candidates: Ints, position: int) -> Ints:
        """See `Rule`."""
        planned = candidates[candidates == self.request.planned[position]]
        return planned if len(planned) else self.otherwise.best(candidates, position)

    def numbers(self, candidates: Ints) -> Floats:
        """The other rule's, if there is one."""
        return self.otherwise.numbers(candidates)

    def count_placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        self.otherwise.count_placed(broker, position)

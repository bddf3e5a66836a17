"""The placement strategies as rules that one plan asks again and again.

Decides one bundle's broker among its candidates, and counts it; not the candidates. Made by
`place` for one plan, from the state and back into it. Source: Pulsar 4.0.8's strategy classes, see
the modules of each; counting what the plan has placed is ours where `count_planned` says so.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.choice import choose
from lbcore.plan.place.message_rate import (
    MessageRates,
    PresentRates,
    long_term_rates,
)
from lbcore.plan.place.request import NOBODY, PlacementState, PlaceRequest, PlaceSettings
from lbcore.plan.place.resource_usage import (
    below_average,
    of_least_usage,
    smooth_usage,
    usage_per_throughput,
)
from lbcore.plan.place.round_robin import NumberedBrokers, RoundRobinState, Turn
from lbcore.plan.place.weights import awaited_rates, bundle_rates, least_rates, room_below
from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Bools,
    Floats,
    Ints,
)


class Rule(Protocol):
    """A strategy during one plan."""

    def select(self, candidates: Ints, position: int) -> int:
        """A broker for the bundle at this position of the request; NOBODY without candidates."""
        ...

    def best(self, candidates: Ints, position: int) -> Ints:
        """The candidates that are equally good, without changing anything."""
        ...

    def numbers(self, candidates: Ints) -> Floats:
        """Return the deciding number of each candidate; less is better.

        NaN where nothing decides.
        """
        ...

    def placed(self, broker: int, position: int) -> None:
        """Count the bundle on its broker."""
        ...

    def remembered(self, state: PlacementState) -> PlacementState:
        """The state with what this rule has learned."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """The deterministic choice among equals. names, versions: of the request's bundles."""

    names: Sequence[str]
    versions: Sequence[int]
    seed: int

    @staticmethod
    def of(request: PlaceRequest, seed: int) -> "Draw":
        """A draw for the bundles of a request."""
        bundles = request.snapshot.bundles
        rows = request.bundles.tolist()
        return Draw(
            names=[bundles.names[row] for row in rows],
            versions=bundles.versions[request.bundles].tolist(),
            seed=seed,
        )

    def one_of(self, best: Ints, position: int) -> int:
        """One of the equally good brokers; NOBODY of none."""
        count = len(best)
        if not count:
            return NOBODY
        if count == 1:
            return int(best[0])
        at = choose(count, self.names[position], self.versions[position], self.seed)
        return int(best[at])


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRateRule:
    """Least long-term message rate. weights: float64[k], msg/s that each bundle counts for."""

    rates: MessageRates
    weights: Floats
    draw: Draw
    spread_overloaded: bool

    @staticmethod
    def of(request: PlaceRequest, config: PlacementConfig, draw: Draw) -> "MessageRateRule":
        """The rule at the start of a plan."""
        base, room = long_term_rates(request.snapshot), None
        threshold = config.overloaded_threshold_percent
        if config.count_planned:
            awaited = awaited_rates(request.snapshot, config)
            base = PresentRates.of(request.snapshot).broker
            room = room_below(request, threshold, base) - awaited
            base = base + awaited
        weights = bundle_rates(request, config)
        return MessageRateRule(
            rates=MessageRates.of(base, request.usage, threshold, room),
            weights=np.maximum(weights, least_rates(request, config)),
            draw=draw,
            spread_overloaded=config.count_planned,
        )

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`."""
        return self.draw.one_of(self.best(candidates, position), position)

    def best(self, candidates: Ints, _position: int) -> Ints:
        """See `Rule`."""
        return self.rates.best(candidates, spread_overloaded=self.spread_overloaded)

    def numbers(self, candidates: Ints) -> Floats:
        """Long-term message rates, msg/s; infinite for an overloaded broker."""
        return self.rates.counted[candidates]

    def placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        self.rates.add(broker, float(self.weights[position]))

    def remembered(self, state: PlacementState) -> PlacementState:
        """Nothing is remembered."""
        return state


@dataclass(slots=True, kw_only=True)
class UsageRule:
    """Least resource usage with weight, modular or extensible.

    smoothed: float64[n], NaN = none yet. planned: float64[n], usage promised in this plan. usage:
    float64[n], both together.
    per_call: the candidates' averages advance with every call. is_remembered: they are kept in the
    state (modular). is_forgotten: bool[n], history doesn't count. unit_usage: usage a byte/s.
    """

    request: PlaceRequest
    config: PlacementConfig
    history_weight: float
    draw: Draw
    smoothed: Floats
    planned: Floats
    usage: Floats
    per_call: bool
    is_remembered: bool
    is_forgotten: Bools
    unit_usage: float

    @staticmethod
    def modular(
        request: PlaceRequest, state: PlacementState, settings: PlaceSettings, draw: Draw
    ) -> "UsageRule":
        """The rule of the modular manager, whose averages are its own."""
        brokers = request.snapshot.brokers
        config = settings.placement
        known = [state.smoothed_usage.get(name, np.nan) for name in brokers.names]
        rule = UsageRule._of(request, settings, draw, np.array(known, dtype=np.float64))
        rule.per_call = not config.smooth_once_per_plan
        rule.is_remembered = True
        if config.smooth_once_per_plan:
            rule.advance(np.flatnonzero(brokers.is_fresh | np.isnan(rule.smoothed)))
        return rule

    @staticmethod
    def extensible(request: PlaceRequest, settings: PlaceSettings, draw: Draw) -> "UsageRule":
        """The rule of the extensible manager: the reports' smoothed scores; 0 ms = no data."""
        brokers = request.snapshot.brokers
        scores = np.where(brokers.updated_at_ms > 0, brokers.weighted_max_ema, np.nan)
        return UsageRule._of(request, settings, draw, scores)

    @staticmethod
    def _of(
        request: PlaceRequest, settings: PlaceSettings, draw: Draw, smoothed: Floats
    ) -> "UsageRule":
        brokers = request.snapshot.brokers
        rate = brokers.traffic[:, RATE_IN] + brokers.traffic[:, RATE_OUT]
        throughput = brokers.traffic[:, THROUGHPUT_IN] + brokers.traffic[:, THROUGHPUT_OUT]
        return UsageRule(
            request=request,
            config=settings.placement,
            history_weight=settings.history_weight,
            draw=draw,
            smoothed=smoothed,
            planned=np.zeros(len(brokers.names)),
            usage=smoothed.copy(),
            per_call=False,
            is_remembered=False,
            is_forgotten=(brokers.bundle_count == 0) | (rate == 0),
            unit_usage=usage_per_throughput(request.usage, throughput, brokers.capacity),
        )

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`; in Pulsar's way the candidates' averages advance with every call."""
        if self.per_call:
            self.advance(candidates)
        return self.draw.one_of(self.best(candidates, position), position)

    def best(self, candidates: Ints, _position: int) -> Ints:
        """See `Rule`; counting what is planned, "all are equal" becomes the least usage."""
        best = below_average(candidates, self.usage, self.config.usage_difference_percent)
        if not self.config.count_planned or len(best) < len(candidates):
            return best
        return of_least_usage(candidates, self.usage)

    def numbers(self, candidates: Ints) -> Floats:
        """Smoothed plus planned usage, 1.0 = 100 %."""
        return self.usage[candidates]

    def placed(self, broker: int, position: int) -> None:
        """Count the usage that the bundle's throughput makes on an average broker."""
        if not self.config.count_planned:
            return
        brokers, bundles = self.request.snapshot.brokers, self.request.snapshot.bundles
        short = bundles.short[self.request.bundles[position]]
        throughput = float(short[THROUGHPUT_IN] + short[THROUGHPUT_OUT])
        self.planned[broker] += throughput * self.unit_usage / float(brokers.capacity[broker])
        self.usage[broker] = self.smoothed[broker] + self.planned[broker]

    def remembered(self, state: PlacementState) -> PlacementState:
        """The averages of the brokers looked at; the others' stay."""
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
class RoundRobinRule:
    """One candidate after the other. is_for_excluded: which of the two turns it keeps."""

    numbers_of: NumberedBrokers
    turn: Turn
    is_for_excluded: bool

    @staticmethod
    def of(
        request: PlaceRequest, state: RoundRobinState, *, is_for_excluded: bool
    ) -> "RoundRobinRule":
        """The rule at the start of a plan."""
        numbers_of = NumberedBrokers.of(request.snapshot.brokers.names, state)
        return RoundRobinRule(
            numbers_of=numbers_of,
            turn=numbers_of.turn(state),
            is_for_excluded=is_for_excluded,
        )

    def select(self, candidates: Ints, _position: int) -> int:
        """See `Rule`."""
        return self.turn.next(candidates)

    def best(self, candidates: Ints, _position: int) -> Ints:
        """The one whose turn it is."""
        chosen = replace(self.turn).next(candidates)
        best: Ints = candidates[candidates == chosen]
        return best

    def numbers(self, candidates: Ints) -> Floats:
        """Nothing is compared."""
        return np.full(len(candidates), np.nan)

    def placed(self, broker: int, position: int) -> None:
        """Nothing is counted."""

    def remembered(self, state: PlacementState) -> PlacementState:
        """Return the state with the position of the rotation."""
        turn = self.numbers_of.state(self.turn)
        if self.is_for_excluded:
            return replace(state, excluded_round_robin=turn)
        return replace(state, round_robin=turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class AvgRule:
    """The avg shedder's planned broker, else any by hash, or (ours) by another rule.

    planned: int64[k], broker indices, NOBODY = none planned. Pulsar 4.0.8 AvgShedder.selectBroker
    keeps the broker it draws as the new plan, also when a filter took the planned one away: the
    caller, who keeps the plan, writes each answer into it to be like that.
    """

    planned: Ints
    draw: Draw
    otherwise: Rule | None

    def select(self, candidates: Ints, position: int) -> int:
        """See `Rule`."""
        return self.draw.one_of(self.best(candidates, position), position)

    def best(self, candidates: Ints, position: int) -> Ints:
        """See `Rule`."""
        planned: Ints = candidates[candidates == self.planned[position]]
        if len(planned):
            return planned
        return candidates if self.otherwise is None else self.otherwise.best(candidates, position)

    def numbers(self, candidates: Ints) -> Floats:
        """The other rule's, if there is one."""
        if self.otherwise is None:
            return np.full(len(candidates), np.nan)
        return self.otherwise.numbers(candidates)

    def placed(self, broker: int, position: int) -> None:
        """See `Rule`."""
        if self.otherwise is not None:
            self.otherwise.placed(broker, position)

    def remembered(self, state: PlacementState) -> PlacementState:
        """Nothing is remembered here; the shedder keeps its plan."""
        return state

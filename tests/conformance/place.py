"""Cases of the placement strategies (`lbcore.plan.place`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.config.signals import SignalsConfig
from lbcore.plan.place.request import Rotation, RoundRobinState
from lbcore.plan.place.rules import MessageRates, below_average, smooth_usage
from lbcore.plan.snapshot import Floats, Ints
from lbcore.signals.usage import resource_percent, weighted_usage
from tests.conformance.extensible import LoadStore
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, Handler, JavaError
from tests.conformance.view import LoadView, calls_of, numbers, resources

LONG_RATES = ("longTermMsgRateIn", "longTermMsgRateOut")
RATES = ("msgRateIn", "msgRateOut")


def place(case: Case) -> Any:
    """One strategy object through the calls of a case."""
    return {"calls": _STRATEGIES[case["strategy"].rpartition(".")[2]](case)}


def ext_place(case: Case) -> Any:
    """The extensible strategy, which only reads the load store."""
    keys = case.get("config", {})
    config = section_from_pulsar(PlacementConfig, keys)
    store = LoadStore(signals=section_from_pulsar(SignalsConfig, keys))
    answers = []
    for call, is_repetition in calls_of(case):
        if not is_repetition:
            store.apply(call)
        ema = {name: record.load for name, record in store.records.items()}
        named = call.get("candidates", case.get("candidates", ()))
        smoothed = np.array([ema.get(name, np.nan) for name in named])
        best = below_average(_all(named), smoothed, config.usage_difference_percent)
        answers.append({"best": _names(named, best), "ema": ema})
    return {"calls": answers}


def _least_message_rate(case: Case) -> list[Any]:
    keys = case.get("config", {})
    config = section_from_pulsar(PlacementConfig, keys)
    signals = section_from_pulsar(SignalsConfig, keys)
    load, answers = LoadView(), []
    for call, is_repetition in calls_of(case):
        if not is_repetition:
            load.apply(call)
        named = call.get("candidates", case.get("candidates", ()))
        rates = _message_rates([_broker(load, name) for name in named], config, signals)
        best = rates.best(_all(named), spread_overloaded=config.count_planned)
        answers.append({"best": _names(named, best)})
    return answers


def _message_rates(
    brokers: Sequence[Mapping[str, Any]], config: PlacementConfig, signals: SignalsConfig
) -> MessageRates:
    averages = [numbers(broker.get("timeAverage") or {}, LONG_RATES) for broker in brokers]
    base = np.array([average[0] + average[1] for average in averages])
    usage = _usage(brokers, signals)
    rates = MessageRates.of(base, usage, config.overloaded_threshold_percent)
    for index, broker in enumerate(brokers):
        for bundle in (broker.get("preallocated") or {}).values():
            rate_in, rate_out = numbers(bundle.get("long") or bundle, RATES).tolist()
            rates.add(index, rate_in + rate_out)
    return rates


def _least_usage(case: Case) -> list[Any]:
    keys = case.get("config", {})
    config = section_from_pulsar(PlacementConfig, keys)
    signals = section_from_pulsar(SignalsConfig, keys)
    load, ema, answers = LoadView(), dict[str, float](), []
    for call, is_repetition in calls_of(case):
        if not is_repetition:
            load.apply(call)
            ema.update(call.get("history") or {})
            if "activeBrokers" in call:
                ema = {name: ema[name] for name in ema if name in call["activeBrokers"]}
        named = call.get("candidates", case.get("candidates", ()))
        smoothed = _smoothed([_broker(load, name) for name in named], ema, signals)
        ema.update(zip(named, smoothed.tolist(), strict=True))
        best = below_average(_all(named), smoothed, config.usage_difference_percent)
        answers.append({"best": _names(named, best), "ema": dict(ema)})
    return answers


def _smoothed(
    brokers: Sequence[Mapping[str, Any]], ema: Mapping[str, float], signals: SignalsConfig
) -> Floats:
    history = np.array([ema.get(broker["name"], np.nan) for broker in brokers])
    is_forgotten = [
        not broker.get("bundles") or not numbers(broker, RATES).any() for broker in brokers
    ]
    return smooth_usage(
        history,
        _usage(brokers, signals),
        np.array(is_forgotten, dtype=np.bool_),
        signals.history_weight,
    )


def _round_robin(case: Case) -> list[Any]:
    state, answers = RoundRobinState(), []
    for call, is_repetition in calls_of(case):
        if not is_repetition and "setCount" in call:
            state = RoundRobinState(count=call["setCount"], order=state.order)
        named = call.get("candidates", case.get("candidates", ()))
        rotation = Rotation.of(named, state)
        chosen = rotation.next(_all(named))
        state = rotation.state()
        selected = None if chosen < 0 else rotation.names[chosen]
        answers.append({"selected": selected, "count": state.count, "cache": list(state.order)})
    return answers


def _broker(load: LoadView, name: str) -> Mapping[str, Any]:
    """A candidate's data; Pulsar's look-up of an unknown one gives null, which throws."""
    if name not in load.brokers:
        raise JavaError("NullPointerException")
    return load.brokers[name]


def _usage(brokers: Sequence[Mapping[str, Any]], signals: SignalsConfig) -> Floats:
    percent = [resource_percent(*resources(broker)) for broker in brokers]
    return weighted_usage(np.array(percent).reshape(len(brokers), 5), signals)


def _all(named: Sequence[str]) -> Ints:
    return np.arange(len(named), dtype=np.int64)


def _names(named: Sequence[str], best: Ints) -> list[str]:
    return sorted(named[index] for index in best.tolist())


_STRATEGIES = {
    "LeastLongTermMessageRate": _least_message_rate,
    "LeastResourceUsageWithWeight": _least_usage,
    "RoundRobinBrokerSelector": _round_robin,
}

HANDLERS: dict[str, Handler] = {"place": place, "ext_place": ext_place}

"""Cases of the modular shedders (`lbcore.plan.shed`)."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.config.shedding import SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.plan.decision import PlanState
from lbcore.plan.registry import SHEDDING_STRATEGIES, shedding_name
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.snapshot import BrokerTable, BundleTable, Snapshot
from lbcore.plan.strategy import ShedCycle
from lbcore.signals.averages import LONG_SAMPLES
from lbcore.signals.usage import resource_percent, weighted_usage
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, Handler
from tests.conformance.view import (
    TRAFFIC,
    LoadView,
    calls_of,
    is_system_namespace,
    java_hash_order,
    numbers,
    resources,
)
from tests.support.values.clusters import Sections, broker_table, bundle_table, shed_view, snapshot

_Array: TypeAlias = NDArray[Any]

NO_OWNER = -1


def shed(case: Case) -> Any:
    keys = case.get("config", {})
    signals = section_from_pulsar(SignalsConfig, keys)
    config = Sections(
        shedding=replace(section_from_pulsar(SheddingConfig, keys), rules=case["rules"]),
        signals=signals,
    )
    strategy = SHEDDING_STRATEGIES[shedding_name(case["strategy"])]
    load, state, answers = LoadView(), ShedState(), []
    for call, is_repetition in calls_of(case):
        if not is_repetition:
            load.apply(call)
            if "activeBrokers" in call:
                state = strategy.forget(state, call["activeBrokers"])
        view = _view(load, signals)
        cycle = ShedCycle(view=view, state=PlanState(shed=state), config=config, now_ms=0)
        answer, _ = strategy.run(cycle)
        state = answer.state
        unload = _unload(view, answer)
        if call.get("applyUnload"):
            load.recently_unloaded.update(name for names in unload.values() for name in names)
        answers.append(_answer(case["strategy"], view, answer, unload))
    return {"calls": answers}


def _view(load: LoadView, signals: SignalsConfig) -> ShedView:
    found, keys = _snapshot(load)
    return replace(shed_view(found, weighted_usage(found.brokers.percent, signals)), keys=keys)


def _snapshot(load: LoadView) -> tuple[Snapshot, tuple[str, ...]]:
    """The load view as arrays, and the keys of Pulsar's plan map.

    A bundle that several brokers list has a row for each. Java reads bundles through a HashMap.
    """
    listings = list(_listings(load))
    bundles, keys = _bundle_table(load, listings)
    return snapshot(_broker_table(load), bundles), keys


def _listings(load: LoadView) -> Iterator[tuple[str, int]]:
    """(bundle, broker index) for each broker that lists it, index -1 when none does."""
    owners: dict[str, list[int]] = {}
    for index, broker in enumerate(load.brokers.values()):
        for name in dict.fromkeys(broker.get("bundles", ())):
            owners.setdefault(name, []).append(index)
    shown = [name for name in load.bundles if not is_system_namespace(name.rpartition("/")[0])]
    for name in java_hash_order(shown):
        for index in owners.get(name, [NO_OWNER]):
            yield name, index


def _bundle_table(
    load: LoadView, listings: list[tuple[str, int]]
) -> tuple[BundleTable, tuple[str, ...]]:
    given = [load.bundles[name] for name, _ in listings]
    names = tuple(name for name, _ in listings)
    short = np.array([numbers(bundle, TRAFFIC) for bundle in given]).reshape(-1, len(TRAFFIC))
    lasting = [bundle.get("long") or bundle for bundle in given]
    long = np.array([numbers(bundle, TRAFFIC) for bundle in lasting]).reshape(-1, len(TRAFFIC))
    topics = np.array([bundle.get("topics", 0) for bundle in given], dtype=np.int64)
    counts = _samples(given), _samples(lasting)
    table = bundle_table(
        names,
        owner=np.array([owner for _, owner in listings], dtype=np.int64),
        short=short,
        long=long,
        topics=topics,
        can_move=np.array([name not in load.recently_unloaded for name in names], dtype=np.bool_),
    )
    return table, _value_keys((short, long), counts, topics)


def _value_keys(
    averages: tuple[_Array, _Array], counts: tuple[_Array, _Array], topics: _Array
) -> tuple[str, ...]:
    """A bundle's averages as text: what Pulsar's plan map finds a destination by.

    averages: short- and long-term, float64[m, 4] each; counts: their samples; topics: int64[m].
    Bundles with equal averages share a key, and new averages lose it, as in Pulsar 4.0.8.
    """
    columns = [column.tolist() for column in (*averages, *counts, topics)]
    return tuple(repr(row) for row in zip(*columns, strict=True))


def _samples(given: list[Mapping[str, Any]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    samples = [min(bundle.get("numSamples", 0), LONG_SAMPLES) for bundle in given]
    return np.array(samples, dtype=np.int64)


def _broker_table(load: LoadView) -> BrokerTable:
    brokers = list(load.brokers.values())
    count = len(brokers)
    percent = [resource_percent(*resources(broker)) for broker in brokers]
    traffic = [numbers(broker, TRAFFIC) for broker in brokers]
    return broker_table(
        tuple(load.brokers),
        percent=np.array(percent).reshape(count, -1) if count else np.zeros((0, 5)),
        traffic=np.array(traffic).reshape(count, len(TRAFFIC)),
        bundle_count=np.array(
            [len(set(broker.get("bundles", ()))) for broker in brokers], dtype=np.int64
        ),
        weighted_max_ema=np.ones(count),
        updated_at_ms=np.ones(count, dtype=np.int64),
    )


def _unload(view: ShedView, answer: Shed) -> dict[str, list[str]]:
    brokers, bundles = view.snapshot.brokers.names, view.snapshot.bundles.names
    unload: dict[str, list[str]] = {}
    for selection in answer.selections:
        taken = [bundles[row] for row in selection.rows.tolist()]
        if taken:
            unload.setdefault(brokers[selection.source], []).extend(taken)
    return unload


def _answer(
    strategy: str, view: ShedView, answer: Shed, unload: dict[str, list[str]]
) -> dict[str, Any]:
    shown: dict[str, Any] = {"unload": unload}
    if strategy == "ThresholdShedder":
        shown["ema"] = answer.state.ema
    if strategy == "AvgShedder":
        names, known = view.snapshot.bundles.names, answer.state.destinations
        rows = [row for selection in answer.selections for row in selection.rows.tolist()]
        shown["plan"] = {names[row]: known[view.keys[row]] for row in rows}
        shown["hitsHigh"] = answer.state.hits_high
        shown["hitsLow"] = answer.state.hits_low
    return shown


HANDLERS: dict[str, Handler] = {"shed": shed}

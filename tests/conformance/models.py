"""Cases of the load models: usages, averages, orders, top lists (`lbcore.signals`)."""

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore.config.shedding import TransferConfig
from lbcore.config.signals import SignalsConfig
from lbcore.signals.averages import DEFAULT_TRAFFIC, average_step
from lbcore.signals.ordering import (
    has_throughput,
    stats_order,
    top_bundles,
)
from lbcore.signals.usage import (
    BrokerScores,
    max_usage_reported,
    observe_reports,
    resource_percent,
    weighted_usage,
)
from tests.conformance.extensible import CLEARED
from tests.conformance.reference.load_models import (
    average_order,
    compare_rows,
    max_usage_local,
)
from tests.conformance.reference.pulsar_section import section_from_pulsar
from tests.conformance.runner import Case, Handler
from tests.conformance.view import (
    RESOURCES,
    STATS,
    TRAFFIC,
    is_system_namespace,
    numbers,
    resources,
)


def percent_of(broker: Mapping[str, Any]) -> NDArray[np.float64]:
    """A broker's percentages, float64[1, 5]."""
    usage, limit = resources(broker)
    return resource_percent(usage, limit)[np.newaxis, :]


def broker_load(case: Case) -> Any:
    config = section_from_pulsar(SignalsConfig, case.get("config", {}))
    scores, after = CLEARED, []
    for at, update in enumerate(case["updates"], start=1):
        if update.get("clear"):
            scores = CLEARED
            after.append(_scores_shown(scores, 1.0))
            continue
        percent, traffic = percent_of(update), numbers(update, TRAFFIC)[np.newaxis, :]
        scores = observe_reports(scores, percent, traffic, np.array([at]), config)
        after.append(_scores_shown(scores, float(max_usage_reported(percent)[0])))
    return {"after": after, "clearEqualsNew": True}


def _scores_shown(scores: BrokerScores, max_usage: float) -> dict[str, float]:
    return {
        "maxResourceUsage": max_usage,
        "weightedMaxEMA": float(scores.weighted_max_ema[0]),
        "msgThroughputEMA": float(scores.throughput_ema[0]),
    }


def local_usage(case: Case) -> Any:
    cpu, direct_memory, bandwidth_in, bandwidth_out = case["weights"]
    config = SignalsConfig(
        cpu_weight=cpu,
        direct_memory_weight=direct_memory,
        bandwidth_in_weight=bandwidth_in,
        bandwidth_out_weight=bandwidth_out,
    )
    percent = percent_of(case["broker"])
    shown = [
        f"{name}: {_two_decimals(value)}%"
        for name, value in zip(RESOURCES, percent[0].tolist(), strict=True)
    ]
    return {
        "maxResourceUsage": float(max_usage_local(percent)[0]),
        "weighted": float(weighted_usage(percent, config)[0]),
        "print": ", ".join(shown),
    }


def _two_decimals(value: float) -> str:
    """As Java formats %.2f: the shortest decimal text of the number, rounded half up."""
    return str(Decimal(repr(value)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def time_average(case: Case) -> Any:
    initial = case.get("initial", {})
    average = numbers(initial, TRAFFIC)[np.newaxis, :]
    count = np.array([initial.get("numSamples", 0)])
    after = []
    for sample in case["samples"]:
        traffic = numbers(sample, TRAFFIC)[np.newaxis, :]
        average, count = average_step(average, count, traffic, case["maxSamples"])
        shown = dict(zip(TRAFFIC, average[0].tolist(), strict=True))
        after.append({**shown, "numSamples": int(count[0])})
    return {"after": after}


def time_average_broker(case: Case) -> Any:
    data = case["data"]
    default = case.get("default") or dict(zip(TRAFFIC, DEFAULT_TRAFFIC, strict=True))
    bundles = [data.get(name, default) for name in case["bundles"]]
    return {
        "result": {
            **_sums(bundles, "shortTerm"),
            **_sums([bundle.get("long", bundle) for bundle in bundles], "longTerm"),
        }
    }


def _sums(bundles: Iterable[Mapping[str, Any]], prefix: str) -> dict[str, float]:
    """In the order of the bundles: another sum may differ in its last digit."""
    rows = np.array([numbers(bundle, TRAFFIC) for bundle in bundles]).reshape(-1, len(TRAFFIC))
    one = np.zeros(len(rows), dtype=np.int64)
    return {
        f"{prefix}{name[0].upper()}{name[1:]}": float(
            np.bincount(one, weights=column, minlength=1)[0]
        )
        for name, column in zip(TRAFFIC, rows.T, strict=True)
    }


def compare_stats(case: Case) -> Any:
    both = np.array([numbers(case[side], STATS) for side in ("left", "right")])
    return {
        "stats": compare_rows(*stats_order(both)),
        "timeAverage": compare_rows(*average_order(both)),
    }


def topk(case: Case) -> Any:
    config = section_from_pulsar(TransferConfig, case.get("config", {}))
    names = [name for name in case["stats"] if _may_be_reported(name, case, config)]
    stats = np.array([numbers(case["stats"][name], STATS) for name in names])
    stats = stats.reshape(-1, len(STATS))
    busy = np.flatnonzero(has_throughput(stats))
    return {"order": [names[busy[row]] for row in top_bundles(stats[busy], case["k"]).tolist()]}


def _may_be_reported(bundle: str, case: Case, config: TransferConfig) -> bool:
    namespace = bundle.rpartition("/")[0]
    if namespace == "pulsar/system" or is_system_namespace(namespace):
        return False
    if config.shed_bundles_with_policies:
        return True
    with_policies = (*case.get("isolationNamespaces", ()), *case.get("antiAffinityNamespaces", ()))
    return namespace not in with_policies and "*" not in with_policies


HANDLERS: dict[str, Handler] = {
    "broker_load": broker_load,
    "local_usage": local_usage,
    "time_average": time_average,
    "time_average_broker": time_average_broker,
    "compare_stats": compare_stats,
    "topk": topk,
}

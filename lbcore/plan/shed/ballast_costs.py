"""Costs of traffic learnt by `ballast`, and the resources beside the busiest one.

Decides the weight of a bundle on each resource. CPU: by the cost of a message and of a byte, fitted
to what brokers report (`signals.cost`), so small messages weigh what they cost. While reports don't
tell, by the readings' own unit. Bandwidth: the bytes that it takes.
"""

from dataclasses import replace

import numpy as np

from lbcore.plan.readings import PERCENT, Readings, unit_cost
from lbcore.plan.shed.common import ShedView, message_rate, sequential_sum, throughput
from lbcore.plan.snapshot import THROUGHPUT_IN, THROUGHPUT_OUT, Floats
from lbcore.signals.cost import Costs, Evidence, fit_costs, with_reports
from lbcore.signals.usage import BANDWIDTH_IN, BANDWIDTH_OUT, CPU, DIRECT_MEMORY

KEEP = 0.98
"""Share of older reports' weight kept at each round that has new ones."""
_REPORTS_MIN = 20.0
_EXPLAINED_MIN = 0.9
"""Below this part of the variance, costs that were fitted explain too little to go by."""
_UNEXPLAINED = 2.0
_IDLE_POINTS = 10.0
"""A broker that uses so many times what its traffic makes, and points more, tells nothing of it."""
_MATTERS = 0.5
"""A resource counts once some broker uses this part of the level of it."""


def learnt(view: ShedView, readings: Readings, before: Evidence) -> Evidence:
    """The evidence with what brokers have reported since. O(brokers)."""
    brokers = view.snapshot.brokers
    explained = _UNEXPLAINED * readings.shown + _IDLE_POINTS
    is_told = view.is_due & (brokers.percent[:, CPU] < explained) & (readings.shown > 0)
    if not is_told.any():
        return before
    columns = (
        brokers.percent[:, CPU],
        brokers.capacity,
        message_rate(brokers.traffic),
        throughput(brokers.traffic),
    )
    return with_reports(before, np.stack(columns, axis=1)[is_told], KEEP)


def usable_costs(evidence: Evidence) -> Costs | None:
    """The fitted costs, if they explain what brokers use."""
    costs = fit_costs(evidence) if evidence.reports >= _REPORTS_MIN else None
    return costs if costs and costs.explained >= _EXPLAINED_MIN else None


def with_costs(readings: Readings, view: ShedView, costs: Costs) -> Readings:
    """Return the readings with costs of messages and bytes.

    An idle broker included.
    """
    brokers, bundles = view.snapshot.brokers, view.snapshot.bundles
    load = costs.expected(message_rate(bundles.short), throughput(bundles.short))
    plain = message_rate(bundles.short) * readings.cost
    jump = np.where(plain > 0, readings.bundle / np.where(plain > 0, plain, 1.0), 1.0)
    bundle: Floats = load * jump
    owned = np.bincount(bundles.owner + 1, weights=bundle, minlength=len(brokers.names) + 1)[1:]
    shown = costs.expected(message_rate(brokers.traffic), throughput(brokers.traffic))
    return replace(
        readings,
        bundle=bundle,
        traffic=costs.idle + owned / brokers.capacity,
        shown=costs.idle + shown / brokers.capacity,
    )


def other_resources(view: ShedView, level: float) -> list[tuple[Floats, Floats]]:
    """Return the load and weight of each other resource that matters.

    float64[n] and float64[m]. Points of the broker's own size, as far above the level as what is
    reported and what bundles carry both say; points on a broker of capacity 1. Bandwidth is for
    bytes. Direct memory is for topics and sessions, whose buffers it holds (the heap is not looked
    at: it fills until garbage is collected, as Pulsar leaves it out): where brokers use more of it
    than the level, it counts in parts of what they use of it. O(bundles + brokers log brokers).
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
        sums = np.bincount(bundles.owner + 1, weights=carried, minlength=len(brokers.names) + 1)
        owned = np.asarray(sums[1:], dtype=np.float64)
        cost = unit_cost(shown * brokers.capacity, owned)
        traffic = owned * cost / brokers.capacity
        low, high = np.minimum(shown, traffic), np.maximum(shown, traffic)
        load = np.where(low > level, low, np.minimum(high, level))
        found.append((load, carried * cost))
    return found


def recorded_costs(costs: Costs | None) -> dict[str, float]:
    """Return the costs stored in the inputs of each decision.

    Points per thousand msg/s, and per MB/s.
    """
    if costs is None:
        return {}
    return {
        "cost_idle": costs.idle,
        "cost_1000_messages": costs.per_message * 1e3,
        "cost_megabyte": costs.per_byte * 1e6,
        "cost_explained_percent": PERCENT * costs.explained,
    }

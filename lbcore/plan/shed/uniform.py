"""UniformLoadShedder: the busiest broker gives part of its lead over the idlest.

Destinations are placement's. Source: UniformLoadShedder of Pulsar 4.0.8 and 4.2.4 with its 32-bit
budget; `multi_hit` is Ballast's.
"""

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from lbcore.config.shedding import RULES_4_0, RULES_4_2, SheddingConfig
from lbcore.config.tree import Config
from lbcore.config.values import ConfigFinding, UsageGaps, warning
from lbcore.plan.shed.common import (
    Selection,
    Shed,
    ShedState,
    ShedView,
    TriggerStatus,
    eligible_by_traffic,
    hit_counts,
    multi_hit_gate,
    one_level,
    status_of_hottest,
)
from lbcore.plan.snapshot import Bools, Floats, message_rate, sequential_sum, throughput

EPSILON = 1e-6
SLACK = {RULES_4_0: 1_000, RULES_4_2: 0}
"""Excess of a bundle over the rest of the budget that is allowed, by `shedding.rules`."""
INT_MAX = 2**31 - 1
INT_SPAN = 2**32
NO_CAP = -1


class _Extremes(NamedTuple):
    """Busiest broker (-1 = none), highest and lowest traffic."""

    broker: int
    highest: float
    lowest: float


def shed_uniform(view: ShedView, state: ShedState, config: SheddingConfig) -> Shed:
    """Return bundles that leave the busiest broker, by message rate, else by bytes.

    By rate if that differs. Budget: (max − min) × max_unload_fraction, a 32-bit integer. A bundle
    goes while its traffic is at most the rest of the budget, plus 1000 by the rules of 4.0. Worked:
    rates 20,000 and 1,000, fraction 0.2: budget 3,800; by 4.0 a bundle of 4,800 goes, one of 4,801
    doesn't; by 4.2 one of 3,800 goes, one of 3,801 doesn't.
    """
    traffic = view.snapshot.brokers.traffic
    rates, volumes = message_rate(traffic), throughput(traffic)
    by_rate, by_bytes = _extremes(rates), _extremes(volumes)
    limit = config.rate_difference_percent
    difference = (by_rate.highest - by_rate.lowest) * 100 / by_rate.lowest
    ratio = by_bytes.highest / by_bytes.lowest
    numbers = {"rate_difference_percent": difference, "throughput_ratio": ratio}
    is_by_rate = limit > 0 and difference > limit
    is_by_bytes = not is_by_rate and 0 < config.throughput_ratio < ratio
    values, found = (volumes, by_bytes) if is_by_bytes else (rates, by_rate)
    ready, state = _gate(view, state, values, config)
    nothing = Shed(selections=(), state=state, columns={"traffic": values}, numbers=numbers)
    if not (is_by_rate or is_by_bytes) or found.broker < 0:
        return replace(nothing, reason="NoOverloadedBroker")
    if not ready[found.broker]:
        return replace(nothing, reason="HitCount")
    return _select(view, nothing, found, config, by_rate=is_by_rate)


def _select(
    view: ShedView,
    nothing: Shed,
    extremes: _Extremes,
    config: SheddingConfig,
    *,
    by_rate: bool,
) -> Shed:
    broker, highest, lowest = extremes
    budget = _int32((highest - lowest) * config.max_unload_fraction)
    bytes_floor = config.min_unload_throughput_bytes_per_s
    if view.snapshot.brokers.bundle_count[broker] <= 1:
        return replace(nothing, reason="NoBundles", verdicts={broker: "sole_bundle"})
    if budget < (config.min_unload_rate_msg_per_s if by_rate else bytes_floor):
        return replace(nothing, reason="NoBundles", verdicts={broker: "below_min_unload"})
    rows, traffic = eligible_by_traffic(view, broker, by_rate=by_rate)
    is_taken = _take(traffic, budget, SLACK[config.rules], config.max_unload_bundles)
    if not is_taken.any():
        text = "no_fitting_bundle" if len(rows) else "no_eligible_bundle"
        return replace(nothing, reason="NoBundles", verdicts={broker: text})
    numbers = {
        "highest": highest,
        "lowest": lowest,
        "budget": float(budget),
        "by_rate": float(by_rate),
    }
    selection = Selection(
        source=broker,
        candidates=rows,
        traffic=traffic,
        is_taken=is_taken,
        reason="Overloaded",
        numbers=numbers,
    )
    return replace(nothing, selections=(selection,))


def _extremes(values: Floats) -> _Extremes:
    """Return the extremes, with Pulsar's starting values; the first broker wins ties."""
    broker = int(np.argmax(values)) if len(values) else -1
    highest = float(values[broker]) if len(values) else -1.0
    lowest = float(values.min(initial=INT_MAX))
    if not highest > -1:
        broker, highest = -1, -1.0
    return _Extremes(broker, highest, 1.0 if abs(lowest) <= EPSILON else lowest)


def _take(traffic: Floats, budget: int, slack: int, cap: int) -> Bools:
    """Return the bundles to take.

    traffic: descending, not negative; cap: largest number of bundles, -1 = no cap.
    """
    is_taken = np.zeros(len(traffic), dtype=np.bool_)
    falling = (-traffic).tolist()
    at = taken = 0
    while cap == NO_CAP or taken < cap:
        at = bisect_left(falling, -_wrapped(budget + slack), at)
        if at >= len(falling):
            break
        is_taken[at] = True
        budget = _wrapped(budget + _int32(falling[at]))
        at, taken = at + 1, taken + 1
    return is_taken


def _int32(value: float) -> int:
    """Convert as Java's (int) of a double: towards zero, saturating, 0 for NaN."""
    return 0 if math.isnan(value) else int(max(-INT_MAX - 1, min(INT_MAX, value)))


def _wrapped(value: int) -> int:
    """Wrap a sum as 32-bit integers of Java do."""
    return (value + INT_MAX + 1) % INT_SPAN - INT_MAX - 1


def _gate(
    view: ShedView, state: ShedState, values: Floats, config: SheddingConfig
) -> tuple[Bools, ShedState]:
    """Return the brokers that may act, and the new state.

    With multi_hit: those far enough above the mean traffic, for long enough.
    """
    if not config.multi_hit or not len(values):
        return np.ones(len(values), dtype=np.bool_), state
    mean = sequential_sum(values) / len(values)
    excess = 100.0 * (values - mean) / mean if mean > 0 else np.zeros(len(values))
    is_busiest = np.arange(len(values)) == np.argmax(values)
    return multi_hit_gate(view, state, excess, is_busiest, config)


def check_uniform(config: Config, _gaps: UsageGaps) -> Iterator[ConfigFinding]:
    """Find limits that no broker exceeds, or every one."""
    shedding = config.shedding
    if shedding.rate_difference_percent <= 0 and shedding.throughput_ratio <= 0:
        detail = "and throughput_ratio are both off: uniform never sheds"
        yield warning("shedding.rate_difference_percent", detail)
    if 0 < shedding.throughput_ratio <= 1:
        detail = f"{shedding.throughput_ratio:g} is always exceeded: equal brokers shed"
        yield warning("shedding.throughput_ratio", detail)


def uniform_trigger(view: ShedView, shed: Shed, config: SheddingConfig) -> TriggerStatus:
    """The trigger status of uniform: traffic of the busiest over the idlest."""
    traffic = shed.columns["traffic"]
    hits = hit_counts(view, shed.state.hits_low)
    needed = config.multi_hit_low_hits if config.multi_hit else 1
    number, threshold = shed.numbers["rate_difference_percent"], config.rate_difference_percent
    measure = "percent of message rate above the idlest broker"
    ratio = shed.numbers["throughput_ratio"]
    if number <= threshold and 0 < config.throughput_ratio < ratio:
        number, threshold = ratio, config.throughput_ratio
        measure = "times the throughput of the idlest broker"
    return status_of_hottest(measure, traffic, number, one_level(threshold, needed, hits))

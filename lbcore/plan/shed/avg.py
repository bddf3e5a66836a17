"""AvgShedder: pairs the hottest broker with the coldest, the next with the next.

Brokers are selected by usage, bundles by traffic; the assign phase keeps its destinations. Hits are
counted per broker, not per pair: with 80, 80 and 20 the hottest may alternate, and the third
broker's counter still fills. Source: Pulsar 4.0.8 AvgShedder (the shedding half).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from lbcore.config.placement import CHURN_BY_ISOLATION
from lbcore.config.shedding import SheddingConfig
from lbcore.config.tree import Config
from lbcore.config.values import ConfigFinding, UsageGaps, warning
from lbcore.plan.shed.common import (
    Selection,
    Shed,
    ShedState,
    ShedView,
    TriggerLevel,
    TriggerStatus,
    eligible_by_traffic,
    hit_counts,
    one_level,
    take_within,
)
from lbcore.plan.snapshot import NOBODY, Floats, message_rate, throughput

PERCENT = 100.0


def shed_avg(view: ShedView, state: ShedState, config: SheddingConfig) -> Shed:
    """Return the bundles that move from each hot broker to its cold partner.

    A pair whose weighted usages (points) differ by at least the low threshold counts a hit. When a
    counter of either is full, bundles worth `max_unload_fraction` of the difference in message
    rate, or else in throughput, move, each only if it fits whole. Worked: rates 20,000 and 2,000,
    fraction 0.5: budget 9,000. O(n log n + bundles of the acting brokers).
    """
    usage_points = 100.0 * view.usage
    names = view.snapshot.brokers.names
    low, high = dict(state.hits_low), dict(state.hits_high)
    pairs = _count_pairs(view, usage_points, (low, high), config)
    if not pairs:
        return Shed(
            selections=(),
            state=replace(state, hits_low={}, hits_high={}),
            reason="NoOverloadedBroker",
            columns={"score": usage_points},
        )
    destinations = dict(state.destinations)
    selections: list[Selection] = []
    verdicts: dict[int, str] = {}
    for cold, hot in pairs:
        both = (names[cold], names[hot])
        hits_low, hits_high = (max(hits.get(name, 0) for name in both) for hits in (low, high))
        if hits_low < config.avg_low_hits and hits_high < config.avg_high_hits:
            verdicts[hot] = "too_few_hits"
            continue
        counted = {
            "hits_low": float(hits_low),
            "hits_high": float(hits_high),
            "hits_low_needed": float(config.avg_low_hits),
            "hits_high_needed": float(config.avg_high_hits),
            "threshold_low": config.avg_low_threshold,
            "threshold_high": config.avg_high_threshold,
        }
        for name in both:
            low.pop(name, None)
            high.pop(name, None)
        chosen = _select(view, usage_points, (cold, hot), config)
        if isinstance(chosen, str):
            verdicts[hot] = chosen
            continue
        selections.append(replace(chosen, numbers={**chosen.numbers, **counted}))
        destinations.update({view.keys[row]: names[cold] for row in chosen.rows.tolist()})
    is_waiting = len(verdicts) == len(pairs) and set(verdicts.values()) == {"too_few_hits"}
    return Shed(
        selections=tuple(selections),
        state=replace(state, hits_low=low, hits_high=high, destinations=destinations),
        reason="" if selections else ("HitCount" if is_waiting else "NoBundles"),
        columns={"score": usage_points},
        verdicts=verdicts,
    )


def _count_pairs(
    view: ShedView,
    usage_points: Floats,
    counters: tuple[dict[str, int], dict[str, int]],
    config: SheddingConfig,
) -> list[tuple[int, int]]:
    """Count hits, and return (cold, hot) broker indices of pairs far enough apart.

    counters: hits in a row by broker name, low and high; changed in place.
    """
    names = view.snapshot.brokers.names
    order = np.argsort(usage_points, kind="stable").tolist()
    points, due = usage_points.tolist(), view.has_new_report.tolist()
    low = config.avg_low_threshold
    thresholds = (low, max(low, config.avg_high_threshold))  # below the low one nothing is a hit
    pairs: list[tuple[int, int]] = []
    for at in range((len(order) + 1) // 2):
        cold, hot = order[at], order[-1 - at]
        difference = points[hot] - points[cold]
        if not difference < low:
            pairs.append((cold, hot))
        for name in (names[broker] for broker in (cold, hot) if due[broker]):
            for hits, least in zip(counters, thresholds, strict=True):
                if difference < least:
                    hits.pop(name, None)
                else:
                    hits[name] = hits.get(name, 0) + 1
    return pairs


def _select(
    view: ShedView, usage_points: Floats, pair: tuple[int, int], config: SheddingConfig
) -> Selection | str:
    cold, hot = pair
    traffic = view.snapshot.brokers.traffic[[cold, hot]]
    rates, volumes = message_rate(traffic).tolist(), throughput(traffic).tolist()
    budget = (rates[1] - rates[0]) * config.max_unload_fraction
    by_rate = budget > config.min_unload_rate_msg_per_s
    if not by_rate:
        budget = (volumes[1] - volumes[0]) * config.max_unload_fraction
        if not budget > config.min_unload_throughput_bytes_per_s:
            return "below_min_unload"
    rows, loads = eligible_by_traffic(view, hot, by_rate=by_rate)
    if not len(rows):
        return "no_eligible_bundle"
    is_taken = take_within(loads, budget)
    if not is_taken.any():
        return "no_fitting_bundle"
    return Selection(
        source=hot,
        destination=cold,
        candidates=rows,
        traffic=loads,
        is_taken=is_taken,
        reason="Overloaded",
        numbers={
            "score": float(usage_points[hot]),
            "score_of_destination": float(usage_points[cold]),
            "difference": float(usage_points[hot] - usage_points[cold]),
            "budget": budget,
            "by_rate": float(by_rate),
        },
    )


def check_avg(config: Config, gaps: UsageGaps) -> Iterator[ConfigFinding]:
    """Find thresholds and hits that contradict each other, or the usages measured."""
    shedding, usage = config.shedding, gaps.usage_points
    low, high = shedding.avg_low_threshold, shedding.avg_high_threshold
    if low >= high:
        detail = f"{low:g} must be below avg_high_threshold = {high:g}: every hit is a high one"
        yield warning("shedding.avg_low_threshold", detail)
    if high > PERCENT:
        detail = f"{high:g} points are hardly reached: usage is a percentage of a broker"
        yield warning("shedding.avg_high_threshold", detail)
    if shedding.avg_low_hits <= shedding.avg_high_hits:
        detail = (
            f"{shedding.avg_low_hits} is not above avg_high_hits = {shedding.avg_high_hits}:"
            " a small difference acts as soon as a large one"
        )
        yield warning("shedding.avg_low_hits", detail)
    if not shedding.by_group:
        detail = (
            f"with isolation policies, {CHURN_BY_ISOLATION}: set it to false, or both strategies "
            "to ballast; without policies nothing needs to change"
        )
        yield warning("shedding.is_pulsar_exact", detail)
    if usage is not None and usage < low:
        detail = f"{low:g} is above the largest difference seen, {usage:g}: nothing is shed"
        yield warning("shedding.avg_low_threshold", detail)


def avg_trigger(view: ShedView, shed: Shed, config: SheddingConfig) -> TriggerStatus:
    """Return the trigger status of avg: the difference to the partner."""
    usage_points = 100.0 * view.usage
    order = np.argsort(usage_points, kind="stable")
    partner = np.full(len(order), NOBODY, dtype=np.int64)
    partner[order] = order[::-1]
    partner[partner == np.arange(len(order))] = NOBODY
    number = np.where(partner == NOBODY, np.nan, np.abs(usage_points - usage_points[partner]))

    def level(hits: Mapping[str, int], threshold: float, needed: int) -> TriggerLevel:
        own = hit_counts(view, hits)
        both = np.where(partner == NOBODY, own, np.maximum(own, own[partner]))
        return one_level(threshold, needed, both)

    return TriggerStatus(
        measure="points of usage between it and its partner",
        number=number,
        partner=partner,
        levels=(
            level(shed.state.hits_low, config.avg_low_threshold, config.avg_low_hits),
            level(shed.state.hits_high, config.avg_high_threshold, config.avg_high_hits),
        ),
    )

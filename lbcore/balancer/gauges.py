"""Gauges: what the metrics show of a cluster beside what a batch's line says.

Decides how numbers of the state are summed up; nothing is done about them here. Part of
`balancer`'s report. Source: ours; imbalance is `signals.imbalance`'s.
"""

import math
from typing import Any

import numpy as np

from lbcore.balancer.decisions.held_words import is_believed
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.state.work import Work
from lbcore.model.resources import COUNT
from lbcore.ownership.records import State
from lbcore.ownership.repair import stuck_after_ms
from lbcore.ownership.states import IN_FLIGHT
from lbcore.plan.registry import shedding_strategy
from lbcore.signals.imbalance import floor_adjusted_imbalance, imbalance
from lbcore.signals.usage import max_usage_reported

LOW, HIGH = "low", "high"
_SHOWN = sorted({*IN_FLIGHT, State.FREE}, key=lambda state: state.value)


def make_gauges(work: Work) -> dict[str, Any]:
    """Numbers for the metrics, by subject: brokers, states, balance, hits. O(bundles).

    brokers: columns of equal length, in name order; percent: a number a
    resource; max_usage: Pulsar's, unweighted; ages in ms, None = never. states:
    state → how many, the oldest's age, how many are stuck. topics: of how many bundles, and how
    many of them, are known.
    """
    return {
        "brokers": _brokers(work),
        "states": {state.value: _ages(work, state) for state in _SHOWN},
        "balance": _balance(work),
        "hits_needed": _hits_needed(work),
        "held": {
            name: {"reason": hot.rule, "for_ms": work.now_ms - hot.since_ms}
            for name, hot in work.plan.hot.items()
            if hot.told_ms and is_believed(hot.told_ms, work.now_ms)
        },
        "shadows": {
            name: {
                "imbalance": one.imbalance,
                "floor_adjusted": one.floor_adjusted,
                "elsewhere": len(one.elsewhere),
            }
            for name, one in sorted(work.shadows.items())
        },
        "transfer_hits": work.plan.transfer.hits,
        "split_hits": len(work.plan.split.hits),
        "unsplittable": len(work.plan.split.unsplittable),
        "is_catching_up": work.is_catching_up,
        "is_quiet": work.config.cluster.quiet_until_ms(work.now_ms) > 0,
        "topics": {"bundles": work.topics.bundles, "topics": work.topics.count},
    }


def _brokers(work: Work) -> dict[str, Any]:
    names = sorted(work.brokers)
    entries = [work.brokers[name] for name in names]
    hits = work.plan.shed
    percent = np.array([entry.percent for entry in entries], dtype=np.float64).reshape(-1, COUNT)
    return {
        "name": names,
        "is_up": [not entry.is_silent for entry in entries],
        "percent": [list(entry.percent) for entry in entries],
        "max_usage": max_usage_reported(percent).tolist(),
        "throughput": [entry.traffic[2] + entry.traffic[3] for entry in entries],
        "topics": [entry.topic_count for entry in entries],
        "report_age_ms": [
            max(0, work.now_ms - entry.reported_ms) if entry.reported_ms else None
            for entry in entries
        ],
        LOW: [abs(hits.hits_low.get(name, 0)) for name in names],
        HIGH: [abs(hits.hits_high.get(name, 0)) for name in names],
    }


def _ages(work: Work, state: State) -> dict[str, int]:
    ledger = work.ledger
    ages_ms = work.now_ms - ledger.at_ms[ledger.state == STATE_CODE[state]]
    is_stuck = (
        ages_ms > stuck_after_ms(work.config.ownership) if state in IN_FLIGHT else ages_ms < 0
    )
    return {
        "count": len(ages_ms),
        "oldest_ms": int(ages_ms.max(initial=0)),
        "stuck": int(is_stuck.sum()),
    }


def _balance(work: Work) -> dict[str, float | None]:
    """How even the live brokers' message rates and scores are; None = there is no load."""
    live = [
        entry
        for _, entry in sorted(work.brokers.items())
        if entry.reported_ms and not entry.is_silent
    ]
    rates = [entry.traffic[0] + entry.traffic[1] for entry in live]
    scores = [entry.weighted_max_ema for entry in live]
    hottest = min(_hottest(work), max(rates, default=0.0))  # averages may lag behind brokers
    mean = math.fsum(scores) / len(scores) if scores else None
    return {
        "imbalance": imbalance(rates),
        "floor_adjusted": floor_adjusted_imbalance(rates, hottest),
        "score_mean": mean,
        "score_std": None if mean is None else _deviation(scores, mean),
    }


def _deviation(values: list[float], mean: float) -> float:
    """The standard deviation of all of them."""
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))


def _hottest(work: Work) -> float:
    """msg/s in plus out of the busiest bundle that somebody has and has reported."""
    ledger = work.ledger
    is_known = (ledger.short_count > 0) & (ledger.holders() != NOBODY)
    rates = np.where(is_known, ledger.short[:, 0] + ledger.short[:, 1], 0.0)
    return float(rates.max(initial=0.0))


def _hits_needed(work: Work) -> dict[str, int]:
    low, high = shedding_strategy(work.config).hits_needed(work.config)
    return {LOW: low, HIGH: high}

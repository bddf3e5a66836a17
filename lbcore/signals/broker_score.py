"""A broker's smoothed score and throughput, advanced once a report.

Decides the score that the extensible rules compare; not who is hot. Kept by the scorer, a row a
broker. Source: Pulsar 4.0.8 BrokerLoadData.update and clear.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.config.signals import SignalsConfig
from lbcore.signals.averages import with_rows
from lbcore.signals.ema import ema_step
from lbcore.signals.usage import max_usage_reported, weighted_usage_with_memory

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerScores:
    """The scores of n brokers.

    max_usage: unweighted, 1.0 = 100 %. weighted_max_ema: the score. throughput_ema: bytes/s in
    plus out. updated_at_ms: of the last report, 0 = none yet. Arrays of length n.
    """

    max_usage: Floats
    weighted_max_ema: Floats
    throughput_ema: Floats
    updated_at_ms: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReports:
    """The newest report of k brokers.

    rows: int64[k], distinct, where each stands in the scores. percent: float64[k, resources].
    traffic: float64[k, 4]. at_ms: int64[k], when each report arrived, > 0.
    """

    rows: Ints
    percent: Floats
    traffic: Floats
    at_ms: Ints


def cleared_scores(brokers: int) -> BrokerScores:
    """Return scores of brokers that never reported: 100 % load, no throughput."""
    return BrokerScores(
        max_usage=np.ones(brokers),
        weighted_max_ema=np.ones(brokers),
        throughput_ema=np.zeros(brokers),
        updated_at_ms=np.zeros(brokers, dtype=np.int64),
    )


def observe_reports(
    scores: BrokerScores, reports: BrokerReports, config: SignalsConfig
) -> BrokerScores:
    """Return the scores after one report each.

    A first report replaces the cleared values wholly.
    """
    rows = reports.rows
    is_first = scores.updated_at_ms[rows] == 0
    weight = config.history_weight
    usage = weighted_usage_with_memory(reports.percent, config)
    throughput = reports.traffic[:, THROUGHPUT_IN] + reports.traffic[:, THROUGHPUT_OUT]
    usage_ema = np.where(is_first, usage, ema_step(scores.weighted_max_ema[rows], usage, weight))
    throughput_ema = ema_step(scores.throughput_ema[rows], throughput, weight)
    return replace(
        scores,
        max_usage=with_rows(scores.max_usage, rows, max_usage_reported(reports.percent)),
        weighted_max_ema=with_rows(
            scores.weighted_max_ema, rows, np.where(is_first, usage, usage_ema)
        ),
        throughput_ema=with_rows(
            scores.throughput_ema, rows, np.where(is_first, throughput, throughput_ema)
        ),
        updated_at_ms=with_rows(scores.updated_at_ms, rows, reports.at_ms),
    )

"""A broker's usage and score, and the rule for publishing its load report.

Usage is the maximum over weighted resources, in the order of `model.resources`. Single precision,
as in Pulsar, shows: 30 of 100 is 30.000001907348633 percent, which flips comparisons at a
threshold. Source: Pulsar 4.0.8 ResourceUsage, LocalBrokerData, and BrokerLoadData for the score.
"""

import math
from dataclasses import dataclass

import numpy as np

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import LOCAL, RESOURCES, position
from lbcore.signals.averages import Floats, Ints, ema_step

CPU, DIRECT_MEMORY, BANDWIDTH_IN, BANDWIDTH_OUT = map(
    position, ("cpu", "direct_memory", "bandwidth_in", "bandwidth_out")
)


def resource_percent(usage: Floats, limit: Floats) -> Floats:
    """Return usage in percent of the limit, in single precision, widened; same shape.

    A limit <= 0 (unknown) gives 0. Values above 100 are legal.
    """
    with np.errstate(all="ignore"):
        single_usage, single_limit = usage.astype(np.float32), limit.astype(np.float32)
        percent = single_usage / single_limit * np.float32(100)
    result: Floats = np.where(single_limit > 0, percent, np.float32(0)).astype(np.float64)
    return result


def _highest(percent: Floats) -> Floats:
    """Return the highest value of each row, 1.0 = 100 %, in double precision."""
    result: Floats = np.fmax.reduce(percent, axis=1, initial=-np.inf) / 100.0
    return result


def max_usage_reported(percent: Floats) -> Floats:
    """Return BrokerLoadData.getMaxResourceUsage, divided in double precision."""
    return _highest(percent[:, LOCAL])


def weighted_usage(percent: Floats, config: SignalsConfig) -> Floats:
    """LocalBrokerData.getMaxResourceUsageWithWeight: no heap; 1.0 = 100 %.

    percent: float64[brokers, n]. Not clamped.
    """
    return _highest(percent[:, LOCAL] * resource_weights(config)[list(LOCAL)])


def weighted_usage_with_memory(percent: Floats, config: SignalsConfig) -> Floats:
    """BrokerLoadData's weighted maximum over all resources; 1.0 = 100 %."""
    return _highest(percent * resource_weights(config))


def resource_weights(config: SignalsConfig) -> Floats:
    """The weight of each resource, float64[n]."""
    weights = [getattr(config, one.weight) if one.weight else 1.0 for one in RESOURCES]
    return np.array(weights, dtype=np.float64)


RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT = range(4)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerScores:
    """The scores of n brokers.

    weighted_max_ema: the score, 1.0 = 100 %. throughput_ema: bytes/s in plus out. updated_at_ms: of
    the last report, 0 = none yet. Arrays of length n.
    """

    weighted_max_ema: Floats
    throughput_ema: Floats
    updated_at_ms: Ints


def observe_reports(
    scores: BrokerScores, percent: Floats, traffic: Floats, at_ms: Ints, config: SignalsConfig
) -> BrokerScores:
    """Return the scores after one report of each broker; a first one replaces them.

    percent: float64[n, resources]. traffic: float64[n, 4]. at_ms: int64[n], arrival, > 0.
    """
    is_first = scores.updated_at_ms == 0
    usage = weighted_usage_with_memory(percent, config)
    throughput = traffic[:, THROUGHPUT_IN] + traffic[:, THROUGHPUT_OUT]
    usage_ema = ema_step(scores.weighted_max_ema, usage, config.history_weight)
    throughput_ema = ema_step(scores.throughput_ema, throughput, config.history_weight)
    return BrokerScores(
        weighted_max_ema=np.where(is_first, usage, usage_ema),
        throughput_ema=np.where(is_first, throughput, throughput_ema),
        updated_at_ms=at_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedLoad:
    """Load values that `should_report` compares.

    usage: 1.0 = 100 %; the weighted one (`weighted_usage`) for the modular manager, the unweighted
    one for the extensible. rate: msg/s in plus out. throughput: bytes/s in plus out.
    """

    usage: float
    rate: float
    throughput: float
    bundles: int


def reported_load(
    percent: Floats, traffic: Floats, bundles: int, config: SignalsConfig
) -> ReportedLoad:
    """Return a broker's load as `should_report` compares it.

    percent: float64[resources]; traffic: float64[4].
    """
    rows = percent.reshape(1, -1)
    usage = weighted_usage(rows, config) if config.report_by_weight else max_usage_reported(rows)
    return ReportedLoad(
        usage=float(usage[0]),
        rate=float(traffic[RATE_IN] + traffic[RATE_OUT]),
        throughput=float(traffic[THROUGHPUT_IN] + traffic[THROUGHPUT_OUT]),
        bundles=bundles,
    )


def should_report(
    last: ReportedLoad, now: ReportedLoad, elapsed_ms: int, config: SignalsConfig
) -> bool:
    """True if `now` must be published, `elapsed_ms` after `last` was.

    For a first report, the elapsed time is infinite. The comparison is with the last *published*
    data, so slow drift adds up, and it is strict: with the default of 10 percent, a usage of 0.60
    after 0.50 stays unreported, 0.61 is reported. Source: Pulsar 4.0.8
    ModularLoadManagerImpl.needBrokerDataUpdate and BrokerLoadDataReporter.needBrokerDataUpdate.
    """
    if elapsed_ms > config.report_max_interval_ms:
        return True
    change = max(
        100.0 * abs(last.usage - now.usage),
        _percent_changed(last.rate, now.rate),
        _percent_changed(last.throughput, now.throughput),
        _percent_changed(last.bundles, now.bundles),
    )
    return change > config.report_change_percent


def _percent_changed(old: float, new: float) -> float:
    if old == 0:
        return 0.0 if new == 0 else math.inf
    return 100.0 * abs((old - new) / old)

"""A broker's usage: single-precision percentages, maximum over weighted resources.

Decides how full a broker is; nothing about who should be. Used by the scorer, the shedders and
placement. Source: Pulsar 4.0.8 ResourceUsage, LocalBrokerData, BrokerLoadData.

Single precision shows: 30 of 100 is 30.000001907348633 percent, which flips comparisons at a
threshold. Resources stand in the order of `model.resources`, n of them a broker.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import LOCAL, RESOURCES, position

Floats: TypeAlias = NDArray[np.float64]

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


def max_usage_reported(percent: Floats) -> Floats:
    """Return BrokerLoadData.getMaxResourceUsage, divided in double precision."""
    result: Floats = np.fmax.reduce(percent[:, LOCAL], axis=1, initial=-np.inf) / 100.0
    return result


def weighted_usage(percent: Floats, config: SignalsConfig) -> Floats:
    """LocalBrokerData.getMaxResourceUsageWithWeight: no heap; 1.0 = 100 %.

    percent: float64[brokers, n]. Not clamped.
    """
    weights = resource_weights(config)[list(LOCAL)]
    result: Floats = np.fmax.reduce(percent[:, LOCAL] * weights, axis=1, initial=-np.inf) / 100.0
    return result


def weighted_usage_with_memory(percent: Floats, config: SignalsConfig) -> Floats:
    """BrokerLoadData's weighted maximum over all resources; 1.0 = 100 %."""
    weights = resource_weights(config)
    result: Floats = np.fmax.reduce(percent * weights, axis=1, initial=-np.inf) / 100.0
    return result


def resource_weights(config: SignalsConfig) -> Floats:
    """The weight of each resource, float64[n]."""
    weights = [getattr(config, one.weight) if one.weight else 1.0 for one in RESOURCES]
    return np.array(weights, dtype=np.float64)

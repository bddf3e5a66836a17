"""Usage, sums and orders of Pulsar's load models that the job has no use for.

Source: Pulsar 4.0.8, LocalBrokerData, TimeAverageBrokerData, TimeAverageMessageData.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from lbcore.model.resources import LOCAL
from lbcore.signals.ordering import (
    LONG_LIMIT,
    RATE_BUCKET,
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_BUCKET,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
)

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def max_usage_local(percent: Floats) -> Floats:
    """LocalBrokerData.getMaxResourceUsage, divided in single precision; 1.0 = 100 %.

    percent: float64[brokers, n] from `resource_percent`. The heap does not count. 4 percent reads
    0.03999999910593033. NaN never wins.
    """
    highest = np.fmax.reduce(percent[:, LOCAL].astype(np.float32), axis=1, initial=-np.inf)
    result: Floats = (highest.astype(np.float32) / np.float32(100)).astype(np.float64)
    return result


def average_order(average: Floats) -> Ints:
    """Bucket numbers of averages, int64[n, 3], to be compared from left to right.

    average: float64[n, 4] in the order of `wire.messages.TRAFFIC`. Truncated, where those of bundle
    stats are rounded: 149 and 151 msg/s are equal.
    """
    columns = (
        average[:, THROUGHPUT_IN] / THROUGHPUT_BUCKET,
        average[:, THROUGHPUT_OUT] / THROUGHPUT_BUCKET,
        (average[:, RATE_IN] + average[:, RATE_OUT]) / RATE_BUCKET,
    )
    return np.stack([_as_long(np.trunc(column)) for column in columns], axis=1)


def _as_long(values: Floats) -> Ints:
    return np.clip(np.nan_to_num(values), -LONG_LIMIT, LONG_LIMIT).astype(np.int64)


def compare_rows(left: Ints, right: Ints) -> int:
    """-1, 0 or 1: how two rows of bucket numbers compare."""
    for mine, other in zip(left.tolist(), right.tolist(), strict=True):
        if mine != other:
            return -1 if mine < other else 1
    return 0

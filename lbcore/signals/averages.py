"""Short- and long-term averages of bundles, whole arrays at a time.

The balancer keeps them, a row a bundle; they survive a move, a split and a merge. An average is the
plain mean until it has as many samples as its horizon, then an exponential one; the first sample
replaces any default. Worked, horizon 3, samples 10, 20, 30, 40: averages 10, 15, 20,
26.666666666666668. Source: Pulsar 4.0.8 TimeAverageMessageData, BundleData, TimeAverageBrokerData,
and BrokerLoadData and ThresholdShedder for `ema_step`.
"""

from dataclasses import dataclass, fields
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def ema_step(history: Floats, sample: Floats, history_weight: Floats | float) -> Floats:
    """Return history_weight × history + (1 − history_weight) × sample.

    history, sample: of any shape, the same for both.
    """
    return history * history_weight + (1 - history_weight) * sample


T = TypeVar("T", bound=np.generic)


def with_rows(values: NDArray[T], rows: NDArray[np.int64], new: NDArray[T]) -> NDArray[T]:
    """`values` with `new` in place of `rows` (distinct indices along the first axis)."""
    result: NDArray[T] = values.copy()
    result[rows] = new
    return result


SHORT_SAMPLES = 10
LONG_SAMPLES = 1_000
DEFAULT_TRAFFIC = (50.0, 50.0, 50_000.0, 50_000.0)
TRAFFIC_COLUMNS = 4
TOPICS_COLUMN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleAverages:
    """Averages of m bundles.

    short, long: float64[m, 4] in the order of `wire.messages.TRAFFIC`. short_count, long_count:
    int64[m], samples so far, at most 10 and 1,000. topics: int64[m], of the last sample.
    """

    short: Floats
    short_count: Ints
    long: Floats
    long_count: Ints
    topics: Ints


def average_step(
    average: Floats, count: Ints, sample: Floats, max_samples: int
) -> tuple[Floats, Ints]:
    """(averages, counts) after one sample each.

    average, sample: float64[k, 4]. count: int64[k], samples before.
    """
    new_count = np.minimum(count + 1, max_samples)
    divisor = new_count.astype(np.float64)[:, np.newaxis]
    result: Floats = average * (divisor - 1.0)
    result += sample
    result /= divisor
    return result, new_count


def observe_bundles(averages: BundleAverages, rows: Ints, stats: Floats) -> BundleAverages:
    """The averages after one sample of each bundle in `rows` (distinct).

    stats: float64[k, 8] in the order of `wire.messages.BUNDLE_COLUMNS`. O(m), about 5 ms for
    100,000 bundles.
    """
    sample = stats[:, :TRAFFIC_COLUMNS]
    topics = stats[:, TOPICS_COLUMN].astype(np.int64)
    if len(rows) == len(averages.topics) and np.array_equal(rows, np.arange(len(rows))):
        return _observed(averages, sample, topics)
    columns = {one.name: getattr(averages, one.name) for one in fields(averages)}
    chosen = BundleAverages(**{name: column[rows] for name, column in columns.items()})
    new = _observed(chosen, sample, topics)
    after = {name: with_rows(one, rows, getattr(new, name)) for name, one in columns.items()}
    return BundleAverages(**after)


def _observed(averages: BundleAverages, sample: Floats, topics: Ints) -> BundleAverages:
    short, short_count = average_step(averages.short, averages.short_count, sample, SHORT_SAMPLES)
    long, long_count = average_step(averages.long, averages.long_count, sample, LONG_SAMPLES)
    return BundleAverages(
        short=short, short_count=short_count, long=long, long_count=long_count, topics=topics
    )


def inherited_averages(averages: BundleAverages, parents: Ints, shares: Floats) -> BundleAverages:
    """Averages of the children of a split, a row a child.

    parents: int64[k], the parent's row. shares: float64[k], 0..1, the child's part of its parent's
    traffic (by its topics), summing to 1 over the children of a parent. Sample counts are the
    parent's, so that children start with its history.
    """
    share = shares[:, np.newaxis]
    return BundleAverages(
        short=averages.short[parents] * share,
        short_count=averages.short_count[parents],
        long=averages.long[parents] * share,
        long_count=averages.long_count[parents],
        topics=np.floor(averages.topics[parents] * shares).astype(np.int64),
    )


def joined_averages(averages: BundleAverages, parents: Ints) -> BundleAverages:
    """Averages of the one bundle that two or more become.

    parents: int64[k], their rows. Their traffic is added up. The smallest of the sample counts is
    taken.
    """
    return BundleAverages(
        short=averages.short[parents].sum(axis=0, keepdims=True),
        short_count=averages.short_count[parents].min(keepdims=True),
        long=averages.long[parents].sum(axis=0, keepdims=True),
        long_count=averages.long_count[parents].min(keepdims=True),
        topics=averages.topics[parents].sum(keepdims=True),
    )

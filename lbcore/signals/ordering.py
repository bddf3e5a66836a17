"""Order of bundles by load, and the heaviest few of a broker.

Used by the agent's top list, the transfer shedder and split decisions. Bucket numbers are compared
field after field, and the first difference wins: throughput in, throughput out (100,000 bytes/s per
bucket), message rate in plus out (100 msg/s), sessions (500), cache (100,000 bytes). They are
rounded: 149 and 151 msg/s differ. Source: Pulsar 4.0.8 NamespaceBundleStats.compareTo, TopKBundles.
"""

import numpy as np

from lbcore.signals.averages import Bools, Floats, Ints

THROUGHPUT_BUCKET = 1e5
RATE_BUCKET = 100.0
SESSIONS_BUCKET = 500.0
CACHE_BUCKET = 1e5
HALF = 0.5
LONG_LIMIT = float(2**62)
RATE_IN, RATE_OUT, THROUGHPUT_IN, THROUGHPUT_OUT, TOPICS, CONSUMERS, PRODUCERS, CACHE = range(8)


def stats_order(stats: Floats) -> Ints:
    """Bucket numbers of bundle stats, int64[n, 5], to be compared from left to right.

    stats: float64[n, 8] in the order of `wire.messages.BUNDLE_COLUMNS`.
    """
    sessions = stats[:, TOPICS] + stats[:, CONSUMERS] + stats[:, PRODUCERS]
    columns = (
        stats[:, THROUGHPUT_IN] / THROUGHPUT_BUCKET,
        stats[:, THROUGHPUT_OUT] / THROUGHPUT_BUCKET,
        (stats[:, RATE_IN] + stats[:, RATE_OUT]) / RATE_BUCKET,
        sessions / SESSIONS_BUCKET,
        stats[:, CACHE] / CACHE_BUCKET,
    )
    return np.stack([_rounded(column) for column in columns], axis=1)


def top_bundles(stats: Floats, limit: int) -> Ints:
    """Rows of the `limit` heaviest bundles, lightest of them first.

    stats: float64[n, 8]; bundles without throughput, and those whose policies forbid shedding, are
    left out by the caller (`has_throughput`). limit <= 0 gives none. Of equally heavy ones those
    that TopKBundles' partition leaves in front are taken, in its order.
    """
    order = stats_order(stats).tolist()
    wanted = min(limit, len(order))
    if wanted <= 0:
        return np.zeros(0, dtype=np.int64)
    rows = list(range(len(order)))
    _partition(rows, order, wanted)
    heaviest_first = sorted(rows[:wanted], key=order.__getitem__, reverse=True)
    return np.array(heaviest_first[::-1], dtype=np.int64)


def has_throughput(stats: Floats) -> Bools:
    """Return the bundles that TopKBundles considers.

    Those with throughput in plus out other than 0.
    """
    busy: Bools = stats[:, THROUGHPUT_IN] + stats[:, THROUGHPUT_OUT] != 0
    return busy


def _partition(rows: list[int], order: list[list[int]], wanted: int) -> None:
    """Bring the `wanted` heaviest rows to the front, in the swaps of TopKBundles.

    Three-way partition around the last element, repeated on the side that holds the border.
    """
    start, end = 0, len(rows) - 1
    while start < end:
        low, middle, high = start, start, end
        pivot = order[rows[high]]
        while middle <= high:
            here = order[rows[middle]]
            if here > pivot:
                rows[low], rows[middle] = rows[middle], rows[low]
                low, middle = low + 1, middle + 1
            elif here < pivot:
                rows[middle], rows[high] = rows[high], rows[middle]
                high -= 1
            else:
                middle += 1
        if low <= wanted - 1 < middle:
            return
        if wanted - 1 < low:
            end = low - 1
        else:
            start = middle


def _rounded(values: Floats) -> Ints:
    """Java's Math.round: to the nearest, halves upwards."""
    below = np.floor(values)
    rounded: Floats = below + (values - below >= HALF)
    return np.clip(np.nan_to_num(rounded), -LONG_LIMIT, LONG_LIMIT).astype(np.int64)

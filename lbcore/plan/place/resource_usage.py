"""Least resource usage with weight: brokers far enough below the average usage.

Decides which brokers are equally good; `choice` picks one. The modular variant smooths usage on
every call, the extensible one takes the reports' own smoothed score. Source: Pulsar 4.0.8
impl.LeastResourceUsageWithWeight and extensions.strategy.LeastResourceUsageWithWeight; planned
usage is ours.

Worked: usages 0.9, 0.9, 0.2 and 0.3, average 0.575. A difference of 10 points leaves the last two;
50 leaves nobody, so all four are equal; -40 admits all four, the hot ones too.
"""

import math

import numpy as np

from lbcore.plan.snapshot import Bools, Floats, Ints


def smooth_usage(
    history: Floats, usage: Floats, is_forgotten: Bools, history_weight: float
) -> Floats:
    """One step of the modular variant's average: float64[n].

    history: NaN = none yet. is_forgotten: brokers without bundles or without messages start anew.
    """
    is_new = np.isnan(history) | is_forgotten
    with np.errstate(invalid="ignore"):
        smoothed = history * history_weight + (1 - history_weight) * usage
    result: Floats = np.where(is_new, usage, smoothed)
    return result


def below_average(candidates: Ints, smoothed: Floats, difference_percent: float) -> Ints:
    """The candidates at least `difference_percent` points below their average, or all.

    smoothed: float64[n], 1.0 = 100 %; NaN = no load data: such a broker neither counts nor is best
    but is one of "all". The average is summed in the order of the candidates.
    """
    own = smoothed[candidates]
    if not len(own):
        return candidates
    total, count = float(np.cumsum(own)[-1]), len(own)
    if math.isnan(total):
        known = own[~np.isnan(own)]
        if not len(known):
            return candidates
        total, count = float(np.cumsum(known)[-1]), len(known)
    best = candidates[own + difference_percent / 100.0 <= total / count]
    return best if len(best) else candidates


def of_least_usage(candidates: Ints, usage: Floats) -> Ints:
    """The candidates with the least known usage (ours); all when none is known. NaN = unknown."""
    own = usage[candidates]
    least = float(np.fmin.reduce(own, initial=np.inf))
    best: Ints = candidates[own == least]
    return best if len(best) else candidates


def usage_per_throughput(usage: Floats, throughput: Floats, capacity: Floats) -> float:
    """Return the usage that one byte/s adds to a broker of capacity 1 (ours).

    Averaged over the whole cluster. usage: 1.0 = 100 %; throughput: bytes/s in plus out. 0.0 in a
    cluster without traffic.
    """
    total = float(np.cumsum(throughput)[-1]) if len(throughput) else 0.0
    if not total > 0:
        return 0.0
    return float(np.cumsum(usage * capacity)[-1]) / total

"""Imbalance: unevenness of load over brokers, and how much of it moves could undo.

Decides the two definitions that every report uses; nothing about what is done. A cluster's
imbalance is that of the message rates, in and out, of its live brokers; a scenario's, whose
brokers' capacity is known, that of their loads in percent of it.
"""

import math
from collections.abc import Iterable


def imbalance(broker_loads: Iterable[float]) -> float | None:
    """The maximum over the mean: [30, 10, 20] gives 1.5. None without brokers or load."""
    loads = list(broker_loads)
    total = math.fsum(loads)
    return max(loads) * len(loads) / total if loads and total > 0.0 else None


def imbalance_of_sums(most: float, mean: float) -> float | None:
    """The same by the highest load and the mean; None without load."""
    return most / mean if mean > 0.0 else None


def floor_adjusted_imbalance(broker_loads: Iterable[float], hottest_bundle: float) -> float | None:
    """The maximum over max(mean, hottest bundle): what no move can undo is left out.

    Loads [30, 10, 20] with a bundle of 25 give 1.2. None without brokers or load.
    """
    loads = list(broker_loads)
    floor = max(math.fsum(loads) / len(loads), hottest_bundle) if loads else 0.0
    return max(loads) / floor if floor > 0.0 else None


def worst_of(values: Iterable[float | None]) -> float | None:
    """The highest of the values that are known; None without any."""
    return max((value for value in values if value is not None), default=None)

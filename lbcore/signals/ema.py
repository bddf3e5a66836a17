"""Exponential averages: Pulsar's, one step a report, and ours, which weighs by elapsed time.

Decides how fast history fades. Used by the scorer (a broker's score) and by the strategies that
keep averages of their own. Source: Pulsar 4.0.8 BrokerLoadData and ThresholdShedder; the
time-aware weight is ours.

Time-aware, worked: with history weight 0.9 and a period of 60 s, a report 60 s after the last one
keeps 0.9 of the history, one after 120 s keeps 0.81, two at 30 s keep 0.9 together. A skipped or
extra report so changes nothing about how fast history fades.
"""

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

STEPS_PER_PERIOD = 16
PERIODS_MAX = 64


def ema_step(history: Floats, sample: Floats, history_weight: Floats | float) -> Floats:
    """One step: history_weight × history + (1 − history_weight) × sample; any equal shapes."""
    result: Floats = history * history_weight + (1 - history_weight) * sample
    return result


def decay_table(history_weight: float) -> Floats:
    """Return the weight of history after 0, 1, 2, ... sixteenths of a period.

    float64[1025]. history_weight: 0..1, the weight after one period. Only square roots and
    products, which every CPU rounds alike: a power function's last bit differs between CPUs.
    """
    factor = history_weight
    for _ in range(STEPS_PER_PERIOD.bit_length() - 1):
        factor = math.sqrt(factor)
    powers = np.full(STEPS_PER_PERIOD * PERIODS_MAX + 1, factor)
    powers[0] = 1.0
    table: Floats = np.cumprod(powers)
    table[STEPS_PER_PERIOD::STEPS_PER_PERIOD] = np.cumprod(np.full(PERIODS_MAX, history_weight))
    return table


def time_weight(elapsed_ms: Ints, history_weight: float, period_ms: int) -> Floats:
    """The history weight after `elapsed_ms`, to the nearest sixteenth of a period.

    elapsed_ms: int64[n]; negative counts as 0, beyond 64 periods as 64.
    """
    steps = (np.maximum(elapsed_ms, 0) * STEPS_PER_PERIOD + period_ms // 2) // period_ms
    table = decay_table(history_weight)
    weights: Floats = table[np.minimum(steps, len(table) - 1)]
    return weights

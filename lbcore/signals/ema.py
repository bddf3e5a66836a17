"""Exponential averages, one step a report.

Used by the scorer (a broker's score) and by the strategies that keep averages of their own.
Source: Pulsar 4.0.8 BrokerLoadData and ThresholdShedder.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]


def ema_step(history: Floats, sample: Floats, history_weight: Floats | float) -> Floats:
    """Return history_weight × history + (1 − history_weight) × sample, any shapes.

    Both have the same shape.
    """
    result: Floats = history * history_weight + (1 - history_weight) * sample
    return result

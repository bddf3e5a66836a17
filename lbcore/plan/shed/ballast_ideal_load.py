"""Ideal load of a cluster: each broker's load if load were infinitely divisible.

Decides the level that `ballast` measures brokers against. A broker whose largest bundle (or what
may not move now) is above it keeps that, and one that is busy with something else takes nothing;
the others share the rest. Part of the shed phase. The method is water filling.
"""

import numpy as np

from lbcore.plan.readings import Readings
from lbcore.plan.shed.common import ShedView
from lbcore.plan.snapshot import Bools, Floats

ROUNDS_MAX = 16


def ideal_load(readings: Readings) -> float:
    """Return the mean load if all of it were infinitely divisible, points."""
    size = readings.capacity
    return _mean(readings.traffic, size, np.ones(len(size), dtype=np.bool_), np.zeros(len(size)))


def attainable_level(view: ShedView, readings: Readings, hot_limit: float = 0.0) -> float:
    """The level of the brokers that can reach one, points. O(bundles + brokers).

    hot_limit: points; a broker that can't get below it keeps what it has. The others share all.

    Worked: traffic 60, 30, 30, the 60 a single bundle: the level is 30, not 40. Traffic 10, 50, 2
    with the last one at 70 % usage: 30, not 20.7. Three bundles of 20 points on four brokers, the
    limit 23: 15, not 13.3.
    """
    floor = _floor(view, readings)
    size = readings.capacity
    level = ideal_load(readings)
    stuck, shut = floor < 0, floor < 0
    for _ in range(ROUNDS_MAX):
        now_stuck = stuck | (floor > max(level, hot_limit))
        now_shut = shut | ((readings.usage > level) & (readings.traffic < level) & ~now_stuck)
        is_open = ~(now_stuck | now_shut)
        if not is_open.any() or ((now_stuck == stuck).all() and (now_shut == shut).all()):
            break
        stuck, shut = now_stuck, now_shut
        kept = np.where(
            stuck, np.minimum(floor, readings.traffic), np.where(shut, readings.traffic, 0)
        )
        level = _mean(readings.traffic, size, is_open, kept)
    return level


def _mean(traffic: Floats, size: Floats, is_open: Bools, kept: Floats) -> float:
    """All load but what is kept, over the capacity of the open brokers."""
    load = float(np.cumsum((traffic - kept) * size)[-1])
    return load / float(np.cumsum(np.where(is_open, size, 0.0))[-1])


def _floor(view: ShedView, readings: Readings) -> Floats:
    """Return the load that each broker can't give, float64[n].

    Its largest bundle, or the sum of its bundles that may not move, whichever is more.
    """
    bundles, brokers = view.snapshot.bundles, len(readings.usage)
    carried = readings.bundle
    largest = np.zeros(brokers + 1)
    np.maximum.at(largest, bundles.owner + 1, carried)
    fixed = np.where(bundles.can_move, 0.0, carried)
    held = np.bincount(bundles.owner + 1, weights=fixed, minlength=brokers + 1)
    floor: Floats = np.maximum(largest, held)[1:] / readings.capacity
    return floor

"""Rounds in vain: a broker that gets worse although it carries less is left alone, and told.

Decides from whom `ballast` takes nothing more. What is wrong with such a broker is not the load of
its bundles as messages and bytes tell it; taking more of them interrupts clients for nothing. Its
verdict stands in the decision log, and the alarm `held` names it. Source: ours.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from lbcore.plan.readings import Readings
from lbcore.plan.shed.common import ShedState, ShedView, message_rate, throughput
from lbcore.plan.snapshot import Bools, Floats

LEFT_ALONE = "left_alone"
"""The verdict of such a broker."""
_LESS, _MORE = 0.98, 1.1
"""Parts of its traffic: below the first it carries less, above the second it is another load."""
_WORSE_POINTS = 0.5
Tried = Mapping[str, Mapping[str, float]]


def left_alone(view: ShedView, state: ShedState, rounds: int) -> Bools:
    """The brokers of so many rounds in vain, bool[n]."""
    names = view.snapshot.brokers.names
    return np.array([state.tried.get(name, {}).get("rounds", 0.0) >= rounds for name in names])


def judged(view: ShedView, state: ShedState, readings: Readings, is_hot: Bools) -> Tried:
    """What is known of brokers that gave, as of now; who is not hot any more is forgotten.

    A round was in vain when usage rose since and traffic fell. Only a fresh report says so.
    """
    found: dict[str, Mapping[str, float]] = {}
    carried = _carried(view, readings)
    for at, name in enumerate(view.snapshot.brokers.names):
        before = state.tried.get(name)
        if before is None or not is_hot[at]:
            continue
        usage, traffic = float(readings.usage[at]), float(carried[at])
        if traffic > before["traffic"] * _MORE:
            continue
        is_worse = usage > before["usage"] + _WORSE_POINTS and traffic < before["traffic"] * _LESS
        if not before["is_open"] or not view.is_due[at] or not is_worse:
            found[name] = before
            continue
        found[name] = {**before, "rounds": before["rounds"] + 1.0, "is_open": 0.0}
    return found


def tried(view: ShedView, before: Tried, readings: Readings, givers: Iterable[int]) -> Tried:
    """What is known once these brokers have given again."""
    found, carried = dict(before), _carried(view, readings)
    for at in sorted(set(givers)):
        name = view.snapshot.brokers.names[at]
        known = before.get(name, {})
        found[name] = {
            "usage": float(readings.usage[at]),
            "traffic": float(carried[at]),
            "rounds": 0.0 if known.get("is_open", 0.0) else known.get("rounds", 0.0),
            "is_open": 1.0,
        }
    return found


def _carried(view: ShedView, readings: Readings) -> Floats:
    """What each broker counts, msg/s or bytes/s: what a point is may have changed meanwhile."""
    traffic = view.snapshot.brokers.traffic
    return message_rate(traffic) if readings.by_rate else throughput(traffic)

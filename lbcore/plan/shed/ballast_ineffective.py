"""Ineffective rounds: a broker that gets hotter with less load is left alone.

Decides from whom `ballast` takes nothing more. What is wrong with such a broker is not the load of
its bundles as messages and bytes tell it; taking more of them interrupts clients for nothing. Its
verdict stands in the decision log, and the alarm `blocked` names it.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from lbcore.plan.readings import GROWTH_MOST, Readings
from lbcore.plan.shed.common import (
    ShedState,
    ShedView,
    message_rate,
    sequential_sum,
    throughput,
)
from lbcore.plan.snapshot import Bools, Floats, Ints

LEFT_ALONE = "suspended_brokers"
"""The verdict of such a broker."""
_LESS, _MORE = 0.98, 1.1
"""Parts of its traffic: below the first it carries less, above the second it is another load."""
_WORSE_POINTS = 0.5
Tried = Mapping[str, Mapping[str, float]]


def suspended_brokers(view: ShedView, state: ShedState, rounds: int) -> Bools:
    """The brokers of so many rounds in vain, bool[n]."""
    names = view.snapshot.brokers.names
    return np.array([state.tried.get(name, {}).get("rounds", 0.0) >= rounds for name in names])


def judged(view: ShedView, state: ShedState, readings: Readings, is_hot: Bools) -> Tried:
    """Return the records of brokers that gave, updated to now.

    Brokers that are not hot any more are forgotten. A round was in vain when usage rose since and
    traffic fell. Only a fresh report shows that.
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
    """Return the records after these brokers have given again."""
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


_LEARNT_MS = 600_000
"""After so long the averages of ten reports show what a bundle carries on its new owner."""
_LANDED_MS = 60_000
"""Time after a round within which a change of owner counts as its move."""
_MARGIN = 1.1


def grown(view: ShedView, state: ShedState, readings: Readings) -> Floats:
    """Return the factor by which what leaves each full broker may grow, float64[n].

    By what has left it. What stays is served better with each bundle that leaves, so it grows by
    less. GROWTH_MOST where nothing has left, or too lately.
    """
    bundles, names = view.snapshot.bundles, view.snapshot.brokers.names
    found = np.full(len(names), GROWTH_MOST)
    for at, name in enumerate(names):
        before = state.tried.get(name, {})
        if "gone" not in before:
            continue
        found[at] = before["growth"]
        gone_ms = int(before["gone_ms"])
        if bundles.left is None or bundles.moved_ms is None or view.now_ms - gone_ms < _LEARNT_MS:
            continue
        landed_ms = bundles.moved_ms - gone_ms
        rows = np.flatnonzero((bundles.left == at) & (landed_ms >= 0) & (landed_ms < _LANDED_MS))
        if len(rows) == int(before["count"]):  # all of them: none was refused or went on
            times = sequential_sum(readings.bundle[rows]) / before["gone"]
            found[at] = min(found[at], max(1.0, times * _MARGIN))
    return found


def with_gone(
    view: ShedView, before: Tried, readings: Readings, rows: Ints, growth: Floats
) -> Tried:
    """Return the records, with the load that leaves the full brokers now.

    rows: int64[k] of the bundles that move. growth: float64[n], times by which they may grow.
    """
    found, brokers = dict(before), len(growth)
    owner = view.snapshot.bundles.owner[rows]
    gone = np.bincount(owner, readings.bundle[rows], brokers)
    count = np.bincount(owner, minlength=brokers)
    for at in np.flatnonzero((growth > 1.0) & (gone > 0.0)).tolist():
        name = view.snapshot.brokers.names[at]
        told = {"gone": float(gone[at]), "count": float(count[at]), "growth": float(growth[at])}
        found[name] = {**found[name], **told, "gone_ms": float(view.now_ms)}
    return found


def _carried(view: ShedView, readings: Readings) -> Floats:
    """Return the traffic that each broker counts, msg/s or bytes/s.

    Points are not used, because their meaning may have changed meanwhile.
    """
    traffic = view.snapshot.brokers.traffic
    return message_rate(traffic) if readings.by_rate else throughput(traffic)

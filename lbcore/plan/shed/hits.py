"""Hits in a row against two thresholds: who has been too far from the average for long enough.

Decides whether a strategy with `multi_hit` may act on a broker. After the multi-hit algorithm
proposed with AvgShedder (Pulsar PIP-364), whose trial values are 10 points × 5 hits and 40 points ×
1 hit.

A broker's counter grows with each fresh observation beyond the threshold and is dropped by one
within it; a broker sheds when it is above, and its own counter, or that of a broker below the
average, is full: the hottest may alternate while the coldest stays.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lbcore.config.shedding import SheddingConfig
from lbcore.plan.shed.common import ShedState, ShedView
from lbcore.plan.snapshot import Bools, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """Brokers that may act, and the counters before acting resets them.

    is_ready: bool[n].
    """

    is_ready: Bools
    low: dict[str, int]
    high: dict[str, int]
    full_cold: tuple[str, ...]


def count_hits(view: ShedView, state: ShedState, excess: Floats, config: SheddingConfig) -> Hits:
    """Count this cycle's observations. excess: float64[n], points above the average."""
    names = view.snapshot.brokers.names
    low, high = dict(state.hits_low), dict(state.hits_high)
    distance = np.abs(excess)
    for broker in np.flatnonzero(view.is_due).tolist():
        far = float(distance[broker])
        _count(low, names[broker], is_hit=far >= config.multi_hit_low_percent)
        _count(high, names[broker], is_hit=far >= config.multi_hit_high_percent)
    is_full = np.array(
        [
            low.get(name, 0) >= config.multi_hit_low_hits
            or high.get(name, 0) >= config.multi_hit_high_hits
            for name in names
        ],
        dtype=np.bool_,
    )
    cold = np.flatnonzero(is_full & (excess < 0)).tolist()
    is_above = excess >= min(config.multi_hit_low_percent, config.multi_hit_high_percent)
    return Hits(
        is_ready=is_above & (is_full | bool(cold)),
        low=low,
        high=high,
        full_cold=tuple(names[broker] for broker in cold),
    )


def after_acting(hits: Hits, acted: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The counters (low, high) after some brokers shed: theirs and the full cold ones' are gone."""
    names = list(acted)
    spent = {*names, *hits.full_cold} if names else set()
    low = {name: count for name, count in hits.low.items() if name not in spent}
    high = {name: count for name, count in hits.high.items() if name not in spent}
    return low, high


def _count(hits: dict[str, int], name: str, *, is_hit: bool) -> None:
    if is_hit:
        hits[name] = hits.get(name, 0) + 1
    else:
        hits.pop(name, None)

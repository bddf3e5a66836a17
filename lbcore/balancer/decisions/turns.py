"""Turns: when a cycle is due, and that those who share something plan one after another.

Decides that alone. Cycles stand on a grid of their interval and not each an interval after the
last: a batch begins up to a trigger after a cycle is due, which would add up (sheds every 63 to 65
s where 60 are asked). Clusters of one job have moments of their own on the grid, so that no batch
plans for all of them.
"""

from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config


def turn_of(cluster: str, config: Config) -> int:
    """Return the offset of a cluster's cycles in an interval, ms.

    0 for a cluster that has a job of its own. Example with two clusters and 10 s: one plans when
    the clock shows 0, 10, 20 s, the other at 5, 15, 25 s.
    """
    clusters = config.pipeline.clusters
    names = clusters if cluster in clusters else (cluster,)
    return names.index(cluster) * config.pipeline.decision_interval_ms // len(names)


def cycle_due_ms(work: Work) -> int:
    """Return the time when the next cycle is, or was, due."""
    return _due_ms(work, work.times.cycle_ms, work.config.pipeline.decision_interval_ms)


def is_due(work: Work, last_ms: int, interval_ms: int) -> bool:
    """True if an interval has passed since last_ms, on the cluster's grid."""
    return work.now_ms >= _due_ms(work, last_ms, interval_ms)


def next_on_grid_ms(last_ms: int, interval_ms: int, turn_ms: int = 0) -> int:
    """The moment of a grid that is nearest to an interval after the last, however late that was.

    turn_ms: where the grid begins, of the clock. So two are half an interval apart at least, and
    one and a half at most. Worked: every 10 s, the last at 20.9 s: 30 s; at 26 s: 40 s.
    """
    passed = (last_ms - turn_ms + interval_ms // 2) // interval_ms
    return (passed + 1) * interval_ms + turn_ms


def _due_ms(work: Work, last_ms: int, interval_ms: int) -> int:
    """The first is due at once."""
    turn_ms = turn_of(work.cluster, work.config)
    return next_on_grid_ms(last_ms, interval_ms, turn_ms) if last_ms else 0

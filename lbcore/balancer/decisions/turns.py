"""Turns: when a cycle is due, and that those who share something plan one after another.

Decides that alone. Cycles stand on a grid of their interval and not each an interval after the
last: a batch begins up to a trigger after a cycle is due, which would add up (sheds every 63 to
65 s where 60 are asked). Clusters of one job have moments of their own on the grid, so that no
batch plans for all of them; shards of one cluster as well, so that what one decides is known to
the next one before it plans. Source: ours.
"""

from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config


def siblings(work: Work) -> tuple[str, ...]:
    """The other shards of this cluster; none where it is no shard."""
    names = work.config.cluster.shards
    return tuple(name for name in names if name != work.cluster) if work.cluster in names else ()


def turn_of(cluster: str, config: Config) -> int:
    """When in an interval a cluster's cycles are due, in ms; 0 for one that a job has alone.

    Worked: two, 10 s: one plans when the clock shows 0, 10, 20 s, the other 5, 15, 25 s.
    """
    shards, clusters = config.cluster.shards, config.pipeline.clusters
    names = next((names for names in (shards, clusters) if cluster in names), (cluster,))
    return names.index(cluster) * config.pipeline.decision_interval_ms // len(names)


def cycle_due_ms(work: Work) -> int:
    """When the next cycle is due, or was."""
    return _due_ms(work, work.times.cycle_ms, work.config.pipeline.decision_interval_ms)


def is_due(work: Work, last_ms: int, interval_ms: int) -> bool:
    """Whether an interval is over of what was done last at last_ms, by the cluster's turn."""
    return work.now_ms >= _due_ms(work, last_ms, interval_ms)


def next_on_grid_ms(last_ms: int, interval_ms: int, turn_ms: int = 0) -> int:
    """The moment of a grid that is nearest to an interval after the last, however late that was.

    turn_ms: where the grid begins, of the clock. So two are half an interval apart at least, and
    one and a half at most. Worked: every 10 s, the last at 20.9 s: 30 s; at 26 s: 40 s.
    """
    passed = (last_ms - turn_ms + interval_ms // 2) // interval_ms
    return (passed + 1) * interval_ms + turn_ms


def _due_ms(work: Work, last_ms: int, interval_ms: int) -> int:
    """The first is due at once; that of a shard when its turn comes."""
    turn_ms = turn_of(work.cluster, work.config)
    if last_ms:
        return next_on_grid_ms(last_ms, interval_ms, turn_ms)
    if not siblings(work):
        return 0
    begun_ms = work.times.decided_ms or work.now_ms
    return ((begun_ms - turn_ms) // interval_ms + 1) * interval_ms + turn_ms

"""Turns: when a cycle is due, and that the shards of one cluster plan one after another.

Decides that alone. Without shards a cycle is due one interval after the last. With them each shard
has its own moment of the interval, by its place among the names, so that what one decides is known
to the next one before it plans. Source: ours.
"""

from lbcore.balancer.state.work import Work


def siblings(work: Work) -> tuple[str, ...]:
    """The other shards of this cluster; none where it is no shard."""
    names = work.config.cluster.shards
    return tuple(name for name in names if name != work.cluster) if work.cluster in names else ()


def cycle_due_ms(work: Work) -> int:
    """When the next cycle is due, or was."""
    return _due_ms(work, work.times.cycle_ms, work.config.pipeline.decision_interval_ms)


def is_due(work: Work, last_ms: int, interval_ms: int) -> bool:
    """Whether an interval is over of what was done last at last_ms, by the cluster's turn."""
    return work.now_ms >= _due_ms(work, last_ms, interval_ms)


def _due_ms(work: Work, last_ms: int, interval_ms: int) -> int:
    """Worked: two shards, 10 s: one plans when the clock shows 0, 10, 20 s, the other 5, 15, 25."""
    if not siblings(work):
        return last_ms + interval_ms
    names = work.config.cluster.shards
    cycle_ms = work.config.pipeline.decision_interval_ms
    turn_ms = names.index(work.cluster) * cycle_ms // len(names)
    begun = last_ms or work.times.decided_ms or work.now_ms
    return ((begun - turn_ms) // interval_ms + 1) * interval_ms + turn_ms

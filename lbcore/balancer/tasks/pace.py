"""Pace: how much of long work a batch does, by how long the batches before it took here.

Decides the batch's share of bundles that are made, deleted, unloaded or forgotten in slices: half
as many after a batch that came late, twice as many after one that was in time, as congestion is
avoided in networks (additive growth would take minutes to reach thousands). A batch that a busy
machine holds up for eight seconds holds up everybody's commands as long. By the driver's clock,
whose one wrong jump halves the share once. Source: ours; the halving is TCP's (Jacobson 1988).
"""

from lbcore.balancer.state.work import Work

_LATE = 1.5  # of the planned time between two batches, from which on one was late
_IN_TIME = 1.2  # and up to which it was in time; between the two nothing changes
_LEAST_PART = 32
"""The share is at least so many times smaller than what the settings allow."""


def keep_pace(work: Work) -> None:
    """Set the batch's share, `Work.share`. O(1)."""
    most = work.config.limits.bundles_made_max
    if not work.times.stepped_ms:
        return
    pipeline = work.config.pipeline
    planned_ms = max(pipeline.trigger_ms + work.times.rest_ms, pipeline.tick_interval_ms)
    passed_ms = work.wall_ms - work.times.stepped_ms
    share = work.share
    if passed_ms > _LATE * planned_ms:
        share = max(share // 2, most // _LEAST_PART, 1)
    elif passed_ms <= _IN_TIME * planned_ms:
        share = min(2 * share, most)
    work.note(share=share)

"""Pace: how much of long work a batch does, by how long the batches before it took here.

Decides the batch's share of bundles that are made, deleted, unloaded or forgotten in slices: half
as many after a batch that came late, twice as many after one that was in time, as congestion is
avoided in networks (additive growth would take minutes to reach thousands). A batch that a busy
machine holds up for eight seconds holds up everybody's commands as long. Late is by comparison with
a batch that makes little, which follows when two halvings were not enough: where that takes longer
than planned, making less helps nobody. By the driver's clock, whose one wrong jump halves the share
once. Source: ours; the halving is TCP's (Jacobson 1988), and that delay counts from the least one
that was seen is Vegas's (Brakmo and Peterson 1995).
"""

from lbcore.balancer.state.work import Work

_LATE = 0.5  # of the planned time between two batches, by so much later than usual one is late
_IN_TIME = 0.35  # and up to so much it is in time; between the two nothing changes
_LEAST_PART = 32
"""The share is at most so many times smaller than what the settings allow; one that is as small as
that shows how long a batch takes anyway."""
_ENOUGH_PART = 4
"""Where halves were not enough, it is time to see that."""


def keep_pace(work: Work) -> None:
    """Set the batch's share, `Work.share`. O(1)."""
    most = work.config.limits.bundles_made_max
    if not work.times.stepped_ms:
        return
    pipeline = work.config.pipeline
    planned_ms = max(pipeline.trigger_ms + work.times.rest_ms, pipeline.tick_interval_ms)
    passed_ms = max(0, work.wall_ms - work.times.stepped_ms)
    share, least, usual_ms = work.share, max(most // _LEAST_PART, 1), work.times.usual_ms
    if share <= least:
        usual_ms = (usual_ms + passed_ms) // 2 if usual_ms else passed_ms
    usual_ms = min(usual_ms, passed_ms)
    beyond_ms = passed_ms - max(usual_ms, planned_ms)
    if beyond_ms > _LATE * planned_ms:
        has_helped = usual_ms or share > most // _ENOUGH_PART
        share = max(share // 2, least) if has_helped else least
    elif beyond_ms <= _IN_TIME * planned_ms:
        share = min(2 * share, most)
    work.note(share=share, usual_ms=usual_ms)

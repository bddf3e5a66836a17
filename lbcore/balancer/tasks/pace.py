"""Pace: how much of long work a batch does, by how long the batches before it took here.

Decides the batch's share of bundles that are made, deleted, unloaded or forgotten in slices: half
as many after a batch that came late, twice as many after one that was in time, as congestion is
avoided in networks (additive growth would take minutes to reach thousands). A batch that a busy
machine holds up for eight seconds holds up everybody's commands as long. Late is by comparison with
a batch that makes little, which follows when two halvings were not enough: where that takes longer
than planned, making less helps nobody. By the driver's clock, whose one wrong jump halves the share
once. A new cluster, which has served nobody for long, may take several times as long for a batch,
and makes as much more in it: what a batch costs whatever it makes is most of a short one. Source:
ours; the halving is TCP's (Jacobson 1988), and that delay counts from the least one that was seen
is Vegas's (Brakmo and Peterson 1995).
"""

import numpy as np

from lbcore.balancer.state.ledger import STATE_CODE
from lbcore.balancer.state.work import Work
from lbcore.ownership.records import State

_LATE = 0.5  # of the planned time between two batches, by so much later than usual one is late
_IN_TIME = 0.35  # and up to so much it is in time; between the two nothing changes
_LEAST_PART = 32
"""The share is at most so many times smaller than what the settings allow; one that is as small as
that shows how long a batch takes anyway."""
_ENOUGH_PART = 4
"""Where halves were not enough, it is time to see that."""
_NEW_MS = 600_000
"""A cluster is new while none of its bundles has been open for longer."""
_NEW_PATIENCE = 4


def keep_pace(work: Work) -> None:
    """Set the batch's share, `Work.share_made`. O(bundles), in numpy."""
    limits, pipeline = work.config.limits, work.config.pipeline
    if not work.times.stepped_ms:
        return
    patience = _NEW_PATIENCE if _is_new(work) else 1
    most, least = patience * limits.bundles_made_max, max(limits.bundles_made_max // _LEAST_PART, 1)
    interval_ms = max(pipeline.trigger_ms, pipeline.tick_interval_ms)
    planned_ms = patience * interval_ms
    passed_ms = max(0, work.wall_ms - work.times.stepped_ms)
    share, usual_ms = min(work.share_made, most), work.times.usual_ms
    if share <= least:
        usual_ms = (usual_ms + passed_ms) // 2 if usual_ms else passed_ms
    usual_ms = min(usual_ms, passed_ms)
    beyond_ms = passed_ms - max(usual_ms, planned_ms)
    if beyond_ms > _LATE * planned_ms:
        has_helped = usual_ms or share > limits.bundles_made_max // _ENOUGH_PART
        share = max(share // 2, least) if has_helped else least
    elif beyond_ms <= _IN_TIME * planned_ms:
        share = min(2 * share, most)
    work.note(share=share, usual_ms=usual_ms)


def _is_new(work: Work) -> bool:
    ledger = work.ledger
    is_open = ledger.state == STATE_CODE[State.OWNED]
    return not np.any(is_open & (ledger.at_ms < work.now_ms - _NEW_MS))

"""Says in the service's log when this machine's clock and the job's come apart, and when no more.

Decides nothing, and nothing is decided by it: see `View.clock_ahead_ms`. Source: ours.
"""

import logging

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.processes.clocks import wall_ms

logger = logging.getLogger(__name__)

_NEXT = (
    "look at the time service of both machines (chronyc tracking): section"
    " BallastServiceClockApart of docs/runbook.md"
)


class OwnClock:
    """Looks at each view of a follower, and writes a line when what the clocks show has changed."""

    def __init__(self, follower: DeltaFollower) -> None:
        self._follower = follower
        self._side = 0

    def look(self) -> None:
        """Now, when the view has just been found."""
        view = self._follower.view
        ahead_ms = 0 if view is None else view.clock_ahead_ms(wall_ms())
        side = (ahead_ms > 0) - (ahead_ms < 0)
        if side == self._side:
            return
        self._side = side
        if not side:
            logger.info("clock_agrees", extra={"fields": {"ahead_ms": 0}})
            return
        where = "ahead of" if side > 0 else "behind"
        fields = {
            "ahead_ms": ahead_ms,
            "what": f"this machine's clock is {abs(ahead_ms) / 1_000:.0f} s {where} the job's",
            "why": "the job's newest commit was made, by its clock, when it can't have been",
            "next": _NEXT,
        }
        logger.warning("clock_apart", extra={"fields": fields})

"""Says in the service's log when this machine's clock and the job's come apart, and when no more.

Decides nothing, and nothing is decided by it: see `View.clock_ahead_ms`. Source: ours.
"""

import logging

from jobs.adapters.following.view import View

logger = logging.getLogger(__name__)

_NEXT = (
    "look at the time service of both machines (chronyc tracking): section"
    " BallastServiceClockApart of docs/runbook.md"
)


class OwnClock:
    """Told of each view, it writes a line when what the clocks show has changed."""

    def __init__(self) -> None:
        self._side = 0

    def see(self, view: View | None, now_ms: int) -> None:
        """now_ms: this machine's wall clock, when the view was found."""
        ahead_ms = 0 if view is None else view.clock_ahead_ms(now_ms)
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

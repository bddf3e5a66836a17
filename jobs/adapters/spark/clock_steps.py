"""Steps of this machine's clock, held against the one that only goes on.

Decides nothing. Spark's trigger waits until the machine's clock shows the time of the next batch:
after a step back of an hour it would wait for an hour, and nothing would be decided. Source: ours;
Spark 4.2's ProcessingTimeExecutor and SystemClock.waitTillTime.
"""

import time
from collections.abc import Callable

from jobs.console import CommandError

_MS = 1_000


class ClockSteps:
    """Looks at the clock often; a step is what it does between two looks. Clocks in seconds."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead_s = wall() - steady()

    def refuse_back(self, limit_ms: int) -> None:
        """Raise CommandError when the clock went back by more than limit_ms since the last look."""
        ahead_s = self._wall() - self._steady()
        back_s, self._ahead_s = self._ahead_s - ahead_s, ahead_s
        if back_s * _MS > limit_ms:
            raise CommandError(
                f"the clock of this machine went back by {back_s:.0f} s",
                why="Spark begins the next batch when the clock shows its time again, so nothing "
                "would be decided until then",
                next_step="start the job again, as a supervisor does: it goes on at once; mend the "
                "time service of this machine",
            )

"""Clocks of the machine in milliseconds: the wall's, and monotonic ones.

Agents live by one that goes on while the machine sleeps (Linux), else by the monotonic one.
"""

import time
from collections.abc import Callable

from jobs.console import CommandError


def wall_ms() -> int:
    """The wall's clock, ms since 1970; it may be set back."""
    return time.time_ns() // 1_000_000


def boot_ms() -> int:
    """Milliseconds since some moment in the past; never goes back, counts time asleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class ForwardClock:
    """Wall time at its making, plus the time since."""

    def __init__(self) -> None:
        self._offset_ms = wall_ms() - boot_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as the wall was right at the start."""
        return boot_ms() + self._offset_ms


class ClockSteps:
    """Detects steps of the wall's clock between two looks. Clocks in seconds.

    Spark's trigger waits until the wall's clock shows the time of the next batch: after a step back
    of an hour it would wait for an hour (ProcessingTimeExecutor, SystemClock.waitTillTime).
    """

    def __init__(
        self,
        wall: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wall = wall
        self._steady = steady
        self._ahead_s = wall() - steady()

    def refuse_back(self, limit_ms: int) -> None:
        """Raise CommandError if the clock went back by more than limit_ms."""
        ahead_s = self._wall() - self._steady()
        back_s, self._ahead_s = self._ahead_s - ahead_s, ahead_s
        if back_s * 1_000 > limit_ms:
            raise CommandError(
                f"the clock of this machine went back by {back_s:.0f} s",
                why="Spark begins the next batch when the clock shows its time again, so nothing "
                "would be decided until then",
                next_step="start the job again, as a supervisor does: it goes on at once; mend the "
                "time service of this machine",
            )

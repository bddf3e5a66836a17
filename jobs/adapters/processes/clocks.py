"""The clocks of the machine, in milliseconds: the wall's, and those that never go back.

Decides what a job and its services call now, and which clock agents live by: one that goes on
while the machine sleeps, where there is one (Linux), else the monotonic one. Source: ours.
"""

import time


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

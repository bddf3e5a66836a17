"""The clock that agents live by: it starts at the wall's time and never goes back.

Decides which clock of the machine it is: one that goes on while the machine sleeps, where there is
one (Linux), else the monotonic one. Source: ours.
"""

import time


def boot_ms() -> int:
    """Milliseconds since some moment in the past; never goes back, counts time asleep."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(clock) // 1_000_000


class ForwardClock:
    """Wall time at its making, plus the time since."""

    def __init__(self) -> None:
        self._offset_ms = time.time_ns() // 1_000_000 - boot_ms()

    def now_ms(self) -> int:
        """Milliseconds since 1970, as far as the wall was right at the start."""
        return boot_ms() + self._offset_ms

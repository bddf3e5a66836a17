"""Virtual time: a timetable of what happens when.

Decides only the order: by time, then by the order in which things were put down.
"""

import heapq
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

Action: TypeAlias = Callable[[], None]

START_MS = 1_700_000_039_000
"""The wall clock at a scenario's start: cycles come a second after what happens at round times."""


class Clock:
    """Virtual time and the queue of scheduled actions."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._numbers = count()
        self._coming: list[tuple[int, int, Action]] = []

    @property
    def scenario_ms(self) -> int:
        """Time since the scenario's start."""
        return self.now_ms - START_MS

    def at(self, at_ms: int, action: Action) -> None:
        """Have something happen then; what is late happens now."""
        heapq.heappush(self._coming, (max(at_ms, self.now_ms), next(self._numbers), action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Have something happen after a while."""
        self.at(self.now_ms + delay_ms, action)

    def run_until(self, end_ms: int) -> None:
        """Let everything up to a time happen, that moment included."""
        while self._coming and self._coming[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._coming)
            action()
        self.now_ms = end_ms

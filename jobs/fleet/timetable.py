"""Timetable: a heap of items by their time.

Decides the order: by time, and among equal times the order of addition.
"""

import heapq
from itertools import count
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Timetable(Generic[Item]):
    """Items with a time in ms."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._order = count()

    def add(self, due_ms: int, item: Item) -> None:
        """Have the item come at its time; O(log items)."""
        heapq.heappush(self._heap, (due_ms, next(self._order), item))

    def due(self, now_ms: int) -> list[tuple[int, Item]]:
        """Take out what is due, with its time, in order."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, item = heapq.heappop(self._heap)
            found.append((due_ms, item))
        return found

    def next_ms(self) -> int | None:
        """Return the time at which the next item is due, None = there is none."""
        return self._heap[0][0] if self._heap else None

"""Wakes all who wait for the same thing, a few in each turn of the event loop.

Decides nothing else. With a thousand waiting, to wake them at once would hold everybody else up.
Source: ours.
"""

import asyncio
from collections import deque

AT_ONCE = 16


class Bell:
    """Those who wait in one event loop."""

    def __init__(self) -> None:
        self._listening: dict[asyncio.Future[None], None] = {}
        self._due: deque[asyncio.Future[None]] = deque()

    def listen(self) -> "asyncio.Future[None]":
        """Done once it rings after now; `leave` ends it in any case."""
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._listening[mine] = None
        return mine

    def leave(self, mine: "asyncio.Future[None]") -> None:
        """Listen no more."""
        self._listening.pop(mine, None)
        mine.cancel()

    def ring(self) -> None:
        """Wake those who listen now; called in their event loop."""
        is_idle = not self._due
        self._due += self._listening
        self._listening.clear()
        if is_idle:
            self._wake_some()

    def _wake_some(self) -> None:
        for _ in range(min(AT_ONCE, len(self._due))):
            mine = self._due.popleft()
            if not mine.done():
                mine.set_result(None)
        if self._due:
            self._due[0].get_loop().call_soon(self._wake_some)

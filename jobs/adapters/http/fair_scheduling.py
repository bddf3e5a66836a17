"""Turns of the event loop, in which lookups come between pieces of other work.

Bounds the work of a turn however many requests are being answered, first come, first served. All
that the admin service does in the event loop goes by turns: a request's first step, each slice of
what it gathers (`lbcore.route.slices`), each part of its answer.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from time import perf_counter
from typing import TypeVar

from lbcore.route.slices import LEFT_OUT, WORK_MAX, Maybe

Value = TypeVar("Value")


BUDGET_S = 0.002
"""After so much of a turn no further slice begins in it."""


class FairScheduler:
    """Slices of work in turns of the event loop, first come, first served.

    budget_s: begin no further slice after that; one is always done.
    """

    def __init__(self, budget_s: float = BUDGET_S) -> None:
        self._budget_s = budget_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._until_s = 0.0

    async def next(self) -> None:
        """Wait for a turn: what the caller does now, up to its next `await`, is the slice."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._line = loop, asyncio.Lock()
        async with self._line:  # wakes one at a time, in the order of asking
            if perf_counter() >= self._until_s:
                await asyncio.sleep(0)
                self._until_s = perf_counter() + self._budget_s

    async def gather(self, items: Iterable[Maybe[Value]]) -> list[Value]:
        """Return all items but LEFT_OUT, `WORK_MAX` in a turn.

        The caller has its turn after it, too.
        """
        found: list[Value] = []
        for at, item in enumerate(items, 1):
            if item is not LEFT_OUT:
                found.append(item)
            if not at % WORK_MAX:
                await self.next()
        return found

    async def pace(self, parts: Iterable[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield the parts, each in a turn of its own, without empty ones."""
        await self.next()
        for part in parts:
            if part:
                yield part
            await self.next()

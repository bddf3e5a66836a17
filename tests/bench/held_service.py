"""The lookup service with a ticker in its event loop, which notes how long the loop was held.

Each line on standard input is answered with one JSON object on standard output: the longest holds
since the line before, in ms of this process's own work, and its memory. Usage: as
jobs.serve_lookup.
"""

import asyncio
import heapq
import json
import os
import sys
from time import perf_counter, process_time

import psutil
import uvicorn

from jobs import serve_lookup

_TICK_S = 0.001
_KEPT = 5


class Ticker:
    """Sleeps a millisecond at a time; what it sleeps longer, the loop was held by others."""

    def __init__(self) -> None:
        self._held_ms: list[float] = []
        self._ticks = 0

    async def run(self) -> None:
        """Until the loop ends."""
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin.fileno(), self._report)
        schedule = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        while True:
            started_s, worked_s, queued_s = perf_counter(), process_time(), _queued_s(schedule)
            await asyncio.sleep(_TICK_S)
            self._ticks += 1
            # Where the processor went to another process, nobody here has held the loop.
            own_s = perf_counter() - started_s - (_queued_s(schedule) - queued_s)
            held_s = min(own_s - _TICK_S, process_time() - worked_s)
            heapq.heappush(self._held_ms, held_s * 1e3)
            if len(self._held_ms) > _KEPT:
                heapq.heappop(self._held_ms)

    def _report(self) -> None:
        if not sys.stdin.buffer.raw.read(1):
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return
        held = [round(one, 1) for one in sorted(self._held_ms, reverse=True)]
        process = psutil.Process()
        children = sum(one.memory_info().rss for one in process.children(recursive=True))
        found = {
            "held_ms": held,
            "ticks": self._ticks,
            "memory_mb": round(process.memory_info().rss / 1e6),
            "children_mb": round(children / 1e6),
        }
        self._held_ms, self._ticks = [], 0
        print(json.dumps(found), flush=True)  # noqa: T201 (what the caller reads)


def _queued_s(schedule: int) -> float:
    """How long the thread has waited for a processor so far (Linux's schedstat, its second)."""
    return int(os.pread(schedule, 64, 0).split()[1]) / 1e9


def main() -> int:
    """Serve as told on the command line."""
    ticker, tasks = Ticker(), []
    begin = uvicorn.Server.startup

    async def startup(self: uvicorn.Server, *args: object, **more: object) -> None:
        await begin(self, *args, **more)
        tasks.append(asyncio.ensure_future(ticker.run()))

    uvicorn.Server.startup = startup  # type: ignore[method-assign]  # the point of it
    return serve_lookup.main()


if __name__ == "__main__":
    sys.exit(main())

"""Many watchers of one service, in a process of its own: when each change has reached how many.

Says `open` on a line when all streams have begun, then one JSON object at the end.
Usage: python -m tests.bench.watch_load HOST PORT WATCHERS SECONDS
"""

import asyncio
import json
import re
import resource
import sys
from collections import defaultdict
from time import perf_counter, time

import uvloop

_VERSION = re.compile(rb'"table_version":(\d+)}\n\n')
_AT_ONCE = 200


class Watcher(asyncio.Protocol):
    """One stream; notes when it is told of which version."""

    def __init__(self, port: int, told_s: dict[int, list[float]]) -> None:
        self.started = asyncio.get_running_loop().create_future()
        self.is_lost = False
        self._port = port
        self._told_s = told_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        text = f"GET /v1/watch HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n"
        transport.write(text.encode())  # type: ignore[attr-defined]  # it is a Transport

    def data_received(self, data: bytes) -> None:
        """Take what came: parts are small, so one is never cut in two here."""
        if not self.started.done() and b"event: start" in data:
            self.started.set_result(None)
        if b"event: change" in data:
            for version in {int(found) for found in _VERSION.findall(data)}:
                self._told_s[version].append(time())

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end."""
        del error
        self.is_lost = True
        if not self.started.done():
            self.started.set_result(None)


async def _watch(host: str, port: int, count: int, seconds: float) -> dict[str, object]:
    told_s: dict[int, list[float]] = defaultdict(list)
    started_s = perf_counter()
    watchers: list[Watcher] = []
    loop = asyncio.get_running_loop()
    for first in range(0, count, _AT_ONCE):
        made = await asyncio.gather(
            *(
                loop.create_connection(lambda: Watcher(port, told_s), host, port)
                for _ in range(first, min(first + _AT_ONCE, count))
            )
        )
        watchers += [watcher for _, watcher in made]
        await asyncio.gather(*(watcher.started for _, watcher in made))
    opened_s = perf_counter() - started_s
    print("open", flush=True)  # noqa: T201 the caller waits for it
    await asyncio.sleep(seconds)
    return {
        "opened_s": round(opened_s, 2),
        "lost": sum(watcher.is_lost for watcher in watchers),
        "told": {
            version: {"first_s": min(times), "last_s": max(times), "watchers": len(times)}
            for version, times in sorted(told_s.items())
        },
    }


def main() -> int:
    """Run the load named on the command line."""
    host, port, count, seconds = sys.argv[1:5]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    uvloop.install()
    found = asyncio.run(_watch(host, int(port), int(count), float(seconds)))
    print(json.dumps(found))  # noqa: T201 the result is what the caller reads
    return 0


if __name__ == "__main__":
    sys.exit(main())

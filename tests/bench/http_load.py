"""A load generator for lookups: a closed loop over kept connections, in a process of its own.

Each connection sends its next request when the last answer is whole. Prints one JSON object.
Usage: python -m tests.bench.http_load HOST PORT CONNECTIONS SECONDS < PATHS (one a line).
"""

import asyncio
import json
import re
import resource
import sys
from collections import Counter
from collections.abc import Sequence
from time import perf_counter

import uvloop

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Connection(asyncio.Protocol):
    """One connection's loop over its share of the requests."""

    def __init__(self, requests: Sequence[bytes], until_s: float, latencies_s: list[float]) -> None:
        self.statuses: Counter[str] = Counter()
        self.done = asyncio.get_running_loop().create_future()
        self._requests = requests
        self._until_s = until_s
        self._latencies_s = latencies_s
        self._next = 0
        self._sent_s = 0.0
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        """Take what came; when the answer is whole, send the next request."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if found else None
        if length is None or len(body) < int(length[1]):
            return
        now_s = perf_counter()
        self._latencies_s.append(now_s - self._sent_s)
        self.statuses[head[9:12].decode()] += 1
        self._buffer = b""
        if now_s < self._until_s:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        if error is not None or perf_counter() < self._until_s:
            self.statuses["broken"] += 1
        if not self.done.done():
            self.done.set_result(None)

    def _send(self) -> None:
        self._next = (self._next + 1) % len(self._requests)
        self._sent_s = perf_counter()
        self._transport.write(self._requests[self._next])  # type: ignore[attr-defined]  # as there


async def _load(host: str, port: int, connections: int, seconds: float) -> dict[str, object]:
    requests = [
        f"GET {line.strip()} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: application/json\r\n"
        "User-Agent: Pulsar-Java-v4.0.8\r\n\r\n".encode()
        for line in sys.stdin
    ]
    latencies_s: list[float] = []
    started_s = perf_counter()
    made = [
        await asyncio.get_running_loop().create_connection(
            lambda at=at: Connection(requests[at::connections], started_s + seconds, latencies_s),
            host,
            port,
        )
        for at in range(connections)
    ]
    await asyncio.gather(*(connection.done for _, connection in made))
    taken_s = perf_counter() - started_s
    statuses = sum((connection.statuses for _, connection in made), Counter())
    latencies_s.sort()
    return {
        "requests": len(latencies_s),
        "statuses": dict(statuses),
        "per_second": round(len(latencies_s) / taken_s),
        **{
            f"p{percent:g}_ms": round(latencies_s[int(len(latencies_s) * percent / 100)] * 1e3, 2)
            for percent in (50, 95, 99, 99.9)
        },
        "max_ms": round(latencies_s[-1] * 1e3, 2),
        "generator_cpu_s": round(resource.getrusage(resource.RUSAGE_SELF).ru_utime, 2),
        "seconds": round(taken_s, 2),
    }


def main() -> int:
    host, port, connections, seconds = sys.argv[1:5]
    uvloop.install()
    found = asyncio.run(_load(host, int(port), int(connections), float(seconds)))
    print(json.dumps(found))  # noqa: T201 the result is what the caller reads
    return 0


if __name__ == "__main__":
    sys.exit(main())

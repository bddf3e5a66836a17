"""Clients that ask one large thing again and again, and read each answer to its end.

Prints one JSON object. Usage: python -m tests.bench.heavy_readers PORT AT_ONCE SECONDS PATH < BODY
"""

import http.client
import json
import sys
import threading
from collections import Counter
from time import monotonic

_TIMEOUT_S = 120.0
_PIECE_BYTES = 1 << 16


class Reader(threading.Thread):
    """One client."""

    def __init__(self, port: int, path: str, body: str, until_s: float) -> None:
        super().__init__()
        self.statuses: Counter[str] = Counter()
        self.longest_s = 0.0
        self.answered_bytes = 0
        self._port, self._path, self._body, self._until_s = port, path, body, until_s

    def run(self) -> None:
        """Until time is up."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_TIMEOUT_S)
        while monotonic() < self._until_s:
            started_s = monotonic()
            try:
                self._ask(connection)
            except (OSError, http.client.HTTPException) as error:
                self.statuses[type(error).__name__] += 1
                connection.close()
            self.longest_s = max(self.longest_s, monotonic() - started_s)
        connection.close()

    def _ask(self, connection: http.client.HTTPConnection) -> None:
        method = "POST" if self._body else "GET"
        headers = {"Content-Type": "application/json"} if self._body else {}
        connection.request(method, self._path, self._body or None, headers)
        response = connection.getresponse()
        size = 0
        while part := response.read(_PIECE_BYTES):
            size += len(part)
        self.answered_bytes = size
        self.statuses[str(response.status)] += 1


def main() -> int:
    """Ask as the command line says."""
    port, at_once, seconds, path = sys.argv[1:5]
    body, until_s = sys.stdin.read(), monotonic() + float(seconds)
    readers = [Reader(int(port), path, body, until_s) for _ in range(int(at_once))]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    statuses = sum((reader.statuses for reader in readers), Counter())
    found = {
        "answers": sum(statuses.values()),
        "statuses": dict(statuses),
        "longest_s": round(max(reader.longest_s for reader in readers), 2),
        "bytes": max(reader.answered_bytes for reader in readers),
    }
    print(json.dumps(found))  # noqa: T201 (what the caller reads)
    return 0


if __name__ == "__main__":
    sys.exit(main())

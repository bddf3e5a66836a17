"""What clients may make the HTTP server hold: bounds of a connection, and one account of them all.

Decides which number is too large; what happens then is `http_protocol`'s. Counts live in one event
loop. Source: ours; CWE-400, CWE-770 for what is bounded.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_network
from typing import Protocol

from jobs.adapters.http.turns import Turns
from lbcore.config.lookup import LookupConfig

HEAD_TIMEOUT_S = 15.0
HEADERS_MAX = 256
PIPELINED_MAX = 64
MODEST_BYTES = 8_192
"""Who holds no more than this is served even when all together hold too much."""
READ_MIN_BYTES_PER_S = 10_000
_SWEEPS = 10
PEER = "ballast.peer"
"""Where the protocol leaves the common name of the client's verified certificate."""


class Cut(str, Enum):
    """Why a connection was ended before its time; labels of a metric."""

    MALFORMED = "malformed"
    HEAD_TOO_LONG = "head_too_long"
    REQUEST_TOO_LONG = "request_too_long"
    REQUEST_TOO_SLOW = "request_too_slow"
    ANSWER_NOT_READ = "answer_not_read"
    PIPELINE_TOO_LONG = "pipeline_too_long"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    TOO_MANY_OF_A_PEER = "too_many_of_a_peer"
    TOO_MUCH_UNANSWERED = "too_much_unanswered"
    TOO_MUCH_UNREAD = "too_much_unread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a worker.

    head_bytes: of the first line and headers. request_bytes: of a request as it is on the wire,
    with the framing of its chunks and its trailers. The times are those of a whole head, of a whole
    request, and for which nothing of an answer is taken.
    """

    head_bytes: int = 65_536
    request_bytes: int = 65_536 + (1 << 20)
    head_s: float = HEAD_TIMEOUT_S
    request_s: float = 30.0
    answer_s: float = 20.0
    connections: int = 20_000
    of_a_peer: int = 5_000
    unanswered_bytes: int = 64 << 20
    unread_bytes: int = 256 << 20

    @classmethod
    def of(cls, lookup: LookupConfig, files_max: int) -> "Bounds":
        """Those of the settings; files_max: that this process may have open, sockets among them."""
        connections = min(lookup.max_connections, max(1, files_max - _FILES_OF_OURS))
        return cls(
            head_bytes=lookup.max_header_bytes,
            request_bytes=lookup.max_header_bytes + lookup.max_body_bytes,
            head_s=min(HEAD_TIMEOUT_S, lookup.request_timeout_ms / 1000),
            request_s=lookup.request_timeout_ms / 1000,
            answer_s=lookup.answer_timeout_ms / 1000,
            connections=connections,
            of_a_peer=lookup.max_connections_per_peer or connections,
            unanswered_bytes=lookup.max_unanswered_bytes,
            unread_bytes=lookup.max_unread_bytes,
        )


_FILES_OF_OURS = 256


@dataclass(slots=True)
class Account:
    """What all connections of a worker hold at the moment, and how many were cut, by reason.

    unanswered_bytes: received of requests that have no answer yet. unread_bytes: of answers that
    their clients have not taken, where that is more than the transport likes to hold.
    """

    unanswered_bytes: int = 0
    unread_bytes: int = 0
    of_peer: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    turns: Turns = field(default_factory=Turns)

    def leave(self, peer: str) -> None:
        """A connection of this address is gone."""
        self.of_peer[peer] -= 1
        if not self.of_peer[peer]:
            del self.of_peer[peer]


def network_of(address: str) -> str:
    """Whom an address stands for: itself; of IPv6 the /64, all of which one host may use."""
    if ":" not in address:
        return address
    try:
        return str(ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address


class Timed(Hashable, Protocol):
    """A connection that has deadlines."""

    def look(self, now_s: float) -> None:
        """End what is over its time."""


class Sweep:
    """Looks at every connection once in so many calls, a part of them in each.

    One clock instead of timers for each connection: a request that is quick sets none.
    """

    def __init__(self, connections: Callable[[], "set[Timed]"]) -> None:
        self._connections = connections
        self._left: Iterator[Timed] = iter(())
        self._share = 1

    def step(self, now_s: float) -> None:
        """Look at a tenth of the connections. O(connections / 10)."""
        for _ in range(self._share):
            connection = next(self._left, None)
            if connection is None:
                found = tuple(self._connections())
                self._left, self._share = iter(found), 1 + len(found) // _SWEEPS
                return
            connection.look(now_s)

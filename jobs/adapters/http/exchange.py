"""One question to an HTTP server and its whole answer, however the server behaves.

Decides that an answer has a size and, from the first to the last byte, a time, and that no redirect
is followed: whoever follows one decides first whom the credentials may be shown to. Source: ours,
over `http.client`, which bounds only the time between two bytes; `urllib` takes credentials along
to wherever it is sent.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Protocol
from urllib.parse import urlsplit

from jobs.adapters.http.certificates import ends_as_shown

_PIECE_BYTES = 65_536


class TooLongError(HTTPException):
    """The answer is longer than it may be."""


class Readable(Protocol):
    """What an answer is read from."""

    def read(self, amount: int, /) -> bytes:
        """At most so many bytes, b"" at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpQuestion:
    """What is asked. target: path and query."""

    target: str
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back. location: where to ask instead, "" for nowhere; kind: its Content-Type.

    certificate_ends_ms: of the server's certificate, 0 = it has shown none.
    """

    status: int
    content: bytes
    location: str = ""
    kind: str = ""
    certificate_ends_ms: int = 0


def connection_to(url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> HTTPConnection:
    """A connection to the host of a URL, http or https; connects at the first asked."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return HTTPConnection(host, port, timeout=timeout_s)


def exchange(connection: HTTPConnection, asked: HttpQuestion, bytes_max: int) -> Answered:
    """Ask, and read the answer whole, within the connection's timeout altogether.

    Raises OSError, HTTPException (TooLongError among them) and, for a host or target that can be
    none, ValueError. The connection is closed.
    """
    assert connection.timeout is not None  # noqa: S101 (as connection_to makes them)
    try:
        with _within(connection, connection.timeout):
            ends_ms = ends_as_shown(connection.sock)
            body = asked.body or None
            connection.request(asked.method, asked.target, body=body, headers=dict(asked.headers))
            response = connection.getresponse()
            return Answered(
                status=response.status,
                content=read_at_most(response, bytes_max),
                location=response.getheader("Location") or "",
                kind=response.getheader("Content-Type") or "",
                certificate_ends_ms=ends_ms,
            )
    finally:
        connection.close()


def read_at_most(answer: Readable, bytes_max: int) -> bytes:
    """All of an answer; raises TooLongError, and whatever reading raises."""
    parts, left = [], bytes_max
    while part := answer.read(min(_PIECE_BYTES, left + 1)):
        parts.append(part)
        left -= len(part)
        if left < 0:
            raise TooLongError(f"the answer is longer than {bytes_max} bytes")
    return b"".join(parts)


@contextmanager
def _within(connection: HTTPConnection, seconds: float) -> Iterator[None]:
    """End what goes on with a connection when time is up; raises TimeoutError then."""
    connection.connect()
    wire: socket.socket = connection.sock  # a response that ends the connection takes it away
    is_late = threading.Event()

    def end() -> None:
        is_late.set()
        with suppress(OSError):
            socket.socket.shutdown(wire, socket.SHUT_RDWR)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException, ValueError):
        if not is_late.is_set():
            raise
    finally:
        timer.cancel()
    if is_late.is_set():
        raise TimeoutError(f"no whole answer within {seconds:.0f} s")

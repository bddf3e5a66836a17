"""HTTP client: one request with its whole answer, and one lookup of a prober.

An answer's size is bounded, and its time from the first to the last byte (`http.client` bounds only
the time between two bytes). No redirect is followed, because `urllib` would send credentials along:
the caller decides who may see them.
"""

import json
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from jobs.adapters.processes.clocks import wall_ms
from lbcore.model.names import locate_topic, lookup_path
from lbcore.sim.judge.judge import ProbedAnswer

_PIECE_BYTES = 65_536


class TooLongError(HTTPException):
    """The answer is longer than it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """HTTP request.

    target: path and query.
    """

    target: str
    method: str = "GET"
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """HTTP response.

    location: of a redirect, "" = none. kind: its Content-Type. certificate_ends_ms: expiry of the
    server's certificate, ms since 1970, 0 = none. headers: names in lower case.
    """

    status: int
    content: bytes
    location: str = ""
    kind: str = ""
    certificate_ends_ms: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)


def connection_to(url: str, timeout_s: float, tls: ssl.SSLContext | None = None) -> HTTPConnection:
    """Return a connection to a URL's host (http, https); opens at its first request."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        context = tls or ssl.create_default_context()
        return HTTPSConnection(host, port, timeout=timeout_s, context=context)
    return HTTPConnection(host, port, timeout=timeout_s)


def exchange(connection: HTTPConnection, asked: HttpRequest, bytes_max: int) -> HttpAnswer:
    """Connect, send a request and read the whole answer, each within the timeout.

    Raises OSError, HTTPException (TooLongError among them) and, for an invalid host or target,
    ValueError. The connection is closed.
    """
    assert connection.timeout is not None  # noqa: S101 (as connection_to makes them)
    try:
        with _within(connection, connection.timeout):
            wire = connection.sock
            shown = wire.getpeercert() if isinstance(wire, ssl.SSLSocket) else None
            ends_s = ssl.cert_time_to_seconds(str(shown["notAfter"])) if shown else 0
            body = asked.body or None
            connection.request(asked.method, asked.target, body=body, headers=dict(asked.headers))
            response = connection.getresponse()
            return HttpAnswer(
                status=response.status,
                content=read_at_most(response, bytes_max),
                location=response.getheader("Location") or "",
                kind=response.getheader("Content-Type") or "",
                certificate_ends_ms=round(ends_s) * 1_000,
                headers={name.lower(): value for name, value in response.getheaders()},
            )
    finally:
        connection.close()


def read_at_most(answer: HTTPResponse, bytes_max: int) -> bytes:
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
    """Shut the connection down when time is up, and raise TimeoutError then."""
    connection.connect()
    wire: socket.socket = connection.sock  # `Connection: close` sets connection.sock to None
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


AGE_HEADER = "X-Ballast-Age-Ms"
TABLE_VERSION_HEADER = "X-Ballast-Table-Version"
BUNDLE_HEADER = "X-Ballast-Bundle"
UNKNOWN_VERSION = -1

_ANSWER_MAX_BYTES = 65_536
_OK, _UNAVAILABLE = 200, 503


class LookupConnection:
    """One kept connection to the lookup service, made again whenever it breaks."""

    def __init__(self, base_url: str, timeout_ms: int) -> None:
        """base_url: http://host:port; connects at the first request."""
        self._connection = connection_to(base_url, timeout_ms / 1000.0)

    def look_up(self, topic: str) -> ProbedAnswer:
        """Ask who owns the topic; errors of network and service are in the answer."""
        path = lookup_path(locate_topic(topic)[1])
        asked = ProbedAnswer(topic=topic, asked_at_ms=wall_ms(), answered_at_ms=0)
        try:
            status, headers, body = self._get(path)
        except (OSError, HTTPException) as error:
            return replace(asked, answered_at_ms=wall_ms(), error=type(error).__name__)
        answered = replace(asked, answered_at_ms=wall_ms())
        broker = _broker(body) if status == _OK else ""
        is_later = status == _UNAVAILABLE and bool(headers.get("Retry-After"))
        if not broker and not is_later:
            why = "no owner in the answer" if status == _OK else f"status {status}"
            return replace(answered, error=why)
        return replace(
            answered,
            age_ms=_number(headers, AGE_HEADER, 0),
            table_version=_number(headers, TABLE_VERSION_HEADER, UNKNOWN_VERSION),
            asked_later=is_later,
            broker=broker,
            bundle=headers.get(BUNDLE_HEADER, "") if broker else "",
        )

    def table_version(self) -> int:
        """Return the version of the service's table, UNKNOWN_VERSION if it gives none."""
        try:
            _, headers, _ = self._get("/health")
        except (OSError, HTTPException):
            return UNKNOWN_VERSION
        return _number(headers, TABLE_VERSION_HEADER, UNKNOWN_VERSION)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()

    def _get(self, path: str) -> tuple[int, Message, bytes]:
        """Return status, headers, body; retry once if a kept connection was closed."""
        is_kept = self._connection.sock is not None
        try:
            self._connection.request("GET", path)
            response = self._connection.getresponse()
            return response.status, response.headers, read_at_most(response, _ANSWER_MAX_BYTES)
        except (OSError, HTTPException) as error:
            self._connection.close()
            if is_kept and isinstance(error, ConnectionError | HTTPException):
                return self._get(path)
            raise


def _number(headers: Message, name: str, default: int) -> int:
    try:
        return int(headers.get(name, default))
    except ValueError:
        return default


def _broker(body: bytes) -> str:
    """Return the name of the broker, "" = none.

    Brokers of the simulated fleet have the host of their URLs as name.
    """
    try:
        found: Any = json.loads(body)
    except ValueError:
        return ""
    if not isinstance(found, Mapping):
        return ""
    return urlsplit(str(found.get("httpUrl") or found.get("brokerUrl") or "")).hostname or ""

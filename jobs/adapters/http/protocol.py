"""HTTP/1.1 of the server: bounds on what a client may send, and its timeouts.

Extends uvicorn's httptools protocol, which has no bounds; RFC 9112 says what is malformed. A
connection is in one of four phases, each with bounds. Every byte counts towards its request,
trailers and framing included; a body is read only when its handler asks for it.

IDLE  ──first byte──▶ HEAD ──headers──▶ BODY ──last byte──▶ IDLE
  any ──cut, an upgrade, or the last request of the connection──▶ DEAF: input is dropped

Passes the name in a client's verified certificate on to access control.
"""

import logging
import ssl
from asyncio import Transport
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from ipaddress import ip_network
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.adapters.http.fair_scheduling import FairScheduler
from lbcore.config.lookup import LookupConfig

HEAD_TIMEOUT_S = 15.0
HEADERS_MAX = 256
PIPELINED_MAX = 64
MODEST_BYTES = 8_192
"""Bytes that a connection may hold even if all together hold too much."""
READ_MIN_BYTES_PER_S = 10_000
PEER = "ballast.peer"
"""Scope key of the common name of the client's verified certificate."""


class Cut(str, Enum):
    """Reason for closing a connection early; label of a metric."""

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

    head_bytes: of the first line and headers. request_bytes: of a request on the wire, with the
    framing of its chunks and its trailers. head_s, request_s: to receive a whole head or request.
    answer_s: in which a client may take nothing of an answer.
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
        """Return the bounds of the settings.

        files_max: that this process may have open, sockets among them.
        """
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
    """Bytes held by all connections of a worker, and cuts by reason.

    unanswered_bytes: received, of requests that have no answer yet. unread_bytes: of answers that
    clients have not taken, where they exceed the transport's high-water mark.
    """

    unanswered_bytes: int = 0
    unread_bytes: int = 0
    of_peer: Counter[str] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    turns: FairScheduler = field(default_factory=FairScheduler)


def network_of(address: str) -> str:
    """Return the network of an address: itself, or an IPv6 address's /64.

    One host may use all of a /64.
    """
    with suppress(ValueError):
        if ":" in address:
            return str(ip_network((address.partition("%")[0], 64), strict=False))
    return address


logger = logging.getLogger(__name__)

_REFUSALS = {
    Cut.MALFORMED: (400, b"the request is malformed"),
    Cut.HEAD_TOO_LONG: (431, b"the headers are too long"),
    Cut.REQUEST_TOO_LONG: (413, b"the request is too long"),
    Cut.REQUEST_TOO_SLOW: (408, b"the request took too long"),
    Cut.TOO_MANY_CONNECTIONS: (503, b"there are too many connections: try again"),
    Cut.TOO_MANY_OF_A_PEER: (503, b"there are too many connections of this address"),
    Cut.TOO_MUCH_UNANSWERED: (503, b"too much is waiting for an answer: try again"),
}
_AT_CONNECT = frozenset({Cut.TOO_MANY_CONNECTIONS, Cut.TOO_MANY_OF_A_PEER})
_HEAD = b"content-type: application/problem+json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
_PROBLEM = b'{"type":"about:blank","title":"%s","status":%d,"detail":"%s","reason":"%s"}'
_FRAMED = (b"content-length", b"transfer-encoding")

UNSENT_MAX_BYTES = 32_768
"""Of an answer, beside what the kernel takes: what is left is written for all clients that can
take it in one turn of the event loop."""


_IDLE, _HEADS, _BODY, _DEAF = range(4)
"""Phases of a connection: the input that is expected next; see the module."""


class BoundedProtocol(HttpToolsProtocol):
    """A connection with its bounds; see the module."""

    bounds = Bounds()
    account = Account()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._phase = _IDLE
        self._request_bytes = 0
        self._unanswered_bytes = 0
        self._unread: tuple[float, int] | None = None
        self._since_s: float | None = None
        self._closing_s: float | None = None
        self._hosts = 0
        self._codings: list[bytes] = []
        self._has_body = False
        self._peer = ""
        self._address = self._network = ""

    # -- the connection

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Count a new connection, and refuse it if there are too many."""
        super().connection_made(transport)
        self.flow: Flow = Flow(transport, self.account.turns)
        transport.set_write_buffer_limits(UNSENT_MAX_BYTES)
        self._peer = peer_name(transport.get_extra_info("ssl_object"))
        self._address = self.client[0] if self.client else ""
        self._network = network_of(self._address)
        self._since_s = self.loop.time()
        self.account.of_peer[self._network] += 1
        if len(self.connections) > self.bounds.connections:
            self._cut(Cut.TOO_MANY_CONNECTIONS)
        elif self.account.of_peer[self._network] > self.bounds.of_a_peer:
            self._cut(Cut.TOO_MANY_OF_A_PEER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the lost connection held."""
        self._phase, self._since_s = _DEAF, None
        self.resume_writing()
        self._set_unanswered(0)
        self.account.of_peer[self._network] -= 1
        if not self.account.of_peer[self._network]:
            del self.account.of_peer[self._network]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input, then check the bounds."""
        if self._phase == _DEAF:
            return
        self._unset_keepalive_if_required()
        self._request_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._stop_listening()  # no other protocol: answer this request, then close
        except httptools.HttpParserError:
            self._cut(Cut.MALFORMED)
        self._account_for(len(data))

    def check_deadlines(self, now_s: float) -> None:
        """Close the connection if a time is over. now_s: by the event loop's clock."""
        if self._unread is not None:
            since_s, had = self._unread
            if now_s - since_s < self.bounds.answer_s:
                return
            size = self.transport.get_write_buffer_size()
            if had - size < READ_MIN_BYTES_PER_S * (now_s - since_s):
                self._abort(Cut.ANSWER_NOT_READ)
                return
            self.account.unread_bytes += size - had
            self._unread = (now_s, size)
        elif self.transport.is_closing():
            self._closing_s = self._closing_s or now_s
            if now_s - self._closing_s > self.bounds.answer_s:
                self._abort(Cut.ANSWER_NOT_READ)  # the end of it
        elif self._since_s is not None:
            is_body = self._phase == _BODY
            if now_s - self._since_s > (self.bounds.request_s if is_body else self.bounds.head_s):
                self._cut(Cut.REQUEST_TOO_SLOW)

    # -- the parser's callbacks

    def on_message_begin(self) -> None:
        """Begin a request."""
        if self._phase == _DEAF:
            return
        if len(self.pipeline) >= PIPELINED_MAX:
            self._cut(Cut.PIPELINE_TOO_LONG)
            return
        super().on_message_begin()
        self._phase, self._hosts, self._codings, self._has_body = _HEADS, 0, [], False
        if self._peer:
            self.scope[PEER] = self._peer  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """Add a part of the request's target."""
        if self._phase == _HEADS:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Add a header; trailers, after the body, are not kept."""
        if self._phase != _HEADS:
            return
        if len(self.headers) >= HEADERS_MAX:
            self._cut(Cut.HEAD_TOO_LONG)
            return
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name in _FRAMED:
            self._has_body = value != b"0"
            if name == b"transfer-encoding":
                self._codings.append(value.lower())
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Serve the request if its headers are within the bounds."""
        if self._phase != _HEADS:
            return
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.bounds.head_bytes:
            self._cut(Cut.HEAD_TOO_LONG)
            return
        if self._is_ambiguous():
            self._cut(Cut.MALFORMED)
            return
        if self._has_body and not self._is_answered():
            self._cut(Cut.PIPELINE_TOO_LONG)  # nobody may send a body before it is asked for
            return
        if self.url[:1] != b"/":
            self._name_authority()
        super().on_headers_complete()
        self._phase = _BODY
        if self._has_body:
            self.flow.pause_reading()  # until the handler asks, or has answered

    def _is_ambiguous(self) -> bool:
        """Return True if another parser may see other hosts, or another end.

        See RFC 9112, 3.2 and 6.1.
        """
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"} or self._hosts > 1:
            return True
        if version == "1.0":
            return bool(self._codings)
        return not self._hosts or self._codings not in ([], [b"chunked"])

    def on_body(self, body: bytes) -> None:
        """Add a part of the body."""
        if self._phase == _BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request that was received whole."""
        if self._phase != _BODY:
            return
        super().on_message_complete()
        self._phase, self._request_bytes, self._since_s = _IDLE, 0, None
        if not self.cycle.keep_alive:
            self._stop_listening()

    def on_response_complete(self) -> None:
        """Release held bytes once the last answer is written; it may not be read yet."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last:
            self._set_unanswered(0)

    def pause_writing(self) -> None:
        """Count what the client has not taken yet."""
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._unread = (self.loop.time(), size)
        self.account.unread_bytes += size
        if self.account.unread_bytes > self.bounds.unread_bytes:
            self._abort(Cut.TOO_MUCH_UNREAD)

    def resume_writing(self) -> None:
        """Stop counting: the client has taken nearly all."""
        if self._unread is not None:
            self.account.unread_bytes -= self._unread[1]
            self._unread = self._closing_s = None
        super().resume_writing()

    # -- the bounds

    def _account_for(self, size: int) -> None:
        """Check the bounds after `size` more bytes were received."""
        if self._phase == _DEAF:
            return
        if self._phase == _IDLE and not self._request_bytes:
            self._set_unanswered(0 if self._is_answered() else self._unanswered_bytes + size)
            return  # a request that came whole, or several
        if self._since_s is None and (self._request_bytes or self._phase != _IDLE):
            self._since_s = self.loop.time()  # an empty line before a request is part of it
        is_at_rest = self._phase != _HEADS and self._is_answered()  # an unwanted body is not kept
        self._set_unanswered(0 if is_at_rest else self._unanswered_bytes + size)
        bounds = self.bounds
        if self._phase == _BODY and self._request_bytes > bounds.request_bytes:
            self._cut(Cut.REQUEST_TOO_LONG)
        elif self._phase != _BODY and self._request_bytes > bounds.head_bytes:
            self._cut(Cut.HEAD_TOO_LONG)
        elif (
            self.account.unanswered_bytes > bounds.unanswered_bytes
            and self._unanswered_bytes > MODEST_BYTES
        ):
            self._cut(Cut.TOO_MUCH_UNANSWERED)

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _set_unanswered(self, size: int) -> None:
        self.account.unanswered_bytes += size - self._unanswered_bytes
        self._unanswered_bytes = size

    # -- the end

    def _cut(self, why: Cut) -> None:
        """Close early, after answering earlier requests.

        The reason is sent only if the client can't take it for the answer to another request.
        """
        if self._phase == _DEAF:
            return
        self._count(why)
        is_answer_due = self.pipeline if self._phase == _BODY else not self._is_answered()
        is_begun = self._phase == _BODY and self.cycle.response_started
        if is_answer_due or why not in _REFUSALS:
            self._stop_listening()
            self.flow.shut()
            return
        if not is_begun and (self._request_bytes or why in _AT_CONNECT):
            status, reason = _REFUSALS[why]
            # both forms of an error: the path, which decides, may not be known
            body = _PROBLEM % (HTTPStatus(status).phrase.encode(), status, reason, reason)
            self.transport.write(STATUS_LINE[status] + _HEAD % len(body) + body)
        if not self._is_answered():  # let the handler know that its client is gone
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._stop_listening()
        self.transport.close()

    def _count(self, why: Cut) -> None:
        self.account.cut[why.value] += 1
        fields = {"why": why.value, "address": self._address}
        logger.warning("connection_cut", extra={"fields": fields})

    def _abort(self, why: Cut) -> None:
        self._count(why)
        self._phase = _DEAF
        self.transport.abort()

    def _stop_listening(self) -> None:
        """Drop further input, and close once the present request is answered."""
        self._phase, self._since_s = _DEAF, None
        if self._is_answered():
            self.transport.close()
            self.cycle = None  # type: ignore[assignment]
        else:
            self.cycle.keep_alive = False

    def _name_authority(self) -> None:
        """Let a target's own authority be the host, as RFC 9112, 3.2.2 says."""
        target = httptools.parse_url(self.url)
        if not target.host:
            return
        host = b"[%s]" % target.host if b":" in target.host else target.host
        authority = host if target.port is None else b"%s:%d" % (host, target.port)
        query = b"" if target.query is None else b"?" + target.query
        self.url = (target.path or b"/") + query
        self.headers[:] = [
            (name, authority if name == b"host" else value) for name, value in self.headers
        ]


class Flow(FlowControl):
    """Flow control that stops reading from a client that has sent too much.

    turns: order in which answers continue when many clients have room at once.
    """

    def __init__(self, transport: Transport, turns: FairScheduler) -> None:
        super().__init__(transport)
        self._is_shut = False
        self._turns = turns

    async def drain(self) -> None:
        """Wait until the client has taken nearly all, and it is this answer's turn."""
        await super().drain()
        await self._turns.next()

    def shut(self) -> None:
        """Stop reading for good."""
        self.pause_reading()
        self._is_shut = True

    def resume_reading(self) -> None:
        """Continue reading unless shut."""
        if not self._is_shut:
            super().resume_reading()


def peer_name(tls: ssl.SSLObject | None) -> str:
    """Return the common name in a client's verified certificate; "" without one."""
    certificate = tls.getpeercert() if tls is not None else None
    parts: Any = (certificate or {}).get("subject", ())
    names = [value for part in parts for key, value in part if key == "commonName"]
    return str(names[-1]) if names else ""

"""The server's HTTP/1.1 protocol: what a client may send, and how long it may take for it.

Decides when a connection is cut. Each is in one of four phases; every byte that arrives belongs to
a request, is counted from its first to its last, trailers and framing included, and is held to the
bounds of its phase; what no handler has asked for is not read.

    IDLE  ──first byte──▶ HEAD ──headers──▶ BODY ──last byte──▶ IDLE
      any ──cut, an upgrade, or the last request of the connection──▶ DEAF: what comes is dropped

Notes the name in a client's verified certificate for the gate. Source: ours, over uvicorn's
httptools protocol, which bounds nothing; RFC 9112 for what is malformed.
"""

import logging
import ssl
from asyncio import Event, Transport
from enum import Enum
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.adapters.http.bounds import (
    HEADERS_MAX,
    MODEST_BYTES,
    PEER,
    PIPELINED_MAX,
    READ_MIN_BYTES_PER_S,
    Account,
    Bounds,
    Cut,
    network_of,
)
from jobs.adapters.http.turns import Turns

logger = logging.getLogger(__name__)

_REFUSALS = {
    Cut.MALFORMED: (400, "the request is malformed"),
    Cut.HEAD_TOO_LONG: (431, "the headers are too long"),
    Cut.REQUEST_TOO_LONG: (413, "the request is too long"),
    Cut.REQUEST_TOO_SLOW: (408, "the request took too long"),
    Cut.TOO_MANY_CONNECTIONS: (503, "there are too many connections: try again"),
    Cut.TOO_MANY_OF_A_PEER: (503, "there are too many connections of this address"),
    Cut.TOO_MUCH_UNANSWERED: (503, "too much is waiting for an answer: try again"),
}
_AT_THE_DOOR = frozenset({Cut.TOO_MANY_CONNECTIONS, Cut.TOO_MANY_OF_A_PEER})
_HEAD = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
_FRAMED = (b"content-length", b"transfer-encoding")

UNSENT_MAX_BYTES = 32_768
"""Of an answer, beside what the kernel takes: what is left is written for all clients that can
take it in one turn of the event loop."""


class Stage(Enum):
    """What is expected next of a client."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"
    DEAF = "deaf"


_IDLE, _HEADS, _BODY, _DEAF = Stage.IDLE, Stage.HEAD, Stage.BODY, Stage.DEAF


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
        """Somebody has connected, and has shown a certificate that was asked for."""
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
        """The connection is gone, and with it what it held."""
        self._phase, self._since_s = _DEAF, None
        self.resume_writing()
        self._hold(0)
        self.account.leave(self._network)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, then hold what has come to the bounds."""
        if self._phase is _DEAF:
            return
        self._unset_keepalive_if_required()
        self._request_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._listen_no_more()  # nobody here speaks anything else: this request, and the end
        except httptools.HttpParserError:
            self._cut(Cut.MALFORMED)
        self._account_for(len(data))

    def look(self, now_s: float) -> None:
        """End what is over its time."""
        if self._unread is not None:
            self._look_at_reading(now_s, *self._unread)
        elif self.transport.is_closing():
            self._closing_s = self._closing_s or now_s
            if now_s - self._closing_s > self.bounds.answer_s:
                self._abort(Cut.ANSWER_NOT_READ)  # the end of it
        elif self._since_s is not None:
            is_body = self._phase is _BODY
            if now_s - self._since_s > (self.bounds.request_s if is_body else self.bounds.head_s):
                self._cut(Cut.REQUEST_TOO_SLOW)

    # -- the parser's callbacks

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._phase is _DEAF:
            return
        if len(self.pipeline) >= PIPELINED_MAX:
            self._cut(Cut.PIPELINE_TOO_LONG)
            return
        super().on_message_begin()
        self._phase, self._hosts, self._codings, self._has_body = _HEADS, 0, [], False
        if self._peer:
            self.scope[PEER] = self._peer  # type: ignore[literal-required]

    def on_url(self, url: bytes) -> None:
        """Some of the request's target."""
        if self._phase is _HEADS:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; one after the body, a trailer, is not kept."""
        if self._phase is not _HEADS:
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
        """The headers are in: serve the request, if they are within the bounds."""
        if self._phase is not _HEADS:
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
        """Whether another reader may see other hosts, or another end (RFC 9112, 3.2 and 6.1)."""
        version = self.parser.get_http_version()
        if version not in {"1.0", "1.1"} or self._hosts > 1:
            return True
        if version == "1.0":
            return bool(self._codings)
        return not self._hosts or self._codings not in ([], [b"chunked"])

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if self._phase is _BODY:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._phase is not _BODY:
            return
        super().on_message_complete()
        self._phase, self._request_bytes, self._since_s = _IDLE, 0, None
        if not self.cycle.keep_alive:
            self._listen_no_more()

    def on_response_complete(self) -> None:
        """An answer has been written; whether it is read is the transport's to say."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last:
            self._hold(0)

    def pause_writing(self) -> None:
        """The client takes less than is written."""
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._unread = (self.loop.time(), size)
        self.account.unread_bytes += size
        if self.account.unread_bytes > self.bounds.unread_bytes:
            self._abort(Cut.TOO_MUCH_UNREAD)

    def resume_writing(self) -> None:
        """The client has taken nearly all."""
        if self._unread is not None:
            self.account.unread_bytes -= self._unread[1]
            self._unread = self._closing_s = None
        super().resume_writing()

    # -- the bounds

    def _account_for(self, size: int) -> None:
        """Hold a connection to the bounds after it has sent so many bytes more."""
        if self._phase is _DEAF:
            return
        if self._phase is _IDLE and not self._request_bytes:
            self._hold(0 if self._is_answered() else self._unanswered_bytes + size)
            return  # a request that came whole, or several
        if self._since_s is None and (self._request_bytes or self._phase is not _IDLE):
            self._since_s = self.loop.time()  # an empty line before a request is part of it
        self._hold(0 if self._is_at_rest() else self._unanswered_bytes + size)
        bounds = self.bounds
        if self._phase is _BODY and self._request_bytes > bounds.request_bytes:
            self._cut(Cut.REQUEST_TOO_LONG)
        elif self._phase is not _BODY and self._request_bytes > bounds.head_bytes:
            self._cut(Cut.HEAD_TOO_LONG)
        elif self._is_hogging():
            self._cut(Cut.TOO_MUCH_UNANSWERED)

    def _is_at_rest(self) -> bool:
        """Whether nothing that has come is kept: a body that nobody wants is not."""
        return self._phase is not _HEADS and self._is_answered()

    def _is_answered(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _is_hogging(self) -> bool:
        is_too_much = self.account.unanswered_bytes > self.bounds.unanswered_bytes
        return is_too_much and self._unanswered_bytes > MODEST_BYTES

    def _hold(self, size: int) -> None:
        self.account.unanswered_bytes += size - self._unanswered_bytes
        self._unanswered_bytes = size

    def _look_at_reading(self, now_s: float, since_s: float, had: int) -> None:
        """Abort for a client that takes its answer too slowly."""
        if now_s - since_s < self.bounds.answer_s:
            return
        size = self.transport.get_write_buffer_size()
        if had - size < READ_MIN_BYTES_PER_S * (now_s - since_s):
            self._abort(Cut.ANSWER_NOT_READ)
            return
        self.account.unread_bytes += size - had
        self._unread = (now_s, size)

    # -- the end

    def _cut(self, why: Cut) -> None:
        """Answer what was asked before, say why, if that can be told apart, and close."""
        if self._phase is _DEAF:
            return
        self._count(why)
        owed = self.pipeline if self._phase is _BODY else not self._is_answered()
        is_begun = self._phase is _BODY and self.cycle.response_started
        if owed or why not in _REFUSALS:
            self._listen_no_more()
            self.flow.shut()
            return
        if not is_begun and (self._request_bytes or why in _AT_THE_DOOR):
            self._say(*_REFUSALS[why])
        self._give_up()

    def _count(self, why: Cut) -> None:
        self.account.cut[why.value] += 1
        fields = {"why": why.value, "address": self._address}
        logger.warning("connection_cut", extra={"fields": fields})

    def _say(self, status: int, reason: str) -> None:
        body = b'{"reason":"%s"}' % reason.encode()
        self.transport.write(STATUS_LINE[status] + _HEAD % len(body) + body)

    def _give_up(self) -> None:
        """Close, and let the handler of the present request know that its client is gone."""
        if not self._is_answered():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._listen_no_more()
        self.transport.close()

    def _abort(self, why: Cut) -> None:
        self._count(why)
        self._phase = _DEAF
        self.transport.abort()

    def _listen_no_more(self) -> None:
        """Close once what was asked is answered; until then, what comes is dropped."""
        self._phase, self._since_s = _DEAF, None
        if self._is_answered():
            self.transport.close()
            self.cycle = _Over()  # type: ignore[assignment]
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
    """Lets a client that has sent too much wait until the end, instead of reading to drop it.

    turns: in which answers go on whose clients have taken what there was; many may do so at once.
    """

    def __init__(self, transport: Transport, turns: Turns) -> None:
        super().__init__(transport)
        self._is_shut = False
        self._turns = turns

    async def drain(self) -> None:
        """Until the client has taken nearly all, and it is this answer's turn."""
        await super().drain()
        await self._turns.next()

    def shut(self) -> None:
        """Read nothing more."""
        self.pause_reading()
        self._is_shut = True

    def resume_reading(self) -> None:
        """Read on, unless it is over."""
        if not self._is_shut:
            super().resume_reading()


class _Over:
    """Stands where the cycle of a request would that is not served: what follows is dropped."""

    def __init__(self) -> None:
        self.response_complete = True
        self.message_event = Event()


def peer_name(tls: ssl.SSLObject | None) -> str:
    """The common name in a client's certificate, which the handshake has verified; "" without."""
    certificate = tls.getpeercert() if tls is not None else None
    if not certificate:
        return ""
    parts: Any = certificate.get("subject", ())
    names = [value for part in parts for key, value in part if key == "commonName"]
    return str(names[-1]) if names else ""

"""The server's HTTP/1.1 protocol with bounds on what a client may send before it is answered.

Decides when a connection is cut: headers longer than a bound, or not complete within a time. Notes
the name in a client's verified certificate for the gate. Source: ours, over uvicorn's httptools
protocol, which bounds neither.
"""

import ssl
from asyncio import Event, TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.admin.gates import PEER

_TOO_LARGE = 431
_HEADER_TIMEOUT_S = 15.0


def bounded_protocol(max_header_bytes: int) -> type[HttpToolsProtocol]:
    """The protocol class with this bound on a request's first line and headers together."""
    return type("BoundedProtocol", (_BoundedProtocol,), {"max_header_bytes": max_header_bytes})


class _BoundedProtocol(HttpToolsProtocol):
    max_header_bytes = 65_536

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._unfinished_bytes = 0
        self._is_reading_headers = True
        self._peer = ""
        self._header_timer: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Somebody has connected, and has shown a certificate that was asked for."""
        super().connection_made(transport)
        self._peer = peer_name(transport.get_extra_info("ssl_object"))
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse; headers that don't end are cut off at the bound."""
        self._unfinished_bytes = self._unfinished_bytes + len(data) if self._header_timer else 0
        super().data_received(data)
        if self._is_reading_headers and not self.transport.is_closing():
            if self._header_timer is None:
                self._await_headers()
            if self._unfinished_bytes > self.max_header_bytes:
                self._refuse()

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._is_reading_headers = True
        if self._peer:
            self.scope[PEER] = self._peer  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        """The headers are in: serve the request, if they are within the bound."""
        self._stop_timer()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.max_header_bytes:
            self._refuse()
            return
        super().on_headers_complete()

    def _await_headers(self) -> None:
        self._header_timer = self.loop.call_later(_HEADER_TIMEOUT_S, self._time_out)

    def _time_out(self) -> None:
        self._header_timer = None
        if not self.transport.is_closing():
            self.transport.close()

    def _stop_timer(self) -> None:
        self._is_reading_headers = False
        self._unfinished_bytes = 0
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _refuse(self) -> None:
        self._stop_timer()
        body = b'{"reason":"the headers are too long"}'
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        self.transport.write(STATUS_LINE[_TOO_LARGE] + head % len(body) + body)
        self.transport.close()
        self.cycle = _Over()  # type: ignore[assignment]


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

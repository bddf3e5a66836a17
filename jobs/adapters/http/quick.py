"""A short way for requests that come again and again on a connection and differ in a name only.

Decides what may go it, and lets everything else take the long way (`protocol`). A client sends the
same headers with each lookup, so a connection remembers the bytes of those that the parser has just
found to be whole, harmless and without a body; a request of one piece with exactly these bytes
behind a plain first line needs no parser, no task and no ASGI. Nothing is bounded less: such a
request is whole, within the bound of a head, alone, and answered before the next is read; who takes
no answers, sends more than one at a time, or anything else, is on the long way. Source: ours.
"""

import re
from asyncio import Transport
from collections.abc import Iterable
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.adapters.http.bounds import Account, Bounds
from jobs.adapters.http.protocol import BoundedProtocol, Stage

_END = b"\r\n\r\n"
_NAME = rb"[-=:.A-Za-z0-9_]+"
_FIRST_LINE = re.compile(
    rb"GET /lookup/v2/topic/(persistent|non-persistent)"
    rb"/(%b/%b)/([-=:.A-Za-z0-9_~!$&'()*,;@]+) HTTP/1\.1" % (_NAME, _NAME)
)


class Quick(Protocol):
    """Answers lookups at once."""

    def admits(self, scope: Any) -> bool:
        """Whether requests with these headers may be asked here, the topic's name aside."""

    def answer(
        self, scope: Any, domain: bytes, namespace: bytes, local: bytes
    ) -> tuple[int, bytes] | None:
        """Status, and all of the answer after its first line and the server's own headers.

        scope: of an earlier request of this connection with the same headers. None when the long
        way must decide; then nothing was counted.
        """


def quick_protocol(bounds: Bounds, account: Account, quick: Quick) -> type[HttpToolsProtocol]:
    """The bounded protocol with the short way before it."""
    fields = {"bounds": bounds, "account": account, "quick": quick}
    return type("QuickProtocol", (QuickProtocol,), fields)


class QuickProtocol(BoundedProtocol):
    """A connection that knows what its last request but for the first line was."""

    quick: Quick

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._habit = b""
        self._habit_scope: Any = None
        self._served_s = 0.0
        self._own: object = None
        self._own_text = b""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        self._served_s = self.loop.time()
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Answer at once what may be; parse the rest, and remember its headers."""
        is_alone = self._is_free()
        at = data.find(b"\r\n")
        if is_alone and self._habit and data[at:] == self._habit and self._answer(data, at):
            return
        super().data_received(data)
        if is_alone and self._is_plain(data, at):
            self._habit, self._habit_scope = data[at:], self.scope

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has been asked for long: on the long way. On the short one, no timer is set."""
        left_s = self._served_s + self.timeout_keep_alive - self.loop.time()
        if left_s <= 0:
            super().timeout_keep_alive_handler()
            return
        self.timeout_keep_alive_task = self.loop.call_later(left_s, self.timeout_keep_alive_handler)

    def _is_free(self) -> bool:
        """Whether nothing of an earlier request is left, and its answer was taken."""
        return (
            self._phase is Stage.IDLE
            and not self._request_bytes
            and self._is_answered()
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _is_plain(self, data: bytes, at: int) -> bool:
        """Whether the parser has found this to be one lookup, whose headers may come again."""
        return (
            self._phase is Stage.IDLE
            and not self._request_bytes
            and not self._has_body
            and not self.pipeline
            and self.cycle is not None
            and self.cycle.keep_alive
            and not self.expect_100_continue
            and data.find(_END) == len(data) - len(_END)
            and _FIRST_LINE.fullmatch(data, 0, at) is not None
            and self.quick.admits(self.scope)
        )

    def _answer(self, data: bytes, at: int) -> bool:
        found = _FIRST_LINE.fullmatch(data, 0, at)
        if found is None or len(data) > self.bounds.head_bytes:
            return False
        reply = self.quick.answer(self._habit_scope, *found.groups())
        if reply is None:
            return False
        self._served_s = self.loop.time()
        self.server_state.total_requests += 1
        headers = self.server_state.default_headers
        if headers is not self._own:  # new each second, because of the date
            self._own, self._own_text = headers, header_lines(headers)
        self.transport.write(STATUS_LINE[reply[0]] + self._own_text + reply[1])
        return True


def header_lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Headers as they are on the wire."""
    return b"".join(b"%b: %b\r\n" % header for header in headers)

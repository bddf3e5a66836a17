"""The fast path of lookups: one step from the bytes of a request to the bytes of its answer.

A client sends the same headers with each lookup. A connection remembers the bytes of those that the
parser has just found to be whole, harmless and without a body. A request of one piece with exactly
these bytes behind a plain first line needs no parser, no task and no ASGI. Host, caller, right and
rate are judged with each request, the same is counted, and the answer has the same bytes. Whatever
is not simply found, sends more than one request at a time, or takes no answers goes the long way
(`protocol`, `lookup_http`).
"""

import re
from asyncio import Transport
from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any, Protocol

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from jobs.adapters.http.protocol import Account, BoundedProtocol, Bounds, Stage
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.exchange import JSON, HttpError, Message
from jobs.service.lookup_http import FOUND, LISTENER_HEADER, LookupApp
from jobs.service.lookup_replies import ages, broker_stamp, refusal
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute

_END = b"\r\n\r\n"
_NAME = rb"[-=:.A-Za-z0-9_]+"
_FIRST_LINE = re.compile(
    rb"GET /lookup/v2/topic/(persistent|non-persistent)"
    rb"/(%b/%b)/([-=:.A-Za-z0-9_~!$&'()*,;@]+) HTTP/1\.1" % (_NAME, _NAME)
)


class Quick(Protocol):
    """Answers lookups at once."""

    def admits(self, scope: Any) -> bool:
        """True if requests with these headers may be answered here, whatever the topic."""

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
        """True if nothing of an earlier request is left and its answer was sent."""
        return (
            self._phase is Stage.IDLE
            and not self._request_bytes
            and self._is_answered()
            and not self.flow.write_paused
            and not self.transport.is_closing()
        )

    def _is_plain(self, data: bytes, at: int) -> bool:
        """True if the parser found a single lookup, whose headers may be reused."""
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


_BEGIN = header_lines([JSON]) + (
    b"x-ballast-table-version: %d\r\nx-ballast-age-ms: %d\r\nx-ballast-writer-silent-ms: %d\r\n"
    b"x-ballast-bundle: %b/0x%08x_0x%08x\r\nx-ballast-version-id: %d\r\n"
)
"""As `lookup_replies.stamps` has them."""


class QuickLookups:
    """Answers over what a lookup application answers from."""

    def __init__(self, app: LookupApp) -> None:
        self._app = app
        self._brokers: Mapping[str, BrokerAddress] = {}
        self._ends: dict[str, bytes] = {}

    def admits(self, scope: Message) -> bool:
        """True if nothing in the headers changes the answer."""
        return all(name != LISTENER_HEADER for name, _ in scope["headers"])

    def answer(
        self, scope: Message, domain: bytes, namespace: bytes, local: bytes
    ) -> tuple[int, bytes] | None:
        """The answer, None when the long way must decide; see `jobs.adapters.http.quick`."""
        started_s = perf_counter()
        app = self._app
        view = app.follower.view
        if view is None or app.is_stopping:
            return None
        snapshot, prefix = view.snapshot, b"%b://%b" % (domain, namespace)
        route = snapshot.find(prefix.decode(), b"%b/%b" % (prefix, local))
        end = None if route is None else self._end(snapshot.brokers, route)
        if route is None or end is None:
            return None
        refused = self._refused(scope, namespace, started_s)
        if refused is not None:
            return refused
        begin = _BEGIN % (
            snapshot.position.table_version,
            view.age_ms(boot_ms()),
            view.writer_silent_ms(wall_ms()),
            namespace,
            route.lower,
            route.upper,
            route.version_id,
        )
        app.metrics.count(FOUND, perf_counter() - started_s, route.state.value)
        return 200, begin + end

    def _end(self, brokers: Mapping[str, BrokerAddress], route: BundleRoute) -> bytes | None:
        """Return the part of the answer that is the same for all bundles of a broker.

        It is built once. None if the broker is not known.
        """
        if brokers is not self._brokers:
            self._brokers, self._ends = brokers, {}
        known = self._ends.get(route.broker)
        if known is not None or route.broker not in brokers:
            return known
        body = brokers[route.broker].body
        headers = (broker_stamp(route), (b"content-length", b"%d" % len(body)))
        made = self._ends[route.broker] = header_lines(headers) + b"\r\n" + body
        return made

    def _refused(
        self, scope: Message, namespace: bytes, started_s: float
    ) -> tuple[int, bytes] | None:
        """The refusal of who may not ask, as the long way has it, None when it is allowed."""
        hooks, view = self._app.hooks, self._app.follower.view
        is_host_known = False
        try:
            if hooks.hosts is not None:
                hooks.hosts.check_host(scope)
            is_host_known = True
            if hooks.guard is not None:
                hooks.guard.check_lookup(scope, namespace.partition(b"/")[0].decode())
        except HttpError as error:
            reply = refusal(error)
            headers = reply.headers
            if is_host_known:
                self._app.metrics.count(reply.result, perf_counter() - started_s)
                headers = headers if view is None else (*headers, *ages(view))
            length = (b"content-length", b"%d" % len(reply.body))
            return reply.status, header_lines((*headers, length)) + b"\r\n" + reply.body
        return None

"""The lookup service's HTTP interface: Pulsar's lookup paths, health, metrics.

Decides status codes, headers and how long a lookup waits for an owner; what the answer is, is
`lbcore.route`'s. A bare ASGI application, because a framework costs as much again as everything
else a lookup does; other paths can be given to another ASGI application.
Source: Pulsar 4.0.8, lookup.v2.TopicLookup and TopicLookupBase; the X-Ballast headers are ours.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from time import perf_counter, time_ns
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote, unquote_plus

from jobs.adapters.delta_follower import DeltaFollower, View, boot_ms
from jobs.adapters.lookup_metrics import LookupMetrics
from lbcore.model.names import InvalidNameError
from lbcore.route.addresses import lookup_body
from lbcore.route.snapshot import Answer, Outcome

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]

_V2 = b"/lookup/v2/topic/"
_V1 = b"/lookup/v2/destination/"
_PARTS = {_V2: 4, _V1: 5}
_LISTENER_HEADER = b"x-pulsar-listenername"
_JSON: Header = (b"content-type", b"application/json")
_METRICS_TEXT: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_RETRY: Header = (b"retry-after", b"1")
_NOT_READY = "not_ready"
_INVALID_NAME = "invalid_name"
_WORTH_WAITING = frozenset({Outcome.NO_OWNER, Outcome.BROKER_UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A lookup as asked for: the topic's full name, for the bundle or for its owner."""

    topic: str
    is_bundle: bool
    listener: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reply:
    """What goes out; `is_final` is False when waiting may bring a better answer."""

    status: int
    body: bytes
    result: str = ""
    headers: tuple[Header, ...] = ()
    is_final: bool = True


class LookupApp:
    """The ASGI application over a follower's view.

    wait_ms: how long a lookup waits for its bundle to get an owner. waiting_max: lookups that may
    wait at a time; more are told at once to come again. others: what serves all other paths.
    """

    def __init__(
        self,
        follower: DeltaFollower,
        *,
        wait_ms: int = 2_000,
        waiting_max: int = 1_000,
        others: AsgiApp | None = None,
    ) -> None:
        self.metrics = LookupMetrics(follower)
        self._follower = follower
        self._wait_s = wait_ms / 1000
        self._waiting_max = waiting_max
        self._others = others
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()

    def notice_change(self) -> None:
        """Let waiting lookups look again; called from any thread after a swap."""
        loop = self._loop
        if loop is not None and self.metrics.waiting:
            loop.call_soon_threadsafe(self._wake)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server: a request or the server's life span."""
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        started_s = perf_counter()
        path: bytes = scope["raw_path"]
        if path.startswith((_V2, _V1)):
            reply = await self._look_up(scope, path)
            if reply.result:
                self.metrics.count(reply.result, perf_counter() - started_s)
        elif path == b"/health":
            reply = self._health()
        elif path == b"/metrics":
            reply = _Reply(status=200, body=self.metrics.text(), headers=(_METRICS_TEXT,))
        elif self._others is not None:
            await self._others(scope, receive, send)
            return
        else:
            reply = _not_found()
        await _send(send, _of_method(reply, scope["method"]))

    # -- lookups

    async def _look_up(self, scope: Message, path: bytes) -> _Reply:
        request = _parse(scope, path)
        if request is None:
            return _not_found()
        if scope["method"] not in ("GET", "HEAD"):
            return _not_allowed()
        reply = self._reply(request)
        if reply.is_final or self.metrics.waiting >= self._waiting_max:
            return reply
        self.metrics.waiting += 1
        try:
            return await self._wait(request, reply)
        finally:
            self.metrics.waiting -= 1

    async def _wait(self, request: _Request, reply: _Reply) -> _Reply:
        """The reply once the bundle has an owner, or the last one when time is up."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        while not reply.is_final and (left_s := deadline_s - loop.time()) > 0:
            try:
                await asyncio.wait_for(self._changed.wait(), left_s)
            except asyncio.TimeoutError:
                break
            reply = self._reply(request)
        return reply

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _reply(self, request: _Request) -> _Reply:
        view = self._follower.view
        if view is None:
            return _not_ready()
        try:
            answer = view.snapshot.answer(request.topic, request.listener)
        except InvalidNameError as error:
            return _Reply(
                status=412, body=_reason(str(error)), headers=stamps(view), result=_INVALID_NAME
            )
        if request.is_bundle:
            return _bundle_reply(view, answer)
        return _owner_reply(view, answer, request)

    # -- health

    def _health(self) -> _Reply:
        view, counts = self._follower.view, self._follower.counts
        report: dict[str, Any] = {
            "status": "waiting for the tables" if view is None else "ready",
            "refused": sum(counts.refused.values()),
            "reloads": sum(counts.reloads.values()),
            "errors": counts.errors,
            "last_error": counts.last_error,
        }
        if view is None:
            return _Reply(status=503, body=_encode(report), headers=(_JSON, _RETRY))
        snapshot = view.snapshot
        report |= {
            "cluster": snapshot.cluster,
            "table_version": snapshot.position.table_version,
            "query_id": snapshot.position.query_id,
            "batch_id": snapshot.position.batch_id,
            "age_ms": view.age_ms(boot_ms()),
            "writer_silent_ms": view.writer_silent_ms(time_ns() // 1_000_000),
            "namespaces": snapshot.namespace_count,
            "bundles": snapshot.bundle_count,
            "brokers": len(snapshot.brokers),
        }
        return _Reply(status=200, body=_encode(report), headers=stamps(view))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                self._changed = asyncio.Event()
                await send({"type": "lifespan.startup.complete"})
            else:
                self._loop = None
                await send({"type": "lifespan.shutdown.complete"})
                return


def _parse(scope: Message, path: bytes) -> _Request | None:
    """What the path asks for, None when it is no lookup's path.

    Pulsar decodes the local name as a form's field ("+" is a blank), the other parts as a path.
    """
    prefix = _V2 if path.startswith(_V2) else _V1
    parts = path[len(prefix) :].decode("utf-8", "replace").split("/")
    count = _PARTS[prefix]
    is_bundle = len(parts) == count + 1 and parts[-1] == "bundle"
    if (len(parts) != count and not is_bundle) or not all(parts):
        return None
    *names, local = parts[:count]
    if b"%" in path or b"+" in path:
        names, local = [unquote(name) for name in names], unquote_plus(local)
    if not local.strip():
        return None
    return _Request(
        topic=f"{names[0]}://{'/'.join(names[1:])}/{local}",
        is_bundle=is_bundle,
        listener=_listener(scope),
    )


def _listener(scope: Message) -> str:
    query: bytes = scope["query_string"]
    if b"listenerName" in query:
        found = parse_qs(query.decode("utf-8", "replace")).get("listenerName", [""])[0]
        if found:
            return found
    for name, value in scope["headers"]:
        if name == _LISTENER_HEADER:
            text: str = value.decode("latin-1")
            return text
    return ""


def _owner_reply(view: View, answer: Answer, request: _Request) -> _Reply:
    headers = stamps(view, answer)
    outcome, address, listener = answer.outcome, answer.address, request.listener
    if address is not None and outcome is Outcome.FOUND:
        body = lookup_body(address, address.listeners[listener] if listener else None)
        return _Reply(status=200, body=body, headers=headers, result=outcome.value)
    if outcome is Outcome.NAMESPACE_NOT_FOUND:
        body = _reason("Namespace not found")
        return _Reply(status=404, body=body, headers=headers, result=outcome.value)
    if outcome is Outcome.LISTENER_UNKNOWN:
        body = _reason(_no_listener(listener))
        return _Reply(status=500, body=body, headers=headers, result=outcome.value)
    return _Reply(
        status=503,
        body=_reason(_no_owner(answer)),
        headers=(*headers, _RETRY),
        result=outcome.value,
        is_final=outcome not in _WORTH_WAITING,
    )


def _bundle_reply(view: View, answer: Answer) -> _Reply:
    """The range of the topic's bundle, unquoted as Pulsar writes it, whether it has an owner."""
    headers = stamps(view, answer)
    if answer.route is None:
        body = _reason("Namespace not found")
        return _Reply(status=404, body=body, headers=headers, result=answer.outcome.value)
    if not answer.route.version_id:
        body = _reason(_no_owner(answer))
        return _Reply(
            status=503, body=body, headers=(*headers, _RETRY), result=answer.outcome.value
        )
    body = answer.route.range_text.encode()
    return _Reply(status=200, body=body, headers=headers, result="bundle")


def _no_owner(answer: Answer) -> str:
    route = answer.route
    if answer.outcome is Outcome.BROKER_UNKNOWN and route is not None:
        return (
            f"The addresses of broker {route.broker}, which owns the bundle of this topic, are not "
            "known yet: try again"
        )
    state = "" if route is None else f" (bundle {route.bundle} is {route.state.value})"
    return f"No broker serves this topic at the moment{state}: try again"


def _no_listener(listener: str) -> str:
    """Pulsar's text up to where its stack trace would begin."""
    return (
        "\n --- An unexpected error occurred in the server ---\n\n"
        f"Message: the broker do not have {listener} listener\n"
    )


def stamps(view: View, answer: Answer | None = None) -> tuple[Header, ...]:
    """How old the answer is, and which record it comes from."""
    stamps: tuple[Header, ...] = (
        _JSON,
        (b"x-ballast-table-version", b"%d" % view.snapshot.position.table_version),
        (b"x-ballast-age-ms", b"%d" % view.age_ms(boot_ms())),
        (b"x-ballast-writer-silent-ms", b"%d" % view.writer_silent_ms(time_ns() // 1_000_000)),
    )
    if answer is None or answer.route is None:
        return stamps
    route = answer.route
    return (
        *stamps,
        (b"x-ballast-bundle", route.bundle.encode()),
        (b"x-ballast-version-id", b"%d" % route.version_id),
        (b"x-ballast-broker", quote(route.broker, safe=":/[]").encode()),
    )


def _not_ready() -> _Reply:
    body = _reason("The tables are not loaded yet: try again")
    return _Reply(status=503, body=body, headers=(_JSON, _RETRY), result=_NOT_READY)


def _not_found() -> _Reply:
    return _Reply(status=404, body=_reason("HTTP 404 Not Found"), headers=(_JSON,))


def _not_allowed() -> _Reply:
    headers = (_JSON, (b"allow", b"GET, HEAD"))
    return _Reply(status=405, body=_reason("HTTP 405 Method Not Allowed"), headers=headers)


def _of_method(reply: _Reply, method: str) -> _Reply:
    """Health and metrics are only read, too."""
    return reply if method in ("GET", "HEAD") or reply.status in (404, 405) else _not_allowed()


def _reason(text: str) -> bytes:
    return _encode({"reason": text})


def _encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


async def _send(send: Send, reply: _Reply) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [*reply.headers, length],
        }
    )
    await send({"type": "http.response.body", "body": reply.body})

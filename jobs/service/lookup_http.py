"""The lookup service's HTTP interface: Pulsar's lookup paths, health, metrics.

Parses requests, checks the caller's right, and lets a lookup wait for an owner. `lookup_replies`
and `lbcore.route` make the answers. It is a plain ASGI application, because a framework doubles the
CPU of a lookup; other paths go to another ASGI application. Source: Pulsar 4.0.8,
lookup.v2.TopicLookup and TopicLookupBase.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeAlias
from urllib.parse import parse_qs, unquote, unquote_plus

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.changes import Broadcast
from jobs.service.exchange import (
    JSON,
    RETRY,
    Header,
    HttpError,
    Message,
    Receive,
    Send,
    encode,
    until_gone,
)
from jobs.service.lookup_metrics import LookupMetrics, SharedMetrics
from jobs.service.lookup_replies import (
    ANY_AGE,
    BAD_AGE,
    INVALID_NAME,
    LookupReply,
    LookupRequest,
    bad_age,
    bundle_reply,
    not_allowed,
    not_found,
    not_ready,
    of_method,
    owner_reply,
    reason,
    refusal,
    stale,
    stamped,
    stamps,
)
from lbcore.model.names import InvalidNameError
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupOutcome

AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

FOUND = LookupOutcome.FOUND.value
_V2 = b"/lookup/v2/topic/"
_V1 = b"/lookup/v2/destination/"
_PARTS = {_V2: 4, _V1: 5}
LISTENER_HEADER = b"x-pulsar-listenername"
_METRICS_TEXT: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_CLOSE: Header = (b"connection", b"close")
_DIGITS_MAX = 15
_ASK_AGAIN_S = 5.0


class LookupGuard(Protocol):
    """Says whether a request may be answered; raises HttpError when not."""

    def check_lookup(self, scope: Message, tenant: str) -> None:
        """401, 403 or 429 for a lookup in this tenant."""

    def check_metrics(self, scope: Message) -> None:
        """401 or 403 for the metrics."""


class HostCheck(Protocol):
    """Says whether a request was sent under a name of this service."""

    def check_host(self, scope: Message) -> None:
        """Raises HttpError 421 when not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Collaborators of a lookup service.

    others: serves all other paths. guard: access control, None = everybody may ask. hosts: allowed
    host names, None = any. ask_owner: called with a looked-up bundle without an owner; possibly
    many times for one bundle. kafka: for the health page, None = no address is known.
    """

    others: AsgiApp | None = None
    guard: LookupGuard | None = None
    hosts: HostCheck | None = None
    ask_owner: Callable[[BundleRoute], None] | None = None
    kafka: KafkaWatch | None = None


class LookupApp:
    """The ASGI application over a follower's view.

    shared: the metrics of all workers, when there are several.

    wait_ms: how long a lookup waits for its bundle to get an owner. waiting_max: lookups that may
    wait at a time; others get 503 with Retry-After at once.
    """

    def __init__(
        self,
        follower: DeltaFollower,
        *,
        wait_ms: int = 2_000,
        waiting_max: int = 1_000,
        hooks: Hooks | None = None,
    ) -> None:
        self.metrics = LookupMetrics(follower)
        self.shared: SharedMetrics | None = None
        self.is_stopping = False
        self.follower = follower
        self._wait_s = wait_ms / 1000
        self._waiting_max = waiting_max
        self.hooks = hooks or Hooks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = Broadcast()
        self._is_ending = False

    def notice_change(self) -> None:
        """Let waiting lookups look again; called from any thread after a swap."""
        loop = self._loop
        if loop is not None and self.metrics.waiting:
            loop.call_soon_threadsafe(self._changed.notify_all)

    def end_waits(self) -> None:
        """End all waits: clients come again, elsewhere.

        From any thread.
        """
        self._is_ending = self.is_stopping = True
        self.notice_change()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one connection of the ASGI server: a request or the server's life span."""
        if scope["type"] == "http":
            if self.hooks.hosts is not None:
                try:
                    self.hooks.hosts.check_host(scope)
                except HttpError as error:
                    await _send(send, refusal(error))
                    return
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1000})

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        started_s = perf_counter()
        path: bytes = scope["raw_path"]
        if self.is_stopping:
            send = _closing(send)
        if path.startswith((_V2, _V1)):
            reply = await self._look_up(scope, path, receive)
            if reply.result:
                self.metrics.count(reply.result, perf_counter() - started_s, reply.state)
        elif path == b"/health":
            reply = self._health()
        elif path == b"/alive":
            reply = LookupReply(status=200, body=encode({"status": "alive"}), headers=(JSON,))
        elif path in (b"/metrics", b"/metrics/"):
            reply = self._metrics(scope)
        elif self.hooks.others is not None:
            await self.hooks.others(scope, receive, send)
            return
        else:
            reply = not_found()
        reply = of_method(reply, scope["method"])
        if reply.result != FOUND:  # an answer with an owner has its stamps already
            reply = stamped(reply, self.follower.view)
        await _send(send, reply)

    # -- lookups

    async def _look_up(self, scope: Message, path: bytes, receive: Receive) -> LookupReply:
        request = _parse(scope, path)
        if request is None:
            return not_found()
        if scope["method"] not in ("GET", "HEAD"):
            return not_allowed(scope["method"])
        if self.hooks.guard is not None:
            try:
                self.hooks.guard.check_lookup(scope, request.tenant)
            except HttpError as error:
                return refusal(error)
        reply = self._reply(request)
        if reply.is_final or self.metrics.waiting >= self._waiting_max:
            return reply
        gone = asyncio.ensure_future(until_gone(receive))
        self.metrics.waiting += 1
        try:
            return await self._wait(request, reply, gone)
        finally:
            self.metrics.waiting -= 1
            gone.cancel()

    async def _wait(
        self, request: LookupRequest, reply: LookupReply, gone: "asyncio.Future[None]"
    ) -> LookupReply:
        """Return the reply once the bundle has an owner.

        The last one when time is up or nobody listens. An owner is requested for the bundle as it
        is then, also if it was freed or split meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        while not (reply.is_final or self._is_ending or gone.done()):
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            if reply.unowned is not None and self.hooks.ask_owner is not None:
                self.hooks.ask_owner(reply.unowned)
            changed = self._changed.listen()
            await asyncio.wait(
                {changed, gone},
                timeout=min(left_s, _ASK_AGAIN_S),
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._changed.leave(changed)
            reply = self._reply(request)
        return reply

    def _reply(self, request: LookupRequest) -> LookupReply:
        view = self.follower.view
        if view is None:
            return not_ready()
        if request.age_max_ms == BAD_AGE:
            return bad_age()
        if request.age_max_ms != ANY_AGE and view.age_ms(boot_ms()) > request.age_max_ms:
            return stale(view, request.age_max_ms)
        try:
            answer = view.snapshot.answer(request.topic, request.listener)
        except InvalidNameError as error:
            return LookupReply(
                status=412, body=reason(str(error)), headers=stamps(view), result=INVALID_NAME
            )
        if request.is_bundle:
            return bundle_reply(view, answer)
        return owner_reply(view, answer, request)

    # -- health

    def _health(self) -> LookupReply:
        view, counts = self.follower.view, self.follower.counts
        report: dict[str, Any] = {
            "status": self._status(),
            "refused": sum(counts.refused.values()),
            "reloads": sum(counts.reloads.values()),
            "errors": counts.errors,
            "last_error": counts.last_error,
        }
        if self.hooks.kafka is not None:
            watch = self.hooks.kafka
            report["kafka"] = watch.trouble or f"answers at {watch.address.bootstrap}"
        if view is None:
            return LookupReply(status=503, body=encode(report), headers=(JSON, RETRY))
        snapshot = view.snapshot
        report |= {
            "cluster": snapshot.cluster,
            "table_version": snapshot.position.table_version,
            "query_id": snapshot.position.query_id,
            "batch_id": snapshot.position.batch_id,
            "age_ms": view.age_ms(boot_ms()),
            "writer_silent_ms": view.writer_silent_ms(wall_ms()),
            "namespaces": snapshot.namespace_count,
            "bundles": snapshot.bundle_count,
            "brokers": len(snapshot.brokers),
        }
        status = 503 if self.is_stopping else 200
        return LookupReply(status=status, body=encode(report), headers=stamps(view))

    def _status(self) -> str:
        if self.is_stopping:
            return "stopping"
        return "waiting for the tables" if self.follower.view is None else "ready"

    def _metrics(self, scope: Message) -> LookupReply:
        if self.hooks.guard is not None:
            try:
                self.hooks.guard.check_metrics(scope)
            except HttpError as error:
                return refusal(error)
        body = self.metrics.text() if self.shared is None else self.shared.text()
        return LookupReply(status=200, body=body, headers=(_METRICS_TEXT,))

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._loop = asyncio.get_running_loop()
                await send({"type": "lifespan.startup.complete"})
            else:
                self._loop = None
                await send({"type": "lifespan.shutdown.complete"})
                return


def _parse(scope: Message, path: bytes) -> LookupRequest | None:
    """Parse the path of a lookup; None for any other path.

    Pulsar decodes the local name as a form's field ("+" is a blank), the other parts as a path.
    """
    prefix = _V2 if path.startswith(_V2) else _V1
    parts = path[len(prefix) :].decode("utf-8", "replace").removesuffix("/").split("/")
    count = _PARTS[prefix]
    is_bundle = len(parts) == count + 1 and parts[-1] == "bundle"
    if (len(parts) != count and not is_bundle) or not all(parts):
        return None
    *names, local = parts[:count]
    if b"%" in path or b"+" in path:
        names, local = [unquote(name) for name in names], unquote_plus(local)
    if not local.strip():
        return None
    return LookupRequest(
        topic=f"{names[0]}://{'/'.join(names[1:])}/{local}",
        tenant=names[1],
        is_bundle=is_bundle,
        listener=_listener(scope),
        age_max_ms=_age_max(scope),
    )


def _listener(scope: Message) -> str:
    query: bytes = scope["query_string"]
    if b"listenerName" in query:
        found = parse_qs(query.decode("utf-8", "replace")).get("listenerName", [""])[0]
        if found:
            return found
    for name, value in scope["headers"]:
        if name == LISTENER_HEADER:
            text: str = value.decode("latin-1")
            return text
    return ""


def _age_max(scope: Message) -> int:
    """Return the maximum age of the answer, ms; BAD_AGE if it is not a number."""
    if b"max_age_ms" not in scope["query_string"]:
        return ANY_AGE
    text = parse_qs(scope["query_string"].decode("utf-8", "replace")).get("max_age_ms", [""])[0]
    is_number = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_number else BAD_AGE


def _closing(send: Send) -> Send:
    """Tells the client to make its next request on another connection."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], _CLOSE]
        await send(message)

    return closing


async def _send(send: Send, reply: LookupReply) -> None:
    length = (b"content-length", b"%d" % len(reply.body))
    await send(
        {
            "type": "http.response.start",
            "status": reply.status,
            "headers": [*reply.headers, length],
        }
    )
    await send({"type": "http.response.body", "body": reply.body})

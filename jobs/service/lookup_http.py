"""The lookup service's HTTP interface: Pulsar's lookup paths, health, metrics.

Decides what is asked, who may ask, how long a lookup waits for an owner, and the texts and status
codes; the answer itself comes from `lbcore.route`. A bare ASGI application, because a framework
costs as much again as everything else a lookup does; other paths go to `Hooks.others`.
Source: Pulsar 4.0.8, lookup.v2.TopicLookup and TopicLookupBase; the X-Ballast headers are ours.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeAlias
from urllib.parse import parse_qs, quote, unquote, unquote_plus

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.access_control import Gatekeeper, KeysOutdatedError, OriginGuard
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
    error_body,
    until_gone,
)
from jobs.service.lookup_metrics import (
    INVALID_MAX_AGE,
    INVALID_NAME,
    NOT_READY,
    REFUSED,
    STALE,
    LookupMetrics,
    SharedMetrics,
)
from lbcore.config.lookup import LookupConfig
from lbcore.model.names import InvalidNameError
from lbcore.pulsar.names import unexpected
from lbcore.route.addresses import lookup_body
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import Answer, LookupOutcome

AsgiApp: TypeAlias = Callable[[Message, Receive, Send], Awaitable[None]]

FOUND = LookupOutcome.FOUND.value
_V2 = b"/lookup/v2/topic/"
_V1 = b"/lookup/v2/destination/"  # of Pulsar's V1 names, which have a cluster
_PARTS = {_V2: 4, _V1: 5}
LISTENER_HEADER = b"x-pulsar-listenername"
_METRICS_TEXT: Header = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
_CLOSE: Header = (b"connection", b"close")
_ALLOW: Header = (b"allow", b"GET, HEAD, OPTIONS")
_PAGES = frozenset({b"/health", b"/alive", b"/metrics", b"/metrics/"})
_NO_LOOKUP = (404, 405)
_DIGITS_MAX = 15
_ASK_AGAIN_S = 5.0
AGE = b"x-ballast-age-ms"
ANY_AGE = 1 << 62
BAD_AGE = -1
_WORTH_WAITING = frozenset({LookupOutcome.NO_OWNER, LookupOutcome.BROKER_UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupRequest:
    """A lookup by a topic's full name: of its bundle, or of its owner."""

    topic: str
    tenant: str
    is_bundle: bool
    listener: str
    age_max_ms: int = ANY_AGE


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupReply:
    """Reply to a lookup; `is_final` is False if waiting may bring a better answer.

    unowned: the bundle without an owner, if that is the cause. state: of the bundle whose owner was
    asked for.
    """

    status: int
    body: bytes
    result: str = ""
    headers: tuple[Header, ...] = ()
    is_final: bool = True
    unowned: BundleRoute | None = None
    state: str = ""


def owner_reply(view: View, answer: Answer, request: LookupRequest) -> LookupReply:
    """Return the reply with the topic's broker, or the reason why there is none."""
    headers = stamps(view, answer)
    outcome, address, listener = answer.outcome, answer.address, request.listener
    state = "" if answer.route is None else answer.route.state.value
    if address is not None and outcome is LookupOutcome.FOUND:
        body = lookup_body(address, address.listeners[listener] if listener else None)
        return LookupReply(
            status=200, body=body, headers=headers, result=outcome.value, state=state
        )
    if outcome is LookupOutcome.NAMESPACE_NOT_FOUND:
        return _error_reply(404, "Namespace not found", outcome.value, headers)
    if outcome is LookupOutcome.LISTENER_UNKNOWN:
        # Pulsar's text up to the first line of its stack trace
        message = f"the broker do not have {listener} listener"
        why = unexpected(message, "org.apache.pulsar.broker.PulsarServerException")
        return _error_reply(500, why, outcome.value, headers, state=state)
    return _error_reply(
        503,
        _no_owner(answer),
        outcome.value,
        (*headers, RETRY),
        is_final=outcome not in _WORTH_WAITING,
        unowned=answer.route if outcome is LookupOutcome.NO_OWNER else None,
        state=state,
    )


def bundle_reply(view: View, answer: Answer) -> LookupReply:
    """Return the range of the topic's bundle, unquoted as Pulsar writes it."""
    headers = stamps(view, answer)
    if answer.route is None:
        return _error_reply(404, "Namespace not found", answer.outcome.value, headers)
    if not answer.route.version_id:
        return _error_reply(503, _no_owner(answer), answer.outcome.value, (*headers, RETRY))
    body = answer.route.range_text.encode()
    return LookupReply(status=200, body=body, headers=headers, result="bundle")


def _error_reply(
    status: int, why: str, result: str, headers: tuple[Header, ...], **more: Any
) -> LookupReply:
    """Return the reason why there is no answer, in Pulsar's form."""
    body = encode({"reason": why})
    return LookupReply(status=status, body=body, result=result, headers=headers, **more)


def _no_owner(answer: Answer) -> str:
    route = answer.route
    if answer.outcome is LookupOutcome.BROKER_UNKNOWN and route is not None:
        return (
            f"The addresses of broker {route.broker}, which owns the bundle of this topic, are not "
            "known yet: try again"
        )
    state = "" if route is None else f" (bundle {route.bundle} is {route.state.value})"
    return f"No broker serves this topic at the moment{state}: try again"


def stamps(view: View, answer: Answer | None = None) -> tuple[Header, ...]:
    """Return headers: an answer's age, and the record that it comes from."""
    if answer is None or answer.route is None:
        return (JSON, *ages(view))
    route = answer.route
    return (
        JSON,
        *ages(view),
        (b"x-ballast-bundle", route.bundle.encode()),
        (b"x-ballast-version-id", b"%d" % route.version_id),
        (b"x-ballast-broker", quote(route.broker, safe=":/[]").encode()),
    )


def ages(view: View) -> tuple[Header, ...]:
    """Return the headers with the table version and both ages."""
    return (
        (b"x-ballast-table-version", b"%d" % view.snapshot.position.table_version),
        (AGE, b"%d" % view.age_ms(boot_ms())),
        (b"x-ballast-writer-silent-ms", b"%d" % view.writer_silent_ms(wall_ms())),
    )


def _refusal(error: HttpError, path: bytes) -> LookupReply:
    """The reply to what is no lookup, or to a caller who may not ask."""
    kind, body = error_body(path, error.status, error.reason)
    result = "" if error.status in _NO_LOOKUP else REFUSED
    headers = (kind, *error.headers)
    return LookupReply(status=error.status, body=body, headers=headers, result=result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """Collaborators of a lookup service.

    others: serves all other paths. guard: access control, by default everybody may ask. hosts:
    allowed host names, None = any. ask_owner: asks for an owner; called with a looked-up bundle
    that has none, possibly many times. kafka: for the health page, None = no address is known.
    """

    others: AsgiApp | None = None
    guard: Gatekeeper = field(default_factory=lambda: Gatekeeper("", LookupConfig()))
    hosts: OriginGuard | None = None
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
        self.is_stopping = False  # /health says 503, lookups go on
        self.follower = follower
        self._wait_s = wait_ms / 1000
        self._waiting_max = waiting_max
        self.hooks = hooks or Hooks()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = Broadcast()
        self._is_ending = False  # waits end

    def notice_change(self) -> None:
        """Let waiting lookups look again; called from any thread after a swap."""
        if self._loop is not None and self.metrics.waiting:
            self._loop.call_soon_threadsafe(self._changed.notify_all)

    def end_waits(self) -> None:
        """End all waits: clients come again, elsewhere.

        From any thread.
        """
        self._is_ending = self.is_stopping = True
        self.notice_change()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            await self._serve(scope, receive, send)
        except KeysOutdatedError:  # the access check is the first step: nothing has been sent
            if self.hooks.guard.key_address is not None:
                await self.hooks.guard.key_address.renew()  # not again for ten seconds
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Message, receive: Receive, send: Send) -> None:
        started_s = perf_counter()
        path: bytes = scope["raw_path"]
        send = _closing(send) if self.is_stopping else send
        is_lookup = path.startswith((_V2, _V1))
        try:
            if self.hooks.hosts is not None:
                self.hooks.hosts.check_host(scope)
        except HttpError as error:  # treated as no lookup: not counted, no age
            await _send(send, _refusal(error, path))
            return
        if not is_lookup and path not in _PAGES and self.hooks.others is not None:
            await self.hooks.others(scope, receive, send)
            return
        try:
            reply = await self._answer(scope, path, receive)
        except HttpError as error:
            reply = _refusal(error, path)
        if is_lookup and reply.result:
            self.metrics.count(reply.result, perf_counter() - started_s, reply.state)
        view = self.follower.view
        if view is not None and reply.result != FOUND and AGE not in dict(reply.headers):
            reply = replace(reply, headers=(*reply.headers, *ages(view)))
        await _send(send, reply)

    async def _answer(self, scope: Message, path: bytes, receive: Receive) -> LookupReply:
        """Answer a lookup, a page, or OPTIONS, which names the methods of both.

        Raises HttpError.
        """
        request = _parse(scope, path) if path.startswith((_V2, _V1)) else None
        if request is None and path not in _PAGES:
            raise HttpError(404, "HTTP 404 Not Found")
        if scope["method"] == "OPTIONS":
            return LookupReply(status=200, body=b"", headers=(_ALLOW,))
        if scope["method"] not in ("GET", "HEAD"):
            raise HttpError(405, "HTTP 405 Method Not Allowed", _ALLOW)
        if request is not None:
            return await self._look_up(scope, request, receive)
        if path == b"/health":
            return self._health()
        if path == b"/alive":
            return LookupReply(status=200, body=encode({"status": "alive"}), headers=(JSON,))
        self.hooks.guard.check_metrics(scope)
        body = self.metrics.text() if self.shared is None else self.shared.text()
        return LookupReply(status=200, body=body, headers=(_METRICS_TEXT,))

    # -- lookups

    async def _look_up(
        self, scope: Message, request: LookupRequest, receive: Receive
    ) -> LookupReply:
        self.hooks.guard.check_lookup(scope, request.tenant)
        reply = self._reply(request)
        if reply.is_final or self.metrics.waiting >= self._waiting_max:
            return reply
        gone = asyncio.ensure_future(until_gone(receive))
        self._loop = asyncio.get_running_loop()
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

        Else the newest reply, when time is up or the client is gone. Each turn asks for an owner of
        the bundle as it is by now, also if it was freed or split meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + self._wait_s
        while not (reply.is_final or self._is_ending or gone.done()):
            left_s = deadline_s - loop.time()
            if left_s <= 0:
                break
            await self._changed.wait(min(left_s, _ASK_AGAIN_S), gone)
            reply = self._reply(request)
        return reply

    def _reply(self, request: LookupRequest) -> LookupReply:
        view, age_max_ms = self.follower.view, request.age_max_ms
        if view is None:
            why = "The tables are not loaded yet: try again"
            return _error_reply(503, why, NOT_READY, (JSON, RETRY))
        if age_max_ms == BAD_AGE:
            why = "max_age_ms must be a whole number of milliseconds"
            return _error_reply(400, why, INVALID_MAX_AGE, (JSON,))
        if age_max_ms != ANY_AGE and (age_ms := view.age_ms(boot_ms())) > age_max_ms:
            why = (
                f"The answer would be {age_ms} ms old, more than max_age_ms={age_max_ms}: the "
                "tables can't be followed at the moment"
            )
            return _error_reply(503, why, STALE, (*stamps(view), RETRY))
        try:
            answer = view.snapshot.answer(request.topic, request.listener)
        except InvalidNameError as error:
            return _error_reply(412, str(error), INVALID_NAME, stamps(view))
        if request.is_bundle:
            return bundle_reply(view, answer)
        reply = owner_reply(view, answer, request)
        if reply.unowned is not None and self.hooks.ask_owner is not None:
            self.hooks.ask_owner(reply.unowned)  # also for a client that may not wait
        return reply

    # -- health

    def _health(self) -> LookupReply:
        view, counts = self.follower.view, self.follower.counts
        status = "ready" if view is not None else "waiting for the tables"
        report: dict[str, Any] = {
            "status": "stopping" if self.is_stopping else status,
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
            "namespaces": len(snapshot.names),
            "bundles": snapshot.bundle_count,
            "brokers": len(snapshot.brokers),
        }
        code = 503 if self.is_stopping else 200
        return LookupReply(status=code, body=encode(report), headers=stamps(view))


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
    if not local.strip() or "/" in names[0]:  # else the topic might be another tenant's
        return None
    text = scope["query_string"].decode("utf-8", "replace")
    query = parse_qs(text, keep_blank_values=True) if text else {}
    named = (value.decode("latin-1") for name, value in scope["headers"] if name == LISTENER_HEADER)
    age = query.get("max_age_ms", [""])[0]
    is_number = age.isascii() and age.isdigit() and len(age) <= _DIGITS_MAX
    return LookupRequest(
        topic=f"{names[0]}://{'/'.join(names[1:])}/{local}",
        tenant=names[1],
        is_bundle=is_bundle,
        listener=query.get("listenerName", [""])[0] or next(named, ""),
        age_max_ms=(int(age) if is_number else BAD_AGE) if "max_age_ms" in query else ANY_AGE,
    )


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

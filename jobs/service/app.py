"""ASGI application for all paths that are not lookups, assembly of the service.

Decides the order in which a request is judged: path, caller, right, body, handler; and that admin
actions are recorded, early refusals up to a rate. Handlers make the answers. Stands behind
`LookupApp`, which keeps the lookups on its own fast path.

Tokens, certificates and Kafka are there only when they are configured. Under ownership.assign =
"on_demand" an owner is requested once for a looked-up bundle without one, however many wait.
"""

import asyncio
import gc
import logging
import os
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import isawaitable
from itertools import chain, islice
from time import monotonic, time
from urllib.parse import parse_qs, unquote

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import Changes
from jobs.adapters.http.protocol import Account
from jobs.adapters.http.tls import WatchedFile
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from jobs.service.access import (
    ANY,
    Caller,
    KeyAddress,
    TokenChecker,
    TrustedKey,
    read_keys,
    secret_key,
)
from jobs.service.access_control import (
    Gatekeeper,
    OriginGuard,
    RateLimiter,
    address_of,
)
from jobs.service.all_routes import ROUTES
from jobs.service.changes import ChangeFeed
from jobs.service.context import AdminContext, KafkaPort
from jobs.service.exchange import (
    RETRY,
    HttpError,
    Message,
    Receive,
    Reply,
    Request,
    Send,
    error_body,
    json_reply,
    negotiated,
    require_role,
    until_gone,
)
from jobs.service.lookup_http import Hooks, LookupApp, ages
from jobs.service.lookup_metrics import OtherCounts
from jobs.service.routes import MAX_AGE, READING, SAFE, TENANT, Route, Router
from jobs.service.v1.reading import readers
from jobs.service.views import TableViews
from lbcore.config.lookup import LookupConfig
from lbcore.config.ownership import ON_DEMAND
from lbcore.config.tree import Config
from lbcore.pulsar.names import PulsarError
from lbcore.route.addresses import ASKED_BY, TIMEOUT_MS, OwnerRequests, request_id
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.bundle_commands import AssignBundle
from lbcore.wire.messages import AuditEntry

logger = logging.getLogger(__name__)

SECRET = "BALLAST_TOKEN_SECRET"  # noqa: S105 a variable's name, not a secret
BODY_MAX_BYTES = 1 << 20
FORBIDDEN = 403
_REFUSALS_PER_S = 50
_BODY_TIMEOUT_S, _SEND_TIMEOUT_S = 30.0, 20.0
_QUERY_FIELDS_MAX = 1_000
_TEXT_MAX_CHARS = 500
_CLOSE = (b"connection", b"close")
_LOGGED = ("principal", "address", "action", "is_allowed", "reason", "command_id")
_LENGTH_DIGITS = 18  # Python reads no number of thousands of digits
_STOP_TIMEOUT_S = 2
_LOOKUP = Caller(name=ASKED_BY, address="")


class AdminApp:
    """Serves routes over one context.

    gate: identifies callers. origins: refuses changes from other sites' pages, None = none is
    refused. body_max_bytes: a longer one is refused.
    """

    def __init__(
        self,
        context: AdminContext,
        routes: Iterable[Route],
        *,
        gate: Gatekeeper | None = None,
        origins: OriginGuard | None = None,
        body_max_bytes: int = BODY_MAX_BYTES,
    ) -> None:
        self._streams: set[asyncio.Future[bool]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refusals = RateLimiter(_REFUSALS_PER_S)
        self._context = context
        self._router = Router(routes)
        self._gate = gate or Gatekeeper(context.cluster, LookupConfig())
        self.counts = self._gate.counts
        self._origins = origins
        self._body_max_bytes = body_max_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request."""
        try:
            reply = await self._reply(scope, receive)
        except HttpError as error:
            kind, body = error_body(scope["raw_path"], error.status, error.reason)
            reply = Reply(status=error.status, body=body, headers=(kind, *error.headers))
        except ClientGoneError:
            return
        self.counts.statuses[reply.status] += 1
        await self._send(reply, scope["method"], receive, send)

    async def _reply(self, scope: Message, receive: Receive) -> Reply:
        route, params = self._router.match(scope["method"], scope["raw_path"])
        caller = Caller(name="", address=address_of(scope))
        is_let_in = False
        try:
            if not route.is_open:
                caller = self._gate.caller(scope)
            if self._origins is not None and route.method not in SAFE:
                self._origins.check_write(scope)
            self._authorise(route, params, caller)
            is_let_in = True
            request = await self._read(scope, receive, params, caller)
        except HttpError as error:
            if route.recorded or not is_let_in:
                if self._refusals.allows(str(error.status)):
                    nobody = replace(caller, name=caller.name or error.principal)
                    self._record(scope, nobody, error, is_allowed=False)
                else:  # a flood of refusals must not become one of records
                    self.counts.unrecorded += 1
            raise
        await self._context.turns.next()
        fault: HttpError | None = HttpError(500, "It ended without an answer")
        try:
            reply = await self._handled(route, request)
            fault = None
        except HttpError as error:
            fault = error
            raise
        finally:  # also when the service's end cancels it: its command may have run
            is_allowed = fault is None or fault.status != FORBIDDEN
            if route.recorded or not is_allowed:
                command_id = request.notes.get("command_id", "")
                self._record(scope, caller, fault, is_allowed=is_allowed, command_id=command_id)
        if reply.stream is not None:
            return replace(reply, ends_at_s=caller.expires_at_s)
        reply = await self._begun(reply)
        return negotiated(reply, scope["headers"]) if scope["method"] in READING else reply

    async def _handled(self, route: Route, request: Request) -> Reply:
        """The handler's answer; raises HttpError for a refusal, also for one of Pulsar's."""
        try:
            found = route.handler(request, self._context)
            found = await found if isawaitable(found) else found
            if isinstance(found, PulsarError):
                raise found
        except PulsarError as error:
            raise HttpError(error.status, error.reason) from None
        if isinstance(found, Reply):
            return found
        return Reply(status=204) if found is None else json_reply(found)

    async def _begun(self, reply: Reply) -> Reply:
        """The reply; whole, so that it has a length, when one slice is all of it."""
        if reply.parts is None:
            return reply
        parts = iter(reply.parts)
        begin: list[bytes] = []
        for _ in range(2):
            await self._context.turns.next()
            begin += islice(parts, 1)
        if len(begin) == 1:
            return replace(reply, parts=None, body=begin[0])
        return replace(reply, parts=chain(begin, parts))

    def _authorise(self, route: Route, params: Mapping[str, str], caller: Caller) -> None:
        """Raises HttpError 403, with Pulsar's words where only a superuser may."""
        if route.checks_itself or route.is_open:
            return
        if route.is_for_superuser and not caller.may(route.role, self._context.cluster):
            raise HttpError(403, "This operation requires super-user access")
        tenant = ANY if route.is_for_superuser else params.get(TENANT, ANY)
        require_role(caller, route.role, self._context.cluster, tenant)

    async def _read(
        self, scope: Message, receive: Receive, params: Mapping[str, str], caller: Caller
    ) -> Request:
        headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        query_text = scope["query_string"].decode("utf-8", "replace")
        try:
            query = parse_qs(query_text, keep_blank_values=True, max_num_fields=_QUERY_FIELDS_MAX)
        except ValueError:
            raise HttpError(400, f"at most {_QUERY_FIELDS_MAX} query parameters") from None
        request = Request(
            raw_path=scope["raw_path"].decode("utf-8", "replace"),
            params=params,
            query=query,
            headers=headers,
            body=await self._body(receive, headers),
            reached_at=self._context.config.lookup.advertised_address or _local_end(scope),
            caller=caller,
        )
        age_ms = self._context.age_ms if MAX_AGE.name in query else 0
        if age_ms > MAX_AGE.of(request):
            raise HttpError(503, f"The answer would be {age_ms} ms old: too old", RETRY)
        return request

    async def _body(self, receive: Receive, headers: dict[str, str]) -> bytes:
        limit = self._body_max_bytes
        length = headers.get("content-length", "0")
        declared = int(length[:_LENGTH_DIGITS]) if length.isdecimal() else 0
        parts, size, more = [], 0, True
        while more and max(declared, size) <= limit:
            try:
                message = await asyncio.wait_for(receive(), _BODY_TIMEOUT_S)
            except asyncio.TimeoutError:
                reason = f"the body must go on within {_BODY_TIMEOUT_S:.0f} s"
                raise HttpError(408, reason, _CLOSE) from None
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            more = message.get("more_body", False)
        if max(declared, size) > limit:
            raise HttpError(413, f"the body must be at most {limit} bytes", _CLOSE)
        return b"".join(parts)

    # -- the audit

    def _record(
        self,
        scope: Message,
        caller: Caller,
        error: HttpError | None,
        *,
        is_allowed: bool,
        command_id: str = "",
    ) -> None:
        path = unquote(scope["raw_path"].decode("utf-8", "replace"))
        entry = AuditEntry(
            cluster=self._context.cluster,
            principal=caller.name[:_TEXT_MAX_CHARS],
            address=caller.address[:_TEXT_MAX_CHARS],
            action=f"{scope['method']} {path}"[:_TEXT_MAX_CHARS],
            is_allowed=is_allowed,
            reason=error.reason[:_TEXT_MAX_CHARS] if error else "",
            command_id=command_id,
        )
        logger.info("audit", extra={"fields": {name: getattr(entry, name) for name in _LOGGED}})
        if self._context.commands is not None:
            self._context.commands.record(entry)

    # -- sending

    async def _send(self, reply: Reply, method: str, receive: Receive, send: Send) -> None:
        view = self._context.follower.view
        headers = [*reply.headers, *(() if view is None else ages(view))]
        is_whole = reply.parts is None and reply.stream is None
        if reply.status not in (204, 304) and is_whole:  # no content, no length
            headers.append((b"content-length", b"%d" % len(reply.body)))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        if is_whole or method == "HEAD":
            body = b"" if method == "HEAD" else reply.body
            await send({"type": "http.response.body", "body": body})
        else:
            await self._send_parts(reply, receive, send)

    async def _send_parts(self, reply: Reply, receive: Receive, send: Send) -> None:
        """Send until the parts end, time is up, or the client leaves or is slow."""
        parts = reply.stream or self._context.turns.pace(reply.parts or ())
        sending = asyncio.ensure_future(_send_all(parts, send))
        gone = asyncio.ensure_future(until_gone(receive))
        seconds = None if reply.ends_at_s is None else max(0.0, reply.ends_at_s - time())
        if reply.stream is not None:
            self._loop = asyncio.get_running_loop()
            self._streams.add(sending)
            self.counts.streams = len(self._streams)
        try:
            await asyncio.wait(
                {sending, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            is_gone = gone.done()
            gone.cancel()
            sending.cancel()
            await asyncio.wait({sending})
            await parts.aclose()
            self._streams.discard(sending)
            self.counts.streams = len(self._streams)
        if not is_gone and (sending.cancelled() or sending.result()):
            await send({"type": "http.response.body", "body": b""})

    def end_streams(self) -> None:
        """End the continuing answers.

        Called from any thread, or a signal's handler.
        """
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: [one.cancel() for one in tuple(self._streams)])


async def _send_all(parts: AsyncGenerator[bytes, None], send: Send) -> bool:
    """Send the parts; return False for a slow client, whose connection is closed then."""
    try:
        async for part in parts:
            message = {"type": "http.response.body", "body": part, "more_body": True}
            await asyncio.wait_for(send(message), _SEND_TIMEOUT_S)
    except asyncio.TimeoutError:
        return False
    return True


def _local_end(scope: Message) -> str:
    host, port = scope.get("server") or ("localhost", None)
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


class ClientGoneError(Exception):
    """The client has closed the connection before the end of its request."""


# -- the assembly


@dataclass(frozen=True, slots=True)
class Service:
    """The application and what runs beside it. account: bytes that connections hold."""

    app: LookupApp
    admin: AdminApp
    threads: tuple[threading.Thread, ...]
    stopped: threading.Event
    port: KafkaPort | None
    account: Account

    def run_beside(self, target: Callable[[threading.Event], None]) -> None:
        """Run something else in a thread until the end."""
        threading.Thread(target=target, args=(self.stopped,), daemon=True).start()

    def end_waits(self) -> None:
        """Answer all that wait or watch, because the service is about to stop."""
        self.app.end_waits()
        self.admin.end_streams()
        if self.port is not None:
            self.port.end_waits()

    def stop(self) -> None:
        """End the threads; what they read at the moment is finished first."""
        self.stopped.set()
        if self.port is not None:
            self.port.close()
        for thread in self.threads:
            thread.join(_STOP_TIMEOUT_S)
        readers.close()


def start_service(
    config: Config, tables: TablePlace, cluster: str, *, bootstrap: str = ""
) -> Service:
    """Begin to load the tables at once, while the server is still starting.

    bootstrap: wins over kafka.bootstrap_servers; without either nothing can be commanded. Raises
    MisuseError, CommandError for settings, keys or secrets that can't be used.
    """
    lookup = config.lookup
    gate = make_gate(lookup, cluster)
    port = None
    if bootstrap or config.kafka.bootstrap_servers:
        address = kafka_address(config, bootstrap)
        port = KafkaPort(
            address, tables, cluster, waiting_max=lookup.max_commands, counts=gate.counts
        )
    follower, views = DeltaFollower(tables, cluster), TableViews(tables, cluster)
    feed = ChangeFeed(tables, cluster, lookup.watch_history)
    context = AdminContext(
        cluster=cluster,
        follower=follower,
        views=views,
        config=config.for_cluster(cluster),
        commands=port,
        changes=feed,
        kafka=port.watch if port else None,
    )
    origins = OriginGuard(lookup.host, lookup.allowed_hosts)
    origins.refused = gate.counts.refused
    admin = AdminApp(
        context, ROUTES, gate=gate, origins=origins, body_max_bytes=lookup.max_body_bytes
    )
    app = LookupApp(
        follower,
        wait_ms=lookup.wait_timeout_ms,
        waiting_max=lookup.max_waiting,
        hooks=Hooks(
            others=admin,
            guard=gate,
            hosts=origins if lookup.authentication == "none" else None,
            ask_owner=Assignments(context).ask,
            kafka=context.kafka,
        ),
    )
    account = Account()
    app.metrics.beside = OtherCounts(gate.counts, account, readers, lookup.certificate_file)
    follower.on_change(app.notice_change)
    follower.on_commits(feed.add)
    follower.on_commits(freeze_loaded_tables)
    stopped = threading.Event()
    loops = (partial(follower.run, poll_ms=lookup.poll_interval_ms), views.run)
    threads = tuple(threading.Thread(target=one, args=(stopped,), daemon=True) for one in loops)
    for thread in threads:
        thread.start()
    service = Service(app, admin, threads, stopped, port, account)
    if gate.key_address is not None:
        service.run_beside(gate.key_address.keep_up)
    readers.stand_ready()
    return service


def freeze_loaded_tables(changes: Changes) -> None:
    """Exempt loaded tables from garbage collection.

    They have no cycles and are freed by their reference counts. A full collection of 100,000
    bundles takes 0.1 s, for which lookups would wait.
    """
    if changes.is_whole:
        gc.freeze()


def make_gate(lookup: LookupConfig, cluster: str) -> Gatekeeper:
    """The gate that the settings ask for; raises MisuseError, CommandError."""
    uses_certificates = "certificate" in lookup.authentication
    if uses_certificates and not (lookup.certificate_file and lookup.client_ca_file):
        raise MisuseError(
            "client certificates can't be checked",
            why="lookup.certificate_file or lookup.client_ca_file is not set",
            next_step="set both, or choose another lookup.authentication",
        )
    checker = _checker(lookup) if "token" in lookup.authentication else None
    try:
        return Gatekeeper(cluster, lookup, checker)
    except ValueError as error:
        raise MisuseError(
            "lookup.grants can't be read", why=str(error), next_step="correct that grant"
        ) from None


def _checker(lookup: LookupConfig) -> TokenChecker:
    secret_file = os.environ.get(f"{SECRET}_FILE", "")
    if not (read_secret(SECRET) or lookup.token_keys_file or lookup.token_keys_url):
        raise CommandError(
            "tokens can't be checked",
            why=f"none of lookup.token_keys_file, lookup.token_keys_url and {SECRET} is set",
            next_step="set one of them, or choose another lookup.authentication",
        )

    def read() -> tuple[TrustedKey, ...]:
        secret = read_secret(SECRET)
        found = (secret_key(secret),) if secret else ()
        return found + (read_keys(lookup.token_keys_file) if lookup.token_keys_file else ())

    try:
        files = WatchedFile((lookup.token_keys_file, secret_file), read)
        address = KeyAddress(lookup.token_keys_url) if lookup.token_keys_url else None
    except (OSError, ValueError) as error:
        raise CommandError(
            "the keys of tokens can't be used",
            why=str(error),
            next_step=f"correct lookup.token_keys_file, lookup.token_keys_url or {SECRET}",
        ) from None
    return TokenChecker(files, lookup, address)


class Assignments:
    """Assigns looked-up free bundles: one command per record every five seconds."""

    def __init__(self, context: AdminContext) -> None:
        self.asked = 0
        self._context = context
        self._requests = OwnerRequests()
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, route: BundleRoute) -> None:
        """A lookup waits for this bundle; returns at once. Called in the event loop."""
        context = self._context
        assign = context.views.settings.get("ownership.assign", context.started.ownership.assign)
        is_on_demand = context.commands is not None and assign == ON_DEMAND
        if not is_on_demand or not self._requests.record_if_due(route, monotonic()):
            return
        self.asked += 1
        task = asyncio.ensure_future(self._send(route))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, route: BundleRoute) -> None:
        try:
            outcome = await self._context.command_as(
                AssignBundle(bundle=route.bundle),
                _LOOKUP,
                timeout_ms=TIMEOUT_MS,
                command_id=request_id(self._context.cluster, route, time()),
            )
            end = outcome.reason or outcome.status
        except HttpError as error:
            end = error.reason
        logger.info("assignment_asked", extra={"fields": {"bundle": route.bundle, "outcome": end}})

"""Assembly of the service: follower, views, gate, routes, threads.

Tokens, certificates and Kafka are there only when they are configured. Under ownership.assign =
"on_demand" an owner is requested once for a looked-up bundle without one, however many wait.
"""

import asyncio
import gc
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import monotonic, time

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import Changes
from jobs.adapters.http.protocol import Account
from jobs.adapters.http.tls import WatchedFile
from jobs.adapters.kafka.connection import kafka_address
from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError, MisuseError
from jobs.service.access import (
    Caller,
    KeyAddress,
    TokenChecker,
    TokenKeys,
    TrustedKey,
    read_keys,
    secret_key,
)
from jobs.service.access_control import Gatekeeper, OriginGuard
from jobs.service.all_routes import ROUTES
from jobs.service.app import AdminApp
from jobs.service.changes import ChangeFeed
from jobs.service.context import AdminContext, KafkaPort
from jobs.service.exchange import HttpError
from jobs.service.lookup_http import Hooks, LookupApp
from jobs.service.lookup_metrics import OtherCounts
from jobs.service.v1.reading import readers
from jobs.service.views import TableViews
from lbcore.config.lookup import LookupConfig
from lbcore.config.ownership import ON_DEMAND
from lbcore.config.tree import Config
from lbcore.route.addresses import ASKED_BY, TIMEOUT_MS, OwnerRequests, request_id
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.bundle_commands import AssignBundle

SECRET = "BALLAST_TOKEN_SECRET"  # noqa: S105 a variable's name, not a secret
_STOP_TIMEOUT_S = 2


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
    admin.counts = gate.counts
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
    return TokenChecker(TokenKeys(files, address), lookup)


logger = logging.getLogger(__name__)

_LOOKUP = Caller(name=ASKED_BY, address="")


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

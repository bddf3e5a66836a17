"""Requests to assign bundles that local lookups found free, without waiting.

A thread asks through Kafka, or has a lookup service ask, which knows whether bundles are assigned
on demand. The answer comes by the tables, like every change. `lbcore.route.addresses` says when.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable
from time import monotonic, time

from jobs.adapters.following.watch_follower import WatchAddress, connect, proof
from jobs.adapters.http.client import lookup_path, read_at_most
from jobs.adapters.kafka.command_client import CommandClient, new_command
from lbcore.route.addresses import ASKED_BY, TIMEOUT_MS, OwnerRequests, request_id
from lbcore.route.bundles import BundleRoute
from lbcore.wire.kinds.bundle_commands import AssignBundle

logger = logging.getLogger(__name__)

_ANSWER_MAX_BYTES = 65_536
_WAITING_MAX = 10_000
_CLOSE_TIMEOUT_S = 10.0

Ask = Callable[[BundleRoute, str], None]
"""Ask for an owner of a record that was looked up for this topic; may take seconds, and raise."""


class AssignmentRequester:
    """Requester in a thread of its own.

    Any number of threads may report what they found free.
    """

    def __init__(self, ask: Ask, end: Callable[[], None] = lambda: None) -> None:
        """end: called when this is closed, in the caller's thread."""
        self._ask, self._end = ask, end
        self._requests = OwnerRequests()
        self._lock = threading.Lock()
        self._is_ending = threading.Event()
        self._waiting: queue.Queue[tuple[BundleRoute, str] | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._work, name="ballast-owner", daemon=True)
        self._thread.start()

    def found_free(self, route: BundleRoute, topic: str) -> None:
        """A lookup of this topic found no owner; returns at once."""
        with self._lock:
            is_due = self._requests.is_due(route, monotonic())
        if is_due:
            with contextlib.suppress(queue.Full):
                self._waiting.put_nowait((route, topic))

    def close(self) -> None:
        """Ask for nothing more, also of what waits."""
        self._is_ending.set()
        with contextlib.suppress(queue.Full):  # then it need not be woken
            self._waiting.put_nowait(None)
        self._thread.join(_CLOSE_TIMEOUT_S)
        self._end()

    def _work(self) -> None:
        while (item := self._waiting.get()) is not None and not self._is_ending.is_set():
            self._ask_for(*item)

    def _ask_for(self, route: BundleRoute, topic: str) -> None:
        try:
            self._ask(route, topic)
        except Exception as error:  # noqa: BLE001 the outermost loop: go on with the next
            said = {"bundle": route.bundle, "error": str(error)}
            logger.warning("owner_not_asked_for", extra={"fields": said})


def by_commands(client: CommandClient, cluster: str) -> AssignmentRequester:
    """Asks the balancer through Kafka. The client is closed with it."""

    def ask(route: BundleRoute, _: str) -> None:
        command = new_command(
            cluster,
            AssignBundle(bundle=route.bundle),
            principal=ASKED_BY,
            command_id=request_id(cluster, route, time()),
            timeout_ms=TIMEOUT_MS,
        )
        client.forget(client.send(command))

    return AssignmentRequester(ask, client.close)


def by_service(address: WatchAddress) -> AssignmentRequester:
    """Look the topic up at a service, which requests an owner.

    Where bundles are assigned on demand.
    """

    def ask(_: BundleRoute, topic: str) -> None:
        connection = connect(address)
        try:
            connection.request("GET", lookup_path(topic), headers=proof(address))
            read_at_most(connection.getresponse(), _ANSWER_MAX_BYTES)
        finally:
            connection.close()

    return AssignmentRequester(ask)

"""Lookups inside a Python process: the service's answers without requests.

For services that look up more than a request a millisecond, or must go on when no lookup service
can be reached. A thread follows the tables, or a lookup service's watch stream where the tables
can't be read; `lbcore.route` answers as Pulsar's extensible load manager (4.0.8). docs/client.md
shows it.

with LookupClient("var/tables", "local") as client:
    client.wait_ready(timeout_ms=30_000)
    client.lookup("persistent://acme/orders/t1").broker_url   # 'pulsar://10.0.0.7:6650'
    client.find("persistent://acme/orders/t1").broker         # 'broker-7', a million a second
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic, time
from typing import Any

from numpy.typing import NDArray

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.following.view import View
from jobs.adapters.following.watch_follower import WatchAddress, WatchFollower, auth_header, connect
from jobs.adapters.http.client import HttpRequest, exchange
from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.command_client import CommandClient, new_command
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from lbcore.model.names import locate_topic, lookup_path
from lbcore.route.addresses import ASKED_BY, TIMEOUT_MS, OwnerRequests, lookup_data, request_id
from lbcore.route.batch import BatchIndex
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupOutcome, LookupSnapshot
from lbcore.wire.kinds.bundle_commands import AssignBundle

logger = logging.getLogger(__name__)

_CLIENT_ID = "ballast-lookup"
_CLOSE_TIMEOUT_S = 10.0
_ANSWER_MAX_BYTES = 65_536
_WAITING_MAX = 10_000


class NotReadyError(RuntimeError):
    """The tables have not been loaded yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """Age of an answer.

    table_version: of ownership_events. age_ms: since it was last known to be the newest.
    writer_silent_ms: since the batch of the balancer's last commit, -1 = no commit is known; the
    balancer commits every 10 s even when nothing changes.
    """

    table_version: int
    age_ms: int
    writer_silent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupResult:
    """The answer for one topic; URLs are "" where there is none.

    outcome: FOUND with the broker's URLs; NO_OWNER and BROKER_UNKNOWN are transient: ask again
    soon. NAMESPACE_NOT_FOUND and LISTENER_UNKNOWN are not.
    """

    outcome: LookupOutcome
    freshness: Freshness
    broker: str = ""
    bundle: str = ""
    version_id: int = 0
    broker_url: str = ""
    broker_url_tls: str = ""
    http_url: str = ""
    http_url_tls: str = ""


class LookupClient(contextlib.AbstractContextManager["LookupClient"]):
    """Answers lookups from a followed source; thread-safe.

    source: the folder of the tables, which may not exist yet, or a service to watch. cluster: the
    cluster of the bundles. poll_ms: pause between two polls of the tables. kafka: for bundles
    assigned on demand, with the tables as source: a bundle that `lookup` finds free is then
    assigned. A watched service does that itself.
    """

    def __init__(
        self,
        source: str | TablePlace | WatchAddress,
        cluster: str,
        *,
        poll_ms: int = 200,
        kafka: KafkaAddress | None = None,
    ) -> None:
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._asker: AssignmentRequester | None = None
        self._follower: DeltaFollower | WatchFollower
        if isinstance(source, WatchAddress):
            self._follower = WatchFollower(source, cluster)
            self._asker = AssignmentRequester(partial(_ask_service, source))
        else:
            self._follower = DeltaFollower(source, cluster)
            if kafka is not None:
                commands = CommandClient(kafka, source, cluster, client_id=_CLIENT_ID)
                ask = partial(_ask_balancer, commands, cluster)
                self._asker = AssignmentRequester(ask, commands.close)
        self._follower.on_change(self._ready.set)
        self._index: tuple[LookupSnapshot, BatchIndex] | None = None
        self._thread = threading.Thread(
            target=self._follower.run,
            args=(self._stop,),
            kwargs={"poll_ms": poll_ms},
            name="ballast-lookup",
            daemon=True,
        )
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop following; answers stay and get older."""
        self._stop.set()
        self._thread.join(_CLOSE_TIMEOUT_S)
        if self._asker is not None:
            self._asker.close()

    def wait_ready(self, timeout_ms: int) -> bool:
        """Wait until lookups can be answered; False when they can't after `timeout_ms`."""
        return self._ready.wait(timeout_ms / 1000)

    @property
    def snapshot(self) -> LookupSnapshot:
        """The newest snapshot, which never changes; for many lookups of one moment.

        Raises NotReadyError.
        """
        return self._view().snapshot

    @property
    def freshness(self) -> Freshness:
        """Age of answers at this moment; raises NotReadyError."""
        return _freshness(self._view())

    @property
    def last_error(self) -> str:
        """Error of following the source now, "" = none."""
        return self._follower.counts.last_error

    def lookup(self, topic: str, listener: str = "") -> LookupResult:
        """Return the lookup result for a topic, as over HTTP but without waiting.

        For a free bundle an owner is requested (see `kafka`): ask again a little later. topic: a
        full name, or a short one as in Pulsar. listener: name of the advertised listener. Raises
        NotReadyError, InvalidNameError.
        """
        view = self._view()
        answer = view.snapshot.answer(topic, listener)
        route, address = answer.route, answer.address
        if route is not None and not route.broker and self._asker is not None:
            self._asker.found_free(route, topic)
        fields: dict[str, Any] = {}
        if route is not None:
            fields = {
                "broker": route.broker,
                "bundle": route.bundle,
                "version_id": route.version_id,
            }
        if address is not None and answer.outcome is LookupOutcome.FOUND:
            urls = lookup_data(address, address.listeners[listener] if listener else None)
            fields |= {
                "broker_url": urls.get("brokerUrl", ""),
                "broker_url_tls": urls.get("brokerUrlTls", ""),
                "http_url": urls.get("httpUrl", ""),
                "http_url_tls": urls.get("httpUrlTls", ""),
            }
        return LookupResult(outcome=answer.outcome, freshness=_freshness(view), **fields)

    def find(self, topic: str) -> BundleRoute | None:
        """Return the topic's bundle with its broker, the fast way; None = no namespace.

        Raises NotReadyError, InvalidNameError.
        """
        return self._view().snapshot.lookup(topic)

    def find_brokers(self, topics: Sequence[str]) -> NDArray[Any]:
        """Return the brokers of many topics, object[topics], "" = none, from one snapshot.

        Raises NotReadyError.
        """
        snapshot = self.snapshot
        index = self._index
        if index is None or index[0] is not snapshot:
            index = self._index = (snapshot, BatchIndex(snapshot))
        return index[1].find_brokers(topics)

    def _view(self) -> View:
        view = self._follower.view
        if view is None:
            raise NotReadyError(
                "nothing is loaded yet, because the tables or the service are not there or can't "
                f"be read ({self.last_error or 'no error so far'}): call wait_ready first"
            )
        return view


def _freshness(view: View) -> Freshness:
    return Freshness(
        table_version=view.snapshot.position.table_version,
        age_ms=view.age_ms(boot_ms()),
        writer_silent_ms=view.writer_silent_ms(wall_ms()),
    )


Ask = Callable[[BundleRoute, str], None]
"""Ask for an owner of a record that was looked up for this topic; may take seconds, and raise."""


class AssignmentRequester:
    """Requester of owners for free bundles, in a thread of its own.

    Any number of threads may report what they found free. The answer comes by the tables, like
    every change. `lbcore.route.addresses` says when a request is due.
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
            is_due = self._requests.record_if_due(route, monotonic())
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
            try:
                self._ask(*item)
            except Exception as error:  # noqa: BLE001, PERF203 (outermost loop)
                fields = {"bundle": item[0].bundle, "error": str(error)}
                logger.warning("owner_not_asked_for", extra={"fields": fields})


def _ask_balancer(client: CommandClient, cluster: str, route: BundleRoute, _topic: str) -> None:
    """Ask through Kafka."""
    command = new_command(
        cluster,
        AssignBundle(bundle=route.bundle),
        principal=ASKED_BY,
        command_id=request_id(cluster, route, time()),
        timeout_ms=TIMEOUT_MS,
    )
    client.forget(client.send(command))


def _ask_service(address: WatchAddress, _route: BundleRoute, topic: str) -> None:
    """Look the topic up; the service asks where bundles are assigned on demand."""
    target = lookup_path(locate_topic(topic)[1])
    asked = HttpRequest(target=target, headers=auth_header(address))
    exchange(connect(address), asked, _ANSWER_MAX_BYTES)

"""Readers of a Pulsar cluster: its brokers' loads and bundles, and its policies.

Brokers are asked at the same time and independently: a slow one delays no other, and is left out of
the poll (a Look). `lbcore.bridge.reports` decides what is worth a report. Policies are read at
intervals, and sent again every `_SENT_AGAIN_S`, as a command may be lost. The bridge acts only once
they have been read.
"""

import http.client
import logging
import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field, replace
from typing import TypeVar

from jobs.adapters.processes.clocks import ForwardClock
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently
from jobs.telemetry.bridge_metrics import BridgeMetrics
from lbcore.bridge.answers import (
    Claims,
    Readable,
    TopicTable,
    is_mirrored,
    topic_within,
)
from lbcore.bridge.guardian import Looked
from lbcore.bridge.mirror import ALL, Look
from lbcore.bridge.reports import (
    Measured,
    SentReports,
    measured_extensible,
    measured_modular,
    near_a_split,
    partitions_in,
    report,
    report_topics,
    with_network,
)
from lbcore.config.tree import Config
from lbcore.model.names import Wire
from lbcore.wire.format import HEAD_BYTES, encode
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import BUNDLE_COLUMNS, Envelope, Message

logger = logging.getLogger(__name__)

LOAD_OF = "load of "
"""Prefix of a broker's name in `unread`."""
_JITTER = 0.2
_REFUSALS = 3
_LOGGED_MAX = 20
_TABLE_S = 60.0
_UNLISTED_S, _UNLISTED_ANSWER_S = 600.0, 1.0
_CLIENTS = [BUNDLE_COLUMNS.index(name) for name in ("consumerCount", "producerCount")]
_SENT_AGAIN_S = 600.0
_REQUESTS_MAX = 8
_BYTES_MAX = Wire().max_message_bytes - HEAD_BYTES
_ISOLATION, _DOMAINS = "isolation policies", "failure domains"
_SINGULAR = {_ISOLATION: "isolation policy", _DOMAINS: "failure domain"}

Send = Callable[[Message], None]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class PollOptions:
    """Intervals of the requests to Pulsar, ms; and bandwidth of a broker's network.

    network_bytes_per_s: of a broker's network, 0 = as Pulsar says. quiet_ms: pause after a broker
    came or went, in which no broker of the modular manager is asked what it owns. Other brokers
    acquire bundles then, and the request can deadlock a broker: it waits for acquisitions on the
    thread that completes them (Pulsar 4.0.8, NamespaceService.getOwnedNameSpacesStatusAsync).
    """

    look_ms: int = 5_000
    load_ms: int = 10_000
    namespaces_ms: int = 30_000
    network_bytes_per_s: float = 0.0
    quiet_ms: int = 10_000


class TooSoonError(PulsarAdminError):
    """It is too early to ask who owns what: bundles are being acquired."""


@dataclass(slots=True)
class _Broker:
    """State of one broker, and its pending requests.

    partitions: bundle → partitioned topic → number of its loaded partitions. leaves_out_topics:
    it was logged that its reports leave topics out. until_s: monotonic time until which one that
    Pulsar no longer lists is asked.
    """

    sent: SentReports = field(default_factory=SentReports)
    incarnation: str = ""
    load_error: PulsarAdminError | None = None
    unreported: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    is_extensible: bool = False
    leaves_out_topics: bool = False
    refusals: int = 0
    load_due_s: float = 0.0
    table_due_s: float = 0.0
    owning: "Future[Claims] | None" = None
    loading: "Future[None] | None" = None
    until_s: float = 0.0


class Collector:
    """Reader of the brokers of one Pulsar cluster; one thread calls `look`."""

    def __init__(
        self,
        admin: PulsarAdmin,
        names: tuple[str, str],
        config: Config,
        polling: PollOptions,
        send: Send,
    ) -> None:
        """names: the cluster's name here, and in Pulsar.

        send: takes each message, from any thread.
        """
        self._admin, self._config, self._polling, self._send = admin, config, polling, send
        self._cluster, self.pulsar_cluster = names
        self.metrics = BridgeMetrics(self._cluster)
        self.domains: Mapping[str, str] = {}
        self._clock = ForwardClock()
        self._brokers: dict[str, _Broker] = {}
        self._namespaces: dict[str, tuple[int, ...]] = {}
        self._namespaces_due_s = 0.0
        self._topics: dict[str, str] = {}
        self._used_bundles: set[str] = set()
        self._unlisted: dict[str, _Broker] = {}
        self._active: tuple[str, ...] | None = None
        self._quiet_until_s = 0.0
        self.closing: frozenset[str] = frozenset()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(32, thread_name_prefix="ask")
        self.failures: dict[str, str] = {}
        self._unread: dict[str, PulsarAdminError] = {}
        self._unread_namespaces: frozenset[str] = frozenset()

    def close(self) -> None:
        """Send no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self) -> Look:
        """Poll all brokers: who owns what.

        Raises PulsarAdminError when there is no list of brokers, TooSoonError when it is too soon
        to ask. A broker that has not answered in time is None in the result. Loads are read in
        the background.
        """
        active = self.active()
        for gone in sorted(self._brokers.keys() - set(active)):
            # for a while it is asked whether it still serves
            self._unlisted[gone] = _Broker(until_s=time.monotonic() + _UNLISTED_S)
            del self._brokers[gone]
            self.failures.pop(gone, None)
        self.metrics.keep_brokers(self._cluster, active)
        self._require_no_change()
        for name in active:
            self._ask(name, self._brokers.setdefault(name, _Broker()))
        asked = {name: self._brokers[name].owning for name in active}
        wait_for([one for one in asked.values() if one], timeout=self._polling.look_ms / 1_000)
        claims = {name: self._answer(name, future) for name, future in asked.items()}
        owned = {name: None if one is None else one.owned for name, one in claims.items()}
        self.closing = frozenset[str]().union(*(one.closing for one in claims.values() if one))
        self._refresh_namespaces(bundle for held in owned.values() for bundle in held or ())
        return Look(
            owned=owned,
            incarnations=self.incarnations(),
            namespaces=dict(self._namespaces),
            unread=self._unread_namespaces,
        )

    def unread(self) -> Mapping[str, PulsarAdminError]:
        """Return what could not be read last → why.

        Covers namespaces, tenants, and brokers' loads.
        """
        loads = {
            f"{LOAD_OF}{name}": one.load_error
            for name, one in list(self._brokers.items())
            if one.load_error is not None
        }
        return {**self._unread, **loads}

    def unreported(self) -> Mapping[str, Mapping[str, str]]:
        """Broker → field of its load that counts as not reported → why."""
        known = list(self._brokers.items())
        return {name: one.unreported for name, one in known if one.unreported}

    def active(self) -> tuple[str, ...]:
        """The brokers that Pulsar lists now; raises PulsarAdminError. From any thread."""
        found = self._admin.brokers(self.pulsar_cluster)
        with self._lock:
            if self._active is not None and found != self._active:
                self._quiet_until_s = time.monotonic() + self._polling.quiet_ms / 1_000
            self._active = found
        return found

    def owned(self, broker: str) -> frozenset[str]:
        """The mirrored bundles that a broker says it owns, asked now. From any thread.

        Raises PulsarAdminError; TooSoonError when it is too soon to ask.
        """
        self._require_no_change()
        return self._admin.owned(self.pulsar_cluster, broker)

    def _require_no_change(self) -> None:
        with self._lock:
            rest_s = self._quiet_until_s - time.monotonic()
        if rest_s > 0.0 and not self.is_extensible():
            raise TooSoonError(
                f"nobody is asked what it owns for {rest_s:.0f} s: a broker came or went, bundles "
                "are being acquired, and the modular manager may stop for good when asked meanwhile"
            )

    def incarnations(self) -> Mapping[str, str]:
        """Return active broker → incarnation, "" = not measured yet."""
        known = list(self._brokers.items())  # other threads change it
        return {name: one.incarnation for name, one in known}

    def is_extensible(self) -> bool:
        """Return True if the brokers measured so far have the extensible manager."""
        return any(one.is_extensible for one in list(self._brokers.values()))

    def look_up(self, bundle: str) -> Looked:
        """Look up some topic in a bundle; raises PulsarAdminError."""
        with self._lock:
            loaded = self._topics.get(bundle, "")
        topic = loaded or topic_within(bundle)
        return self._admin.look_up(topic) if topic else Looked()

    def _ask(self, name: str, broker: _Broker) -> None:
        if broker.owning is None or broker.owning.done():
            broker.owning = self._pool.submit(self._admin.claims, self.pulsar_cluster, name)
        is_free = broker.loading is None or broker.loading.done()
        if is_free and time.monotonic() >= broker.load_due_s:
            spread = 1.0 + _JITTER * (random.random() - 0.5)  # noqa: S311 (no secret: jitter)
            broker.load_due_s = time.monotonic() + spread * self._polling.load_ms / 1_000
            broker.loading = self._pool.submit(self._try_report, name, broker)

    def certificates(self) -> Mapping[str, int]:
        """Return certificates → their end, as `PulsarAdmin.certificates`."""
        return self._admin.certificates()

    def unlisted(self) -> Mapping[str, frozenset[str] | None]:
        """Return the bundles claimed by brokers that Pulsar no longer lists.

        Only brokers that it has listed within ten minutes. None = no answer.
        """
        now_s = time.monotonic()
        for name in [one for one, unlisted in self._unlisted.items() if unlisted.until_s < now_s]:
            del self._unlisted[name]
            self._admin.forget_address(name)
        self._unlisted = {
            name: one for name, one in self._unlisted.items() if name not in self._brokers
        }
        if not self._admin.may_ask_unlisted():
            return {}
        for name, unlisted in self._unlisted.items():
            if unlisted.owning is None or unlisted.owning.done():
                unlisted.owning = self._pool.submit(self._admin.claims, self.pulsar_cluster, name)
        asked = {name: one.owning for name, one in sorted(self._unlisted.items()) if one.owning}
        wait_for(asked.values(), timeout=_UNLISTED_ANSWER_S)
        return {
            name: one.result().owned if one.done() and one.exception() is None else None
            for name, one in asked.items()
        }

    def used_bundles(self) -> frozenset[str]:
        """Return existing bundles that had clients when their owner last reported."""
        with self._lock:
            return frozenset(name for name in self._used_bundles if self._has(name))

    def partitions(self) -> Mapping[str, Mapping[str, int]]:
        """Return bundle → partitioned topic → number of its loaded partitions."""
        known = [one.partitions.items() for one in list(self._brokers.values())]
        return {name: one for each in known for name, one in each if self._has(name)}

    def _answer(self, name: str, future: "Future[Claims] | None") -> Claims | None:
        if future is None or not future.done():
            self.failures[name] = "it has not answered in this round"
            return None
        error = future.exception()
        if isinstance(error, PulsarAdminError):
            self.failures[name] = str(error)
            self._admin.forget_address(name)
            return None
        self.failures.pop(name, None)
        return future.result()

    def _refresh_namespaces(self, seen: Iterable[str]) -> None:
        """Read the bundles of every namespace when due, else of unknown ones only.

        An unreadable one keeps its known bundles, and does not affect others.
        """
        unknown = {bundle.rpartition("/")[0] for bundle in seen if not self._has(bundle)}
        is_due = time.monotonic() >= self._namespaces_due_s
        failed: dict[str, PulsarAdminError] = {}
        if is_due:
            self._namespaces_due_s = time.monotonic() + self._polling.namespaces_ms / 1_000
        unknown -= set() if is_due else self._unread_namespaces  # those are read when due
        names, unread = self._names(failed) if is_due else ([], set[str]())
        found, errors = self.boundaries([*names, *unknown])
        unread |= errors.keys()
        failed |= {f"namespace {name}": error for name, error in errors.items()}
        if not is_due:
            self._unread.update(failed)
            self._unread_namespaces |= unread
            self._namespaces = {**self._namespaces, **found}
            return
        if ALL in unread:
            self._namespaces_due_s = 0.0
        if failed.keys() != self._unread.keys():
            for what, error in sorted(failed.items())[:_LOGGED_MAX]:
                fields = {"what": what, "why": str(error), "all": len(failed)}
                logger.warning("a namespace can't be read", extra={"fields": fields})
        self._unread = failed
        failed_look = Look(owned={}, incarnations={}, namespaces={}, unread=frozenset(unread))
        known = {name: one for name, one in self._namespaces.items() if failed_look.is_unread(name)}
        with self._lock:
            self._unread_namespaces = failed_look.unread
            self._namespaces = {**known, **found}
            self._topics = {
                bundle: topic
                for bundle, topic in self._topics.items()
                if bundle.rpartition("/")[0] in self._namespaces
            }
            self._used_bundles = {one for one in self._used_bundles if self._has(one)}

    def _names(self, failed: dict[str, PulsarAdminError]) -> tuple[list[str], set[str]]:
        """Return all namespaces, and the tenants whose namespaces can't be read now."""
        try:
            tenants = self._admin.tenants()
        except PulsarAdminError as error:
            failed["tenants"] = error
            return [], {ALL}
        found, errors = ask_concurrently(tenants, self._admin.namespaces)
        failed |= {f"tenant {tenant}": error for tenant, error in errors.items()}
        return [name for names in found.values() for name in names], set(errors)

    def boundaries(
        self, names: Iterable[str]
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, PulsarAdminError]]:
        """Return namespace → boundaries, read now, and namespace → error.

        Deleted namespaces are left out.
        """
        mirrored = sorted(set(filter(is_mirrored, names)))
        found, failed = ask_concurrently(mirrored, self._admin.boundaries, self._pool)
        return {name: edges for name, edges in found.items() if edges}, failed

    def note_boundaries(self, namespace: str, boundaries: tuple[int, ...]) -> None:
        """Store boundaries that another module has read, so that no look has older ones.

        From any thread.
        """
        with self._lock:  # a new mapping, as a look may be iterating over the old one
            self._namespaces = {**self._namespaces, namespace: boundaries}

    def _has(self, bundle: str) -> bool:
        namespace, _, key = bundle.rpartition("/")
        lower, _, upper = key.partition("_")
        boundaries = self._namespaces.get(namespace, ())
        at = bisect_left(boundaries, int(lower, 16))
        return boundaries[at : at + 2] == (int(lower, 16), int(upper, 16))

    def _try_report(self, name: str, broker: _Broker) -> None:
        """Report, and log any error: the result of the future is never asked for."""
        try:
            self._report(name, broker)
        except Exception:
            logger.exception("the load of %s was not reported", name)

    def _report(self, name: str, broker: _Broker) -> None:
        """Measure one broker and send what is new."""
        try:
            measured, table = self._measured(name, broker)
        except PulsarAdminError as error:
            broker.load_error = error
            self.metrics.add("ballast_bridge_load_errors_total", name)
            logger.warning(
                "a broker's load can't be read",
                extra={"fields": {"broker": name, "why": str(error)}},
            )
            return
        broker.load_error = None
        load = replace(measured.load, failure_domain=self.domains.get(name, ""))
        measured = replace(measured, load=load)
        if self._polling.network_bytes_per_s > 0.0:
            measured = with_network(measured, self._polling.network_bytes_per_s)
        broker.incarnation = measured.load.envelope.incarnation
        has_clients = measured.stats[:, _CLIENTS].sum(axis=1) > 0.0
        used = {name for name, has in zip(measured.names, has_clients.tolist(), strict=True) if has}
        with self._lock:  # removed again with their namespace
            self._used_bundles.difference_update(measured.names)
            self._used_bundles |= used
        now_ms = self._clock.now_ms()
        signals, agent = self._config.signals, self._config.agent
        broker.sent, messages = report(
            broker.sent, measured, now_ms, signals, agent.bundles_per_part
        )
        if table is not None:
            broker.sent, topics = report_topics(broker.sent, measured, table, self._config, now_ms)
            messages += topics
            left_out = {
                one.bundle: len(table.rates[one.bundle].topics) - len(one.topics) for one in topics
            }
            if any(left_out.values()) and not broker.leaves_out_topics:
                broker.leaves_out_topics = True
                logger.warning(
                    "bundles have more topics than a report may have: the busiest are reported",
                    extra={"fields": {"broker": name, "left_out": sum(left_out.values())}},
                )
            # replaced whole: a bundle whose topics were deleted is in no table
            broker.partitions = {
                bundle: found
                for bundle, one in table.rates.items()
                if (found := partitions_in(one.topics))
            }
            with self._lock:
                self._topics |= {
                    bundle: rates.topics[0] for bundle, rates in table.rates.items() if rates.topics
                }
        for message in messages:
            self._send(message)

    def _measured(self, name: str, broker: _Broker) -> tuple[Measured, TopicTable | None]:
        if not broker.is_extensible:
            try:
                found = self._modular(name, broker)
            except PulsarAdminError as error:
                if not error.is_unsupported:
                    raise
                broker.refusals += 1
                # it has answered as a modular broker: one error does not make it an extensible one
                if broker.incarnation and broker.refusals < _REFUSALS:
                    raise
            else:
                broker.refusals = 0
                return found
        measured = self._extensible(name, broker)
        broker.is_extensible = True
        return measured

    def _modular(self, name: str, broker: _Broker) -> tuple[Measured, TopicTable | None]:
        found = self._admin.load_report(self.pulsar_cluster, name, self._cluster)
        unreported = dict(found.unreported)
        if "startTimestamp" in unreported:
            started_ms = self._admin.gauges(self.pulsar_cluster, name).started_ms
            found = found.with_sender(incarnation=str(started_ms))
        measured, table = measured_modular(found), None
        is_wanted = near_a_split(measured.names, measured.stats, self._config.splitting)
        if is_wanted or time.monotonic() >= broker.table_due_s:
            broker.table_due_s = time.monotonic() + _TABLE_S
            table = self._admin.topic_table(self.pulsar_cluster, name)
            unreported |= table.unreported
        self._note_unreported(broker, unreported)
        return measured, table

    def _extensible(self, name: str, broker: _Broker) -> tuple[Measured, TopicTable | None]:
        self._admin.verify(self.pulsar_cluster, name)
        gauges = self._admin.gauges(self.pulsar_cluster, name)
        table = self._admin.topic_table(self.pulsar_cluster, name)
        self._note_unreported(broker, {**gauges.unreported, **table.unreported})
        envelope = Envelope(
            cluster=self._cluster,
            broker=name,
            incarnation=str(gauges.started_ms),
            seq=0,
            reported_at_ms=0,
        )
        url = self._admin.web_service_url(self.pulsar_cluster, name)
        return measured_extensible(envelope, gauges, table, url), table

    def _note_unreported(self, broker: _Broker, unreported: Mapping[str, str]) -> None:
        broker.unreported = dict(sorted(unreported.items()))
        for name in broker.unreported:
            self.metrics.add("ballast_bridge_unreported_total", name)


class PolicyFollower:
    """Follower of Pulsar's policies, called by one thread.

    An unreadable policy keeps its last known value, and does not affect others. unread: what could
    not be read last → why. domains: broker → failure domain. ungrouped_namespaces: namespaces whose
    anti-affinity group was never read; their bundles must not move.
    """

    def __init__(
        self,
        admin: PulsarAdmin,
        cluster: str,
        interval_ms: int,
        send: Callable[[ObservePolicies], None],
    ) -> None:
        """cluster: its name in Pulsar. interval_ms: between two readings."""
        self._admin, self._cluster, self._send = admin, cluster, send
        self._interval_s = interval_ms / 1_000
        self._pool = ThreadPoolExecutor(_REQUESTS_MAX, thread_name_prefix="policies")
        self._known = ObservePolicies(isolation={}, anti_affinity={})
        self._sent: ObservePolicies | None = None
        self._grouped: set[str] = set()
        self._read_due_s = self._send_due_s = 0.0
        self._unknown: dict[str, str] = {"they": "have not been read yet"}
        self._has_read: set[str] = set()
        self.domains: Mapping[str, str] = {}
        self.ungrouped_namespaces: frozenset[str] = frozenset()
        self.unread: Mapping[str, PulsarAdminError] = {}

    @property
    def reason_not_to_act(self) -> str:
        """Reason not to act until all policies are known, which moves must obey; "" then."""
        if not self._unknown:
            return ""
        what, why = next(iter(self._unknown.items()))
        return f"Pulsar's policies are not known: {what} {why}"

    def close(self) -> None:
        """Send no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def follow(self, namespaces: Sequence[str]) -> None:
        """Read when due; log failures, and keep earlier values for what failed."""
        now_s = time.monotonic()
        if now_s < self._read_due_s:
            return
        self._read_due_s = now_s + self._interval_s
        failed: dict[str, PulsarAdminError] = {}
        self._unknown = {}
        isolation = self._read(
            _ISOLATION, self._admin.isolation_policies, self._known.isolation, failed
        )
        self.domains = self._read(_DOMAINS, self._admin.failure_domains, self.domains, failed)
        groups = self._groups(sorted(namespaces), failed)
        self._known = ObservePolicies(isolation=isolation, anti_affinity=groups)
        size = len(encode({"isolation": isolation, "anti_affinity": groups}))
        if size > _BYTES_MAX:
            why = f"take {size} bytes, and one message has room for {_BYTES_MAX}"
            self._unknown["they"] = why
            failed["policies"] = PulsarAdminError(f"they {why}", http.client.OK)
        if failed.keys() != self.unread.keys():
            for what, error in failed.items():
                fields = {"what": what, "why": str(error)}
                logger.warning("a policy can't be read", extra={"fields": fields})
        self.unread = failed
        if (
            size <= _BYTES_MAX
            and _ISOLATION in self._has_read
            and (self._known != self._sent or now_s >= self._send_due_s)
        ):
            self._send_due_s, self._sent = now_s + _SENT_AGAIN_S, self._known
            self._send(self._known)

    def _read(
        self,
        what: str,
        ask: Callable[[str], Readable[Value]],
        known: Mapping[str, Value],
        failed: dict[str, PulsarAdminError],
    ) -> Mapping[str, Value]:
        """Return the usable parts, and of what can't be read now the known ones."""
        try:
            found, unreadable = ask(self._cluster)
        except PulsarAdminError as error:
            failed[what] = error
            if what not in self._has_read:
                self._unknown[what] = f"can't be read: {error}"
            return known
        self._has_read.add(what)
        for name, why in unreadable.items():
            one = f"{_SINGULAR[what]} {name}"
            failed[one] = PulsarAdminError(why, http.client.OK)
            if what == _ISOLATION and name not in known:
                self._unknown[one] = f"can't be used: {why}"
        kept = {  # of policies the keys are the names, of domains the values
            key: value
            for key, value in known.items()
            if (key if what == _ISOLATION else value) in unreadable
        }
        return {**kept, **found}

    def _groups(
        self, namespaces: Sequence[str], failed: dict[str, PulsarAdminError]
    ) -> Mapping[str, str]:
        found, errors = ask_concurrently(namespaces, self._admin.anti_affinity_group, self._pool)
        failed |= {f"anti-affinity group of {name}": error for name, error in errors.items()}
        self._grouped = (self._grouped & set(namespaces)) | found.keys()
        self.ungrouped_namespaces = frozenset(errors.keys() - self._grouped)
        found |= {name: self._known.anti_affinity.get(name, "") for name in errors}
        return {name: group for name, group in sorted(found.items()) if group}

"""Repeated looks at a Pulsar cluster, handed to the Machines.

Decides when what is asked; every question is one that only reads. What is found is
`lbcore.assess`'.
"""

import logging
import threading
from dataclasses import dataclass, replace

from jobs.adapters.processes.clocks import wall_ms
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.bridge import brokers_settings, require_brokers_apart
from jobs.bridge.collector import Collector, Rhythm
from jobs.bridge.policies import PolicyFollower
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError
from lbcore.assess.observer import Observer
from lbcore.assess.owner_changes import OwnerChanges, Unloads, unloads_of
from lbcore.assess.report import HOTTEST_TOPICS, ClusterObservation, Report, make_report
from lbcore.assess.risks import HotTopic
from lbcore.bridge.answers import Settings, Unreadable, parse_topics
from lbcore.bridge.mirror import Look
from lbcore.config.tree import Config
from lbcore.model.tables import LOAD_HISTORY
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import BrokerLoad, Message

CLUSTER = "pulsar"
"""The cluster's name among the Machines."""
_HISTORY_MIN_MS, _LARGE_HISTORY_MS = 1_000, 60_000
_LARGE = 5_000
"""From so many bundles on loads are kept once a minute: ten minutes must fit into the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssessedCluster:
    """Cluster to assess.

    url: as it was given; cluster: its name in Pulsar.
    """

    url: str
    cluster: str


class ClusterWatch:
    """One cluster. `step` is called by one thread; nothing is written anywhere."""

    def __init__(
        self, admin: PulsarAdmin, place: AssessedCluster, config: Config, rhythm: Rhythm
    ) -> None:
        """Raises CommandError when there is no broker to look at."""
        self._admin, self._place, self._rhythm = admin, place, rhythm
        brokers = first_brokers(admin, place)
        self._settings: dict[str, Settings | None] = {}
        self._look = Look(owned=dict.fromkeys(brokers), incarnations={}, namespaces={})
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._told: list[ObservePolicies] = []
        self._versions: dict[str, str] = {}
        self._unread: dict[str, str] = {}
        self._unread_topics: dict[str, str] = {}
        names = (CLUSTER, place.cluster)
        self._collector = Collector(admin, names, config, rhythm, self._send)
        interval_ms = rhythm.namespaces_ms
        self._policies = PolicyFollower(admin, place.cluster, interval_ms, self._told.append)
        self._sightings = OwnerChanges()
        self._observer: Observer | None = None
        self._config = config
        self._trouble = _Trouble(self._unread)
        self._began_ms = wall_ms()
        self._unloads = self._read_unloads(brokers)

    def close(self) -> None:
        """Ask nobody any more."""
        self._collector.close()
        self._policies.close()
        self._trouble.close()

    @property
    def has_picture(self) -> bool:
        """True if loads are known, of bundles where brokers have any."""
        rows = self._of_size().rows[LOAD_HISTORY.name]
        is_empty = not any(self._look.owned.values())
        return any(is_empty or row["bundles"] for row in rows)

    def step(self) -> str:
        """One look and one batch; why there was no look, "" = there was one."""
        look, why = None, ""
        try:
            look = self._collector.look()
        except PulsarAdminError as error:
            why = str(error)
        if look is not None:
            self._take_look(look)
        with self._lock:
            messages, self._messages = self._messages, []
        told = self._told[:]
        self._told.clear()
        self._of_size().take(wall_ms(), messages, look, told)
        return why

    def report(self) -> Report:
        """Return the report so far.

        Asks each broker for its settings, counters and topics.
        """
        brokers = tuple(sorted(self._look.owned))
        self._settings, failed = brokers_settings(self._admin, self._place.cluster, brokers)
        owners, hot = self._read_topics(brokers)
        unread = {**self._collector.unread(), **self._policies.unread, **failed}
        seen = ClusterObservation(
            sightings=self._sightings,
            look=self._look,
            settings=self._settings,
            unloads=(self._unloads, self._read_unloads(brokers)),
            versions={b: self._versions[b] for b in brokers if self._versions.get(b)},
            unread={b: why for b, why in self._silent().items() if b in brokers},
            parts={
                **{what: str(error) for what, error in unread.items()},
                **{f"topics of {name}": why for name, why in self._unread_topics.items()},
                **{f"owned bundles of {n}": why for n, why in self._collector.failures.items()},
            },
            unreported=self._collector.unreported(),
            topics=owners,
            hot_topics=hot,
        )
        where = (self._place.cluster, self._place.url)
        return make_report(self._of_size(), seen, where, (self._began_ms, wall_ms()))

    def history(self) -> list[dict[str, object]]:
        """The rows of load_history."""
        return list(self._of_size().rows[LOAD_HISTORY.name])

    def _silent(self) -> dict[str, str]:
        topics = {name: f"its topics: {why}" for name, why in self._unread_topics.items()}
        return {**topics, **self._unread, **self._collector.failures}

    def _of_size(self) -> Observer:
        """The Machines; how often loads are kept depends on how many bundles there are."""
        if self._observer is None:
            bundles = sum(len(edges) - 1 for edges in self._look.namespaces.values())
            shortest_ms = _LARGE_HISTORY_MS if bundles > _LARGE else _HISTORY_MIN_MS
            interval_ms = max(shortest_ms, self._rhythm.load_ms)
            pipeline = replace(self._config.pipeline, load_history_interval_ms=interval_ms)
            self._observer = Observer(replace(self._config, pipeline=pipeline), CLUSTER)
        return self._observer

    def _take_look(self, look: Look) -> None:
        if look.owned:
            self._look = look
        self._sightings.take(wall_ms(), look)
        self._policies.follow(tuple(look.namespaces))
        self._collector.domains = self._policies.domains

    def _send(self, message: Message) -> None:
        with self._lock:
            self._messages.append(message)
            broker = message.envelope.broker if hasattr(message, "envelope") else ""
            self._unread.pop(broker, None)
            if isinstance(message, BrokerLoad):
                self._versions[broker] = message.broker_version

    def _read_unloads(self, brokers: tuple[str, ...]) -> Unloads:
        total = Unloads()
        for broker in brokers:
            try:
                page = self._admin.metrics(self._place.cluster, broker)
            except PulsarAdminError:
                continue
            total += unloads_of(page.decode("utf-8", "replace"))
        return total

    def _read_topics(self, brokers: tuple[str, ...]) -> tuple[dict[str, str], list[HotTopic]]:
        owners: dict[str, str] = {}
        hot: list[HotTopic] = []
        self._unread_topics = {}
        for broker in brokers:
            try:
                table = parse_topics(self._admin.topics(self._place.cluster, broker))
            except PulsarAdminError as error:
                self._unread_topics[broker] = str(error)
                continue
            if isinstance(table, Unreadable):
                self._unread_topics[broker] = table.detail
                continue
            for bundle, rates in table.rates.items():
                for topic, traffic in zip(rates.topics, rates.traffic.tolist(), strict=True):
                    owners[topic] = broker
                    hot.append(
                        HotTopic(
                            topic=topic,
                            bundle=bundle,
                            broker=broker,
                            msg_rate=traffic[0] + traffic[1],
                            bytes_per_s=traffic[2] + traffic[3],
                        )
                    )
            hot = sorted(hot, key=lambda one: (-one.msg_rate, one.topic))[: 4 * HOTTEST_TOPICS]
        return owners, hot


class _Trouble(logging.Handler):
    """Warnings of the collector, kept for the report instead of the log."""

    def __init__(self, unread: dict[str, str]) -> None:
        super().__init__(logging.WARNING)
        self._unread = unread
        self._logger = logging.getLogger("jobs.bridge")
        self._did_propagate = self._logger.propagate
        self._logger.propagate = False
        self._logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a broker's trouble."""
        fields = getattr(record, "fields", {})
        if fields.get("broker"):
            self._unread[fields["broker"]] = str(fields.get("why", ""))

    def close(self) -> None:
        """Let others take it again."""
        self._logger.removeHandler(self)
        self._logger.propagate = self._did_propagate
        super().close()


def first_brokers(admin: PulsarAdmin, place: AssessedCluster) -> tuple[str, ...]:
    """The active brokers; CommandError without one."""
    try:
        brokers = admin.brokers(place.cluster)
    except PulsarAdminError as error:
        raise cannot_ask(place.url, error) from None
    if not brokers:
        raise CommandError(
            f"the cluster {place.cluster} has no active broker",
            why="its list of active brokers is empty",
            next_step="start a broker, or name another cluster with --pulsar-cluster",
        )
    require_brokers_apart(admin, place.cluster, brokers)
    return brokers


_ASKS_FOR_OURS = (
    "ALERT_CERTIFICATE_REQUIRED",
    "ALERT_BAD_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
    "ALERT_HANDSHAKE_FAILURE",
)
"""OpenSSL's names for the peer's refusal of our certificate, or of none.

Where the connection is closed before that is read, only its end is seen."""


def cannot_ask(url: str, error: PulsarAdminError) -> CommandError:
    """Return the error of a cluster that can't be assessed, with the next step."""
    if error.status in (401, 403):
        what = f"{url} does not let us in"
        next_step = "give a super user's token with --auth-token-file, or --tls-cert and --tls-key"
    elif any(alert in str(error) for alert in _ASKS_FOR_OURS):
        what = f"{url} asks for a certificate that it knows"
        next_step = "give ours with --tls-cert and --tls-key"
    elif ("CERTIFICATE" in str(error) or "SSL" in str(error)) and "EOF" not in str(error):
        what = f"no protected connection to {url}"
        next_step = "name the authority that signed its certificate with --tls-ca, and the host as "
        next_step += "the certificate has it; http:// where it does not speak TLS"
    elif error.status or "answer" in str(error):
        what = f"{url} does not answer as Pulsar's admin interface does"
        next_step = "name the web service of a broker (usually port 8080, or 8443 with TLS)"
    else:
        what = f"{url} can't be reached"
        next_step = "check host and port; --timeout-s gives a slow one more time"
        if url.startswith("https:"):
            next_step += "; where brokers ask for a certificate, give --tls-cert and --tls-key"
    return CommandError(what, why=str(error), next_step=next_step)


def only_name(admin: PulsarAdmin, url: str, named: str) -> str:
    """The cluster that is meant. Raises CommandError where that is open."""
    try:
        found = admin.clusters()
    except PulsarAdminError as error:
        raise cannot_ask(url, error) from None
    if named in found:
        return named
    if named or len(found) != 1:
        raise CommandError(
            f"it is not known which cluster of {url} is meant",
            why=f"there are {', '.join(found) or 'none'}",
            next_step="name one of them with --pulsar-cluster",
        )
    return found[0]

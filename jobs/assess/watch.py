"""Repeated reads of a Pulsar cluster as input of the Machines; changes nothing."""

import argparse
import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.clocks import wall_ms
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.bridge import active_brokers, brokers_settings
from jobs.bridge.collector import LOAD_OF, Collector, PollOptions
from jobs.bridge.policies import PolicyFollower
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently, ask_each
from jobs.console import note
from jobs.operating.backtesting import (
    RecordedLoad,
    Replay,
    make_replay,
    recorded_row,
    strategy_runs,
    trace_lines,
    write_trace,
)
from lbcore.assess.loads import hottest_bundles, loads_of
from lbcore.assess.owner_changes import Observer, OwnerChanges, sheds_of
from lbcore.assess.report import HOTTEST_TOPICS, ClusterObservation, Moved, Report, make_report
from lbcore.assess.risks import HotTopic, unrelievable
from lbcore.assess.settings import harms_of
from lbcore.bridge.answers import Settings
from lbcore.bridge.mirror import Look
from lbcore.config.tree import Config
from lbcore.model.tables import LOAD_HISTORY
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import BrokerLoad, Message

CLUSTER = "pulsar"
"""The cluster's name among the Machines."""
_COLLECTOR_LOG = logging.getLogger("jobs.bridge")
_HISTORY_MIN_MS, _LARGE_HISTORY_MS = 1_000, 60_000
_LARGE = 5_000
"""Number of bundles above which loads are kept once a minute, to limit memory."""


class ClusterWatch:
    """Watch of one cluster. One thread calls `step`; nothing is written anywhere."""

    def __init__(
        self, admin: PulsarAdmin, cluster: str, config: Config, polling: PollOptions
    ) -> None:
        """cluster: its name in Pulsar. Raises CommandError when it has no broker."""
        self._admin, self._pulsar_cluster, self._polling = admin, cluster, polling
        brokers = active_brokers(admin, cluster)
        self._look = Look(owned=dict.fromkeys(brokers), incarnations={}, namespaces={})
        self._lock = threading.Lock()
        self._messages: list[Message] = []
        self._observed: list[ObservePolicies] = []
        self._versions: dict[str, str] = {}
        self._collector = Collector(admin, (CLUSTER, cluster), config, polling, self._send)
        self._policies = PolicyFollower(
            admin, cluster, polling.namespaces_ms, self._observed.append
        )
        self._owner_changes = OwnerChanges()
        self._observer: Observer | None = None
        self._config = config
        _COLLECTOR_LOG.setLevel(logging.CRITICAL)  # the report has its warnings
        self._began_ms = wall_ms()
        self._sheds = self._read_sheds(brokers)

    def close(self) -> None:
        """Send no more requests."""
        self._collector.close()
        self._policies.close()
        _COLLECTOR_LOG.setLevel(logging.NOTSET)

    @property
    def has_loads(self) -> bool:
        """True if loads are known; of bundles too, if brokers own any."""
        rows = self._ensure_observer().rows[LOAD_HISTORY.name]
        owns_any = any(self._look.owned.values())
        return any(row["bundles"] or not owns_any for row in rows)

    def step(self) -> str:
        """Run one look and one batch; return why the look failed, "" = it did not."""
        look, why = None, ""
        try:
            look = self._collector.look()
        except PulsarAdminError as error:
            why = str(error)
        if look is not None:
            if look.owned:
                self._look = look
            self._owner_changes.take(wall_ms(), look)
            self._policies.follow(tuple(look.namespaces))
            self._collector.domains = self._policies.domains
        with self._lock:
            messages, self._messages = self._messages, []
        observed = self._observed[:]
        self._observed.clear()
        self._ensure_observer().take(wall_ms(), messages, look, observed)
        return why

    def report(self) -> Report:
        """Return the report so far.

        Asks each broker for its settings, counters and topics.
        """
        brokers = tuple(sorted(self._look.owned))
        settings, failed = brokers_settings(self._admin, self._pulsar_cluster, brokers)
        owners, hot, unread_topics = self._read_topics(brokers)
        collected = self._collector.unread()
        unread = {**collected, **self._policies.unread, **failed}
        loads = {
            what.removeprefix(LOAD_OF): str(error)
            for what, error in collected.items()
            if what.startswith(LOAD_OF)
        }
        topics = {name: f"its topics: {why}" for name, why in unread_topics.items()}
        silent = {**topics, **loads, **self._collector.failures}
        seen = ClusterObservation(
            owner_changes=self._owner_changes,
            look=self._look,
            settings=settings,
            sheds=(self._sheds, self._read_sheds(brokers)),
            versions={b: self._versions[b] for b in brokers if self._versions.get(b)},
            unread={b: why for b, why in silent.items() if b in brokers},
            failed_reads={
                **{what: str(error) for what, error in unread.items()},
                **{f"topics of {name}": str(why) for name, why in unread_topics.items()},
                **{f"owned bundles of {n}": why for n, why in self._collector.failures.items()},
            },
            unreported=self._collector.unreported(),
            topics=owners,
            hot_topics=hot,
        )
        where = (self._pulsar_cluster, self._admin.url)
        return make_report(self._ensure_observer(), seen, where, (self._began_ms, wall_ms()))

    def history(self) -> list[dict[str, object]]:
        """The rows of load_history."""
        return list(self._ensure_observer().rows[LOAD_HISTORY.name])

    def _ensure_observer(self) -> Observer:
        """Return the observer, made at the first call.

        The number of bundles then decides how often loads are kept.
        """
        if self._observer is None:
            bundles = sum(len(edges) - 1 for edges in self._look.namespaces.values())
            shortest_ms = _LARGE_HISTORY_MS if bundles > _LARGE else _HISTORY_MIN_MS
            interval_ms = max(shortest_ms, self._polling.load_ms)
            pipeline = replace(self._config.pipeline, load_history_interval_ms=interval_ms)
            self._observer = Observer(replace(self._config, pipeline=pipeline), CLUSTER)
        return self._observer

    def _send(self, message: Message) -> None:
        with self._lock:
            self._messages.append(message)
            if isinstance(message, BrokerLoad):
                self._versions[message.envelope.broker] = message.broker_version

    def _read_sheds(self, brokers: tuple[str, ...]) -> dict[str, float]:
        def ask(broker: str) -> float:
            page = self._admin.metrics(self._pulsar_cluster, broker)
            return sheds_of(page.decode("utf-8", "replace"))

        return ask_concurrently(brokers, ask)[0]

    def _read_topics(
        self, brokers: tuple[str, ...]
    ) -> tuple[dict[str, str], list[HotTopic], Mapping[str, PulsarAdminError]]:
        """Return topic → broker, the hottest topics, and broker → why it is unread."""
        owners: dict[str, str] = {}
        hot: list[HotTopic] = []

        def take(broker: str) -> None:
            nonlocal hot
            table = self._admin.topic_table(self._pulsar_cluster, broker)
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

        failed = ask_each(brokers, take)[1]
        return owners, hot, failed


UNKNOWN = "not known"
SETTINGS = "settings that hurt: name a broker's web service beside --prometheus"
FORESIGHT = "what Ballast would do next: that needs the cluster itself, without --prometheus"


def recorded_report(args: argparse.Namespace, admin: PulsarAdmin | None, cluster: str) -> Report:
    """Read the recorded load, try the strategies on it, and report.

    admin: of the cluster, None = not named. Raises CommandError and MisuseError.
    """
    unread: dict[str, str] = {}

    def edges(namespace: str) -> Sequence[int]:
        try:
            return admin.boundaries(namespace) if admin else ()
        except PulsarAdminError as error:
            unread[f"bundles of {namespace}"] = str(error)
            return ()

    found = write_trace(args, edges_of=edges)
    for line in trace_lines(found):
        note(line)
    recorded = RecordedLoad(place=found.path, rows=read_history(found.path))
    replay = make_replay(recorded, last_ms=0, seed=1)
    runs = strategy_runs(replay, replay.settings(args.set), Config(), args.workers)
    rows = [recorded_row(replay), *runs.results(args.strategy.split(","))]
    settings: Mapping[str, Settings | None] = {}
    if admin:
        try:
            settings, failed = brokers_settings(admin, cluster, admin.brokers(cluster))
            unread |= {what: str(error) for what, error in failed.items()}
        except PulsarAdminError as error:
            unread["settings of the brokers"] = str(error)
    loads, bundles = loads_of(recorded.rows), hottest_bundles(recorded.rows)
    own = f"Pulsar's load manager unloaded {found.unloads:.0f} bundles meanwhile"
    return Report(
        cluster=cluster or args.prometheus,
        url=args.prometheus,
        from_ms=loads.times_ms[0],
        to_ms=loads.times_ms[-1],
        loads=loads,
        bundles=bundles,
        topics=(),
        moves=_moves(replay),
        harms=tuple(harms_of(settings)),
        risks=tuple(unrelievable(loads, bundles, ())),
        decisions=0,
        foresight=None,
        versions={},
        bundle_count=sum(loads.bundles.values()),
        strategies=tuple(rows),
        notes=(
            f"which moves are whose doing: {own}, and Prometheus does not say which",
            FORESIGHT,
            *(f"{what}: {why}" for what, why in sorted(unread.items())),
            *(() if admin else (SETTINGS,)),
        ),
        unread=unread,
    )


def _moves(replay: Replay) -> tuple[Moved, ...]:
    """Changes of owner between two steps, at the recorded times."""
    moves = replay.history.moves()
    first_ms = replay.history.intervals[0].at_ms
    return tuple(  # one ms of the run is `pace` ms of the recording
        Moved(
            at_ms=first_ms + round((move.at_ms - first_ms) * replay.pace),
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            who=UNKNOWN,
        )
        for move in moves
    )

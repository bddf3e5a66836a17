"""Look at a Pulsar cluster for some minutes and report what would be better.

Reads only: nothing is written to the cluster, and nothing else needs to run. A page (--html) is
written as soon as there is something to see, and again at the end; Ctrl-C ends early, with what is
known by then. Ends with 1 when part of the cluster could not be read. docs/assess.md explains the
report.
"""

import argparse
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jobs.adapters.delta.recordings import read_history
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.processes.signals import on_signals
from jobs.assess.page import lines, page
from jobs.atomic_file import atomic_write
from jobs.bridge.admin_address import PulsarAdminError
from jobs.bridge.attachment import add_access_options, add_network_option, admin_at
from jobs.bridge.bridge import active_brokers, brokers_settings, only_cluster
from jobs.bridge.collector import LOAD_OF, Collector, PolicyFollower, PollOptions
from jobs.bridge.pulsar_admin import PulsarAdmin, ask_concurrently, ask_each
from jobs.console import CommandError, Exit, MisuseError, answer, note
from jobs.operating.backtesting import (
    PROMETHEUS_OPTIONS,
    Replay,
    make_replay,
    recorded_row,
    strategy_runs,
    trace_lines,
    try_strategy,
    write_trace,
)
from jobs.operating.simulations import WORKERS_OPTION
from jobs.parser import argument, arguments, group, parse_duration_ms
from lbcore.assess.loads import hottest_bundles, loads_of
from lbcore.assess.owner_changes import Observer, OwnerChange, OwnerChanges, sheds_of
from lbcore.assess.report import HOTTEST_TOPICS, ClusterObservation, Report, make_report
from lbcore.assess.risks import HotTopic, unrelievable
from lbcore.assess.settings import harms_of
from lbcore.bridge.answers import Settings
from lbcore.bridge.mirror import Look
from lbcore.config.cluster import EXTERNAL
from lbcore.config.tree import Config
from lbcore.model.tables import LOAD_HISTORY
from lbcore.model.times import duration
from lbcore.wire.kinds.mirror_commands import ObservePolicies
from lbcore.wire.messages import BrokerLoad, Message

CLUSTER = "pulsar"
"""The cluster's name among the Machines."""
_COLLECTOR_LOG = logging.getLogger("jobs.bridge")
_HISTORY_MIN_MS, _LARGE_HISTORY_MS = 1_000, 60_000
_LARGE = 5_000
"""Number of bundles above which loads are kept once a minute, to limit memory."""
TRIED = ("none", "ballast", "avg", "threshold", "transfer", "pulsar-threshold", "pulsar-avg")
_TRIED_INTERVALS_MIN = 6
_TRIED_BUNDLES_MAX = 20_000
_PERCENT = 100.0
_PROGRESS_S = 30.0


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

        found, _ = ask_concurrently(brokers, ask)
        return found

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


def recorded_report(args: argparse.Namespace) -> Report:
    """Read the load that Prometheus recorded, try the strategies on it, and report.

    Raises CommandError and MisuseError.
    """
    admin = admin_at(args.url, args) if args.url else None
    cluster = only_cluster(admin, args.pulsar_cluster) if admin else args.pulsar_cluster
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
    recorded = read_history(found.path)
    replay = make_replay(found.path, recorded)
    runs = strategy_runs(replay, replay.settings(args.set), Config(), args.workers)
    rows = [recorded_row(replay), *runs.results(args.strategy.split(","))]
    settings: Mapping[str, Settings | None] = {}
    try:
        if admin:
            settings, failed = brokers_settings(admin, cluster, admin.brokers(cluster))
            unread |= {what: str(error) for what, error in failed.items()}
    except PulsarAdminError as error:
        unread["settings of the brokers"] = str(error)
    loads, bundles = loads_of(recorded), hottest_bundles(recorded)
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


def _moves(replay: Replay) -> tuple[OwnerChange, ...]:
    """Changes of owner between two steps, at the recorded times."""
    first_ms = replay.history.intervals[0].at_ms
    return tuple(  # one ms of the run is `pace` ms of the recording
        OwnerChange(
            at_ms=first_ms + round((move.at_ms - first_ms) * replay.pace),
            bundle=move.bundle,
            source=move.source,
            destination=move.destination,
            who=UNKNOWN,
        )
        for move in replay.history.moves()
    )


def try_strategies(rows: Sequence[Mapping[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """Return a row a strategy, the recorded one first; or none, and why.

    O(strategies × recording).
    """
    if len({row["minute_ms"] for row in rows}) < _TRIED_INTERVALS_MIN:
        return [], "too little was recorded to try strategies on: look for some minutes longer"
    if sum(len(row["bundles"]) for row in rows[-len({row["broker"] for row in rows}) :]) > (
        _TRIED_BUNDLES_MAX
    ):
        return [], f"strategies are tried on up to {_TRIED_BUNDLES_MAX} bundles"
    try:
        replay = make_replay(Path(), rows)
    except CommandError as error:
        return [], f"strategies can't be tried: {error.why}"
    return [
        recorded_row(replay),
        *(try_strategy(replay, ((), Config()), name) for name in TRIED),
    ], ""


add_arguments = arguments(
    argument("url", nargs="?", default="", metavar="URL", help="web service of any broker"),
    argument(
        "--for",
        dest="length_ms",
        type=parse_duration_ms,
        default=600_000,
        metavar="TIME",
        help="how long to look (default 10m)",
    ),
    argument(
        "--html",
        type=Path,
        default=Path("ballast-assess.html"),
        metavar="FILE",
        help="the page (default %(default)s)",
    ),
    argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of Ballast's"
    ),
    argument("--look-ms", type=int, default=5_000, metavar="N", help="default 5000"),
    argument("--load-ms", type=int, default=10_000, metavar="N", help="default 10000"),
    add_network_option,
    group("Pulsar", add_access_options),
    PROMETHEUS_OPTIONS,
    argument(
        "--strategy", default=",".join(TRIED), metavar="A,B", help="with --prometheus: what to try"
    ),
    WORKERS_OPTION,
)


def run(args: argparse.Namespace) -> int:
    """Look, and write the report."""
    if not (args.url or args.prometheus):
        raise MisuseError(
            "there is no cluster to assess",
            why="neither the web service of a broker nor a Prometheus is named",
            next_step="give one: ballast assess http://broker:8080, or --prometheus URL",
        )
    if not args.prometheus and min(args.length_ms, args.look_ms, args.load_ms) <= 0:
        raise MisuseError(
            "this is no length of time to look for",
            why="--for, --look-ms and --load-ms must be above 0",
            next_step="leave them out, or give for instance --for 10m",
        )
    if args.html.is_dir() or not os.access(args.html.parent, os.W_OK):
        raise MisuseError(
            f"{args.html} can't be written",
            why="it is a folder, or its folder is not there or not ours to write to",
            next_step="name another file with --html",
        )
    report = recorded_report(args) if args.prometheus else _watched_report(args)
    _write(args.html, report)
    answer(args, asdict(report), [*lines(report), "", f"page: {args.html}"])
    if report.is_whole:
        return Exit.DONE
    text = "no broker's load was read: nothing in this report says that there is no risk"
    if report.unread:
        what, why = next(iter(report.unread.items()))
        more = f", and {len(report.unread) - 1} more" if len(report.unread) > 1 else ""
        text = f"not all could be read, so risks may be missing: {what}{more} ({why})"
    note(text)
    return Exit.FAILED


def _watched_report(args: argparse.Namespace) -> Report:
    """Look at the cluster, then try strategies on what was recorded meanwhile."""
    config = load_settings(("pulsar",), args.set)  # observes only, whatever was set
    external = replace(config.cluster, authority=EXTERNAL, observe_only=True)
    admin = admin_at(args.url, args)
    cluster = only_cluster(admin, args.pulsar_cluster)
    polling = PollOptions(
        look_ms=args.look_ms,
        load_ms=args.load_ms,
        network_bytes_per_s=args.network_mbytes * 1e6,
    )
    watch = ClusterWatch(admin, cluster, replace(config, cluster=external), polling)
    try:
        _look(watch, args, args.length_ms / 1_000)
        report = watch.report()
        note("trying strategies on what was recorded")
        rows, why = try_strategies(watch.history())
    finally:
        watch.close()
    notes = (*report.notes, why) if why else report.notes
    return replace(report, strategies=tuple(rows), notes=notes)


def _look(watch: ClusterWatch, args: argparse.Namespace, length_s: float) -> None:
    """Look after look until time is over or a signal comes."""
    end = threading.Event()
    restore_signals = on_signals(end.set)
    began_s = time.monotonic()
    drawn, told_s = False, began_s
    try:
        while not end.is_set() and time.monotonic() - began_s < length_s:
            look_s = time.monotonic()
            why = watch.step()
            if why:
                note(f"no look now: {why}")
            if watch.has_loads and not drawn:
                drawn = True
                _write(args.html, watch.report())
                note(f"first picture after {time.monotonic() - began_s:.0f} s: {args.html}")
            if time.monotonic() - told_s >= _PROGRESS_S:
                told_s = time.monotonic()
                left = duration(max(0, round(length_s - told_s + began_s)) * 1_000)
                share = _PERCENT * (told_s - began_s) / length_s
                note(f"{share:.0f} %, {left} left; Ctrl-C gives what is known")
            rest_s = args.look_ms / 1_000 - (time.monotonic() - look_s)
            end.wait(max(0.0, min(rest_s, length_s - (time.monotonic() - began_s))))
    finally:
        restore_signals()
    if end.is_set():
        note("ended early: this is what is known")


def _write(path: Path, report: Report) -> None:
    """Write the page, or leave the file as it was; raises CommandError."""
    try:
        atomic_write(path, page(report))
    except OSError as error:
        raise CommandError(
            f"{path} can't be written",
            why=str(error),
            next_step="free space on the disk, or name another file with --html",
        ) from None

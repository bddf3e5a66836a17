"""A run's cluster, Ballast beside it, and the watch over owners and traffic."""

import argparse
import contextlib
import json
import os
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.processes.processes import last_lines
from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from jobs.console import CommandError, complain, say
from tests.integration.stack import PATIENCE_S, Cluster, Stack, wait_for
from tests.lab.contenders import OVERLAYS, Contender
from tests.lab.hosts import HostedCluster, Hosts
from tests.lab.records import Figures, Move, Phase, Sample
from tests.pulsar.distribution import chosen_version, ensure_distribution
from tests.pulsar.pulsar_stack import PULSAR, create_namespace
from tests.pulsar.traffic import Load, Traffic
from tests.support.processes.kafka_cluster import QUICK_JAVA, KafkaNode, make_topics
from tests.support.processes.programs import json_lines, start_ballast

_JOB_STARTS = 3


class OurSide:
    """Started before the cluster, for the job takes longest; the bridge when traffic flows."""

    def __init__(self, folder: Path, settings: tuple[str, ...]) -> None:
        kafka = KafkaNode(folder / "kafka", KafkaOptions(java_options=QUICK_JAVA))
        cluster = Cluster(overlays=OVERLAYS, settings=settings, namespaces={})
        self._stack = Stack(folder=folder, kafka=kafka, cluster=cluster)
        self._bridge_log = folder / "bridge.log"
        self._starts = 0

    def start(self) -> None:
        """Kafka, the topics, the job; returns after its first batch."""
        self._stack.kafka.start()
        make_topics(self._stack.kafka, self._stack.address("operator"))
        self._start_job()
        wait_for("the job's first batch", self._has_batch, PATIENCE_S)
        say("the job has written its first batch")

    def start_bridge(self, admin_url: str) -> None:
        words = ["bridge", "pulsar", "--act", "--switch-shedding-off", "--admin-url", admin_url]
        bridge = start_ballast("bridge", [*words, *self.words()], self._bridge_log)
        self._stack.children["bridge"] = bridge

    def words(self) -> list[str]:
        """Words that say where Kafka and the tables are, and with which overlay."""
        words = ["--bootstrap", self._stack.kafka.bootstrap, "--tables", str(self._stack.tables)]
        return words + [word for name in OVERLAYS for word in ("--conf", name)]

    def keep_job(self) -> None:
        """As a supervisor would: on a crowded machine Spark gives up on its Python worker."""
        job = self._stack.children["job"]
        if job.exit_code() is None:
            return
        if self._starts >= _JOB_STARTS:
            raise CommandError(
                "the job dies again and again",
                why=last_lines(job.spec.log_path) or f"{self._starts} starts failed",
                next_step=f"read {job.spec.log_path}",
            )
        say(f"the job died ({last_lines(job.spec.log_path, count=1)[:120]}) and is started again")
        self._start_job()

    def notes(self) -> tuple[str, ...]:
        """What of it a reader of the figures should know."""
        found = [] if self._starts == 1 else [f"the job was started {self._starts} times"]
        bridge = self._stack.children.get("bridge")
        if bridge is not None and bridge.exit_code() is not None:
            found.append("the bridge ended by itself")
        events = Counter(str(line["event"]) for line in json_lines(self._bridge_log))
        kinds = ("asked", "failed")
        found += [f"bridge: {events[kind]} {kind}" for kind in kinds if events[kind]]
        return tuple(found)

    def stop(self) -> None:
        self._stack.stop_all()

    def _start_job(self) -> None:
        self._starts += 1
        self._stack.start_job()

    def _has_batch(self) -> bool:
        self.keep_job()
        return self._stack.batches_done() > 0


_LOOK_S = 1.0
_AROUND_S = (2.0, 5.0)
"""A message counts as around a move from so long before it was seen until so long after."""


@dataclass
class Watch:
    """What was seen. bundles: topic → its bundle; last: bundle → the number of its broker."""

    cluster: HostedCluster
    traffic: Traffic
    bundles: Mapping[str, str]
    last: dict[str, int] = field(default_factory=dict)
    phases: list[Phase] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    moved_s: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    began_s: float = field(default_factory=time.monotonic)
    killed_s: float = float("inf")
    first_used_s: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """An admin a broker: its own word is what counts, and one that is dead holds up none."""
        self._admins: dict[int, PulsarAdmin] = {}
        self._orphans: set[str] = set()

    def rates(self) -> Counter[str]:
        """Bundle → messages a second offered to it."""
        found: Counter[str] = Counter()
        for topic, rate in self.traffic.rates().items():
            found[self.bundles[topic]] += rate  # type: ignore[assignment]
        return found

    def owners(self) -> dict[str, int]:
        """Bundle → broker, of the bundles with traffic that a live broker says it owns."""
        found = {}
        for number in sorted(self.cluster.alive):
            try:
                owned = self._admin(number).owned(PULSAR, self.cluster.broker(number))
            except PulsarAdminError:
                owned = frozenset(one for one, owner in self.last.items() if owner == number)
            found.update(dict.fromkeys(owned & set(self.bundles.values()), number))
        return found

    def kill(self, number: int) -> None:
        """Kill a broker; what its bundles do then is a failover."""
        self._orphans |= {bundle for bundle, owner in self.last.items() if owner == number}
        self.killed_s = time.monotonic()
        self.cluster.kill(number)
        self._admins.pop(number, None)

    def phase(self, name: str, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        if not self.phases:
            self.began_s = time.monotonic()
        began_s = self.phases[-1].ended_s if self.phases else 0.0
        self.last = self.last or self.owners()
        start_s = time.monotonic()
        while (looked_s := time.monotonic()) - start_s < seconds and not is_over():
            self._look(began_s + looked_s - start_s)
            self.loads.append(os.getloadavg()[0])
            time.sleep(max(0.0, _LOOK_S - (time.monotonic() - looked_s)))
        lasted_s = min(seconds, time.monotonic() - start_s) if is_over() else seconds
        self.phases.append(Phase(name=name, began_s=began_s, ended_s=round(began_s + lasted_s, 1)))

    def is_around_move(self, at_s: float) -> bool:
        """Whether this second of `time.monotonic` lies around a move."""
        before_s, after_s = _AROUND_S
        return any(one - before_s <= at_s <= one + after_s for one in self.moved_s)

    def _admin(self, number: int) -> PulsarAdmin:
        if number not in self._admins:
            address = AdminAddress(url=f"http://{self.cluster.broker(number)}", timeout_s=5.0)
            self._admins[number] = PulsarAdmin(address)
        return self._admins[number]

    def _look(self, at_s: float) -> None:
        owners, rates = self.owners(), self.rates()
        for bundle, owner in sorted(owners.items()):
            before = self.last.get(bundle, owner)
            if before != owner:
                is_failover = bundle in self._orphans
                move = Move(at_s=round(at_s, 1), bundle=bundle, is_failover=is_failover)
                self.moves.append(move)
                self.moved_s.append(time.monotonic())
            self._orphans.discard(bundle)
        self.last |= owners
        for owner in set(owners.values()):
            self.first_used_s.setdefault(owner, at_s)
        self._sample(at_s, owners, rates)

    def _sample(self, at_s: float, owners: Mapping[str, int], rates: Mapping[str, float]) -> None:
        """Only what differs from the last one is kept. In flight counts where it was last."""
        offered = dict.fromkeys(self.cluster.alive, 0.0)
        for bundle, rate in rates.items():
            owner = owners.get(bundle, self.last.get(bundle))
            if owner in offered:
                offered[owner] += rate
        mean = sum(rates.values()) / len(offered)
        ratio = round(max(offered.values()) / mean, 3)
        unowned = sum(bundle not in owners for bundle in rates)
        newest = self.samples[-1] if self.samples else None
        if newest is None or (newest.ratio, newest.unowned) != (ratio, unowned):
            self.samples.append(Sample(at_s=round(at_s, 1), ratio=ratio, unowned=unowned))


NAMESPACE = "public/load"
BROKERS = 4
BUNDLES, _TOPICS, _SIZE, _RATE = 64, 24, 4_000, 150.0
_TRIES, _SETTLE_S = 5, 3.0


def main_of(
    parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], Mapping[str, Any]]
) -> int:
    """Run it and keep the record; 0 when there is one. Adds the arguments that all runs have."""
    parser.add_argument("--hosts", required=True)
    parser.add_argument("--run", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    args = parser.parse_args()
    try:
        record = run(args)
    except CommandError as error:
        complain(error, as_json=False)
        return int(error.exit_code)
    args.record.parent.mkdir(parents=True, exist_ok=True)
    args.record.write_text(json.dumps(record) + "\n")
    return 0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Brokers with traffic between them. ours: what Ballast runs, None = Pulsar is alone."""

    cluster: HostedCluster
    traffic: Traffic
    ours: OurSide | None

    def watch(self) -> Watch:
        self.traffic.start()
        bundles = bundles_of(self.cluster, self.traffic)
        return Watch(cluster=self.cluster, traffic=self.traffic, bundles=bundles)

    def notes(self) -> tuple[str, ...]:
        died = tuple(f"{name} ended by itself" for name in self.cluster.died())
        return died + (() if self.ours is None else self.ours.notes())

    def common_figures(self, watch: Watch) -> Figures:
        """Lost messages, errors, the load beside it; says what went otherwise than it should."""
        for note in self.notes():
            say(note)
        return {
            "lost": float(self.traffic.lost().total()),
            "errors": float(len(self.traffic.errors())),
            "load average": median(watch.loads),
        }


@contextmanager
def scene(args: argparse.Namespace, contender: Contender) -> Iterator[Scene]:
    """All but one of the brokers, the namespace, and traffic that has not started."""
    hosts = Hosts(name=args.hosts, count=BROKERS)
    cluster = HostedCluster(
        ensure_distribution(), args.folder / "pulsar", hosts, contender.broker_settings
    )
    ours = OurSide(args.folder, contender.job_settings) if contender.ballast is not None else None
    with ExitStack() as ends:
        ends.callback(cluster.stop)
        if ours is not None:
            ends.callback(ours.stop)
            ours.start()
        cluster.start(BROKERS - 1)
        say(f"brokers of Pulsar {chosen_version()} are ready")
        create_namespace(cluster.admin_url, NAMESPACE, BUNDLES)
        traffic = Traffic(cluster.admin_url, loads())
        ends.callback(traffic.stop, drain_s=0.0)
        yield Scene(cluster=cluster, traffic=traffic, ours=ours)


def loads() -> list[Load]:
    """The topics, each with less than the one before."""
    weights = [(number + 1) ** -0.5 for number in range(_TOPICS)]
    return [
        Load(
            topic=f"persistent://{NAMESPACE}/topic-{number}",
            rate_per_s=_RATE * weight / sum(weights),
            size=_SIZE,
        )
        for number, weight in enumerate(weights)
    ]


def bundles_of(cluster: HostedCluster, traffic: Traffic) -> dict[str, str]:
    """Topic → its bundle, as Pulsar says."""

    def bundle_of(topic: str) -> str:
        path = topic.replace("://", "/")
        url = f"{cluster.admin_url}/lookup/v2/topic/{path}/bundle"
        with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 (the hub's own network)
            return str(answer.read().decode())

    return {topic: f"{NAMESPACE}/{bundle_of(topic)}" for topic in traffic.rates()}


def placed(watch: Watch) -> dict[str, int]:
    """Bundle → the broker that it was given to: the heaviest first, each to the idlest."""
    offered = dict.fromkeys(range(1, BROKERS), 0.0)
    wanted: dict[str, int] = {}
    for bundle, rate in sorted(watch.rates().items(), key=lambda one: (-one[1], one[0])):
        wanted[bundle] = min(offered, key=lambda number: (offered[number], number))
        offered[wanted[bundle]] += rate
    admin = PulsarAdmin(AdminAddress(url=watch.cluster.admin_url))
    for _ in range(_TRIES):
        owners = watch.owners()
        wrong = [bundle for bundle, number in wanted.items() if owners.get(bundle) != number]
        if not wrong:
            return wanted
        for bundle in wrong:
            with contextlib.suppress(PulsarAdminError):  # it is asked again
                admin.unload(bundle, watch.cluster.broker(wanted[bundle]))
        time.sleep(_SETTLE_S)
    raise CommandError(
        "the bundles could not be placed evenly at the beginning",
        why=f"{len(wrong)} of {len(wanted)} are elsewhere after {_TRIES} tries",
        next_step="run it again; read the brokers' logs if it stays so",
    )

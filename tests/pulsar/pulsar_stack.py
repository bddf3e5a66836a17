"""A real Pulsar cluster, the real job on the real Kafka, and the bridge between them.

Every wait has a deadline that suits a crowded machine. Pulsar computes rates every five seconds
here, and the job decides every two, so that minutes become seconds.
"""

import collections
import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.processes.processes import Child
from jobs.bridge.admin_address import AdminAddress, PulsarAdminError
from jobs.bridge.pulsar_admin import PulsarAdmin
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.wire.messages import Topic
from tests.integration.stack import PATIENCE_S, Cluster, Stack, wait_for
from tests.pulsar.distribution import ensure_distribution
from tests.pulsar.pulsar_cluster import MODULAR, ClusterOptions, PulsarCluster
from tests.pulsar.traffic import Load, Traffic
from tests.support.processes.kafka_cluster import PARTITIONS, QUICK_JAVA, KafkaNode, make_topics
from tests.support.processes.programs import json_lines, start_ballast
from tests.support.worlds.world import World

_INPUTS = [topic for topic in Topic if topic is not Topic.OWNERSHIP]
_POLL_MS = 200


class PocketJob(World):
    """A world without brokers of its own: what it reads and writes is Kafka's.

    is_away: nothing is read, decided or written; later it goes on where it was, as a job would.
    """

    def __init__(self, config: Config, address: KafkaAddress) -> None:
        super().__init__(config, brokers=0)
        self._address = address
        self._sender = Sender(address, "pocket-job")
        self._consumer = KafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metrics_enabled=False,
            **address.client_options("pocket-job"),
        )
        places = [
            TopicPartition(address.topic_name(topic), number)
            for topic in _INPUTS
            for number in range(PARTITIONS)
        ]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)
        self._end = threading.Event()
        self.is_away = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="pocket-job")
        self.rows_lock = threading.Lock()

    def start(self, name: str = "") -> None:
        """Begin the batches, or (as a world) a broker."""
        if name:
            super().start(name)
        else:
            self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._consumer.close()
        self._sender.close()

    def owners(self) -> dict[str, str]:
        """Bundle → broker, of the records that say Owned."""
        rows = self.rows("bundle_ownership")
        return {row["bundle"]: row["destination"] for row in rows if row["state"] == "Owned"}

    def rows(self, table: str) -> list[Mapping[str, Any]]:
        """All rows of a table, as the job would have written them."""
        kept = {"ownership_events": self.events, "decisions": self.decisions}
        with self.rows_lock:
            if table == "bundle_ownership":
                return list(self.current.values())
            return list(kept.get(table, self.other_rows[table]))

    def _work(self) -> None:
        try:
            while not self._end.wait(self.config.pipeline.trigger_ms / 1_000):
                if self.is_away:
                    continue
                self._read()
                with self.rows_lock:
                    self.step_job()
        except Exception as error:  # noqa: BLE001 whatever it is, the test that waits says it
            self.failure = error

    def _read(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        for batch in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for message in batch:
                topic = message.topic.removeprefix(self._address.topic_prefix)
                place = (topic, message.partition)
                self.put(place, message.key, message.value, message.timestamp)

    def _announce(self, record: OwnershipRecord) -> None:
        key, value = format_record(record)
        self._sender.send(Topic.OWNERSHIP, key.decode(), value)


PULSAR = "standalone"
POCKET, SPARK, NO_JOB = "pocket", "spark", "none"
_TRIES = 3
NAMESPACE = "public/load"
BUNDLES = 12
TOPICS = 24
NETWORK_MBYTES = 0.3
"""24 topics of 10 messages of 1 kB fill four fifths of a broker that has all of them."""

FOR_LITTLE_TRAFFIC = (
    "signals.cpu_weight=0",  # of the whole machine, so the same for all
    "splitting.enabled=false",
    "shedding.min_unload_rate_msg_per_s=1",
    "shedding.min_unload_throughput_bytes_per_s=1",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BallastOptions:
    """Overlays and settings of the job, and arguments of the bridge."""

    overlays: tuple[str, ...]
    settings: tuple[str, ...]
    bridge: tuple[str, ...] = ()


QUICK = BallastOptions(
    overlays=("test", "pulsar"),
    settings=(
        *FOR_LITTLE_TRAFFIC,
        "pipeline.decision_interval_ms=2000",
        "pipeline.shed_interval_ms=2000",
        "pipeline.split_interval_ms=2000",
        "signals.report_max_interval_ms=10000",
        "shedding.avg_low_hits=3",
        "shedding.grace_period_ms=0",
        "shedding.cool_down_ms=5000",
        "filters.flap_starts=0",
    ),
    bridge=("--look-ms", "1000", "--load-ms", "1500", "--namespaces-ms", "5000"),
)
AS_SHIPPED = BallastOptions(overlays=("pulsar",), settings=FOR_LITTLE_TRAFFIC)
QUICK_PULSAR = {
    "statsUpdateInitialDelayInSecs": "5",
    "statsUpdateFrequencyInSecs": "5",
    "loadBalancerSheddingEnabled": "false",
    "loadBalancerAutoBundleSplitEnabled": "false",
}


@dataclass
class PulsarStack:
    """What runs, and what a test asks of it."""

    pulsar: PulsarCluster
    stack: Stack
    pocket: PocketJob | None
    admin: PulsarAdmin
    traffic: Traffic
    balancing: BallastOptions
    children: dict[str, Child] = field(default_factory=dict)
    job_starts: int = 0

    def start_bridge(self, *words: str) -> None:
        """Start the bridge, observing only unless words say --act."""
        command = ["bridge", "pulsar", "--admin-url", self.pulsar.admin_url, *self.where()]
        command += ["--network-mbytes", str(NETWORK_MBYTES), *self.balancing.bridge, *words]
        command += ["--metrics-port", "0", "--metrics-port-file", str(self._port_file)]
        self.children["bridge"] = start_ballast("bridge", command, self.bridge_log)

    def rows(self, table: str) -> Sequence[Mapping[str, Any]]:
        return self.stack.rows(table) if self.pocket is None else self.pocket.rows(table)

    def where(self) -> list[str]:
        """Words that say where Kafka and the tables are."""
        return ["--bootstrap", self.stack.kafka.bootstrap, *self.tables_words()]

    def tables_words(self) -> list[str]:
        overlays = [word for name in self.balancing.overlays for word in ("--conf", name)]
        return ["--tables", str(self.stack.tables), *overlays]

    @property
    def _port_file(self) -> Path:
        return self.stack.folder / "bridge.port"

    def bridge_metrics(self) -> str:
        url = f"http://127.0.0.1:{self._port_file.read_text().strip()}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return str(answer.read().decode())

    @property
    def bridge_log(self) -> Path:
        return self.stack.folder / "bridge.log"

    def kill_bridge(self) -> None:
        """Kill -9."""
        self.children.pop("bridge").kill()

    def stop_bridge(self) -> int:
        """SIGTERM; its exit code."""
        return self.children.pop("bridge").stop()

    def bridge_events(self, event: str) -> list[Mapping[str, object]]:
        """The lines of the bridge's log with this event."""
        return [line for line in json_lines(self.bridge_log) if line["event"] == event]

    def owners(self) -> dict[str, str]:
        """Bundle → broker, as Pulsar's brokers say."""
        return {
            bundle: broker
            for broker in self.admin.brokers(PULSAR)
            for bundle in self._owned(broker)
            if bundle.startswith(f"{NAMESPACE}/")
        }

    def _owned(self, broker: str) -> frozenset[str]:
        try:
            return self.admin.owned(PULSAR, broker)
        except PulsarAdminError:  # it has just been killed
            return frozenset()

    def recorded(self) -> dict[str, str]:
        """Bundle → broker, as our records say."""
        job = self.stack if self.pocket is None else self.pocket
        owned = job.owners().items()
        return {name: owner for name, owner in owned if name.startswith(f"{NAMESPACE}/")}

    def is_mirrored(self) -> bool:
        return bool(self.owners()) and self.owners() == self.recorded()

    def spread(self) -> float:
        """Difference of the busiest and the idlest broker, in points of NETWORK_MBYTES."""
        rates = [self._bytes_in(broker) for broker in self.admin.brokers(PULSAR)]
        return 100.0 * (max(rates) - min(rates)) / (NETWORK_MBYTES * 1e6)

    def _bytes_in(self, broker: str) -> float:
        try:
            answer = json.loads(self.admin.topics(PULSAR, broker)).get(NAMESPACE, {})
        except PulsarAdminError:  # it has just been killed
            return 0.0
        topics = [one for domains in answer.values() for one in domains.values()]
        return sum(float(one["msgThroughputIn"]) for group in topics for one in group.values())

    def topics_in(self, bundle: str) -> list[str]:
        namespace, _, key = bundle.rpartition("/")
        answer = json.loads(self.admin.topics(PULSAR, self.owners()[bundle]))
        domains = answer.get(namespace, {}).get(key, {})
        return sorted(topic for topics in domains.values() for topic in topics)

    def gather(self, broker: str) -> None:
        """Give every bundle to one broker, asked again of those that went elsewhere meanwhile.

        The job decides nothing while it lasts: what it moved away would never be all in one place.
        """
        known: set[str] = set()

        def has_all() -> bool:
            owners = self.owners()
            known.update(owners)
            for bundle in sorted(name for name, owner in owners.items() if owner != broker):
                self.admin.unload(bundle, broker)
            return bool(known) and owners == dict.fromkeys(known, broker)

        with self.job_away():
            self.wait(f"{broker} to have everything", has_all)

    @contextmanager
    def job_away(self) -> Iterator[None]:
        """The pocket job, if there is one, reads and decides nothing."""
        if self.pocket is None or self.pocket.is_away:
            yield
            return
        self.pocket.is_away = True
        try:
            yield
        finally:
            self.pocket.is_away = False

    def moves(self) -> list[str]:
        """The bundles that Pulsar was asked to unload, one for each time."""
        return [str(line["bundle"]) for line in self.bridge_events("asked")]

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait for something, as long as the bridge lives; a job that dies is started again."""

        def holds() -> bool:
            for child in self.children.values():
                assert child.exit_code() is None, f"{child.spec.name} ended before {what}"
            self._keep_the_job()
            try:
                return bool(condition())
            except PulsarAdminError:
                return False

        try:
            wait_for(what, holds, PATIENCE_S)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self._scene()}") from None

    def _scene(self) -> str:
        owners = collections.Counter(self.owners().values())
        rounds = [
            {key: line.get(key) for key in ("delivered", "not_delivered", "forbidden")}
            for line in self.bridge_events("round")[-2:]
        ]
        asked = len(self.moves())
        return f"{dict(owners)=}, spread {self.spread():.0f} points, {asked=}, {rounds=}"

    def _keep_the_job(self) -> None:
        """As a supervisor would: on a crowded machine Spark gives up on its Python worker."""
        if self.pocket is not None and self.pocket.failure is not None:
            raise self.pocket.failure
        job = self.stack.children.get("job")
        if job is None or job.exit_code() is None:
            return
        self.job_starts += 1
        assert self.job_starts < _TRIES, "the job dies again and again: read job.log"
        self.stack.start_job()


@contextmanager
def running_pulsar(
    folder: Path,
    load_manager: str = MODULAR,
    *,
    settings: Mapping[str, str] | None = None,
    job: str = POCKET,
    balancing: BallastOptions = QUICK,
) -> Iterator[PulsarStack]:
    """Three brokers with traffic, Kafka and the job; no bridge yet. All is gone at the end.

    settings: the brokers', instead of QUICK_PULSAR. job: POCKET, the whole one on Spark (SPARK), or
    none of it, and no Kafka (NO_JOB).
    """
    home = ensure_distribution()
    kafka = KafkaNode(folder / "kafka", KafkaOptions(java_options=QUICK_JAVA))
    cluster = Cluster(overlays=balancing.overlays, settings=balancing.settings, namespaces={})
    stack = Stack(folder=folder, kafka=kafka, cluster=cluster)
    pocket: PocketJob | None = None
    options = ClusterOptions(load_manager=load_manager, settings=settings or QUICK_PULSAR)
    with PulsarCluster(home, folder / "pulsar", options) as pulsar:
        try:
            if job != NO_JOB:
                kafka.start()
                make_topics(kafka, stack.address("operator"))
            if job == SPARK:
                stack.start_job()
            elif job == POCKET:
                pocket = PocketJob(stack.config.for_cluster("local"), stack.address("job"))
                pocket.start()
            pulsar.start(3)
            create_namespace(pulsar.admin_url, NAMESPACE, BUNDLES)
            loads = [
                Load(topic=f"persistent://{NAMESPACE}/topic-{number}", rate_per_s=10.0)
                for number in range(TOPICS)
            ]
            traffic = Traffic(pulsar.admin_url, loads)
            running = PulsarStack(
                pulsar=pulsar,
                stack=stack,
                pocket=pocket,
                admin=PulsarAdmin(AdminAddress(url=pulsar.admin_url)),
                traffic=traffic,
                balancing=balancing,
            )
            try:
                traffic.start()
                yield running
            finally:
                for child in running.children.values():
                    child.kill()
                traffic.stop(drain_s=0.0)
        finally:
            if pocket is not None:
                pocket.stop()
            stack.stop_all()


def create_namespace(admin_url: str, namespace: str, bundles: int) -> None:
    """Make a namespace in Pulsar, tried for a while: the first requests may come too early."""
    url, body = f"{admin_url}/admin/v2/namespaces/{namespace}", {"bundles": {"numBundles": bundles}}
    for _ in range(_TRIES - 1):
        with contextlib.suppress(OSError):
            tell_pulsar("PUT", url, body)
            return
        time.sleep(2.0)
    tell_pulsar("PUT", url, body)


def tell_pulsar(method: str, url: str, body: object = None) -> None:
    """One request that the bridge never makes. Raises OSError when it is refused."""
    request = urllib.request.Request(  # noqa: S310 (loopback)
        url,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310 (loopback)

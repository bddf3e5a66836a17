"""The real stack in a temporary folder: Kafka, the streaming job, brokers, the lookup service.

Every wait has a deadline that suits a slow machine, and says what it waited for; it ends
at once when a process that it needs is dead. Protocol times are those of conf/test.toml.
"""

import contextlib
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_scan import is_delta, open_delta
from jobs.adapters.kafka.clients import KafkaAddress, Sender, Tail
from jobs.adapters.kafka.embedded_kafka import KafkaOptions
from jobs.adapters.processes.processes import Child, ProcessSpec, last_lines
from jobs.adapters.processes.settings import load_settings
from jobs.adapters.spark.stream import driver_options
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord, parse_record
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command, Rejected, Topic
from tests.replay import KEEP_BATCHES
from tests.support.processes.kafka_cluster import QUICK_JAVA, KafkaNode, make_topics
from tests.support.processes.programs import json_lines

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = {"demo/one": ("crc32", 30), "demo/two": ("murmur3_32", 30)}
PATIENCE_S = 300
"""A job starts in 12 s on two quiet cores, and in more than a minute on two crowded ones."""

_POLL_S = 0.2


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is balanced, and how.

    namespaces: name → (hash function, bundles). overlays, settings: the job's --config and --set.
    fleet: more words for the brokers' command line.
    """

    brokers: int = 5
    report_interval_ms: int = 2_000
    overlays: tuple[str, ...] = ("test",)
    namespaces: Mapping[str, tuple[str, int]] = field(default_factory=lambda: NAMESPACES)
    settings: tuple[str, ...] = ()
    fleet: tuple[str, ...] = ()

    @property
    def bundles(self) -> int:
        return sum(bundles for _, bundles in self.namespaces.values())

    @property
    def java_options(self) -> tuple[str, ...]:
        """Of its JVMs: a test's live for a minute, a measurement's are those of production."""
        return QUICK_JAVA if "test" in self.overlays else ()


@dataclass
class Stack:
    """A running stack. Processes are started and ended one by one."""

    folder: Path
    kafka: KafkaNode
    cluster: Cluster = field(default_factory=Cluster)
    children: dict[str, Child] = field(default_factory=dict)
    store_uri: str = ""
    patience_s = PATIENCE_S

    @property
    def tables(self) -> TablePlace:
        """Where the Delta tables are: in the folder, unless they are in a store."""
        return table_place(self.store_uri or self.folder / "tables")

    @property
    def config(self) -> Config:
        return load_settings(self.cluster.overlays, self.cluster.settings)

    def beginning(self, module: str) -> Sequence[str]:
        del module
        return (sys.executable,)

    def words(self, role: str) -> list[str]:
        """What else a process of this role is started with, to be let in by Kafka."""
        del role
        return []

    def environment(self, role: str) -> dict[str, str]:
        del role
        return {}

    def address(self, role: str) -> KafkaAddress:
        """Where Kafka is, for a client of the test's own."""
        del role
        return KafkaAddress(bootstrap=self.kafka.bootstrap)

    def start_job(self, name: str = "job", *more: str) -> None:
        """Start a streaming job, with a state folder and a log of its own name."""
        words = ["--bootstrap", self.kafka.bootstrap, "--state-dir", str(self.folder / name)]
        words += ["--tables", str(self.tables), "--log", str(self.folder / f"{name}.jsonl")]
        words += ["--spark", KEEP_BATCHES, "--spark", "spark.ui.port=0"]
        java_options = driver_options(self.cluster.java_options)
        words += ["--spark", f"spark.driver.extraJavaOptions={java_options}"]
        words += [word for overlay in self.cluster.overlays for word in ("--config", overlay)]
        words += [word for setting in self.cluster.settings for word in ("--set", setting)]
        words += ["--metrics-port", "0", "--metrics-port-file", str(self.metrics_file(name))]
        words += self.words("job")
        armed = {"BALLAST_TEST_KILL_AT": str(self.folder / "kill-at")}
        environment = {**armed, **self.environment("job")}
        self._start(name, "tests.integration.killable_job", [*words, *more], environment)

    def arm(self, point: str) -> None:
        """Let the running job end itself at this point of its next batch."""
        (self.folder / "kill-at").write_text(point)

    def start_fleet(self) -> None:
        words = ["--bootstrap", self.kafka.bootstrap, "--state-dir", str(self.folder / "fleet")]
        heartbeat_ms = self.config.agent.heartbeat_interval_ms
        words += ["--brokers", str(self.cluster.brokers)]
        words += ["--heartbeat-interval-ms", str(heartbeat_ms)]
        words += ["--report-interval-ms", str(self.cluster.report_interval_ms)]
        words += ["--port-file", str(self.folder / "fleet-port")]
        for name, (function, bundles) in self.cluster.namespaces.items():
            words += ["--namespace", f"{name}:{function}:{bundles}"]
        words += [*self.cluster.fleet, *self.words("agent")]
        self._start("fleet", "jobs.run_fleet", words, self.environment("agent"))
        self.wait("the fleet's port", (self.folder / "fleet-port").exists)

    def start_lookup(self, *more: str, environment: Mapping[str, str] | None = None) -> None:
        """Start the lookup service. more: words for its command line."""
        port_file = self.folder / "lookup-port"
        words = ["--tables", str(self.tables), "--cluster", "local", "--port", "0"]
        words += ["--bootstrap", self.kafka.bootstrap, "--port-file", str(port_file)]
        words += [*self.words("service"), *more]
        known = {**self.environment("service"), **(environment or {})}
        self._start("lookup", "jobs.serve_lookup", words, known)
        self.wait_loaded(port_file)

    def wait_loaded(self, port_file: Path) -> None:
        """Until a lookup service has its tables; before, it answers 503."""
        self.wait("the lookup service's port", port_file.exists)
        health = f"http://127.0.0.1:{port_file.read_text().strip()}/health"

        def is_loaded() -> bool:
            with contextlib.suppress(OSError):  # with workers, nobody may listen yet
                return http_json(health)[0] == 200
            return False

        self.wait("the lookup service to have its tables", is_loaded)

    def start_agent(self, broker: str, service: str) -> None:
        """Start `ballast run-agent` around a service of the tests, MODULE:FUNCTION."""
        words = ["--service", service, "--cluster", "local", "--broker", broker]
        words += ["--web-service-url", f"http://{broker}:8080", "--bootstrap", self.kafka.bootstrap]
        words += ["--metrics-port", "0", "--metrics-port-file", str(self.metrics_file(broker))]
        words += [word for overlay in self.cluster.overlays for word in ("--config", overlay)]
        self._start(broker, "jobs.run_agent", words)

    def metrics_file(self, name: str) -> Path:
        """Where a process says on which port its metrics are."""
        return self.folder / f"{name}-metrics-port"

    def port(self, path: Path) -> int:
        """The port that a process has written there, once it has."""
        self.wait(f"the port in {path.name}", path.exists)
        return int(path.read_text())

    def metrics(self, name: str, process: str = "job") -> dict[str, float]:
        """A metric that a process shows to Prometheus: its labels, as they are written → value."""
        port = self.port(self.metrics_file(process))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            lines = re.findall(
                rf"^{name}(?:{{(.*)}})? (\S+)$", answer.read().decode(), re.MULTILINE
            )
        return {labels: float(value) for labels, value in lines}

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric's series with this label, as it is written; 0 before there is one."""
        return sum(value for labels, value in self.metrics(name).items() if label in labels)

    def job_phases(self, name: str) -> list[str]:
        """What a job says to Prometheus that it is doing."""
        phases = self.metrics("ballast_job_phase", name)
        return [labels.split('"')[1] for labels, value in phases.items() if value]

    def newest_records(self) -> dict[str, OwnershipRecord]:
        """Bundle → newest record on the topic `ownership`."""
        tail, found = Tail(self.address("agent"), Topic.OWNERSHIP, "test-tail"), {}
        while not tail.read_to_end(10_000):
            for message in tail.poll(500):
                record = parse_record(message.key.encode(), message.value)
                assert not isinstance(record, Rejected), record
                if record is not None:
                    known = found.get(record.bundle)
                    if known is None or known.version_id < record.version_id:
                        found[record.bundle] = record
        tail.close()
        return found

    def died(self, *names: str) -> int:
        """How many times these jobs took a broker for dead so far."""
        lines = [line for name in names or ("job",) for line in self.batch_lines(name)]
        return sum(line.get("counts", {}).get("died", 0) for line in lines)

    def _start(
        self, name: str, module: str, words: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        spec = ProcessSpec(
            name=name,
            command=(*self.beginning(module), "-m", module, *words),
            log_path=self._log(name),
            environment={"PYTHONPATH": str(ROOT), **(environment or {})},
            grace_ms=PATIENCE_S * 1_000,
        )
        self.children[name] = Child(spec)

    def kill(self, name: str) -> None:
        """Kill -9 of a process and all that it started."""
        self.children.pop(name).kill()

    def stop(self, name: str) -> int:
        """Stop a process in order; its exit code."""
        return self.children.pop(name).stop()

    def wait_end(self, name: str) -> tuple[int, str]:
        """Wait until a process has ended by itself: its exit code, and the end of its log."""
        child = self.children[name]
        wait_for(f"{name} to end", lambda: child.exit_code() is not None, PATIENCE_S)
        code = self.children.pop(name).exit_code()
        return -1 if code is None else code, last_lines(self._log(name), 12)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def stop_all(self) -> None:
        for name in list(self.children):
            self.kill(name)
        self.kafka.stop()

    def create_namespaces(self) -> None:
        for name, (function, bundles) in self.cluster.namespaces.items():
            self.command(
                f"create-{name}",
                "create_namespace",
                {"namespace": name, "hash": function, "bundles": bundles},
            )

    def command(self, command_id: str, kind: str, arguments: Mapping[str, Any]) -> None:
        """Send a command, without waiting for its outcome."""
        command = Command(
            cluster="local",
            command_id=command_id,
            kind=kind,
            arguments=arguments,
            timeout_ms=600_000,
        )
        sender = Sender(self.address("operator"), "test-commands")
        topic, key, value = format_message(command)
        sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def outcome(self, command_id: str) -> str:
        """The newest status of a command, '' before it has one."""
        rows = [row for row in self.rows("commands") if row["command_id"] == command_id]
        return max(rows, key=lambda row: int(row["batch_id"]), default={"status": ""})["status"]

    def fleet(self, path: str, method: str = "GET") -> Any:
        port = (self.folder / "fleet-port").read_text().strip()
        return http_json(f"http://127.0.0.1:{port}{path}", method)[1]

    def lookup(self, topic: str) -> tuple[int, Any]:
        port = (self.folder / "lookup-port").read_text().strip()
        path = topic.replace("://", "/")
        return http_json(f"http://127.0.0.1:{port}/lookup/v2/topic/{path}")

    def told(self, setting: str) -> list[tuple[str, str]]:
        """The setting and who set it, each time that the job told all of them."""
        rows = [row for row in self.rows("settings_in_force") if row["setting"] == setting]
        return [(row["value"], row["origin"]) for row in rows]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table; none when it isn't there yet."""
        path = self.tables / table
        if not is_delta(path):
            return []
        rows: list[dict[str, Any]] = pa.table(open_delta(path).scan().read_all()).to_pylist()
        return rows

    def owners(self) -> dict[str, str]:
        """Bundle → broker, of the records that say Owned."""
        rows = self.rows("bundle_ownership")
        return {row["bundle"]: row["destination"] for row in rows if row["state"] == "Owned"}

    def served(self) -> dict[str, list[str]]:
        """Bundle → brokers that have it open right now."""
        truth: Mapping[str, list[list[Any]]] = self.fleet("/truth")
        return {bundle: [broker for broker, _ in by] for bundle, by in truth.items() if by}

    def is_settled(self) -> bool:
        """Whether every bundle is owned and open at its owner alone."""
        owners = self.owners()
        served = self.served()
        return len(owners) == self.cluster.bundles and all(
            served.get(b) == [o] for b, o in owners.items()
        )

    def batch_lines(self, name: str = "job") -> list[dict[str, Any]]:
        return json_lines(self.folder / f"{name}.jsonl")

    def lines(self, name: str, event: str) -> list[dict[str, Any]]:
        return [line for line in self.batch_lines(name) if line.get("event") == event]

    def batches_done(self, name: str = "job") -> int:
        return len(self.lines(name, "batch"))

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        """Wait until something holds; fail at once when one of the processes has ended."""
        wait_for(what, lambda: condition() or self._fail_without_a_process(what), self.patience_s)

    def _fail_without_a_process(self, what: str) -> bool:
        for name, child in self.children.items():
            if child.exit_code() is not None:
                message = f"{name} ended while waiting for {what}: {last_lines(self._log(name))}"
                raise AssertionError(message)
        return False

    def wait_settled(self) -> None:
        """Wait until every bundle is served by its owner."""
        self.wait("every bundle to be served by its owner", self.is_settled)

    def begin(self, *, without: Sequence[str] = ()) -> None:
        """Start brokers and job, and wait until every bundle of the namespaces is served.

        without: brokers that are crashed before the job starts.
        """
        self.start_fleet()
        for broker in without:
            self.fleet(f"/kill/{broker}", "POST")
        self.start_job()
        self.create_namespaces()
        self.wait_settled()

    def wait_for_batches(self, count: int, name: str = "job") -> None:
        goal = self.batches_done(name) + count
        self.wait(f"{count} batches more", lambda: self.batches_done(name) >= goal)


@contextmanager
def running_stack(
    folder: Path,
    cluster: Cluster | None = None,
    *,
    begin_without: Sequence[str] = (),
    store_uri: str = "",
    kind: type[Stack] = Stack,
) -> Iterator[Stack]:
    """The whole stack, begun; all of it is gone at the end. store_uri: of the tables."""
    cluster = cluster or Cluster()
    kafka = KafkaNode(folder / "kafka", KafkaOptions(java_options=cluster.java_options))
    stack = kind(folder=folder, kafka=kafka, cluster=cluster, store_uri=store_uri)
    try:
        kafka.start()
        make_topics(kafka, stack.address("operator"))
        stack.begin(without=begin_without)
        yield stack
    finally:
        stack.stop_all()


def wait_for(what: str, condition: Callable[[], object], timeout_s: float) -> None:
    """Wait until something holds, or fail and say what did not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            message = f"waited {timeout_s} s in vain for {what}"
            raise AssertionError(message)
        time.sleep(_POLL_S)


def http_json(url: str, method: str = "GET") -> tuple[int, Any]:
    request = urllib.request.Request(url, method=method)  # noqa: S310 (loopback)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 (loopback)
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")

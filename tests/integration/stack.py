"""The real stack in a temporary folder: Kafka, the streaming job, brokers, the lookup service.

Every wait has a deadline and says what it waited for. Protocol times are those of conf/test.toml.
"""

import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.embedded_kafka import EmbeddedKafka
from jobs.adapters.kafka_clients import KafkaAddress, Sender
from jobs.adapters.processes import Child, ProcessSpec
from jobs.adapters.settings import load_settings
from lbcore.config.tree import Config
from lbcore.wire.format import format_message
from lbcore.wire.messages import Command
from tests.kafka_cluster import make_topics

ROOT = Path(__file__).resolve().parents[2]
NAMESPACES = {"demo/one": ("crc32", 30), "demo/two": ("murmur3_32", 30)}
BROKERS = 5
BUNDLES = sum(bundles for _, bundles in NAMESPACES.values())


@dataclass
class Stack:
    """A running stack. Processes are started and ended one by one."""

    folder: Path
    kafka: EmbeddedKafka
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def tables(self) -> Path:
        """Folder of the Delta tables."""
        return self.folder / "tables"

    @property
    def config(self) -> Config:
        """The settings that the job runs with."""
        return load_settings(["test"])

    def words(self, role: str) -> list[str]:
        """What else a process of this role is started with, to be let in by Kafka."""
        del role
        return []

    def environment(self, role: str) -> dict[str, str]:
        """And its environment."""
        del role
        return {}

    def address(self, role: str) -> KafkaAddress:
        """Where Kafka is, for a client of the test's own."""
        del role
        return KafkaAddress(bootstrap=self.kafka.bootstrap)

    def start_job(self, *, kill_at: str = "") -> None:
        """Start the streaming job; kill_at: the point of a batch at which it ends itself."""
        armed = self.folder / "kill-at"
        if kill_at:
            armed.write_text(kill_at)
        words = ["--bootstrap", self.kafka.bootstrap, "--state-dir", str(self.folder / "job")]
        words += ["--tables", str(self.tables), "--log", str(self.folder / "batches.jsonl")]
        words += ["--config", "test", "--spark", "spark.sql.streaming.minBatchesToRetain=100000"]
        environment = {"BALLAST_TEST_KILL_AT": str(armed), **self.environment("job")}
        words += self.words("job")
        self._start("job", "tests.integration.killable_job", words, environment)

    def arm(self, point: str) -> None:
        """Let the running job end itself at this point of its next batch."""
        (self.folder / "kill-at").write_text(point)

    def start_fleet(self) -> None:
        """Start the brokers."""
        words = ["--bootstrap", self.kafka.bootstrap, "--state-dir", str(self.folder / "fleet")]
        words += ["--brokers", str(BROKERS), "--heartbeat-interval-ms", "600"]
        words += ["--report-interval-ms", "2000", "--port-file", str(self.folder / "fleet-port")]
        for name, (function, bundles) in NAMESPACES.items():
            words += ["--namespace", f"{name}:{function}:{bundles}"]
        words += self.words("agent")
        self._start("fleet", "jobs.run_fleet", words, self.environment("agent"))
        wait_for("the fleet's port", (self.folder / "fleet-port").exists, 60)

    def start_lookup(self) -> None:
        """Start the lookup service."""
        port_file = self.folder / "lookup-port"
        words = ["--tables", str(self.tables), "--cluster", "local", "--port", "0"]
        self._start("lookup", "jobs.serve_lookup", [*words, "--port-file", str(port_file)])
        wait_for("the lookup service's port", port_file.exists, 60)

    def _start(
        self, name: str, module: str, words: list[str], environment: Mapping[str, str] | None = None
    ) -> None:
        spec = ProcessSpec(
            name=name,
            command=(sys.executable, "-m", module, *words),
            log_path=self.folder / f"{name}.log",
            environment={"PYTHONPATH": str(ROOT), **(environment or {})},
            grace_ms=20_000,
        )
        self.children[name] = Child(spec)

    def kill(self, name: str) -> None:
        """Kill -9 of a process and all that it started."""
        self.children.pop(name).kill()

    def stop(self, name: str) -> int:
        """Stop a process in order; its exit code."""
        return self.children.pop(name).stop()

    def stop_all(self) -> None:
        """Stop everything, Kafka last."""
        for name in list(self.children):
            self.kill(name)
        self.kafka.stop()

    def create_namespaces(self) -> None:
        """Send the commands that create NAMESPACES."""
        sender = Sender(self.address("operator"), "test-commands")
        for name, (function, bundles) in NAMESPACES.items():
            arguments = {"namespace": name, "hash": function, "bundles": bundles}
            command = Command(
                cluster="local",
                command_id=f"create-{name}",
                kind="create_namespace",
                arguments=arguments,
            )
            topic, key, value = format_message(command)
            sender.send(topic, key.decode(), value)
        sender.close(timeout_ms=10_000)

    def fleet(self, path: str, method: str = "GET") -> Any:
        """A request to the fleet's control server."""
        port = (self.folder / "fleet-port").read_text().strip()
        return http_json(f"http://127.0.0.1:{port}{path}", method)[1]

    def lookup(self, topic: str) -> tuple[int, Any]:
        """Status and body of a lookup."""
        port = (self.folder / "lookup-port").read_text().strip()
        path = topic.replace("://", "/")
        return http_json(f"http://127.0.0.1:{port}/lookup/v2/topic/{path}")

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table; none when it isn't there yet."""
        path = str(self.tables / table)
        if not DeltaTable.is_deltatable(path):
            return []
        rows: list[dict[str, Any]] = pa.table(DeltaTable(path).scan().read_all()).to_pylist()
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
        return len(owners) == BUNDLES and all(served.get(b) == [o] for b, o in owners.items())

    def batch_lines(self) -> list[dict[str, Any]]:
        """The job's canonical lines so far."""
        path = self.folder / "batches.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("}")]

    def batches_done(self) -> int:
        """How many batches the job has logged."""
        return sum("batch_id" in line for line in self.batch_lines())

    def wait_settled(self, timeout_s: float = 90) -> None:
        """Wait until every bundle is served by its owner."""
        wait_for("every bundle to be served by its owner", self.is_settled, timeout_s)

    def wait_for_batches(self, count: int, timeout_s: float = 60) -> None:
        """Wait for that many batches more."""
        goal = self.batches_done() + count
        wait_for(f"{count} batches more", lambda: self.batches_done() >= goal, timeout_s)


@contextmanager
def running_stack(folder: Path) -> Iterator[Stack]:
    """The whole stack, every bundle served; all of it is gone at the end."""
    kafka = EmbeddedKafka(folder / "kafka")
    stack = Stack(folder=folder, kafka=kafka)
    try:
        kafka.start()
        make_topics(kafka, KafkaAddress(bootstrap=kafka.bootstrap))
        stack.start_fleet()
        stack.start_job()
        stack.create_namespaces()
        stack.wait_settled()
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
        time.sleep(0.2)


def http_json(url: str, method: str = "GET") -> tuple[int, Any]:
    """Status and JSON body of a request."""
    request = urllib.request.Request(url, method=method)  # noqa: S310 (loopback)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 (loopback)
            return answer.status, json.loads(answer.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read() or b"null")

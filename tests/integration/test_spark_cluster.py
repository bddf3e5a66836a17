"""The packaged job on a standalone Spark cluster: workers killed, the driver restarted.

What the tables hold must equal a replay through the Machines in this process: so what runs on
executors decides as it does in local mode.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from jobs.adapters.processes.preflight import find_java
from jobs.adapters.processes.processes import Child, ProcessSpec
from jobs.package import make_package
from lbcore.model.tables import BUNDLE_OWNERSHIP, DECISIONS, OWNERSHIP_EVENTS
from tests.integration.replay import assert_replayed
from tests.integration.spark_cluster import HOST, SparkCluster, running_spark
from tests.integration.stack import PATIENCE_S, Stack
from tests.replay import KEEP_BATCHES
from tests.support.processes.kafka_cluster import KafkaNode, make_topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

_SPARK = {
    "spark.driver.host": HOST,
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
    **dict([KEEP_BATCHES.split("=")]),
}


@dataclass
class SubmittedStack(Stack):
    """The stack, its job submitted with what `make package` made."""

    package: Path = Path()
    spark: SparkCluster | None = None

    @property
    def event_log(self) -> Path:
        return self.folder / "spark-events"

    def start_job(self, name: str = "job", *more: str) -> None:
        assert self.spark is not None
        self.event_log.mkdir(exist_ok=True)
        settings = {**_SPARK, "spark.eventLog.dir": self.event_log.as_uri()}
        words = ["--master", self.spark.url]
        words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        words += ["--", "--bootstrap", self.kafka.bootstrap, "--config", "test"]
        words += ["--state-dir", str(self.folder / name), "--tables", str(self.tables)]
        words += ["--log", str(self.folder / f"{name}.jsonl"), *more]
        self.children[name] = Child(
            ProcessSpec(
                name=name,
                command=(str(self.package / "submit"), *words),
                log_path=self._log(name),
                environment={
                    "JAVA_HOME": str(Path(find_java().command).resolve().parents[1]),
                    "SPARK_LOCAL_IP": HOST,
                    "PATH": os.environ["PATH"],
                },
                grace_ms=PATIENCE_S * 1_000,
            )
        )
        self.wait_for_batches(1, name)

    def executors_of_tasks(self) -> Counter[str]:
        """How many tasks each executor has ended, as Spark's event log has it."""
        counted: Counter[str] = Counter()
        for path in sorted(self.event_log.iterdir()):
            for line in path.read_text().splitlines():
                event = json.loads(line)
                if event["Event"] == "SparkListenerTaskEnd":
                    counted[
                        f"{path.name.partition('.')[0]}/{event['Task Info']['Executor ID']}"
                    ] += 1
        return counted

    def executors_with_rows(self) -> dict[str, Counter[str]]:
        """Operator → executor → tasks that had rows to work on; three stages are a batch."""
        counted: dict[str, Counter[str]] = {"scorer": Counter(), "balancer": Counter()}
        (path,) = self.event_log.iterdir()
        events = [json.loads(line) for line in path.read_text().splitlines()[:-1]]
        operators: dict[int, str] = {}
        for event in events:
            if event["Event"] == "SparkListenerJobStart" and len(event["Stage IDs"]) == 3:
                _, scorer, balancer = sorted(event["Stage IDs"])
                operators |= {scorer: "scorer", balancer: "balancer"}
            operator = operators.get(event.get("Stage ID", -1), "")
            if operator and event["Event"] == "SparkListenerTaskEnd":
                executor = event["Task Info"]["Executor ID"]
                read = event["Task Metrics"]["Shuffle Read Metrics"]["Total Records Read"]
                counted[operator][executor] += bool(read)
        return counted


@contextmanager
def spark_and_kafka(folder: Path) -> Iterator[SubmittedStack]:
    make_package(folder / "package")
    kafka = KafkaNode(folder / "kafka")
    with running_spark(folder / "spark", workers=2) as spark:
        stack = SubmittedStack(folder=folder, kafka=kafka, package=folder / "package", spark=spark)
        try:
            kafka.start()
            make_topics(kafka, stack.address("operator"))
            yield stack
        finally:
            stack.stop_all()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SubmittedStack]:
    with spark_and_kafka(tmp_path_factory.mktemp("cluster")) as stack:
        stack.begin()
        yield stack


def test_executors_share_the_tasks(stack: SubmittedStack) -> None:
    stack.wait_for_batches(10)
    by_executor = stack.executors_of_tasks()
    assert len(by_executor) == 2
    assert min(by_executor.values()) > 0.2 * sum(by_executor.values()), by_executor
    scorers = stack.executors_with_rows()["scorer"]  # the balancer of one cluster is one key
    assert len(scorers) == 2
    assert min(scorers.values()) > 0.2 * sum(scorers.values()), scorers


def test_a_killed_worker_ends_nothing_and_what_crashes_then_is_served_elsewhere(
    stack: SubmittedStack,
) -> None:
    assert stack.spark is not None
    stack.spark.kill_worker("worker-0")
    stack.fleet("/kill/broker-1", "POST")
    stack.wait_for_batches(3)
    stack.wait("nobody to be at broker-1", lambda: "broker-1" not in stack.owners().values())
    stack.wait_settled()
    stack.spark.start_worker("worker-2")


def test_a_killed_driver_goes_on_where_it_was(stack: SubmittedStack) -> None:
    stack.kill("job")
    stack.fleet("/kill/broker-2", "POST")
    stack.start_job()
    stack.wait("nobody to be at broker-2", lambda: "broker-2" not in stack.owners().values())
    stack.wait_settled()


def test_tables_equal_a_replay_in_one_process(stack: SubmittedStack) -> None:
    stack.stop("job")  # the code is that of spark-submit's JVM, which the signal ends
    expected = assert_replayed(stack, OWNERSHIP_EVENTS.name, DECISIONS.name)
    newest = {str(row["bundle"]): row["version_id"] for row in expected[OWNERSHIP_EVENTS.name]}
    current = stack.rows(BUNDLE_OWNERSHIP.name)
    assert {row["bundle"]: row["version_id"] for row in current} == newest


def test_executors_share_both_operators_of_ten_clusters(tmp_path: Path) -> None:
    """Ticks alone give each cluster rows in every batch."""
    clusters = ",".join(f"cluster-{number}" for number in range(10))
    settings = (f"pipeline.clusters={clusters}", "pipeline.scorer_groups=1")
    with spark_and_kafka(tmp_path) as stack:
        stack.start_job("job", *(word for one in settings for word in ("--set", one)))
        stack.wait_for_batches(50)  # a line a cluster
        for operator, counts in stack.executors_with_rows().items():
            assert len(counts) == 2, (operator, counts)
            assert min(counts.values()) > 0.2 * sum(counts.values()), (operator, counts)

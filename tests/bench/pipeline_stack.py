"""The processes of a bench of the whole pipeline: Kafka, the job, a lookup service, the load.

Starts and ends them, reads what they log, and adds up their CPU.
"""

import http.client
import json
import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from jobs.adapters.kafka.topics import ensure_topics, wanted_topics
from lbcore.config.tree import Config
from tests.bench.load_generator import LOCAL
from tests.bench.timed_job import STEP_LOG
from tests.integration.stack import Cluster, Stack
from tests.support.processes.frozen import freeze_group
from tests.support.processes.kafka_cluster import KafkaNode
from tests.support.processes.programs import json_lines

_POLL_S = 0.05
_BEFORE_CYCLE_S = 0.6
_BATCH_SEEN = re.compile(rb"^ballast_snapshot_batch_id (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How big a cluster is, how many there are, and how they report."""

    brokers: int
    namespaces: int
    bundles: int
    interval_s: float = 10.0
    is_burst: bool = False
    clusters: int = 1

    @property
    def names(self) -> list[str]:
        if self.clusters == 1:
            return [LOCAL]
        return [f"c{number:02}" for number in range(self.clusters)]

    @property
    def all_bundles(self) -> int:
        return self.clusters * self.bundles


SIZES: Mapping[str, Size] = {
    "tiny": Size(brokers=10, namespaces=10, bundles=1_000),
    "small": Size(brokers=50, namespaces=50, bundles=5_000),
    "medium": Size(brokers=100, namespaces=100, bundles=10_000),
    "full": Size(brokers=1_000, namespaces=1_000, bundles=100_000),
    "beyond": Size(brokers=2_000, namespaces=1_000, bundles=500_000),
}


class PipelineStack(Stack):
    """The stack in one folder, its job as in production but for a log of the scorers' steps.

    master: Spark's, "" = in the job's own process.
    """

    patience_s = 900

    def __init__(
        self,
        folder: Path,
        size: Size,
        *,
        settings: Sequence[str] = (),
        spark: Sequence[str] = (),
        master: str = "",
    ) -> None:
        """settings: of the job, section.name=value; spark: key=value."""
        self.size, self.spark, self.master = size, spark, master
        if size.clusters > 1:
            settings = [*settings, f"pipeline.clusters={json.dumps(size.names)}"]
        if size.bundles > Config().limits.tenant_bundles_max // 2:  # all are one tenant's
            settings = [f"limits.tenant_bundles_max={2 * size.bundles}", *settings]
        cluster = Cluster(overlays=(), namespaces={}, settings=tuple(settings))
        super().__init__(folder, KafkaNode(folder / "kafka"), cluster)
        self.steps = folder / "steps"
        self.orders = folder / "orders"
        self.job_log = folder / "job.jsonl"
        self.steps.mkdir(parents=True, exist_ok=True)

    def start_kafka(self) -> None:
        self.kafka.start()
        ensure_topics(self.address("bench"), wanted_topics(self.config))

    def start_job(self, name: str = "job", *more: str) -> None:
        """Start the streaming job."""
        words = ["--bootstrap", self.kafka.bootstrap, "--state-dir", str(self.folder / name)]
        words += ["--tables", str(self.tables), "--log", str(self.job_log), *more]
        words += [word for setting in self.cluster.settings for word in ("--set", setting)]
        words += [word for setting in self.spark for word in ("--spark", setting)]
        words += ["--master", self.master] if self.master else []
        self._start("job", "tests.bench.timed_job", words, {STEP_LOG: str(self.steps)})

    def start_load(self, *more: str) -> None:
        size = self.size
        words = ["--bootstrap", self.kafka.bootstrap, "--log", str(self.folder / "load.jsonl")]
        words += ["--brokers", str(size.brokers), "--namespaces", str(size.namespaces)]
        words += ["--bundles", str(size.bundles), "--interval", str(size.interval_s)]
        words += ["--clusters", ",".join(size.names)]
        words += ["--orders", str(self.orders), *(["--burst"] if size.is_burst else []), *more]
        self._start("load", "tests.bench.load_generator", words)

    def order(self, **what: Any) -> None:
        """Have the load do, within 0.1 s: crash=count (of cluster=name), burst_at_s=time."""
        made = self.orders.with_suffix(".made")
        made.write_text(json.dumps(what))
        made.rename(self.orders)

    def pause(self, name: str) -> None:
        """Have a process and all that it started stand still (SIGSTOP)."""
        freeze_group(self.children[name].pid)

    def resume(self, name: str) -> None:
        os.killpg(self.children[name].pid, signal.SIGCONT)

    def batches(self, since_s: float = 0.0) -> list[dict[str, Any]]:
        """The job's batches, whose lines were written after that time."""
        return [
            line for line in self.lines("job", "batch") if line["logged_at_ms"] >= since_s * 1e3
        ]

    def open_bundles(self) -> int:
        """The bundles that brokers have open, by the load's last line."""
        lines = self.batch_lines("load")
        return int(lines[-1]["open"]) if lines else 0

    def recoveries(self) -> Sequence[Mapping[str, Any]]:
        """What the load says of crashes whose bundles are all served again."""
        lines = self.batch_lines("load")
        found: Sequence[Mapping[str, Any]] = lines[-1]["recoveries"] if lines else ()
        return found

    def crash(self, count: int, **more: Any) -> Mapping[str, Any]:
        """So many brokers fall silent; what the load says of it when all they had is served again.

        more: of the order, as is_heard_last, cluster.
        """
        known = len(self.recoveries())
        self.order(crash=count, **more)
        self.wait("the bundles to be served again", lambda: len(self.recoveries()) > known)
        return self.recoveries()[-1]

    def step_lines(self, since_s: float) -> list[dict[str, Any]]:
        """When scorers began with their batches, of batches since that time."""
        lines = [line for path in sorted(self.steps.glob("*.jsonl")) for line in json_lines(path)]
        return [line for line in lines if line["now_ms"] >= since_s * 1e3]

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds so far, by process: of the job its JVM, driver and workers apart."""
        pids = {name: child.pid for name, child in self.children.items()}
        found = {name: _cpu_s(psutil.Process(pid)) for name, pid in pids.items() if name != "job"}
        found["kafka"] = _cpu_s(psutil.Process(self.kafka.pid))
        return found | (_job_cpu_s(pids["job"]) if "job" in pids else {})

    def memory_mib(self) -> dict[str, float]:
        """Resident memory by process, the job's added up; its Pss counts what is shared once."""
        pids = {**{n: c.pid for n, c in self.children.items()}, "kafka": self.kafka.pid}
        found = {name: _memory(pid, "rss") for name, pid in pids.items()}
        if "job" in pids:
            found["job, Pss"] = _memory(pids["job"], "pss")
        return {name: round(size / 2**20) for name, size in found.items()}


def tree_cpu_s(pid: int) -> float:
    """CPU seconds so far of a process and of those that it has started, ended ones too."""
    found = 0.0
    for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _job_cpu_s(pid: int) -> dict[str, float]:
    """CPU of the driver's Python, the JVM and the Python workers; times of ended workers, too."""
    driver = psutil.Process(pid)
    found = {"job: python driver": _cpu_s(driver), "job: jvm": 0.0, "job: python workers": 0.0}
    for process in driver.children(recursive=True):
        try:
            times = process.cpu_times()
            is_jvm = process.name() == "java"
        except psutil.NoSuchProcess:
            continue
        ended = float(times.children_user + times.children_system)
        found["job: jvm" if is_jvm else "job: python workers"] += _cpu_s(process)
        found["job: python workers"] += ended if is_jvm else 0.0
    return found


def _memory(pid: int, kind: str) -> int:
    """Bytes of a process and of those that it has started; kind: rss or pss."""
    process = psutil.Process(pid)
    return sum(_held(one, kind) for one in (process, *process.children(recursive=True)))


def _held(process: psutil.Process, kind: str) -> int:
    try:
        found = process.memory_info() if kind == "rss" else process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(found, kind))


class FollowerWatch(threading.Thread):
    """Asks a lookup service which batch it shows, and keeps when each was first seen."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._port, self._ended = port, threading.Event()
        self.seen_ms: dict[int, int] = {}

    def run(self) -> None:
        while not self._ended.wait(_POLL_S):
            try:
                batch = self._batch()
            except (OSError, http.client.HTTPException):
                continue
            if batch is not None:
                self.seen_ms.setdefault(batch, int(time.time() * 1e3))

    def end(self) -> None:
        self._ended.set()
        self.join(timeout=5)

    def _batch(self) -> int | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request("GET", "/metrics")
            found = _BATCH_SEEN.search(connection.getresponse().read())
        finally:
            connection.close()
        return None if found is None else int(float(found[1]))


class BurstTimer(threading.Thread):
    """Orders each burst of reports so that the batch with the next decision cycle reads it.

    A cycle comes with the first batch that is an interval younger than the last; batches begin each
    second if they take no longer, so that what is sent a little before is in one with the cycle.
    """

    def __init__(self, stack: PipelineStack) -> None:
        super().__init__(daemon=True)
        self._stack, self._ended = stack, threading.Event()

    def run(self) -> None:
        cycle, rest = None, ""
        with self._stack.job_log.open() as log:
            log.seek(0, os.SEEK_END)
            while not self._ended.wait(_POLL_S):
                *whole, rest = (rest + log.read()).split("\n")
                for batch in map(json.loads, whole):
                    if batch.get("event") != "batch" or batch["cycle"] == cycle:
                        continue
                    if cycle is not None:
                        cycle_s = batch["now_ms"] / 1e3 + self._stack.size.interval_s
                        self._stack.order(burst_at_s=cycle_s - _BEFORE_CYCLE_S)
                    cycle = batch["cycle"]

    def end(self) -> None:
        self._ended.set()
        self.join(timeout=5)

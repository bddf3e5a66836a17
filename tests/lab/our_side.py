"""Ballast beside the lab's cluster: Kafka, the job on Spark, and the bridge that acts; in the hub.

Decides nothing of Ballast's: overlay `pulsar`, the settings of a contender, and the bridge as
docs/pulsar.md starts it.
"""

import sys
from collections import Counter
from pathlib import Path

from jobs.adapters.kafka.embedded_kafka import EmbeddedKafka, KafkaOptions
from jobs.adapters.processes.processes import Child, ProcessSpec, last_lines
from jobs.console import CommandError, say
from tests.integration.stack import PATIENCE_S, ROOT, Cluster, Stack, wait_for
from tests.lab.contenders import OVERLAYS
from tests.support.processes.json_lines import json_lines
from tests.support.processes.kafka_cluster import QUICK_JAVA, make_topics

_TRIES = 3


class OurSide:
    """Started before the cluster, for the job takes longest; the bridge when traffic flows."""

    def __init__(self, folder: Path, settings: tuple[str, ...]) -> None:
        kafka = EmbeddedKafka(folder / "kafka", KafkaOptions(java_options=QUICK_JAVA))
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
        """The bridge, and it acts."""
        words = ["bridge", "pulsar", "--act", "--switch-shedding-off", "--admin-url", admin_url]
        words += self.words()
        self._stack.children["bridge"] = Child(
            ProcessSpec(
                name="bridge",
                command=(sys.executable, "-m", "jobs.cli", *words),
                log_path=self._bridge_log,
                environment={"PYTHONPATH": str(ROOT)},
            )
        )

    def words(self) -> list[str]:
        """Words that say where Kafka and the tables are, and with which overlay."""
        words = ["--bootstrap", self._stack.kafka.bootstrap, "--tables", str(self._stack.tables)]
        return words + [word for name in OVERLAYS for word in ("--conf", name)]

    def keep_job(self) -> None:
        """As a supervisor would: on a crowded machine Spark gives up on its Python worker."""
        job = self._stack.children["job"]
        if job.exit_code() is None:
            return
        if self._starts >= _TRIES:
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
        """All of it."""
        self._stack.stop_all()

    def _start_job(self) -> None:
        self._starts += 1
        self._stack.start_job()

    def _has_batch(self) -> bool:
        self.keep_job()
        return self._stack.batches_done() > 0

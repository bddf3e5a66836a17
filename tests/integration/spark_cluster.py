"""A standalone Spark cluster on this machine: a master and workers, each a process of its own."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from jobs.adapters.processes.preflight import find_java, free_ports
from jobs.adapters.processes.processes import Child, ProcessSpec
from tests.integration.stack import PATIENCE_S, wait_for

HOST = "127.0.0.1"
_HOME = Path(pyspark.__file__).parent
_DEPLOY = "org.apache.spark.deploy"


@dataclass
class SparkCluster:
    """A running master; workers come and go. Log files and work folders are in `folder`.

    memory: of each worker, as Spark writes it.
    """

    folder: Path
    port: int
    memory: str = "600m"
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"spark://{HOST}:{self.port}"

    def start_worker(self, name: str) -> None:
        """A worker of one core, with what it starts in its own process group."""
        port, web_port = free_ports(2)
        words = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        words += ["--cores", "1", "--memory", self.memory, "--work-dir", str(self.folder / name)]
        self._start(name, "worker.Worker", [*words, self.url])

    def kill_worker(self, name: str) -> None:
        """Kill -9 of a worker and the executors that it started."""
        self.children.pop(name).kill()

    def start_master(self) -> None:
        (web_port,) = free_ports(1)
        words = ["--host", HOST, "--port", str(self.port), "--webui-port", str(web_port)]
        self._start("master", "master.Master", words)
        wait_for("the Spark master", self._listens, PATIENCE_S)

    def stop_all(self) -> None:
        for name in reversed(list(self.children)):
            self.children.pop(name).kill()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def _start(self, name: str, service: str, words: list[str]) -> None:
        environment = {
            "SPARK_HOME": str(_HOME),
            "JAVA_HOME": str(Path(find_java().command).resolve().parents[1]),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": HOST,
        }
        spec = ProcessSpec(
            name=name,
            command=(str(_HOME / "bin" / "spark-class"), f"{_DEPLOY}.{service}", *words),
            log_path=self.folder / f"{name}.log",
            environment=environment,
        )
        self.children[name] = Child(spec)


@contextmanager
def running_spark(folder: Path, workers: int, memory: str = "600m") -> Iterator[SparkCluster]:
    """A master and that many workers, worker-0 and so on; all are gone at the end."""
    folder.mkdir(parents=True)
    (port,) = free_ports(1)
    cluster = SparkCluster(folder=folder, port=port, memory=memory)
    try:
        cluster.start_master()
        for number in range(workers):
            cluster.start_worker(f"worker-{number}")
        yield cluster
    finally:
        cluster.stop_all()

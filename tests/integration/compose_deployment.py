"""The services of docker-compose.yml without an engine: each a process, by its own words.

Decides how a process here gets what a container has. Hosts are the loopback and each port is a free
one; volumes, secrets and /tmp are folders; nothing else of a service is changed. Two images are not
ours: Kafka's is the same version from its jars, set up by its image's own class, and asked for its
health by our own request, as those jars lack the script; Prometheus is Debian's. Grafana is not
run: none of the registries that the rest comes from has it.
"""

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import yaml

from jobs.adapters.kafka.embedded_kafka import CONF, EmbeddedKafka
from jobs.adapters.processes.preflight import free_ports
from jobs.adapters.processes.processes import Child, ProcessSpec, last_lines
from tests.integration.stack import PATIENCE_S, ROOT, wait_for
from tests.support.processes.prometheus import Prometheus, tool

COMPOSE: Mapping[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: Mapping[str, Mapping[str, Any]] = COMPOSE["services"]
NOT_RUN = ("grafana",)
PORTS = {
    "kafka": (9092, 9093),
    "spark-master": (7077,),
    "job": (9400,),
    "lookup-1": (8080,),
    "lookup-2": (8080,),
    "prometheus": (9090,),
    "grafana": (3000,),
}
"""Who listens where in its container; a word that names another port is an error."""

_HOST = "127.0.0.1"
_GRACE_S = "10s"  # compose's own
_KAFKA_FILES = ("server.properties", "log4j2.yaml", "tools-log4j2.yaml")
_CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"  # what Kafka's image sets
_PROMETHEUS_WORDS = (  # of its image
    "--config.file=/etc/prometheus/prometheus.yml",
    "--storage.tsdb.path=/prometheus",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """What a service's words, files and environment are on this machine."""

    service: str
    folder: Path
    ports: Mapping[tuple[str, int], int]

    def __call__(self, text: str) -> str:
        """The text with the places and ports of here."""
        return self._pattern().sub(self._replaced, text)

    def folders(self) -> dict[str, Path]:
        """Path in the container → path here, the longest first."""
        found = {"/tmp": self.folder / "tmp" / self.service}  # noqa: S108 (the container's)
        for name in SERVICES[self.service].get("secrets", ()):
            found[f"/run/secrets/{name}"] = self.folder / "secrets" / name
        for volume in SERVICES[self.service].get("volumes", ()):
            source, target = volume.split(":")[:2]
            is_file = source.startswith(".")
            of_service = self.folder / "files" / self.service
            found[target] = of_service / target[1:] if is_file else self.folder / "volumes" / source
        return dict(sorted(found.items(), reverse=True))

    def _pattern(self) -> re.Pattern[str]:
        paths = "|".join(map(re.escape, self.folders()))
        hosts = "|".join(map(re.escape, PORTS))
        own = "|".join(str(port) for port in PORTS.get(self.service, (0,)))
        return re.compile(
            rf"(?<![\w.])(?P<path>{paths})(?![\w.-])"
            rf"|(?<![\w.-])(?P<host>{hosts})(?P<between>:|', )(?P<port>\d+)"
            rf"|(?P<before>localhost:|{re.escape(_HOST)}:|//:|port=|^)(?P<own>{own})\b"
            rf"|(?:(?<==)|^)(?P<bare>{hosts})$"
        )

    def _replaced(self, found: re.Match[str]) -> str:
        if found["path"]:
            return str(self.folders()[found["path"]])
        if found["host"]:
            return f"{_HOST}{found['between']}{self.ports[found['host'], int(found['port'])]}"
        if found["own"]:
            return f"{found['before']}{self.ports[self.service, int(found['own'])]}"
        return _HOST


class ImagesKafka(EmbeddedKafka):
    """Kafka with the environment of its service, as its image would start it."""

    def __init__(self, folder: Path, port: int, environment: Mapping[str, str]) -> None:
        super().__init__(folder)
        self.port = port
        self._environment = environment

    def prepare(self) -> None:
        """Let the image's class write the properties and format the storage."""
        for name in ("defaults", "mounted"):
            (self.folder / name).mkdir()
        for name in _KAFKA_FILES:
            text = (CONF / "log4j2.yaml").read_text() if name.endswith("yaml") else ""
            (self.folder / "defaults" / name).write_text(text)
        words = ["setup", "-D", str(self.folder / "defaults"), "-M", str(self.folder / "mounted")]
        subprocess.run(
            self._command("kafka.docker.KafkaDockerWrapper", *words, "-F", str(self.folder)),
            env={**os.environ, "CLUSTER_ID": _CLUSTER_ID, **self._environment},
            check=True,
        )


@dataclass
class Deployment:
    """What runs, in the order in which it was started.

    image: the folder that conf/container/Dockerfile would fill, set up.
    """

    folder: Path
    image: Path
    ports: Mapping[tuple[str, int], int]
    children: dict[str, Child] = field(default_factory=dict)
    kafka: ImagesKafka | None = None

    def begin(self) -> None:
        """Start every service as soon as those that it depends on are as it wishes."""
        self._make_files()
        start_in_order(self, NOT_RUN)

    def translation(self, name: str) -> Translation:
        """That of a service."""
        return Translation(service=name, folder=self.folder, ports=self.ports)

    def address(self, name: str) -> str:
        """Where a service answers HTTP here."""
        return f"http://{_HOST}:{self.ports[name, PORTS[name][0]]}"

    def wait_healthy(self, name: str) -> None:
        """Wait until its own health check says so."""
        self.wait(f"{name} to be healthy", lambda: self.is_healthy(name))

    def is_healthy(self, name: str) -> bool:
        """What its health check says now."""
        if name == "kafka":
            return self.kafka is not None and self.kafka.answers()
        kind, *words = SERVICES[name]["healthcheck"]["test"]
        assert kind == "CMD", "the one of CMD-SHELL is Kafka's"
        to_here = self.translation(name)
        command = ["env", "--chdir", str(self.image), *map(to_here, words)]
        environment = {**os.environ, **self._environment(name)}
        ended = subprocess.run(command, check=False, capture_output=True, env=environment)
        return ended.returncode == 0

    def wait_done(self, name: str) -> None:
        """Wait until it has done its work; one that fails is started again if its service says."""
        self.wait(f"{name} to be done", lambda: self._has_done(name))

    def _has_done(self, name: str) -> bool:
        code = self.children[name].exit_code()
        if code and SERVICES[name]["restart"] == "on-failure":
            self.start(name)
            return False
        assert not code, f"{name} ended with {code}: {last_lines(self.log(name), 12)}"
        return code == 0

    def wait(self, what: str, condition: Any) -> None:
        """Wait until something holds; fail at once when a service that should run has ended."""
        wait_for(what, lambda: condition() or self._fail_without_a_service(what), PATIENCE_S)

    def _fail_without_a_service(self, what: str) -> bool:
        for name, child in self.children.items():
            lasts = SERVICES[name]["restart"] == "unless-stopped"
            assert not lasts or child.exit_code() is None, (
                f"{name} ended while waiting for {what}: {last_lines(self.log(name), 12)}"
            )
        return False

    def log(self, name: str) -> Path:
        """Where a service's output goes."""
        return self.folder / "logs" / f"{name}.log"

    def stop(self) -> dict[str, int]:
        """Stop all in reverse order; their exit codes."""
        codes = {name: self.children[name].stop() for name in reversed(self.children)}
        self.children.clear()
        if self.kafka is not None:
            self.kafka.stop()
        return codes

    def kill(self) -> None:
        """End what still runs."""
        for child in self.children.values():
            child.kill()
        if self.kafka is not None:
            self.kafka.kill()

    def _make_files(self) -> None:
        """Volumes, /tmp, secrets, and what is mounted of the source, with the names of here."""
        for name, service in SERVICES.items():
            to_here = self.translation(name)
            for volume in service.get("volumes", ()):
                source, target = volume.split(":")[:2]
                path = to_here.folders()[target]
                if (ROOT / source).is_file():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(to_here((ROOT / source).read_text()))
                elif not source.startswith("."):
                    path.mkdir(parents=True, exist_ok=True)
            (self.folder / "tmp" / name).mkdir(parents=True)
        (self.folder / "secrets").mkdir()
        for name in COMPOSE["secrets"]:
            (self.folder / "secrets" / name).write_text(f"{name} of at least 32 bytes, the same\n")

    def start(self, name: str) -> None:
        """Start a service, whatever it depends on."""
        if name == "kafka":
            port = self.ports["kafka", 9092]
            environment = self._environment(name)
            self.kafka = ImagesKafka(self.folder / "kafka", port, environment)
            self.kafka.start()
            return
        grace = SERVICES[name].get("stop_grace_period", _GRACE_S)
        self.children[name] = Child(
            ProcessSpec(
                name=name,
                command=("env", "--chdir", str(self.image), *self._words(name)),
                log_path=self.log(name),
                environment=self._environment(name),
                grace_ms=int(grace.removesuffix("s")) * 1_000,
            )
        )

    def _words(self, name: str) -> Sequence[str]:
        to_here = self.translation(name)
        if name == "prometheus":
            address = f"--web.listen-address={_HOST}:{self.ports[name, 9090]}"
            return [str(tool("prometheus")), *map(to_here, _PROMETHEUS_WORDS), address]
        return [to_here(str(word)) for word in SERVICES[name]["command"]]

    def _environment(self, name: str) -> dict[str, str]:
        """The service's own, and what a container's address and image bring with them."""
        venv = self.image / ".venv"
        given = SERVICES[name].get("environment", {})
        return {
            "PATH": f"{venv / 'bin'}:{os.environ['PATH']}",
            "BALLAST_JARS": str(venv / "share" / "ballast" / "jars"),
            "PYTHONPATH": "",
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_MASTER_WEBUI_PORT": "0",
            "SPARK_WORKER_WEBUI_PORT": "0",
            **{key: self.translation(name)(value) for key, value in given.items()},
        }


class Startable(Protocol):
    """Services that can be started one by one."""

    def wait_healthy(self, name: str) -> None:
        """Wait until its own health check says so."""
        ...

    def wait_done(self, name: str) -> None:
        """Wait until it has done its work, and fail when it has failed."""
        ...

    def start(self, name: str) -> None:
        """Start it."""
        ...


def start_in_order(services: Startable, left_out: Collection[str]) -> None:
    """Start each as soon as those that it depends on are as it wishes."""
    for name in start_order():
        if name in left_out:
            continue
        for other, wish in SERVICES[name].get("depends_on", {}).items():
            if wish["condition"] == "service_healthy":
                services.wait_healthy(other)
            if wish["condition"] == "service_completed_successfully":
                services.wait_done(other)
        services.start(name)


def start_order() -> list[str]:
    """The services, each after those that it depends on."""
    order: list[str] = []
    while len(order) < len(SERVICES):
        ready = [
            name
            for name, service in SERVICES.items()
            if name not in order and set(service.get("depends_on", ())) <= set(order)
        ]
        assert ready, "services depend on each other in a circle"
        order += ready
    return order


@contextmanager
def running_deployment(folder: Path, image: Path) -> Iterator[Deployment]:
    """All of it, begun; whatever still runs at the end is ended."""
    wanted = [(name, port) for name, ports in PORTS.items() for port in ports]
    ports = dict(zip(wanted, free_ports(len(wanted)), strict=True))
    deployment = Deployment(folder=folder, image=image, ports=ports)
    try:
        deployment.begin()
        yield deployment
    finally:
        deployment.kill()


def health_of_rules(prometheus: Prometheus) -> dict[str, str]:
    """Rule → whether its evaluation works; 'unknown' before the first."""
    groups = prometheus.get("rules")["groups"]
    return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

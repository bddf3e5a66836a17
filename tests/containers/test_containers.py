"""The image built, and docker-compose.yml started, in a real container engine.

Health checks and the order of starts are asked for by the test: podman leaves both to systemd,
which a machine of tests does not have. Prometheus is Debian's; Grafana is not started.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dashboards.rules import ALERTS
from jobs.adapters.processes.preflight import free_ports
from tests.containers.engine import IMAGE, SERVICES, Engine, missing
from tests.integration.stack import ROOT, http_json, wait_for
from tests.support.processes.prometheus import Prometheus

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
PROJECT = "ballast-test"
NOT_RUN = "grafana"
LOOKUPS = ("lookup-1", "lookup-2")
PUBLISHED = {"lookup-1": (8080, 8080), "lookup-2": (8081, 8080), "prometheus": (9090, 9090)}
BROKERS, BUNDLES = 10, 200
PATIENCE_S = 600
TOPICS = [f"persistent/public/default/topic-{number}" for number in range(50)]


@dataclass(frozen=True, slots=True)
class Composed:
    """The services in their containers. ports: service → port on this machine."""

    engine: Engine
    folder: Path
    ports: Mapping[str, int]

    def begin(self) -> None:
        """Start every service when those that it depends on are as it wishes."""
        for name in start_order():
            if name == NOT_RUN:
                continue
            for other, wish in SERVICES[name].get("depends_on", {}).items():
                if wish["condition"] == "service_healthy":
                    self.wait_healthy(other)
                if wish["condition"] == "service_completed_successfully":
                    self.wait_done(other)
            self.start(name)

    def wait_healthy(self, name: str) -> None:
        self.wait(f"{name} to be healthy", partial(self.is_healthy, name))

    def wait_done(self, name: str) -> None:
        """Wait until it has done its work, and fail when it has failed."""
        self.wait(f"{name} to be done", lambda: self.state(name)[0] == "exited")
        assert self.state(name) == ("exited", 0), self.log(name)

    def start(self, name: str) -> None:
        self.compose("up", "--no-build", "--no-deps", "--detach", name)

    def compose(self, *words: str) -> None:
        """podman-compose on a copy of docker-compose.yml, which differs in its ports alone."""
        program = str(Path(sys.executable).with_name("podman-compose"))
        ended = subprocess.run(
            [program, "--in-pod=0", "--project-name", PROJECT, *words],
            cwd=self.folder,
            env=self.engine.environment,
            check=False,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert ended.returncode == 0, (
            f"{' '.join(words)}: {ended.stdout[-2_000:]}{ended.stderr[-4_000:]}"
        )

    def is_forgotten(self) -> bool:
        """Remove all with its volumes; a volume is in use while a container is being removed."""
        self.compose("down", "--volumes")
        return self.engine.run("volume", "ls", "--quiet") == ""

    def container(self, name: str) -> str:
        return f"{PROJECT}_{name}_1"

    def state(self, name: str) -> tuple[str, int]:
        found = json.loads(self.engine.run("inspect", self.container(name)))[0]["State"]
        return found["Status"], int(found["ExitCode"])

    def started(self, name: str) -> str:
        found: str = json.loads(self.engine.run("inspect", self.container(name)))[0]["State"][
            "StartedAt"
        ]
        return found

    def process(self, name: str) -> int:
        """The id, on this machine, of a container's first process."""
        return int(json.loads(self.engine.run("inspect", self.container(name)))[0]["State"]["Pid"])

    def is_healthy(self, name: str) -> bool:
        return self.engine.ask("healthcheck", "run", self.container(name)).returncode == 0

    def log(self, name: str) -> str:
        ended = self.engine.ask("logs", "--tail", "40", self.container(name))
        return ended.stdout + ended.stderr

    def wait(self, what: str, condition: Callable[[], object]) -> None:
        wait_for(what, condition, PATIENCE_S)

    def lookup(self, name: str, topic: str) -> tuple[int, Any]:
        """Status and body of a lookup; 0 while nobody listens."""
        try:
            return http_json(f"http://127.0.0.1:{self.ports[name]}/lookup/v2/topic/{topic}")
        except OSError:
            return 0, None

    def answers(self, name: str) -> list[Any] | None:
        """All topics' owners by one service, when it knows all of them."""
        found = [self.lookup(name, topic) for topic in TOPICS]
        return [body for _, body in found] if {status for status, _ in found} == {200} else None

    def starts_of_the_job(self) -> list[dict[str, Any]]:
        """The lines with which the job has begun in this container, one a start."""
        lines = self.engine.run("logs", self.container("job")).splitlines()
        found = [json.loads(line) for line in lines if line.startswith('{"logged_at_ms"')]
        return [line for line in found if line.get("event") == "start"]


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


@pytest.fixture(scope="module")
def composed(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    folder = tmp_path_factory.mktemp("composed")
    shutil.copytree(ROOT / "conf" / "container", folder / "conf" / "container")
    shutil.copytree(ROOT / "dashboards", folder / "dashboards")
    (folder / "secrets").mkdir()
    for name in ("token_secret", "grafana_password"):
        (folder / "secrets" / name).write_text(f"{name} of at least 32 bytes, the same\n")
    text = (ROOT / "docker-compose.yml").read_text()
    ports = dict(zip(PUBLISHED, free_ports(len(PUBLISHED)), strict=True))
    for name, (port, inside) in PUBLISHED.items():
        assert f"127.0.0.1:{port}:{inside}" in text
        text = text.replace(f"127.0.0.1:{port}:{inside}", f"127.0.0.1:{ports[name]}:{inside}")
    (folder / "docker-compose.yml").write_text(text)
    begun = Composed(engine, folder, ports)
    begun.begin()
    yield begun
    begun.compose("down")


def test_image_runs_as_nobody_and_writes_nowhere_but_where_it_is_told(engine: Engine) -> None:
    print(json.dumps({"image_mb": engine.size_bytes() // 1_000_000}))  # noqa: T201 (a measurement)
    confined = ("run", "--rm", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL")
    assert engine.run(*confined, IMAGE, "id", "--user").strip() == "10001"
    assert "usage: ballast" in engine.run(*confined, IMAGE)
    is_compiled = "import os, jobs.cli; print(os.path.exists(jobs.cli.__cached__))"
    assert engine.run(*confined, IMAGE, "python", "-c", is_compiled).strip() == "True"
    refused = engine.ask(*confined, IMAGE, "touch", "/opt/ballast/README.md")
    assert "Read-only file system" in refused.stderr


def test_all_bundles_are_placed_and_both_lookup_services_answer_alike(composed: Composed) -> None:
    composed.wait("the namespace to be made", lambda: composed.state("namespace") == ("exited", 0))
    for name in LOOKUPS:
        composed.wait(f"{name} to know every owner", partial(composed.answers, name))
        composed.wait_healthy(name)
    first, second = (composed.answers(name) for name in LOOKUPS)
    assert first == second
    assert len({body["httpUrl"] for body in first or ()}) > 1


def test_prometheus_scrapes_every_target_and_evaluates_every_rule(composed: Composed) -> None:
    composed.wait_healthy("prometheus")
    prometheus = Prometheus(url=f"http://127.0.0.1:{composed.ports['prometheus']}")
    composed.wait("every target to be up", lambda: prometheus.value("sum(up)") == 3)
    composed.wait("the rules", lambda: set(health_of_rules(prometheus).values()) == {"ok"})
    assert set(health_of_rules(prometheus)) == {alert.name for alert in ALERTS}


def health_of_rules(prometheus: Prometheus) -> dict[str, str]:
    """Rule → whether its evaluation works; 'unknown' before the first."""
    groups = prometheus.get("rules")["groups"]
    return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}


def test_job_killed_is_started_again_and_goes_on_from_its_checkpoint(composed: Composed) -> None:
    before, starts = composed.started("job"), len(composed.starts_of_the_job())
    known = composed.answers("lookup-1")
    os.kill(composed.process("job"), signal.SIGKILL)  # podman would take its own kill for a wish
    assert composed.answers("lookup-1") == known  # lookups do without it
    composed.wait(
        "the job to be started again",
        lambda: composed.state("job")[0] == "running" and composed.started("job") != before,
    )
    composed.wait("it to begin", lambda: len(composed.starts_of_the_job()) > starts)
    assert composed.starts_of_the_job()[-1]["rebuilt_because"] == ""


def test_all_end_in_order_and_go_on_with_their_volumes(composed: Composed) -> None:
    known = composed.answers("lookup-1")
    assert known is not None
    ended = ("job", *LOOKUPS, "fleet")
    composed.compose("stop", *ended)
    for name in ended:
        assert composed.state(name) == ("exited", 0), composed.log(name)
    composed.compose("down")
    assert composed.engine.run("ps", "--all", "--quiet") == ""
    composed.begin()
    composed.wait("the owners to be known again", lambda: composed.answers("lookup-1"))
    composed.wait("the job to begin", composed.starts_of_the_job)
    line, *_ = composed.starts_of_the_job()
    assert line["writer_epoch"] > 0
    assert line["rebuilt_because"] == ""
    composed.wait("no volume to be left", composed.is_forgotten)

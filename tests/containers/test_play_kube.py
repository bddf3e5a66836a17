"""The pods of the Helm chart in a real container engine, as the chart renders them."""

import base64
import copy
import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.adapters.processes.preflight import free_ports
from tests.containers.engine import IMAGE, KAFKA_IMAGE, SERVICES, Engine, missing
from tests.integration.stack import wait_for
from tests.support.processes.helm_tool import rendered

NETWORK, KAFKA = "chart", "kafka"
PATIENCE_S = 600
_REPOSITORY, _TAG = IMAGE.rsplit(":", 1)
VALUES = (
    f'image={{"repository":"{_REPOSITORY}","tag":"{_TAG}","pullPolicy":"Never"}}',
    f'bootstrap="{KAFKA}:9092"',
)
_SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "ballast"},
    "data": {"token_secret": base64.b64encode(b"at least 32 bytes, always the same").decode()},
}
_PROBES = ("startupProbe", "livenessProbe", "readinessProbe")

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlayedPod:
    """A pod that runs. spec: the chart's, of its one container. port: of this machine."""

    name: str
    spec: Object
    port: int
    grace_s: int

    @property
    def container(self) -> str:
        return f"{self.name}-{self.spec['name']}"

    def get(self, path: str) -> str:
        """What it answers, "" while that is an error or nothing."""
        url = f"http://127.0.0.1:{self.port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def is_ready(self) -> bool:
        paths = [self.spec[one]["httpGet"]["path"] for one in _PROBES if one in self.spec]
        return all(self.get(path) for path in paths)


@dataclass
class PlayedChart:
    """What the chart would start in a cluster. pods: by the component, in order."""

    engine: Engine
    folder: Path
    pods: dict[str, list[PlayedPod]] = field(default_factory=dict)

    def begin(self) -> None:
        self.engine.run("network", "create", NETWORK)
        self._start_kafka()
        found = rendered(*VALUES)
        shared = [one for one in found if one["kind"] in {"ConfigMap", "PersistentVolumeClaim"}]
        self._play("shared", [_SECRET, *(o for o in shared if o["kind"] != "ConfigMap")])
        maps = [one for one in shared if one["kind"] == "ConfigMap"]
        for one in found:
            if one["kind"] == "Deployment":
                self._start(one, maps)

    def exec(self, pod: PlayedPod, *words: str) -> str:
        return self.engine.run("exec", pod.container, *words, timeout_s=PATIENCE_S)

    def log(self, pod: PlayedPod) -> str:
        ended = self.engine.ask("logs", "--tail", "40", pod.container)
        return ended.stdout + ended.stderr

    def run_beside(self, name: str, *words: str) -> None:
        """Start a container of the same image that the chart knows nothing of."""
        beside = ("--detach", "--name", name, "--network", NETWORK)
        self.engine.run("run", *beside, IMAGE, *words)

    def _start_kafka(self) -> None:
        service = SERVICES[KAFKA]
        variables = [f"--env={name}={value}" for name, value in service["environment"].items()]
        beside = ("--detach", "--name", KAFKA, "--network", NETWORK)
        self.engine.run("run", *beside, *variables, KAFKA_IMAGE)
        asked = service["healthcheck"]["test"][1]
        wait_for(
            "Kafka to answer",
            lambda: self.engine.ask("exec", KAFKA, "sh", "-c", asked).returncode == 0,
            PATIENCE_S,
        )

    def _start(self, deployment: Object, maps: list[Object]) -> None:
        template = deployment["spec"]["template"]
        (container,) = template["spec"]["containers"]
        pods = self.pods.setdefault(container["name"], [])
        for number in range(deployment["spec"]["replicas"]):
            name = f"{deployment['metadata']['name']}-{number}"
            for first in template["spec"].get("initContainers", ()):
                once = _pod(f"{name}-{first['name']}", template, first)
                once["spec"]["restartPolicy"] = "Never"
                self._play(once["metadata"]["name"], [*maps, once])
                self._wait_done(f"{once['metadata']['name']}-{first['name']}")
            (port,) = free_ports(1)
            pod = _pod(name, template, container)
            (served,) = pod["spec"]["containers"][0]["ports"]
            served |= {"hostIP": "127.0.0.1", "hostPort": port}
            self._play(name, [*maps, pod])
            grace_s = template["spec"]["terminationGracePeriodSeconds"]
            pods.append(PlayedPod(name, container, port, grace_s))

    def _wait_done(self, container: str) -> None:
        state = ("inspect", "--format", "{{.State.Status}} {{.State.ExitCode}}", container)
        wait_for(f"{container} to end", lambda: "exited" in self.engine.run(*state), PATIENCE_S)
        ended = self.engine.ask("logs", container)
        assert self.engine.run(*state).split() == ["exited", "0"], ended.stdout + ended.stderr

    def _play(self, name: str, objects: list[Object]) -> None:
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump_all(objects))
        self.engine.run("play", "kube", "--network", NETWORK, str(path), timeout_s=PATIENCE_S)


def _pod(name: str, template: Object, container: Object) -> dict[str, Any]:
    """A pod of the template with this container alone."""
    spec = copy.deepcopy({**template["spec"], "containers": [container], "initContainers": []})
    for volume in spec["volumes"]:
        if "secret" in volume:
            volume["secret"]["optional"] = False
    for one in (*spec["volumes"], *spec["containers"][0]["volumeMounts"]):
        if one["name"] == "tmp":
            one["name"] = f"tmp-{name}"
    for probe in _PROBES:
        spec["containers"][0].pop(probe, None)
    metadata = {"name": name, "labels": template["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(3_600),
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
TABLES = "--tables=/var/lib/ballast/tables"
TOPICS = [f"persistent/public/default/topic-{number}" for number in range(20)]
AT_WORK, STANDING_BY = (f'ballast_job_phase{{phase="{one}"}} 1.0' for one in
                        ("at work", "standing by"))  # fmt: skip


@pytest.fixture(scope="module")
def chart(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> PlayedChart:
    begun = PlayedChart(engine, tmp_path_factory.mktemp("chart"))
    begun.begin()
    return begun


def wait(chart: PlayedChart, what: str, condition: Any) -> None:
    """Wait until something holds, and fail with what the pods say."""
    try:
        wait_for(what, condition, PATIENCE_S)
    except AssertionError as error:
        said = [f"{pod.name}: {chart.log(pod)}" for pods in chart.pods.values() for pod in pods]
        raise AssertionError("\n".join([str(error), *said])) from None


def in_phase(chart: PlayedChart, phase: str) -> list[PlayedPod]:
    return [pod for pod in chart.pods["job"] if phase in pod.get("/metrics")]


def owners(pod: PlayedPod) -> list[Any]:
    """Who owns the topics, once all of them have somebody."""
    found = [pod.get(f"/lookup/v2/topic/{topic}") for topic in TOPICS]
    return [json.loads(one) for one in found] if all(found) else []


def test_one_pod_of_the_job_works_and_the_other_stands_by(chart: PlayedChart) -> None:
    assert {component: len(pods) for component, pods in chart.pods.items()} == {
        "job": 2,
        "lookup": 2,
    }
    for pods in chart.pods.values():
        for pod in pods:
            wait(chart, f"{pod.name} to be ready", pod.is_ready)
    wait(chart, "one to be at work", lambda: len(in_phase(chart, AT_WORK)) == 1)
    assert len(in_phase(chart, STANDING_BY)) == 1


def test_lookups_are_answered_alike_by_all_pods(chart: PlayedChart) -> None:
    fleet = ("--bootstrap=kafka:9092", "--state-dir=/var/lib/ballast/state", "--brokers=4")
    space = ("--namespace=public/default:crc32:40", "--load=zipf")
    chart.run_beside("fleet", "python", "-m", "jobs.run_fleet", *fleet, *space)
    first, second = chart.pods["lookup"]
    made = ("namespace", "create", "public/default", "--bundles=40", "--timeout=5m")
    chart.exec(first, "ballast", *made, "--cluster=local", TABLES)
    for pod in (first, second):
        wait(chart, f"{pod.name} to know every owner", partial(owners, pod))
    assert owners(first) == owners(second)
    assert len({one["httpUrl"] for one in owners(first)}) > 1
    assert "at work" in chart.exec(second, "ballast", "status", "--cluster=local", TABLES)


def test_standby_works_on_when_the_job_dies_which_then_stands_by(chart: PlayedChart) -> None:
    (worker,), (spare,) = in_phase(chart, AT_WORK), in_phase(chart, STANDING_BY)
    state = chart.engine.run("inspect", "--format", "{{.State.Pid}}", worker.container)
    killed_s = time.monotonic()
    os.kill(int(state), signal.SIGKILL)
    wait(chart, "the standby to work", lambda: in_phase(chart, AT_WORK) == [spare])
    print(json.dumps({"at_work_after_s": time.monotonic() - killed_s}))  # noqa: T201 (a measurement)
    wait(chart, "the other to stand by", lambda: in_phase(chart, STANDING_BY) == [worker])
    assert owners(chart.pods["lookup"][0])


def test_pods_end_in_order_within_their_time(chart: PlayedChart) -> None:
    for pods in chart.pods.values():
        for pod in pods:
            chart.engine.run("stop", "--time", str(pod.grace_s), pod.container, timeout_s=300)
            code = chart.engine.run("inspect", "--format", "{{.State.ExitCode}}", pod.container)
            assert int(code) == 0, chart.log(pod)

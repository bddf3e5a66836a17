"""The pods of the Helm chart by `podman play kube`, one file a pod.

Decides what podman 4.3 needs otherwise than Kubernetes. A Deployment becomes its pods, as there are
no Services: what each serves is on a free port of this machine. Init containers, which podman would
start again for ever, are a pod that ends, before. Probes, which it leaves to systemd, are asked by
the test. An emptyDir, which it keeps under its name for all pods, has the pod's. A Secret's volume
says that it is needed, without which podman fails. Nothing else of the chart is changed.
"""

import base64
import copy
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from jobs.adapters.processes.preflight import free_ports
from tests.containers.engine import IMAGE, KAFKA_IMAGE, SERVICES, Engine
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

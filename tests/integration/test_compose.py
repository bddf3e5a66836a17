"""docker-compose.yml as one deployment, each service run by its own command, without an engine."""

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from dashboards.rules import ALERTS
from tests.integration.compose_deployment import (
    NOT_RUN,
    SERVICES,
    Deployment,
    health_of_rules,
    running_deployment,
    start_order,
)
from tests.integration.stack import ROOT, http_json
from tests.support.processes.prometheus import Prometheus
from tests.support.values.tokens import token
from tests.tidy.test_compose import DOCKERFILE

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]
BROKERS, BUNDLES = 10, 200
TERMINATED = 128 + 15  # how a JVM without a handler of ours ends when it is told to
LOOKUPS = ("lookup-1", "lookup-2")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `COPY . .` and `RUN make setup` leave in the image's folder."""
    assert DOCKERFILE.index("\nCOPY --chown=ballast . .\n") < DOCKERFILE.index("\nRUN make setup ")
    folder = tmp_path_factory.mktemp("image") / "ballast"
    left_out = (ROOT / ".dockerignore").read_text().split()
    shutil.copytree(
        ROOT,
        folder,
        ignore=shutil.ignore_patterns(*(name.removeprefix("**/") for name in left_out)),
    )
    environment = {name: value for name, value in os.environ.items() if name != "BALLAST_JARS"}
    command = ["make", "setup", f"PYTHON={sys.executable}"]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    return folder


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, image: Path) -> Iterator[Deployment]:
    with running_deployment(tmp_path_factory.mktemp("deployment"), image) as begun:
        yield begun


def test_the_images_system_packages_can_be_had() -> None:
    found = re.search(r"apt-get install --yes --no-install-recommends (.+?) \\", DOCKERFILE)
    assert found is not None
    asks = shutil.which("apt-cache")
    if asks is None:
        pytest.skip("this system has no Debian packages")
    said = subprocess.run([asks, "policy", *found[1].split()], check=True, capture_output=True)
    lines = said.stdout.decode().splitlines()
    if not any("://" in line for line in lines):
        pytest.skip("this system has no list of Debian's packages")
    assert [line[:-1] for line in lines if line and line[0] != " "] == found[1].split()
    assert "  Candidate: (none)" not in lines


def test_each_health_check_says_yes(deployment: Deployment) -> None:
    checked = [name for name in SERVICES if "healthcheck" in SERVICES[name]]
    for name in checked:
        if name not in NOT_RUN:
            deployment.wait_healthy(name)


def test_all_bundles_are_placed_on_all_brokers(deployment: Deployment) -> None:
    deployment.wait_done("namespace")
    deployment.wait("every bundle to be owned", lambda: len(owners(deployment)) == BUNDLES)
    deployment.wait(
        "every broker to own some", lambda: len(set(owners(deployment).values())) == BROKERS
    )


def test_both_lookup_services_answer_alike(deployment: Deployment) -> None:
    topics = [f"persistent/public/default/topic-{number}" for number in range(50)]
    for topic in topics:
        answers = [lookup(deployment, name, topic) for name in LOOKUPS]
        assert answers[0][0] == 200
        assert answers[0] == answers[1]


def test_operators_need_a_token_made_with_the_secret(deployment: Deployment) -> None:
    secret = (deployment.folder / "secrets" / "token_secret").read_text().strip()
    for name in LOOKUPS:
        client = HTTPConnection("127.0.0.1", deployment.ports[name, 8080], timeout=60)
        bearer = {"Authorization": f"Bearer {token(secret, 'HS256')}"}
        for headers, status in (({}, 401), (bearer, 200)):
            client.request("GET", "/v1/status", headers=headers)
            answer = client.getresponse()
            answer.read()
            assert answer.status == status
        client.close()


def test_both_workers_run_executors(deployment: Deployment) -> None:
    for name in ("spark-worker-1", "spark-worker-2"):
        folder = deployment.translation(name).folders()["/tmp"] / "spark-worker"  # noqa: S108 (the container's)
        assert list(folder.glob("app-*/*/stderr")), f"{name} has started no executor"


def test_prometheus_scrapes_every_target_and_evaluates_every_rule(deployment: Deployment) -> None:
    prometheus = Prometheus(url=deployment.address("prometheus"))
    deployment.wait("every target to be up", lambda: prometheus.value("sum(up)") == 3)
    targets = prometheus.get("targets")["activeTargets"]
    assert Counter(one["health"] for one in targets) == {"up": 3}
    deployment.wait(
        "the rules to be evaluated", lambda: set(health_of_rules(prometheus).values()) == {"ok"}
    )
    assert set(health_of_rules(prometheus)) == {alert.name for alert in ALERTS}


def test_all_end_in_reverse_order_and_in_order(deployment: Deployment) -> None:
    codes = deployment.stop()
    begun = [name for name in start_order() if name not in (*NOT_RUN, "kafka")]
    assert list(codes) == begun[::-1]
    of_spark = {name for name in begun if name.startswith("spark-")}
    assert codes == {name: TERMINATED if name in of_spark else 0 for name in begun}


def owners(deployment: Deployment) -> dict[str, str]:
    """Bundle → broker, of the records that say Owned."""
    path = str(deployment.folder / "volumes" / "tables" / "bundle_ownership")
    if not DeltaTable.is_deltatable(path):
        return {}
    rows = pa.table(DeltaTable(path).scan().read_all()).to_pylist()
    return {row["bundle"]: row["destination"] for row in rows if row["state"] == "Owned"}


def lookup(deployment: Deployment, name: str, topic: str) -> tuple[int, Any]:
    return http_json(f"{deployment.address(name)}/lookup/v2/topic/{topic}")

"""`ballast bridge rolling-restart` beside a real Pulsar cluster with traffic, and the whole job.

Three brokers are restarted by a command, over a kill -9 of the verb: no message is lost, no client
sees an error. A command that leaves a broker down stops it by itself.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from jobs.adapters.processes.processes import Child
from tests.integration.stack import PATIENCE_S, wait_for
from tests.pulsar.pulsar_stack import BUNDLES, PULSAR, QUICK, SPARK, PulsarStack, running_pulsar
from tests.support.processes.programs import run_ballast, start_ballast
from tests.support.processes.restarter import Restarter

pytestmark = pytest.mark.xdist_group("pulsar")
BROKERS = (2, 3, 4)
PATIENT = replace(
    QUICK,
    settings=(
        *QUICK.settings,
        "shedding.is_shedding=false",  # which, as quick as here, moves a bundle every few seconds
    ),
)


@dataclass
class Rolling:
    """The verb, run as a process of its own."""

    cluster: PulsarStack
    folder: Path
    child: Child | None = None

    @property
    def state(self) -> Path:
        return self.folder / "rolling.json"

    @property
    def log(self) -> Path:
        return self.folder / "rolling.out"

    def words(self, *more: str) -> list[str]:
        words = ["bridge", "rolling-restart", "--admin-url", self.cluster.pulsar.admin_url]
        words += [*self.cluster.where(), "--ready-within", "5m", "--state", str(self.state)]
        return [*words, *more]

    def start(self, *more: str) -> None:
        self.child = start_ballast("rolling", self.words("--yes", *more), self.log)

    def stage(self) -> str:
        """How far the broker in hand is; "" when nothing is kept."""
        try:
            return str(json.loads(self.state.read_text())["stage"])
        except (OSError, ValueError):
            return ""

    def wait(self) -> int:
        assert self.child is not None
        return self.child.wait(PATIENCE_S * 1_000)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    folder = tmp_path_factory.mktemp("rolling")
    with running_pulsar(folder, job=SPARK, balancing=PATIENT) as running:
        running.pulsar.start_broker(4)
        running.wait("bundles on every broker", lambda: is_spread(running))
        running.start_bridge("--act")
        running.wait("acting", lambda: running.bridge_events("acting"))
        running.wait("the mirror", running.is_mirrored)
        assert running.traffic.errors() == []
        acknowledged = running.traffic.acknowledged()
        running.wait("traffic", lambda: running.traffic.acknowledged() > acknowledged + 1_000)
        yield running


def is_spread(cluster: PulsarStack) -> bool:
    """Whether all four brokers have as many; what is elsewhere is asked to move."""
    names = [cluster.pulsar.broker(one) for one in (1, *BROKERS)]
    owners = cluster.owners()
    wanted = {bundle: names[at % len(names)] for at, bundle in enumerate(sorted(owners))}
    for bundle in (one for one, owner in owners.items() if owner != wanted[one]):
        cluster.admin.unload(bundle, wanted[bundle])
    return len(owners) >= BUNDLES // 2 and owners == wanted


@pytest.fixture
def rolling(cluster: PulsarStack, tmp_path: Path) -> Iterator[Rolling]:
    found = Rolling(cluster=cluster, folder=tmp_path)
    try:
        yield found
    finally:
        if found.child is not None:
            found.child.kill()


@pytest.fixture
def restarter(cluster: PulsarStack, tmp_path: Path) -> Iterator[Restarter]:
    numbers = {cluster.pulsar.broker(one): one for one in BROKERS}
    found = Restarter(tmp_path / "asked", lambda name: cluster.pulsar.restart_broker(numbers[name]))
    yield found
    found.stop()


def test_three_brokers_are_restarted_over_a_kill_without_a_client_noticing(
    cluster: PulsarStack, rolling: Rolling, restarter: Restarter
) -> None:
    names = [cluster.pulsar.broker(one) for one in BROKERS]
    before = {name: cluster.admin.load_report(PULSAR, name) for name in names}
    dry = run_ballast(*rolling.words("--brokers", *names, "--dry-run"))
    assert "in this order" in dry.stderr
    assert rolling.stage() == ""
    words = ("--brokers", *names, "--command", restarter.command)
    rolling.start(*words)
    wait_for("the command", lambda: rolling.stage() == "restarting", PATIENCE_S)
    assert rolling.child is not None
    rolling.child.kill()
    rolling.start(*words)
    assert rolling.wait() == 0, rolling.log.read_text()
    assert not rolling.state.exists()
    assert set(restarter.restarted) == set(names)
    started = {name: int(one.load.envelope.incarnation) for name, one in before.items()}
    now = {name: cluster.admin.load_report(PULSAR, name) for name in names}
    assert all(int(now[name].load.envelope.incarnation) > started[name] for name in names)
    assert set(names) <= set(cluster.owners().values())
    assert cluster.traffic.errors() == []


def test_broker_that_does_not_come_back_stops_it_and_it_goes_on_when_it_is_there(
    cluster: PulsarStack, rolling: Rolling
) -> None:
    name, number = cluster.pulsar.broker(2), 2
    pid = cluster.pulsar.pid(number)
    words = ("--brokers", name, "--return-within", "20s", "--command", f"kill -9 {pid}")
    rolling.start(*words)
    assert rolling.wait() == 1
    assert f"{name} has not come back" in rolling.log.read_text()
    assert rolling.stage() == "returning"
    cluster.pulsar.start_broker(number)
    rolling.start()
    assert rolling.wait() == 0, rolling.log.read_text()


def test_nothing_is_lost(cluster: PulsarStack) -> None:
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []

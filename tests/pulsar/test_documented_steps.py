"""docs/pulsar.md, word by word: its commands as they stand there, on a real cluster with Spark.

Only the addresses are this machine's. What each step says to expect is looked for.
"""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.processes.processes import Child, ProcessSpec
from lbcore.bridge.acting import SHEDDING
from tests.integration.stack import ROOT
from tests.pulsar.pulsar_stack import (
    AS_SHIPPED,
    NO_JOB,
    PULSAR,
    QUICK_PULSAR,
    PulsarStack,
    running_pulsar,
)

pytestmark = pytest.mark.xdist_group("pulsar")
PAGE = ROOT / "docs" / "pulsar.md"
PROGRAMS = {"ballast": [sys.executable, "-m", "jobs.cli"], "python": [sys.executable]}
STEPS = ("1. Attach", "2. Observe", "3. Take over", "4. Give back")


class Reader:
    """Somebody who does what the page says. Commands that go on get a name."""

    def __init__(self, cluster: PulsarStack, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.page = PAGE.read_text()
        self.addresses = {
            "KAFKA": cluster.stack.kafka.bootstrap,
            "TABLES": str(cluster.stack.tables),
            "STATE": str(folder / "state"),
            "PULSAR": cluster.pulsar.admin_url,
        }

    def commands(self, step: str) -> list[str]:
        section = self.page.split(f"\n## {step}\n")[1].split("\n## ")[0]
        blocks = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        return [line for block in blocks for line in block.splitlines()]

    def words(self, line: str) -> list[str]:
        for name, value in self.addresses.items():
            line = line.replace(f"${name}", value)
        program, *rest = shlex.split(line)
        return [*PROGRAMS[program], *rest]

    def run(self, line: str) -> str:
        """A command that ends by itself, and must end well."""
        ended = self.ended(line)
        assert ended.returncode == 0, f"{line}\n{ended.stdout}{ended.stderr}"
        return ended.stdout

    def ended(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.words(line), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
        )

    def unload_first(self) -> tuple[str, str]:
        """Move a bundle by hand; asked again, as the page says, if Pulsar was just shedding it."""
        for _ in range(3):
            self.cluster.wait("the mirror", self.cluster.is_mirrored)
            bundle, owner = min(self.cluster.owners().items())
            other = next(one for one in self.cluster.admin.brokers(PULSAR) if one != owner)
            asked = ["bundle", "unload", bundle, "--destination", other, *self.cluster.where()]
            ended = self.ended(shlex.join(["ballast", *asked]))
            if ended.returncode == 0:
                return bundle, other
            assert "overtaken by external" in ended.stdout, ended.stdout + ended.stderr
        raise AssertionError("Pulsar sheds on")

    def start(self, name: str, line: str) -> None:
        spec = ProcessSpec(
            name=name,
            command=tuple(self.words(line)),
            log_path=self.cluster.stack.folder / f"{name}.log",
            environment={"PYTHONPATH": str(ROOT)},
        )
        self.cluster.children[name] = Child(spec)

    def sheds(self) -> set[str]:
        admin = self.cluster.admin
        return {admin.settings(PULSAR, one)[SHEDDING] for one in admin.brokers(PULSAR)}

    def status(self) -> str:
        return self.run(self.commands(STEPS[0])[-1])


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("documented")
    shedding = {**QUICK_PULSAR, SHEDDING: "true"}
    with running_pulsar(folder, settings=shedding, job=NO_JOB, balancing=AS_SHIPPED) as cluster:
        cluster.stack.kafka.start()
        yield Reader(cluster, folder)
        cluster.children.pop("job").stop()


def test_page_names_the_addresses_and_the_steps(reader: Reader) -> None:
    exported = set(re.findall(r"\b([A-Z]+)=", reader.page.split("\n## 1. Attach\n")[0]))
    assert exported - {"BALLAST"} == set(reader.addresses)
    assert [len(reader.commands(step)) for step in STEPS] == [4, 2, 1, 1]


def test_attached_bridge_mirrors_and_moves_nothing(reader: Reader) -> None:
    topics, job, bridge, _ = reader.commands(STEPS[0])
    reader.run(topics)
    before = reader.cluster.owners()
    reader.start("job", job)
    reader.start("bridge", bridge)
    rounds = reader.cluster.bridge_events
    reader.cluster.wait("rounds", lambda: len(rounds("round")) > 3)
    reader.cluster.wait("the mirror", reader.cluster.is_mirrored)
    reader.cluster.wait("no difference", lambda: rounds("round")[-1]["differences"] == 0)
    assert reader.cluster.owners() == before
    assert "only observed" in reader.status()
    assert all(name in reader.status() for name in reader.cluster.admin.brokers(PULSAR))


def test_observed_cluster_is_planned_and_explained_and_a_command_fails(reader: Reader) -> None:
    for line in reader.commands(STEPS[1]):
        assert reader.run(line).strip()
    bundle = min(reader.cluster.owners())
    asked = ["bundle", "unload", bundle, *reader.cluster.where(), "--timeout", "100s"]
    ended = reader.ended(shlex.join(["ballast", *asked]))
    assert ended.returncode != 0
    assert "observes" in ended.stdout + ended.stderr
    assert reader.cluster.moves() == []


def test_taken_over_cluster_has_its_shedding_off_and_obeys(reader: Reader) -> None:
    (take_over,) = reader.commands(STEPS[2])
    assert reader.sheds() == {"true"}
    assert reader.cluster.stop_bridge() == 0
    reader.start("bridge", take_over)
    reader.cluster.wait("the bridge to act", lambda: reader.cluster.bridge_events("acting"))
    assert reader.sheds() == {"false"}
    bundle, destination = reader.unload_first()
    reader.cluster.wait("the move", lambda: reader.cluster.owners()[bundle] == destination)
    reader.cluster.wait("the mirror", reader.cluster.is_mirrored)
    reader.cluster.wait("ballast to say so", lambda: "carried out" in reader.status())


def test_given_back_cluster_sheds_by_itself_again_and_ballast_observes(reader: Reader) -> None:
    (give_back,) = reader.commands(STEPS[3])
    observing = len(reader.cluster.bridge_events("observing"))
    assert f"{SHEDDING}=true" in reader.run(give_back)
    reader.cluster.wait(
        "the bridge to observe", lambda: len(reader.cluster.bridge_events("observing")) > observing
    )
    assert reader.sheds() == {"true"}
    reader.cluster.wait("ballast to say so", lambda: "only observed" in reader.status())
    assert reader.cluster.stop_bridge() == 0
    assert reader.cluster.traffic.errors() == []

"""`ballast attach` beside a real Pulsar cluster: observe, crash, go on, take over, give back."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.processes import Child
from jobs.local.layout import CLUSTER, Layout
from lbcore.bridge.acting import SHEDDING
from tests.integration.stack import PATIENCE_S, wait_for
from tests.pulsar.pulsar_stack import (
    NETWORK_MBYTES,
    NO_JOB,
    PULSAR,
    QUICK,
    QUICK_PULSAR,
    PulsarStack,
    running_pulsar,
)
from tests.support.processes.programs import run_ballast, start_ballast

pytestmark = pytest.mark.xdist_group("pulsar")


class Attached:
    """A folder, and what is attached with it."""

    def __init__(self, cluster: PulsarStack, folder: Path) -> None:
        self.cluster, self.layout = cluster, Layout(root=folder / "state")
        self.log = folder / "attach.log"
        self.child: Child | None = None

    def start(self, *words: str) -> None:
        self.log.write_text("")
        where = ("--state-dir", str(self.layout.root), "--network-mbytes", str(NETWORK_MBYTES))
        settings = [word for setting in QUICK.settings for word in ("--set", setting)]
        command = ["attach", self.cluster.pulsar.admin_url, *where, *settings, *words]
        self.child = start_ballast("attach", command, self.log)
        wait_for("the first picture", self._is_seen, PATIENCE_S)

    def _is_seen(self) -> bool:
        said = self.log.read_text()
        assert self.child is not None
        assert self.child.exit_code() is None, said
        return "first picture" in said

    def ballast(self, *words: str) -> str:
        done = run_ballast(*words, "--state-dir", str(self.layout.root))
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def versions(self) -> dict[str, int]:
        """Bundle → version of its record."""
        rows = TableReader(self.layout.tables, CLUSTER).rows("bundle_ownership")
        return {row["bundle"]: row["version_id"] for row in rows}

    def sheds(self) -> set[str]:
        admin = self.cluster.admin
        return {admin.settings(PULSAR, one)[SHEDDING] for one in admin.brokers(PULSAR)}

    def dynamic(self) -> Mapping[str, str]:
        return self.cluster.admin.dynamic_settings()


@pytest.fixture
def attached(tmp_path: Path) -> Iterator[Attached]:
    settings = {**QUICK_PULSAR, SHEDDING: "true"}
    with running_pulsar(tmp_path / "pulsar", settings=settings, job=NO_JOB) as cluster:
        found = Attached(cluster, tmp_path)
        try:
            yield found
        finally:
            if found.child is not None:
                found.child.kill()


def test_attached_cluster_is_observed_over_a_crash_taken_over_and_given_back(
    attached: Attached, record_testsuite_property: Callable[[str, object], None]
) -> None:
    cluster = attached.cluster
    attached.start()
    first = next(line for line in attached.log.read_text().splitlines() if "first picture" in line)
    record_testsuite_property("first_picture", first)
    assert "observes only" in attached.log.read_text()
    assert "dry run, nothing was sent" in attached.log.read_text()
    assert attached.sheds() == {"true"}
    dynamic_before = attached.dynamic()
    hot = cluster.pulsar.broker(1)
    cluster.gather(hot)
    assert attached.child is not None
    attached.child.kill()
    before = attached.versions()
    attached.start("--act", "--yes")
    assert f"{SHEDDING} becomes false (it is true)" in attached.log.read_text()
    wait_for("Pulsar to shed no more", lambda: attached.sheds() == {"false"}, PATIENCE_S)
    after = attached.versions()
    assert before
    assert all(after[bundle] >= version for bundle, version in before.items())
    wait_for("a bundle to leave it", lambda: set(cluster.owners().values()) - {hot}, PATIENCE_S)
    assert f"{SHEDDING}=true" in attached.ballast("detach")
    wait_for("Pulsar to shed again", lambda: attached.sheds() == {"true"}, PATIENCE_S)
    assert attached.dynamic() == dynamic_before
    assert attached.sheds() == {"true"}
    assert "nothing was changed" in attached.ballast("detach")
    assert attached.child.wait(PATIENCE_S * 1_000) == 0
    assert "was given back: this ends" in attached.log.read_text()

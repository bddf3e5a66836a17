"""`ballast assess` beside a real Pulsar cluster: nothing else runs, and nothing is changed."""

import json
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pulsar.pulsar_stack import (
    FOR_LITTLE_TRAFFIC,
    NETWORK_MBYTES,
    NO_JOB,
    PulsarStack,
    running_pulsar,
)
from tests.support.processes.programs import run_ballast

pytestmark = pytest.mark.xdist_group("pulsar")
MEMORY_MAX_BYTES = 300 * 1_000_000
FIRST_PICTURE_MAX_S = 60


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with running_pulsar(tmp_path_factory.mktemp("assess"), job=NO_JOB) as running:
        yield running


def test_skewed_cluster_is_assessed_in_bounded_time_and_memory_and_left_as_it_was(
    cluster: PulsarStack,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    hot = cluster.pulsar.broker(2)
    cluster.gather(hot)
    before = owners(cluster)
    page = tmp_path / "page.html"
    words = ["assess", cluster.pulsar.admin_url, "--for", "100s", "--html", str(page), "--json"]
    words += ["--network-mbytes", str(NETWORK_MBYTES)]
    words += [word for setting in FOR_LITTLE_TRAFFIC for word in ("--set", setting)]
    done = run_ballast(*words)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1_024
    told = next(line for line in done.stderr.splitlines() if line.startswith("first picture"))
    record_property("told", f"{told}; at most {used / 1e6:.0f} MB")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert max(report["loads"]["bundles"], key=report["loads"]["bundles"].get) == hot
    assert report["loads"]["imbalance"][-1] > report["loads"]["floor"][-1]
    assert {move["destination"] for move in report["foresight"]["decisions"]} - {hot}
    assert any(row["strategy"] == "ballast" for row in report["strategies"])
    assert "<svg" in page.read_text()
    assert owners(cluster) == before
    assert used <= MEMORY_MAX_BYTES
    assert int(told.split()[3]) <= FIRST_PICTURE_MAX_S


def owners(cluster: PulsarStack) -> dict[str, frozenset[str]]:
    """Broker → what it says it owns."""
    name = "standalone"
    return {one: cluster.admin.owned(name, one) for one in cluster.admin.brokers(name)}

"""A wheel in an empty folder, beside a real Pulsar cluster: `assess`, then `attach`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.package import make_wheel
from tests.pulsar.pulsar_stack import NETWORK_MBYTES, NO_JOB, running_pulsar
from tests.support.processes.frozen import installed

pytestmark = pytest.mark.xdist_group("pulsar")
NETWORK = ("--network-mbytes", str(NETWORK_MBYTES))


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_installed_wheel_assesses_and_attaches_where_there_is_nothing_else(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    there = installed(make_wheel(tmp_path / "wheel"), tmp_path)
    with running_pulsar(tmp_path / "pulsar", job=NO_JOB) as cluster:
        cluster.gather(cluster.pulsar.broker(2))
        url = cluster.pulsar.admin_url
        for words in (("assess", url, "--for", "60s"), ("attach", url, "--for", "3m")):
            said = there.ballast(*words, *NETWORK, timeout_s=900)
            told = next(line for line in said.splitlines() if line.startswith("first picture"))
            record_property(words[0], told)
            assert cluster.pulsar.broker(2) in said
            if words[0] == "assess":
                assert {one.name for one in there.folder.iterdir()} == {"ballast-assess.html"}
        assert "Ballast is told to observe only" in said
        assert set(cluster.owners().values()) == {cluster.pulsar.broker(2)}

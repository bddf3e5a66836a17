"""Any number of scorer groups on the real Spark: every bundle's topics are known."""

import urllib.request
from pathlib import Path

import pytest

from tests.integration.stack import Cluster, Stack, running_stack

SETTINGS = ("shedding.is_balancing=false", "splitting.enabled=false")
NAMESPACES = {"demo/one": ("crc32", 16), "demo/two": ("murmur3_32", 16)}


@pytest.mark.long
@pytest.mark.parametrize("groups", [1, 2, 5])
def test_topics_of_every_bundle_are_known_on_the_real_stack(tmp_path: Path, groups: int) -> None:
    cluster = Cluster(
        namespaces=NAMESPACES,
        settings=(*SETTINGS, f"pipeline.scorer_groups={groups}"),
        fleet=("--topics-per-read", "100"),
    )
    with running_stack(tmp_path, cluster) as stack:

        def are_known() -> bool:
            return metric(stack, "ballast_bundles_with_topics") == cluster.bundles

        stack.wait("the topics of every bundle", are_known)
        assert metric(stack, 'ballast_topic_reports_total{cluster="local",result="taken"}') > 0
        assert not stack.rows("rejected_reports")


def metric(stack: Stack, name: str) -> float:
    """A metric's value as the job shows it, by its name or name and labels; 0 before it does."""
    port = stack.port(stack.metrics_file("job"))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

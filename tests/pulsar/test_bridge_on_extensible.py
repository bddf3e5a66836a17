"""A real Pulsar cluster with the extensible manager, which tells its load elsewhere.

Its answers to a load report are errors, it moves a bundle by handing it over, and it takes one
position of a split at a time. The modular manager's tests have the rest.
"""

from collections.abc import Iterator

import pytest

from jobs.cli import main
from tests.pulsar.pulsar_cluster import EXTENSIBLE
from tests.pulsar.pulsar_stack import NAMESPACE, PulsarStack, running_pulsar

pytestmark = pytest.mark.xdist_group("pulsar")
BALANCED_POINTS = 40.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with running_pulsar(tmp_path_factory.mktemp("extensible"), EXTENSIBLE) as running:
        yield running


def test_skewed_traffic_is_balanced_without_losing_a_message(cluster: PulsarStack) -> None:
    cluster.gather(cluster.pulsar.broker(2))
    cluster.start_bridge("--act")
    cluster.wait("balance", lambda: cluster.moves() and cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert len(set(cluster.owners().values())) > 1
    assert cluster.traffic.errors() == []


def test_split_into_three_is_a_chain_of_two(cluster: PulsarStack) -> None:
    topics = {bundle: cluster.topics_in(bundle) for bundle in cluster.owners()}
    bundle = max(sorted(topics), key=lambda name: len(topics[name]))
    words = ["bundle", "split", bundle, "--parts", "3", "--force", "--timeout", "120s"]
    before = cluster.admin.boundaries(NAMESPACE)
    main([*words, *cluster.where()])
    after = cluster.admin.boundaries(NAMESPACE)
    assert set(before) < set(after)
    cluster.wait("the mirror", cluster.is_mirrored)


def test_traffic_is_complete(cluster: PulsarStack) -> None:
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []

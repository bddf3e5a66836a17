"""The bridge on a real Pulsar 4.2.4: observed, taken over, hurt, complete.

Some steps of the modular manager's day on one cluster, in their order, so that each run of these
tests sees the newer version. `BALLAST_PULSAR_VERSION=4.2.4 make test-pulsar` lets all the others
run on it.
"""

from collections.abc import Iterator

import pytest

from tests.pulsar.pulsar_stack import PULSAR, PulsarStack, running_pulsar
from tests.pulsar.versions import on_version

pytestmark = pytest.mark.xdist_group("pulsar")
VERSION = "4.2.4"
BALANCED_POINTS = 40.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with on_version(VERSION), running_pulsar(tmp_path_factory.mktemp("newer")) as running:
        yield running


def test_observing_bridge_mirrors_brokers_of_the_newer_version(cluster: PulsarStack) -> None:
    brokers = cluster.admin.brokers(PULSAR)
    assert {cluster.admin.version(PULSAR, one) for one in brokers} == {VERSION}
    hot = cluster.pulsar.broker(2)
    cluster.gather(hot)
    cluster.start_bridge()
    cluster.wait("the mirror", cluster.is_mirrored)
    assert set(cluster.owners().values()) == {hot}
    assert cluster.moves() == []
    assert cluster.stop_bridge() == 0


def test_acting_bridge_balances_and_splits_nothing_that_it_was_not_asked_to(
    cluster: PulsarStack,
) -> None:
    bundles = set(cluster.owners())
    cluster.start_bridge("--act")
    cluster.wait("balance", lambda: cluster.moves() and cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert set(cluster.owners()) == bundles
    assert cluster.traffic.errors() == []


def test_bundles_of_a_killed_broker_are_followed_to_where_they_go(cluster: PulsarStack) -> None:
    dead = cluster.pulsar.broker(3)
    cluster.pulsar.kill_broker(3)
    cluster.wait("Pulsar to notice", lambda: dead not in cluster.admin.brokers(PULSAR))
    cluster.wait(
        "the mirror", lambda: cluster.is_mirrored() and dead not in cluster.owners().values()
    )
    assert cluster.stop_bridge() == 0


def test_traffic_on_the_newer_version_is_complete(cluster: PulsarStack) -> None:
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []

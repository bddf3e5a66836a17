"""A real Pulsar cluster with the modular manager: observed, taken over, hurt, given back.

One cluster for all of it, so the tests stand in the order of a day: each begins where the last one
left off. Traffic flows from the first to the last, and nothing of it may be lost.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from jobs.cli import main
from tests.pulsar.pulsar_stack import PULSAR, PulsarStack, running_pulsar

pytestmark = pytest.mark.xdist_group("pulsar")
BALANCED_POINTS = 40.0
"""The high threshold of the shedder: two hits above it move bundles."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarStack]:
    with running_pulsar(tmp_path_factory.mktemp("modular")) as running:
        yield running


def test_observing_bridge_mirrors_ownership_and_moves_nothing(cluster: PulsarStack) -> None:
    hot = cluster.pulsar.broker(2)
    cluster.gather(hot)
    cluster.start_bridge()
    cluster.wait("the mirror", cluster.is_mirrored)
    cluster.wait(
        "a decision that is not carried out",
        lambda: any("observe_only" in row["inputs"] for row in cluster.rows("decisions")),
    )
    assert set(cluster.owners().values()) == {hot}
    assert cluster.moves() == []
    assert cluster.stop_bridge() == 0


def test_acting_bridge_balances_skewed_traffic_without_losing_a_message(
    cluster: PulsarStack,
) -> None:
    cluster.start_bridge("--act")
    cluster.wait("balance", lambda: cluster.moves() and cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert len(set(cluster.owners().values())) > 1
    assert cluster.traffic.errors() == []
    assert len(cluster.moves()) <= 3 * len(cluster.owners())
    told = cluster.bridge_metrics()
    assert 'ballast_bridge_acting{cluster="local"} 1.0' in told
    asked = 'ballast_bridge_requests_total{action="unload",cluster="local"}'
    assert f"{asked} {float(len(cluster.moves()))}" in told


def test_unload_by_hand_is_taken_over(cluster: PulsarStack) -> None:
    bundle, owner = min(cluster.owners().items())
    other = next(name for name in cluster.admin.brokers(PULSAR) if name != owner)
    before = len(taken_over(cluster, bundle, other))
    cluster.admin.unload(bundle, other)
    cluster.wait("the record to follow", lambda: len(taken_over(cluster, bundle, other)) > before)


def taken_over(cluster: PulsarStack, bundle: str, broker: str) -> list[Mapping[str, Any]]:
    """The events that say that Pulsar gave the bundle to the broker by itself."""
    return [
        row
        for row in cluster.rows("ownership_events")
        if row["bundle"] == bundle and row["cause"] == "external" and row["destination"] == broker
    ]


def test_bridge_killed_in_the_middle_of_unloads_finishes_them_after_its_start(
    cluster: PulsarStack,
) -> None:
    asked = len(cluster.moves())
    cluster.gather(cluster.pulsar.broker(1))
    cluster.wait("unloads to begin", lambda: len(cluster.moves()) > asked)
    cluster.kill_bridge()
    cluster.start_bridge("--act")
    cluster.wait("balance", lambda: cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)


def test_broker_killed_loses_its_bundles_to_others_and_the_mirror_follows(
    cluster: PulsarStack,
) -> None:
    dead = cluster.pulsar.broker(3)
    cluster.pulsar.kill_broker(3)
    cluster.wait("Pulsar to notice", lambda: dead not in cluster.admin.brokers(PULSAR))
    cluster.wait(
        "the mirror", lambda: cluster.is_mirrored() and dead not in cluster.owners().values()
    )
    cluster.wait(
        "the broker to be silent in our table",
        lambda: any(
            row["broker"] == dead and row["state"] == "silent" for row in cluster.rows("brokers")
        ),
    )


def test_broker_added_gets_its_part(cluster: PulsarStack) -> None:
    cluster.pulsar.start_broker(4)
    new = cluster.pulsar.broker(4)
    cluster.gather(cluster.pulsar.broker(1))
    cluster.wait("the new broker to have bundles", lambda: new in cluster.owners().values())
    cluster.wait("balance", lambda: cluster.spread() < BALANCED_POINTS)


def test_kafka_and_job_away_lose_nothing_and_are_followed_by_no_storm(
    cluster: PulsarStack,
) -> None:
    assert cluster.pocket is not None
    cluster.wait("what was decided to be done", cluster.is_mirrored)
    asked = len(cluster.moves())
    cluster.pocket.is_away = True
    cluster.stack.kafka.kill()
    cluster.gather(cluster.pulsar.broker(2))
    assert len(cluster.moves()) == asked
    cluster.stack.kafka.start()
    cluster.wait("the bridge to be heard again", lambda: delivered(cluster) > 0)
    assert len(cluster.moves()) == asked
    cluster.pocket.is_away = False
    cluster.wait("the mirror", cluster.is_mirrored)
    cluster.wait("balance", lambda: cluster.spread() < BALANCED_POINTS)
    cluster.wait("the mirror", cluster.is_mirrored)
    assert len(cluster.moves()) - asked <= len(cluster.owners())


def delivered(cluster: PulsarStack) -> int:
    """How many messages Kafka has confirmed to the bridge in its last ten rounds."""
    counts = [int(str(line["delivered"])) for line in cluster.bridge_events("round")[-10:]]
    return counts[-1] - counts[0]


def test_guard_stops_acting_while_pulsar_sheds_and_control_is_given_back(
    cluster: PulsarStack,
) -> None:
    words = ["bridge", "give-back", "--admin-url", cluster.pulsar.admin_url, *cluster.where()]
    assert main(words) == 0
    cluster.wait(
        "the guard",
        lambda: "Pulsar sheds" in str(cluster.bridge_events("round")[-1]["forbidden"]),
    )
    refusing = ["bridge", "pulsar", "--act", "--admin-url", cluster.pulsar.admin_url]
    assert main([*refusing, *cluster.where()]) == 1
    assert cluster.stop_bridge() == 0


def test_traffic_of_the_whole_day_is_complete(cluster: PulsarStack) -> None:
    assert cluster.traffic.acknowledged() > 1_000
    cluster.traffic.stop()
    assert cluster.traffic.lost() == {}
    assert cluster.traffic.errors() == []

"""Partitions of one topic that are all on one broker: spread by `ballast`, and they stay spread.

So do the segments of a scalable topic, which are named as Pulsar 5 does after three rounds of
splits.
"""

from collections import Counter
from collections.abc import Sequence

import pytest

from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.validation.dynamic import with_dynamic
from tests.support.worlds.world import World

MINUTE = 60_000
PARTITIONS = 8
ORDERS = tuple(f"persistent://t/n/orders-partition-{number}" for number in range(PARTITIONS))
SEGMENTS = tuple(
    f"segment://t/n/orders/{at * 0x2000:04x}-{at * 0x2000 + 0x1FFF:04x}-{at + 7}"
    for at in range(PARTITIONS)
)
EITHER = pytest.mark.parametrize("topics", [ORDERS, SEGMENTS], ids=["partitions", "segments"])


def crowded_world(topics: Sequence[str]) -> tuple[World, dict[str, str]]:
    """Four brokers with even load; one has all bundles of a topic's parts. And these."""
    config = with_dynamic(
        Config(),
        {
            "shedding.strategy": "ballast",
            "placement.strategy": "ballast",
            "splitting.enabled": False,
        },
    )
    world = World(config, 4, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=32)
    world.command("create_namespace", namespace="t/else", bundles=60)
    world.run(20_000)
    world.topics = dict.fromkeys(topics, 10.0)
    holds = {
        topic: bundle
        for topic in topics
        for bundle in world.current
        if Bundle.parse(bundle).includes_topic(topic)
    }
    assert len(set(holds.values())) >= PARTITIONS // 2  # crc32 of partitions' names is near
    home = min(world.brokers)
    for bundle in sorted(set(holds.values())):
        world.command("unload_bundle", bundle=bundle, destination=home)
    world.run(MINUTE)
    return world, holds


def owners_of(world: World, bundles: dict[str, str]) -> Counter[str]:
    """Broker → how many partitions."""
    return Counter(world.current[bundle]["destination"] for bundle in bundles.values())


@EITHER
def test_topic_whose_partitions_are_all_on_one_broker_is_spread_and_stays_so(
    topics: Sequence[str],
) -> None:
    world, holds = crowded_world(topics)
    assert len(owners_of(world, holds)) == 1
    world.run(10 * MINUTE)
    found = owners_of(world, holds)
    assert max(found.values()) <= PARTITIONS // 2
    reasons = [one["reason"] for one in world.decisions if one["kind"] == "transfer"]
    assert "Crowded" in reasons
    before = len(world.decisions)
    world.run(10 * MINUTE)
    later = world.decisions[before:]
    assert [one for one in later if one["kind"] in {"transfer", "unload"}] == []


@EITHER
def test_partitions_of_a_dead_broker_are_not_all_placed_on_one_other(
    topics: Sequence[str],
) -> None:
    world, holds = crowded_world(topics)
    (home,) = owners_of(world, holds)
    world.kill(home)
    world.run(MINUTE)
    found = owners_of(world, holds)
    assert home not in found
    assert len(found) == 3
    assert max(found.values()) <= PARTITIONS // 2

"""Partitions of one topic that are all on one broker: spread by `ballast`, and they stay spread."""

from collections import Counter

from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.validation.dynamic import with_dynamic
from tests.support.worlds.world import World

MINUTE = 60_000
PARTITIONS = 8
ORDERS = tuple(f"persistent://t/n/orders-partition-{number}" for number in range(PARTITIONS))


def crowded_world() -> tuple[World, dict[str, str]]:
    """Four brokers with even load; one has all bundles of a topic's partitions. And these."""
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
    world.topics = dict.fromkeys(ORDERS, 10.0)
    holds = {
        topic: bundle
        for topic in ORDERS
        for bundle in world.current
        if Bundle.parse(bundle).includes_topic(topic)
    }
    assert (
        len(set(holds.values())) == PARTITIONS // 2
    )  # crc32 of names that differ in a digit is near
    home = min(world.brokers)
    for bundle in sorted(set(holds.values())):
        world.command("unload_bundle", bundle=bundle, destination=home)
    world.run(MINUTE)
    return world, holds


def owners_of(world: World, bundles: dict[str, str]) -> Counter[str]:
    """Broker → how many partitions."""
    return Counter(world.current[bundle]["destination"] for bundle in bundles.values())


def test_topic_whose_partitions_are_all_on_one_broker_is_spread_and_stays_so() -> None:
    world, holds = crowded_world()
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


def test_partitions_of_a_dead_broker_are_not_all_placed_on_one_other() -> None:
    world, holds = crowded_world()
    (home,) = owners_of(world, holds)
    world.kill(home)
    world.run(MINUTE)
    found = owners_of(world, holds)
    assert home not in found
    assert len(found) == 3
    assert max(found.values()) <= PARTITIONS // 2

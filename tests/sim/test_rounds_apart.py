"""`ballast` where rounds are a minute apart and usages are means over a minute, as in Pulsar."""

import pytest

from lbcore.config.tree import Config, changed
from tests.support.values.clusters import few
from tests.support.worlds.checked_world import MINUTE_MS, GaugedWorld, decided, owners
from tests.support.worlds.world import copied

SETTINGS = {
    "shedding.strategy": "ballast",
    "placement.strategy": "ballast",
    "shedding.grace_period_ms": MINUTE_MS,
    "splitting.enabled": False,
    "pipeline.shed_interval_ms": MINUTE_MS,
    "pipeline.split_interval_ms": MINUTE_MS,
    "signals.report_max_interval_ms": MINUTE_MS,
    "signals.usage_window_ms": MINUTE_MS,
}
EVEN = 1.25
BUNDLES, BROKERS = 24, 3


def most_over_mean(world: GaugedWorld) -> float:
    """By what the bundles really carry."""
    load = dict.fromkeys(world.brokers, 0.0)
    for bundle, owner in owners(world).items():
        load[owner] += world.rates[bundle]
    values = [load[name] for name, broker in world.brokers.items() if broker.host is not None]
    return max(values) / (sum(values) / len(values))


@copied
def settled() -> GaugedWorld:
    world = GaugedWorld(changed(Config(), SETTINGS), BROKERS, seed=5)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=BUNDLES)
    world.run(25_000)
    for at, name in enumerate(sorted(owners(world))):
        world.rates[name] = 1_000.0 / (3 + at // BROKERS)
    world.run(10 * MINUTE_MS)
    assert most_over_mean(world) < EVEN
    return world


def _until_even(offset_ms: int) -> tuple[int, int]:
    """How long after a jump it is even again, ms, and after how many moves."""
    world = settled()
    world.run(offset_ms)
    hot = "broker-1:8080"
    for name, owner in owners(world).items():
        world.rates[name] *= 4 if owner == hot else 1
    assert most_over_mean(world) > 1.8
    began_ms, moves = world.now_ms, len(decided(world, "transfer"))
    while most_over_mean(world) > EVEN and world.now_ms < began_ms + 10 * MINUTE_MS:
        world.run(1_000, step_ms=500)
    took_ms = world.now_ms - began_ms
    world.run(5 * MINUTE_MS)
    return took_ms, len(decided(world, "transfer")) - moves


@pytest.mark.parametrize("offset_ms", few((0, 30_000, 15_000, 45_000), 2))
def test_jump_is_relieved_in_the_first_round_after_it_was_seen_twice(offset_ms: int) -> None:
    took_ms, moves = _until_even(offset_ms)
    assert took_ms <= MINUTE_MS + 40_000
    assert moves <= 4

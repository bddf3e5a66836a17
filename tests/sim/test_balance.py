"""Load that moves, in a whole cluster in virtual time: it is followed, and nothing goes to and fro.

Rates are messages a second; a broker's use in percent is a hundredth of its bundles' rates.
"""

import math
from collections import Counter
from dataclasses import replace

import pytest

from lbcore.config.tree import Config
from lbcore.ownership.records import State
from lbcore.signals.imbalance import imbalance
from lbcore.sim.summary import ObservedMove, Owned, moves, thrash
from tests.support.worlds.checked_world import owners
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import World, is_settled

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
DAY_MS = 24 * HOUR_MS
STEP_MS = 5_000
NEWCOMER = "broker-9:8080"


def cluster(brokers: int, bundles: int) -> World:
    """A cluster at rest with equal load, whose batches come every 5 s."""
    config = Config()
    pipeline = replace(config.pipeline, trigger_ms=STEP_MS)
    world = World(replace(config, pipeline=pipeline), brokers, seed=4)
    world.run(10_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(MINUTE_MS)
    assert is_settled(world)
    world.rates = dict.fromkeys(owners(world), 300.0)
    return world


def loads(world: World) -> dict[str, float]:
    """The true rate of each broker."""
    found = dict.fromkeys(world.brokers, 0.0)
    for bundle, broker in owners(world).items():
        found[broker] += world.rates[bundle]
    return found


def moved(world: World) -> list[ObservedMove]:
    """Each change of owner there ever was."""
    return moves(
        Owned(
            bundle=str(row["bundle"]),
            broker=str(row["destination"]),
            at_ms=int(str(row["at_ms"])),
        )
        for row in world.events
        if row["state"] == State.OWNED.value
    )


def wander(world: World, duration_ms: int) -> list[float]:
    """Load that wanders once in a day from what one broker has at first to what the next has.

    Returns max/mean of the brokers' loads, each ten minutes.
    """
    homes, names, found = owners(world), sorted(world.brokers), []
    for minute in range(duration_ms // MINUTE_MS):
        for name, home in sorted(homes.items()):
            phase = 2 * math.pi * (minute * MINUTE_MS / DAY_MS + names.index(home) / len(names))
            world.rates[name] = 300.0 * (1 + 0.8 * math.sin(phase)) + world.random.uniform(0, 30)
        world.run(MINUTE_MS, step_ms=STEP_MS)
        if minute % 10 == 9:
            found.append(imbalance(loads(world).values()) or 0.0)
    return found


def check_calm(world: World, duration_ms: int, measured: list[float]) -> None:
    """Load is spread, and no bundle goes to and fro."""
    made = moved(world)
    most = max(Counter(move.bundle for move in made).values(), default=0)
    settled = sorted(measured[len(measured) // 2 :])
    assert made
    assert thrash(made) == 0
    assert most <= 1 + 8 * duration_ms // DAY_MS
    assert settled[len(settled) // 2] <= 1.35


def test_hot_broker_is_relieved() -> None:
    world = cluster(4, 24)
    hot = min(owners(world).values())
    world.rates = {name: 900.0 if b == hot else 100.0 for name, b in owners(world).items()}
    assert imbalance(loads(world).values()) > 2
    world.run(15 * MINUTE_MS, step_ms=STEP_MS)
    assert imbalance(loads(world).values()) <= 1.5
    assert thrash(moved(world)) == 0
    assert is_settled(world)


def test_new_broker_gets_its_part_and_then_there_is_peace() -> None:
    world = cluster(3, 24)
    world.brokers[NEWCOMER] = Broker(NEWCOMER)
    world.start(NEWCOMER)
    world.run(15 * MINUTE_MS, step_ms=STEP_MS)
    taken = moved(world)
    assert Counter(owners(world).values())[NEWCOMER] in range(4, 8)
    assert {move.destination for move in taken} == {NEWCOMER}
    world.run(15 * MINUTE_MS, step_ms=STEP_MS)
    assert moved(world) == taken
    assert is_settled(world)


def test_load_that_wanders_is_followed_without_bundles_going_to_and_fro() -> None:
    world = cluster(4, 24)
    check_calm(world, HOUR_MS, wander(world, HOUR_MS))


@pytest.mark.long
def test_load_that_wanders_for_a_day_is_followed_without_bundles_going_to_and_fro() -> None:
    world = cluster(4, 24)
    check_calm(world, DAY_MS, wander(world, DAY_MS))

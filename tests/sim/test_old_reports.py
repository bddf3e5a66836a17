"""A log that is old when it is read: nobody dies by it, and who is dead is found afterwards."""

import pytest

from lbcore.config.tree import Config
from tests.support.worlds.checked_world import LaggingWorld
from tests.support.worlds.stories import begun, unsettled

CONFIG = Config()
AWAY = "broker-0:8080"


def with_a_backlog(hang_ms: int, away_ms: int | None) -> LaggingWorld:
    """One batch hangs while ticks go on; meanwhile a broker is cut off, for ever with None."""
    world = LaggingWorld(CONFIG, 3, seed=2)
    begun(world, 8)
    world.read_until_ms = world.now_ms
    world.run(5_000)
    world.cut_off(AWAY, is_cut_off=True)
    world.run(away_ms or hang_ms - 5_000)
    if away_ms is not None:
        world.cut_off(AWAY, is_cut_off=False)
        world.run(hang_ms - 5_000 - away_ms)
    return world


def catch_up(world: LaggingWorld, speed_ms: int) -> None:
    """Read the backlog, so much of the log in each batch."""
    while world.read_until_ms is not None and world.read_until_ms < world.now_ms:
        world.read_until_ms += speed_ms
        world.run(CONFIG.pipeline.trigger_ms)
    world.read_until_ms = None


@pytest.mark.parametrize("speed_ms", [4_000, 10_000, 40_000])
def test_backlog_at_full_speed_kills_nobody_who_is_back(speed_ms: int) -> None:
    world = with_a_backlog(hang_ms=120_000, away_ms=40_000)
    before = len(world.events)
    catch_up(world, speed_ms)
    world.run(10_000)
    assert len(world.events) == before
    assert not unsettled(world)


def test_broker_that_died_in_a_backlog_is_replaced_once_it_is_read() -> None:
    world = with_a_backlog(hang_ms=120_000, away_ms=None)
    world.kill(AWAY)
    before = len(world.events)
    catch_up(world, 10_000)
    world.run(10_000)
    moved = {row["source_before"] or row["destination_before"] for row in world.events[before:]}
    assert AWAY in moved
    assert not unsettled(world)


@pytest.mark.parametrize("skew_ms", [-60_000, 60_000])
def test_clocks_apart_do_not_keep_a_dead_broker_alive(skew_ms: int) -> None:
    world = LaggingWorld(CONFIG, 3, seed=2)
    begun(world, 8)
    world.driver_ahead_ms = skew_ms
    world.run(30_000)
    world.kill(AWAY)
    world.run(30_000)
    assert not unsettled(world)
    assert AWAY not in {row["destination"] for row in world.newest()}

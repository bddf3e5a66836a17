"""Leases beside wrong clocks: never two holders, and nobody loses a permit for a clock of others.

The world itself fails where two brokers may use one hash at any moment.
"""

from copy import deepcopy
from functools import cache

import pytest

from tests.sim.test_clock_faults import AHEAD_MS, BUNDLES, CLOCKS, ClockWorld, settle
from tests.support.worlds.leased_world import LEASED, LeasedWorld
from tests.support.worlds.world import is_settled


class LeasedClockWorld(ClockWorld, LeasedWorld):
    """A world under leases whose clocks can be turned. unused: moments without all permits."""

    unused = 0

    def look(self) -> None:
        """Count the moments at which a bundle could not be used."""
        super().look()
        self.unused += len(self.used()) < BUNDLES


@pytest.mark.parametrize("lasts_ms", [2_000, 60_000])
@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
@pytest.mark.parametrize("clock", CLOCKS)
def test_permits_are_kept_beside_a_wrong_clock(clock: str, ahead_ms: int, lasts_ms: int) -> None:
    world = deepcopy(_at_rest())
    world.turn(clock, ahead_ms)
    world.run(lasts_ms)
    world.turn(clock, 0)
    world.run(30_000)
    assert world.unused == 0
    assert is_settled(world)


@cache
def _at_rest() -> LeasedClockWorld:
    world = LeasedClockWorld(LEASED, 3, seed=3)
    settle(world, BUNDLES, 60_000)
    assert len(world.used()) == BUNDLES
    world.unused = 0
    return world

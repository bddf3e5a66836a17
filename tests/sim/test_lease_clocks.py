"""Leases beside wrong clocks: never two holders, and nobody loses a permit for a clock of others.

The world itself fails where two brokers may use one hash at any moment.
"""

from copy import deepcopy
from functools import cache

import pytest

from tests.sim.test_clock_faults import AHEAD_MS, BUNDLES, WRONG, ClockWorld, settle
from tests.support.worlds.checked_world import LEASED, LeasedWorld
from tests.support.worlds.world import is_settled


class LeasedClockWorld(ClockWorld, LeasedWorld):
    """A world under leases whose clocks can be turned. unused: moments without all permits."""

    unused = 0

    def look(self) -> None:
        """Count the moments at which a bundle could not be used."""
        super().look()
        self.unused += len(self.used()) < BUNDLES


@pytest.mark.parametrize("lasts_ms", [2_000, 60_000])
@pytest.mark.parametrize(("clock", "ahead_ms"), WRONG)
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


HOLDER = "broker-0:8080"
LOST_MS = 20_000
"""A holder that nobody hears has lost its permits by then, by any clock that is not too slow."""


class OwnClockWorld(LeasedClockWorld):
    """The first broker goes by a clock of its own that is this much ahead from its start."""

    holder_ahead_ms = 0

    def start(self, name: str) -> None:
        """Start a broker, on a machine whose clock may be wrong."""
        super().start(name)
        self.brokers[name].ahead_ms = self.holder_ahead_ms if name == HOLDER else 0


def cut_off(ahead_ms: int = 0, *, slow: float = 0.0, jump_ms: int = 0) -> OwnClockWorld:
    """A holder that serves by its own clock and is then heard by nobody for a minute.

    slow: part of each second that its clock loses from then on; jump_ms: how far it jumps.
    """
    world = OwnClockWorld(LEASED, 3, seed=3)
    world.holder_ahead_ms = ahead_ms
    world.start(HOLDER)
    settle(world, BUNDLES, 60_000)
    holder = world.brokers[HOLDER]
    assert any(HOLDER in of for of in world.used().values())
    world.cut_off(HOLDER, is_cut_off=True)
    holder.ahead_ms += jump_ms
    begun_ms = world.now_ms
    while world.now_ms < begun_ms + 60_000:
        world.run(100, step_ms=100)
        holder.ahead_ms -= round(100 * slow)
        if world.now_ms > begun_ms + LOST_MS:
            assert not any(HOLDER in of for of in world.used().values())
    assert len(world.used()) == BUNDLES
    return world


@pytest.mark.parametrize("ahead_ms", [0, *AHEAD_MS])
def test_holder_with_a_wrong_clock_stops_in_time_when_it_is_heard_no_more(ahead_ms: int) -> None:
    cut_off(ahead_ms)


@pytest.mark.parametrize("slow", [0.1, 0.3])
def test_holder_whose_clock_is_slow_stops_in_time(slow: float) -> None:
    cut_off(slow=slow)


@pytest.mark.parametrize("jump_ms", [40_000, 3_600_000])
def test_holder_whose_clock_jumps_ahead_stops_at_once(jump_ms: int) -> None:
    world = cut_off(jump_ms=jump_ms)
    assert not any(HOLDER in of for of in world.used().values())


@pytest.mark.parametrize("wrong", [{"slow": 0.7}, {"jump_ms": -40_000}])
def test_clock_that_goes_back_or_loses_most_of_its_time_is_beyond_what_a_lease_can_bear(
    wrong: dict[str, float],
) -> None:
    with pytest.raises(AssertionError):
        cut_off(**wrong)

"""Every order of every event in a small world: at most one serves, and nothing is stuck for ever.

Two brokers, one or two bundles; see tests/small_world.py for what can happen and what must hold.
A failure's message ends with the path that replays it.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.small_world import (
    SCENARIOS,
    Scenario,
    World,
    apply,
    events,
    settle,
    start,
)

SETTLED_ONE_IN = 4
DEPTHS = {
    "moves": 40,
    "timeouts": 10,
    "crashes": 14,
    "deaths": 12,
    "splits": 9,
    "split-crashes": 9,
    "two-bundles": 8,
    "everything": 8,
}


def explore(scenario: Scenario, depth: int) -> Iterator[World]:
    """Each different world within so many events, in the order of their number."""
    world = start(scenario)
    seen, layer = {world.key()}, [world]
    for _ in range(depth):
        layer = [after for before in layer for after in _next_worlds(before, scenario, seen)]
        yield from layer


def _next_worlds(before: World, scenario: Scenario, seen: set) -> Iterator[World]:
    for number, event in enumerate(events(before, scenario)):
        after = apply(replace(before, path=(*before.path, number)), event)
        if after.key() not in seen:
            seen.add(after.key())
            yield after


@pytest.mark.parametrize("name", DEPTHS)
def test_small_world_in_every_order_of_events_keeps_its_invariants_and_settles(name: str) -> None:
    for number, world in enumerate(explore(SCENARIOS[name], DEPTHS[name])):
        if number % SETTLED_ONE_IN == 0:
            settle(world)

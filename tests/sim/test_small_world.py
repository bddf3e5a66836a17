"""Every order of every event in a small world: at most one serves, and nothing is stuck for ever.

Two brokers, one or two bundles; see tests/support/worlds/small_world.py for what can happen and
what must hold. A failure's message ends with the path that replays it.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType

import pytest

from lbcore.agent import state as agent_state
from lbcore.ownership import acknowledge, busy_ranges, holding, repair
from lbcore.ownership.changes import ProtocolError
from tests.support.worlds.small_scenarios import SCENARIOS, Scenario
from tests.support.worlds.small_world import apply, events, settle, start
from tests.support.worlds.small_world_state import BrokenWorldError, World

SETTLED_ONE_IN = 8
USERS = (agent_state,)
DEPTHS = {
    "moves": 40,
    "timeouts": 10,
    "crashes": 40,
    "deaths": 12,
    "splits": 9,
    "split-crashes": 9,
    "merges": 8,
    "merge-crashes": 8,
    "merge-splits": 12,
    "merge-overrides": 5,
    "two-bundles": 8,
    "overrides": 8,
    "namespaces": 9,
    "split-namespaces": 9,
    "everything": 8,
}
"""At 40 there is nothing more to come: each world that the scenario allows is seen."""
DEEPER = {
    "timeouts": 14,
    "deaths": 22,
    "splits": 12,
    "split-crashes": 12,
    "merges": 11,
    "merge-crashes": 14,
    "merge-splits": 14,
    "merge-overrides": 7,
    "two-bundles": 14,
    "overrides": 10,
    "namespaces": 11,
    "split-namespaces": 11,
    "everything": 10,
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


def explore_and_settle(name: str, depth: int) -> None:
    """Explores a scenario and plays some of its worlds to a fair end."""
    for number, world in enumerate(explore(SCENARIOS[name], depth)):
        if number % SETTLED_ONE_IN == 0:
            settle(world)


@pytest.mark.parametrize("name", DEPTHS)
def test_small_world_in_every_order_of_events_keeps_its_invariants_and_settles(name: str) -> None:
    explore_and_settle(name, DEPTHS[name])


@pytest.mark.long
@pytest.mark.parametrize("name", DEEPER)
def test_small_world_in_every_order_of_more_events_keeps_its_invariants(name: str) -> None:
    explore_and_settle(name, DEEPER[name])


@pytest.mark.parametrize(
    ("name", "module", "function", "broken"),
    [
        ("timeouts", holding, "_is_served", lambda _: True),
        ("moves", acknowledge, "_refuse_old", lambda *_: None),
        ("crashes", holding, "goal_of", lambda *_: holding.Goal.SERVE),
        ("splits", holding, "inherited", lambda _: ()),
        ("crashes", repair, "_repair_destination", lambda *_: None),
        ("namespaces", busy_ranges.OpenRanges, "overlaps", lambda *_: False),
    ],
)
def test_small_world_with_a_broken_part_is_caught(
    name: str,
    module: ModuleType | type,
    function: str,
    broken: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = getattr(module, function)
    for user in [module, *(m for m in USERS if getattr(m, function, None) is original)]:
        monkeypatch.setattr(user, function, broken)
    with pytest.raises((BrokenWorldError, ProtocolError)):
        explore_and_settle(name, DEPTHS[name])

"""Random walks through the small world: longer than every order of events can be tried.

Each walk is a path of event numbers drawn from its seed; a failure's message ends with the path,
which `python -m tests.support.worlds.small_world storm PATH` replays step by step.
"""

import random

import pytest

from tests.support.worlds.small_scenarios import SCENARIOS
from tests.support.worlds.small_world import replay, settle
from tests.support.worlds.small_world_state import World

WALKS_A_CASE = 50
STEPS_MAX = 60
NUMBERS = 1_000


def walk(seed: int) -> World:
    """The world at the end of a seed's walk; every step is checked on the way."""
    numbers = random.Random(seed)
    path = [numbers.randrange(NUMBERS) for _ in range(numbers.randint(5, STEPS_MAX))]
    *_, (_, world) = replay(SCENARIOS["storm"], path)
    return world


@pytest.mark.parametrize("first_seed", range(0, 1_000, WALKS_A_CASE))
def test_random_walk_keeps_the_invariants_and_settles(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + WALKS_A_CASE):
        settle(walk(seed))


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(1_000, 11_000, WALKS_A_CASE))
def test_many_random_walks_keep_the_invariants_and_settle(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + WALKS_A_CASE):
        settle(walk(seed))


def test_walk_of_a_seed_replays_to_the_same_world() -> None:
    assert walk(7).key() == walk(7).key()
    assert walk(7).key() != walk(8).key()

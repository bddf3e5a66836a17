"""Whole clusters under random faults and commands: nothing served twice by right, nothing stuck.

Each batch of a story checks itself (see `checked_world`): its records keep the invariants, it is
deterministic, its state survives packing. A story that goes wrong prints the command that tells it
again.
"""

import pytest

from tests.support.values.seeds import few
from tests.support.worlds.checked_world import check_tables
from tests.support.worlds.stories import tell

STEPS = 8
LONGER = 12
HUNDRED = 100
WENT_WRONG = (3_114,)
"""Stories that found something: a repair of a commanded move, then a rebuild."""


@pytest.mark.parametrize("seed", [*WENT_WRONG, *few(range(30), 15)])
def test_cluster_after_random_faults_comes_to_rest(seed: int) -> None:
    tell(seed, STEPS)


@pytest.mark.parametrize("seed", few(range(1_000, 1_006), 2))
def test_story_with_a_restart_after_each_batch_goes_on_identically(seed: int) -> None:
    assert tell(seed, STEPS).events == tell(seed, STEPS, restarts_often=True).events


@pytest.mark.parametrize("table", ["brokers", "namespaces", "commands"])
def test_story_whose_tables_miss_something_is_caught(table: str) -> None:
    world = tell(1, STEPS)
    world.other_rows[table].clear()
    with pytest.raises(AssertionError):
        check_tables(world)


def test_story_whose_log_was_not_replayed_whole_is_caught() -> None:
    world = tell(1, STEPS)
    world.current.popitem()
    with pytest.raises(AssertionError):
        check_tables(world)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(10_000, 20_000, HUNDRED))
def test_cluster_after_many_longer_stories_comes_to_rest(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + HUNDRED):
        tell(seed, LONGER)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(20_000, 22_000, HUNDRED))
def test_many_stories_with_a_restart_after_each_batch_come_to_rest(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + HUNDRED):
        tell(seed, STEPS, restarts_often=True)

"""Whole clusters under random faults: nothing is ever served twice by right, nothing stays stuck.

Each batch of a story checks itself (see `checked_world`): it is deterministic, its state survives
packing, its records keep the invariants. A failure names the seed; `tell(seed, steps)` replays it.
"""

import pytest

from tests.stories import tell

STEPS = 8


@pytest.mark.parametrize("seed", range(40))
def test_cluster_after_random_faults_comes_to_rest(seed: int) -> None:
    tell(seed, STEPS)


@pytest.mark.parametrize("seed", range(1_000, 1_010))
def test_story_with_a_restart_after_each_batch_goes_on_identically(seed: int) -> None:
    assert tell(seed, STEPS).events == tell(seed, STEPS, restarts_often=True).events


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(20))
def test_cluster_after_many_long_stories_comes_to_rest(hundred: int) -> None:
    for seed in range(10_000 + hundred * 100, 10_100 + hundred * 100):
        tell(seed, STEPS * 3)

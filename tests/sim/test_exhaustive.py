"""Small worlds searched to their end, and whole clusters under random faults."""

from collections.abc import Callable
from types import ModuleType

import pytest

from lbcore.agent.state import Lease
from lbcore.ownership import acknowledge, holding, repair
from tests.exhaustive.scenarios import SCENARIOS
from tests.exhaustive.search import SETTLED_ONE_IN, Search
from tests.exhaustive.small_worlds import BrokenWorldError
from tests.support.values.clusters import few
from tests.support.worlds.stories import tell

FEW, MANY = 500, 30_000


def search(name: str, most: int, settled_one_in: int = 1_499) -> Search:
    found = Search(SCENARIOS[name], settled_one_in)
    for _ in found.run(most):
        pass
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_small_cluster_in_each_of_many_worlds_breaks_no_rule(name: str) -> None:
    found = search(name, FEW)
    assert found.is_complete or found.worlds >= FEW


@pytest.mark.parametrize(
    ("name", "owner", "part", "broken"),
    [
        ("frozen-lease", Lease, "until_ms", lambda *_: 2**62),
        ("answers-token", holding, "_is_served", lambda _: True),
        ("merge-override-token", acknowledge, "_refuse_old", lambda *_: None),
        ("merge-crash-token", repair, "_repair_destination", lambda *_: None),
    ],
)
def test_small_cluster_with_a_broken_part_is_caught(
    name: str,
    owner: type | ModuleType,
    part: str,
    broken: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, part, broken)
    with pytest.raises((BrokenWorldError, AssertionError)):
        search(name, 100_000, 301)


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
def test_small_cluster_in_each_of_many_more_worlds_breaks_no_rule(name: str) -> None:
    found = search(name, MANY, SETTLED_ONE_IN)
    assert found.is_complete or found.worlds >= MANY


STEPS = 8
LONGER = 12
HUNDRED = 100
WENT_WRONG = (3_114,)
"""Stories that found something: a repair of a commanded move, then a rebuild."""


@pytest.mark.parametrize("seed", [*WENT_WRONG, *few(range(30), 6)])
def test_cluster_after_random_faults_comes_to_rest(seed: int) -> None:
    tell(seed, STEPS)


@pytest.mark.parametrize("seed", few(range(1_000, 1_006), 1))
def test_story_with_a_restart_after_each_batch_goes_on_identically(seed: int) -> None:
    assert tell(seed, STEPS).events == tell(seed, STEPS, restarts_often=True).events


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(10_000, 11_000, HUNDRED))
def test_cluster_after_many_longer_stories_comes_to_rest(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + HUNDRED):
        tell(seed, LONGER)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(20_000, 20_200, HUNDRED))
def test_many_stories_with_a_restart_after_each_batch_come_to_rest(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + HUNDRED):
        tell(seed, STEPS, restarts_often=True)

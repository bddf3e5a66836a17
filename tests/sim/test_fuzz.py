"""Anything that can happen, in any order, to the whole control plane in virtual time: all is well.

See tests/fuzz. What goes wrong prints the command that shows it again.
"""

import sys

import pytest

from tests.fuzz.campaign import campaign
from tests.fuzz.fuzzed_world import FuzzedWorld
from tests.support.values.clusters import few

STEPS = 500
WORLDS, FEW = 40, 4
MANY = 50
WENT_WRONG: tuple[int, ...] = (10_231, 10_833, 11_519)
"""Seeds that found something."""


@pytest.mark.parametrize("seed", few([*WENT_WRONG, *range(WORLDS)], FEW))
def test_cluster_through_anything_keeps_its_invariants_and_comes_to_rest(seed: int) -> None:
    campaign(seed, STEPS)


@pytest.mark.long
@pytest.mark.parametrize("first_seed", range(12_000, 12_100, MANY))
def test_cluster_through_many_steps_of_anything_keeps_its_invariants(
    first_seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = range(first_seed, first_seed + MANY)
    counts = [counted(campaign(seed, STEPS)) for seed in seeds]
    events, batches = (sum(found) for found in zip(*counts, strict=True))
    with capsys.disabled():
        said = f"fuzz of the seeds {seeds[0]} to {seeds[-1]}: {MANY * STEPS} steps"
        sys.stderr.write(f"{said}, {batches} batches, {events} events, all well\n")


def counted(world: FuzzedWorld) -> tuple[int, int]:
    """Its events and its batches."""
    return len(world.events), world.batches

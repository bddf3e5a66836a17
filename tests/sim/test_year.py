"""Nothing grows: after a long life the state is what a fresh cluster of the present size has.

Everything comes and goes through the production Machines. Work is counted in calls of functions,
which no other process on the machine changes.
"""

import cProfile
import json
import pstats
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.commands import REMEMBERED_COMMANDS
from lbcore.packing import to_plain
from tests.support.worlds.lived_world import LIVE, LivedWorld

WITHIN = 1.10


def sizes(world: LivedWorld) -> dict[str, int]:
    """Bytes packed: of the balancer, of all scorers, of all agents.

    Without the ids of commands: the newest few are remembered, however old they are.
    """
    assert world.state is not None
    scored = [
        sum(map(len, scorer.pack(world.job.scored[group]).values()))
        for group, scorer in world.job.scorers.items()
        if group in world.job.scored
    ]
    agents = [
        len(json.dumps(to_plain(broker.agent.state)))
        for broker in world.brokers.values()
        if broker.agent is not None
    ]
    assert len(world.state.commands) <= REMEMBERED_COMMANDS
    chunks = world.job.balancer.pack(replace(world.state, commands={}, packed={}))
    return {
        "balancer": sum(map(len, chunks.values())),
        "scorers": sum(scored),
        "agents": sum(agents),
    }


def calls(work: Callable[[], Any]) -> int:
    """How many calls of functions something takes."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]


def measured(world: LivedWorld) -> dict[str, int]:
    """Sizes, and the calls of twenty batches without news and of a rebuild."""
    found = sizes(world)
    for name in ("batches", "rebuild"):
        work = world.job.rebuilt if name == "rebuild" else lambda: world.run(20_000, step_ms=1_000)
        found[name] = calls(work)
    return found


def fresh_one_like(world: LivedWorld) -> LivedWorld:
    """A cluster that has had nothing but what the other one has now."""
    fresh = LivedWorld(seed=1)
    fresh.now_ms = world.now_ms
    fresh.brokers = {}
    fresh.lived.brokers = world.lived.brokers - LIVE
    fresh.lived.namespaces = world.lived.namespaces - LIVE
    fresh.live(1, a_day=LIVE)
    return fresh


def assert_as_fresh(days: int, a_day: int) -> None:
    """Live, settle, and compare."""
    world = LivedWorld(seed=2)
    world.live(days, a_day)
    world.settle()
    fresh = fresh_one_like(world)
    fresh.settle()
    lived, anew = measured(world), measured(fresh)
    print(f"lived {world.lived}: {lived}\nfresh {fresh.lived}: {anew}")  # noqa: T201 (with -s)
    assert len(world.brokers) == len(fresh.brokers) == LIVE
    assert world.state is not None
    assert set(world.state.brokers) == set(world.brokers)
    assert len(world.state.namespaces) == LIVE
    too_large = {
        name: (lived[name], anew[name]) for name in anew if lived[name] > WITHIN * anew[name]
    }
    assert not too_large


def test_state_after_a_month_is_that_of_a_fresh_cluster() -> None:
    assert_as_fresh(days=8, a_day=4)


@pytest.mark.long
def test_state_after_a_year_of_ten_thousand_of_each_is_that_of_a_fresh_cluster() -> None:
    assert_as_fresh(days=365, a_day=28)

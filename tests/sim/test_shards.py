"""A cluster in shards is balanced as the same cluster is that is not: by as few moves, as even."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from jobs.operating.simulations import config_of
from lbcore.config.tree import Config
from lbcore.plan.pending import SCALED
from lbcore.scorer.group_update import Arrivals, GroupUpdate, Placed
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.rehearsal import run_scenario
from lbcore.sim.judge.measures import imbalance_of
from lbcore.sim.scenario.model import Scenario
from lbcore.sim.scenario.parse import parse_scenario
from lbcore.wire.messages import Position, ShardLoad
from tests.support.worlds.shards import run_shards

SPACES = 16
WEIGHTS = [1 + at * 7 % SPACES for at in range(SPACES)]
IMBALANCE, MOVES = 0.05, 1.1


def scenario(*happenings: str, owners: str = "all", absent: str = "") -> Scenario:
    """Ten brokers, 16 namespaces of which the largest carries 16 times what the smallest does."""
    total = sum(WEIGHTS)
    lines = [
        "brokers 10",
        *([f"broker {absent} absent"] if absent else []),
        *(f"namespace t/n{at} bundles=20 topics=1" for at in range(SPACES)),
        *(f"own t/n{at} all {owners}" for at in range(SPACES)),
        *(f"load t/n{at} zipf {45 * WEIGHTS[at] / total:.4f}%" for at in range(SPACES)),
        *happenings,
        "run 8m",
    ]
    return parse_scenario("\n".join(lines) + "\n")


GROWS = scenario("at 3m start b8-b10", owners="b1-b7", absent="b8-b10")
CRASHES = scenario("at 3m crash b3")


def in_shards(of: Scenario, config: Config, shards: int) -> list[Run]:
    names = tuple(f"shard-{at}" for at in range(shards))
    cluster = replace(config.cluster, shards=names)
    return run_shards(of, replace(config, cluster=cluster), names)


def evenness(run: Run) -> float:
    """The mean imbalance of the second half."""
    values = [imbalance_of(sample) for sample in run.recorder.samples]
    return fmean(value for value in values[len(values) // 2 :] if value is not None)


def moves(runs: list[Run]) -> int:
    return sum(len(run.recorder.moves) for run in runs)


@pytest.mark.parametrize("strategy", ["avg", "ballast"])
@pytest.mark.parametrize("of", [GROWS, CRASHES], ids=["grows", "crashes"])
@pytest.mark.parametrize("shards", [2, *(pytest.param(n, marks=pytest.mark.long) for n in (4, 8))])
def test_shards_are_as_even_as_one_cluster_by_about_as_many_moves(
    of: Scenario, strategy: str, shards: int
) -> None:
    config = config_of(of, strategy, ())
    whole, parts = run_scenario(of, config), in_shards(of, config, shards)
    assert moves([whole]) > 0
    assert evenness(parts[0]) <= evenness(whole) + IMBALANCE
    assert moves(parts) <= moves([whole]) * MOVES
    assert not parts[0].coverage.doubles


@pytest.mark.parametrize("strategy", ["ballast"])
def test_shards_that_know_nothing_of_each_other_miss_the_bars(strategy: str) -> None:
    config = config_of(GROWS, strategy, ())
    whole = run_scenario(GROWS, config)
    parts = run_shards(GROWS, config, ("shard-0", "shard-1"))
    is_even = evenness(parts[0]) <= evenness(whole) + IMBALANCE
    assert not is_even or moves(parts) > moves([whole]) * MOVES


def test_a_crash_leaves_nobody_without_service_in_any_shard() -> None:
    parts = in_shards(CRASHES, config_of(CRASHES, "ballast", ()), 4)
    assert parts[0].coverage.unserved == 0
    assert all(run.recorder.moves for run in parts)


def test_shards_plan_one_after_another() -> None:
    parts = in_shards(GROWS, config_of(GROWS, "ballast", ()), 4)
    cycles = [
        {one.at_ms for one in run.recorder.decisions if one.kind != "assign"} for run in parts
    ]
    assert all(cycles)
    assert sum(map(len, cycles)) == len(set().union(*cycles))


def test_a_shard_that_comes_back_from_its_checkpoint_knows_the_others() -> None:
    run = in_shards(GROWS, config_of(GROWS, "ballast", ()), 2)[0]
    state, balancer = run.job.state, run.job.balancer
    assert state is not None
    assert set(state.others) == {"shard-0", "shard-1"}
    chunks = balancer.pack(state)
    assert balancer.pack(balancer.unpack(chunks)) == chunks


def told(run: Run, message: ShardLoad) -> Run:
    """The run after a batch that brings what another shard says."""
    state = run.job.state
    assert state is not None
    at_ms = state.times.decided_ms + 1_000
    at = Position(topic="broker-load", partition=0, offset=1 << 40, timestamp_ms=at_ms)
    nothing = np.zeros(0, dtype=np.int64)
    arrivals = Arrivals(partition=nothing, offset=nothing, timestamp_ms=nothing, broker=nothing)
    placed = (Placed(position=at, message=message),)
    update = GroupUpdate(group=0, brokers=(), incarnations=(), arrivals=arrivals, placed=placed)
    run.job.state = run.job.step_balancer([update], at_ms).state
    return run


def test_what_another_shard_decided_counts_until_reports_show_it_and_once() -> None:
    run = in_shards(GROWS, config_of(GROWS, "ballast", ()), 2)[0]
    assert run.job.state is not None
    traffic = np.array([[500.0, 500.0, 512_000.0, 512_000.0]])
    message = ShardLoad(
        cluster="shard-0",
        shard="shard-1",
        at_ms=run.job.state.times.decided_ms,
        brokers=("b1",),
        carried=traffic,
        before=np.zeros((1, 4)),
    )
    first = told(run, message).job.state
    assert first is not None
    added = first.plan.unseen["b1"].load
    assert added[SCALED] == pytest.approx(500.0)
    assert added[0] > 0.0
    again = told(run, message).job.state
    assert again is not None
    assert again.plan.unseen["b1"].load == added


def test_what_a_shard_with_a_wrong_clock_said_gives_way_to_what_comes_next() -> None:
    run = in_shards(GROWS, config_of(GROWS, "ballast", ()), 2)[0]
    assert run.job.state is not None
    ahead = ShardLoad(
        cluster="shard-0",
        shard="shard-1",
        at_ms=run.job.state.times.decided_ms + 86_400_000,
        brokers=("b1",),
        carried=np.ones((1, 4)),
        before=np.ones((1, 4)),
    )
    first = told(run, ahead).job.state
    assert first is not None
    later = replace(ahead, at_ms=first.times.decided_ms + 1_000, carried=np.full((1, 4), 2.0))
    second = told(run, later).job.state
    assert second is not None
    assert second.others["shard-1"].load.carried.tolist() == [[2.0] * 4]


def test_a_cluster_that_is_not_named_hears_nothing_of_shards() -> None:
    run = run_scenario(GROWS, config_of(GROWS, "ballast", ()))
    assert run.job.state is not None
    known = run.job.state.plan
    message = ShardLoad(
        cluster="local",
        shard="shard-1",
        at_ms=run.job.state.times.decided_ms,
        brokers=("b1",),
        carried=np.ones((1, 4)),
        before=np.zeros((1, 4)),
    )
    after = told(run, message).job.state
    assert after is not None
    assert not after.others
    assert after.plan.unseen == known.unseen

"""Rounds of chaos: a fixed set of seeds passes, and what looks at them sees what is wrong.

`make chaos` runs a thousand; a failure names its seed and the command that replays it.
"""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer.effects import Effect
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Engine
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.scenario.parse import EVENT_FORMS, parse_scenario
from tests.support.chaos.__main__ import main
from tests.support.chaos.chaos import chaos_text
from tests.support.chaos.rounds import (
    SafetyWatch,
    judge_round,
    run_round,
)
from tests.support.values.clusters import few
from tests.support.worlds.stories import begun
from tests.support.worlds.story_actions import ACTIONS
from tests.support.worlds.world import World

SEEDS = tuple(range(1, 21))
BUNDLE = "t/n/0x00000000_0x80000000"
CLUSTER = "brokers 2\nnamespace t/n bundles=2 topics=1\nown t/n all b1\nload t/n even 5%\nrun 10s\n"


@pytest.mark.parametrize("seed", few(SEEDS, 2))
def test_round_of_a_fixed_seed_passes(seed: int) -> None:
    assert run_round(seed, Config()).faults == ()


class TwiceWorld(World):
    """A world where the commit of each batch is refused once."""

    def step_job(self) -> None:
        """Compute a batch, and repeat it; NotRepeatableError unless it comes to the same."""
        self.job.is_refused = True
        super().step_job()
        self.job.is_refused = False
        super().step_job()


@pytest.mark.parametrize("seed", few(range(12), 3))
def test_each_batch_of_a_story_comes_to_the_same_when_it_is_repeated(seed: int) -> None:
    chooser = random.Random(seed)
    world = TwiceWorld(Config(), 4, seed=seed)
    begun(world, 8)
    for _ in range(6):
        ACTIONS[chooser.choice(sorted(ACTIONS))](world, chooser)
        world.run(9_000)
    assert world.job.batches > 50


def test_round_is_the_same_again() -> None:
    once = run_round(3, Config())
    assert once.faults == ()
    assert once == run_round(3, Config())


def test_every_fault_there_is_comes_up() -> None:
    texts = [chaos_text(seed) for seed in range(400)]
    happened = {one.verb for text in texts for one in parse_scenario(text).scenario_events}
    assert happened == EVENT_FORMS.keys() - {"cancel-drain"}


def watched() -> tuple[Engine, SafetyWatch]:
    engine = Engine(parse_scenario(CLUSTER), Config())
    watch = SafetyWatch(engine)
    watch.begin()
    return engine, watch


def event(engine: Engine, bundle: str = BUNDLE, **changes: object) -> Effect:
    row: Mapping[str, Any] = {**engine.job.committed.ownership[bundle], **changes}
    return Effect(kind="ownership_events", rows=[row])


def seen(changes: Mapping[str, object]) -> list[str]:
    engine, watch = watched()
    effect = event(engine, **changes)
    engine.job.committed.put(effect.rows[0])
    watch.look([effect])
    return watch.faults


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"version_id": 3}, "went from version 1 to 3"),
        ({"version_id": 1, "destination": "b2"}, "version"),
        ({"version_id": 2, "state": "Deleted", "destination": ""}, "cover"),
        ({"version_id": 2, "destination": ""}, "state_and_brokers"),
    ],
)
def test_watch_sees_a_record_that_must_not_be(changes: dict[str, object], told: str) -> None:
    assert any(told in fault for fault in seen(changes))


def faults_of(lines: str) -> tuple[str, ...]:
    scenario = parse_scenario(CLUSTER.replace("run 10s\n", "") + lines)
    return judge_round(1, run_scenario(scenario, Config()), ()).faults


def test_what_is_left_behind_is_a_fault() -> None:
    assert faults_of("at 20s crash all\nrun 1m") == (
        "at the end 2 bundles are not open at their owner",
        "at the end 2 topics have no service",
    )


@pytest.mark.long
def test_hundred_rounds_are_safe_and_within_the_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["--rounds", "100", "--workers", "2"])
    out = capsys.readouterr().out
    assert status == 0, out
    assert "100 passed, 0 failed" in out

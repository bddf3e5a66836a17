"""A step with savepoints, in which nothing raises, comes to what the step without comes to."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.state.balancer_state import BalancerState
from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config
from lbcore.machine import IsolationLevel, Step
from lbcore.scorer.group_update import GroupUpdate, pack_update
from lbcore.scorer.tracks import RawMessage
from lbcore.sim.engine.job import packed_effects
from tests.support.worlds.safe_world import PlantedError
from tests.support.worlds.world import World


@pytest.mark.parametrize("care", [IsolationLevel.ITEMS, IsolationLevel.PACKED])
def test_a_step_with_care_comes_to_what_a_step_without_comes_to(care: IsolationLevel) -> None:
    world = CarefulWorld(Config(), 4, seed=11)
    world.care = care
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(15_000)
    world.kill("broker-0:8080")
    world.command("split_bundle", bundle="t/n/0x00000000_0x20000000")
    world.run(20_000)
    world.start("broker-0:8080")
    world.command("drain_broker", broker="broker-2:8080")
    world.command("delete_namespace", namespace="t/n")
    world.run(30_000)
    assert len(world.reports) > 60


class CarefulWorld(World):
    """A world that takes each step without care and with it, and holds both against each other."""

    care = IsolationLevel.ITEMS

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        machine, state = self.job.scorers[group], self.job.scored.get(group)
        step = machine.step(state, messages, self.batch_ms)
        careful = machine.step_isolated(state, messages, self.batch_ms, self.care, PlantedError())
        assert [pack_update(one) for one in step.effects] == [
            pack_update(one) for one in careful.effects
        ]
        assert machine.pack(step.state) == machine.pack(careful.state)
        return step

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        machine, given = self.job.balancer, (updates, self.batch_ms)
        careful = machine.step_isolated(self.state, *given, self.care, PlantedError())
        step = machine.step(self.state, *given)
        assert careful.state is not None
        assert step.state is not None
        assert packed_effects(careful.effects) == packed_effects(step.effects)
        fresh = [machine.unpack(machine.pack(one.state)) for one in (careful, step)]
        again = [{**machine.pack(replace(one, packed={}))} for one in fresh]
        assert again[0] == again[1]
        return step

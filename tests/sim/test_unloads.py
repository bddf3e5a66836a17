"""Namespaces of more bundles than one batch unloads: in slices, beside everything else."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer.book import AFTER
from lbcore.config.tree import Config
from lbcore.ownership.records import State
from lbcore.validation.check import with_dynamic
from tests.support.values.clusters import with_constants
from tests.support.worlds.checked_world import CheckedWorld, outcome
from tests.support.worlds.world import World, copied, gapless, states
from tests.unit.wire.test_commands import FULL, NS

SLICE, BUNDLES = 10, 73
_MIRRORED = {"observe_ownership", "observe_policies"}
"""What another authority says is so already: nothing of it may wait."""


@copied
def running(**settings: object) -> World:
    constants = {"limits.bundles_made_max": SLICE, "shedding.max_drains_in_flight": SLICE}
    config = with_constants(Config(), constants)
    world = CheckedWorld(with_dynamic(config, settings), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace=NS, bundles=BUNDLES)
    world.command("create_namespace", namespace="u/small", bundles=4)
    world.run(40_000)
    assert set(states(world)) - {"Deleted"} == {"Owned"}
    return world


def rows(world: World, command_id: str) -> list[Mapping[str, Any]]:
    return [r for r in world.other_rows["commands"] if r["command_id"] == command_id]


def released(world: World, command_id: str) -> Counter[object]:
    """Batch → bundles that it had released for the command."""
    return Counter(
        event["at_ms"]
        for event in world.events
        if event["command_id"] == command_id and event["state"] == State.RELEASING.value
    )


def test_large_namespace_is_unloaded_in_slices_with_progress_to_its_end() -> None:
    world = running()
    asked = world.command("unload_namespace", namespace=NS)
    world.run(2_000)
    small = world.command("unload_namespace", namespace="u/small")
    world.run(5_000)
    assert outcome(world, small)["status"] == "done"
    assert outcome(world, asked)["status"] == "accepted"
    world.run(90_000)
    told = rows(world, asked)
    progress = [json.loads(row["result"])["bundles"] for row in told]
    assert progress == sorted(progress)
    assert (told[-1]["status"], progress[-1]) == ("done", BUNDLES)
    assert AFTER not in json.loads(told[-1]["result"])
    assert len(told) > BUNDLES // SLICE
    slices = released(world, asked)
    assert (sum(slices.values()), max(slices.values())) == (BUNDLES, SLICE)
    assert gapless(world)


def test_many_unloads_of_one_batch_share_its_slice() -> None:
    world = running()
    asked = [world.command("unload_namespace", namespace=name) for name in ("u/small", NS)]
    asked += [world.command("unload_namespace", namespace="u/small") for _ in "ab"]
    world.run(90_000)
    assert {outcome(world, one)["status"] for one in asked} == {"done"}
    together = sum((released(world, one) for one in asked), Counter[object]())
    assert max(together.values()) <= SLICE


@pytest.mark.parametrize("way_back", ["restart_job", "rebuild_job"])
def test_half_unloaded_namespace_goes_on_after_the_job_came_back(way_back: str) -> None:
    world = running()
    asked = world.command("unload_namespace", namespace=NS)
    for _ in range(3):
        world.run(3_000)
        getattr(world, way_back)()
    assert outcome(world, asked)["status"] == "accepted"
    world.run(90_000)
    assert outcome(world, asked)["status"] == "done"
    assert json.loads(outcome(world, asked)["result"])["bundles"] >= BUNDLES


@pytest.mark.parametrize("way_back", ["restart_job", "rebuild_job"])
def test_half_unloaded_namespace_keeps_its_faults_after_the_job_came_back(way_back: str) -> None:
    world = running()
    asked = world.command("unload_namespace", namespace=NS)
    while not released(world, asked):
        world.run(500)
    first = min(str(e["bundle"]) for e in world.events if e["command_id"] == asked)
    world.command("override_bundle", bundle=first, destination=min(world.brokers))
    world.run(4_000)
    getattr(world, way_back)()
    assert outcome(world, asked)["status"] == "accepted"
    world.run(90_000)
    assert outcome(world, asked)["status"] == "failed"
    assert f"{first} was overtaken by admin" in outcome(world, asked)["reason"]
    assert json.loads(outcome(world, asked)["result"])["failed"] == 1


def test_half_unloaded_namespace_that_is_deleted_ends_the_command_with_the_reason() -> None:
    world = running()
    asked = world.command("unload_namespace", namespace=NS)
    world.run(2_000)
    world.command("delete_namespace", namespace=NS)
    world.run(60_000)
    assert outcome(world, asked)["status"] == "failed"
    assert "being deleted" in outcome(world, asked)["reason"]


@pytest.mark.parametrize("kind", sorted(FULL.keys() - _MIRRORED))
def test_no_command_touches_more_bundles_in_a_batch_than_its_slice(kind: str) -> None:
    world = running()
    assert world.state is not None
    broker = min(world.state.brokers)
    meant = {"destination": broker, "broker": broker, "primary": [broker]}
    arguments = {**FULL[kind], **{k: v for k, v in meant.items() if k in FULL[kind]}}
    before = len(world.events)
    world.command(kind, **arguments)
    world.run(12_000)
    batches = Counter(event["at_ms"] for event in world.events[before:])
    assert max(batches.values(), default=0) <= 4 * SLICE  # a slice, and what earlier ones come to

"""Commands by the hundred: the work of a batch does not grow with commands times bundles."""

from collections.abc import Callable
from typing import Any

import pytest

from lbcore.balancer import commands, placement
from lbcore.balancer import intake as topics
from lbcore.config.tree import Config
from lbcore.ownership.records import State
from lbcore.validation.check import with_dynamic
from tests.support.worlds.checked_world import outcome
from tests.support.worlds.world import World, copied

COUNT = 24


def counted(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """The calls of a function from now on, one item each."""
    calls: list[int] = []
    original: Callable[..., Any] = getattr(owner, name)

    def counting(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, counting)
    return calls


@copied
def running(config: Config | None = None) -> World:
    world = World(config or Config(), 3, seed=1)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=COUNT)
    world.run(25_000)
    return world


def bundles(world: World) -> list[str]:
    assert world.state is not None
    return list(world.state.ledger.names)


def test_command_after_an_assignment_of_the_same_batch_finds_the_bundle_assigned() -> None:
    world = running(with_dynamic(Config(), {"ownership.assign": "on_demand"}))
    first, *_ = bundles(world)
    world.command("assign_bundle", bundle=first)
    split = world.command("split_bundle", bundle=first, force=True)
    world.run(10_000)
    assert outcome(world, split)["status"] == "done"


def test_children_of_all_splits_of_a_batch_are_placed_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    asked = [
        world.command("split_bundle", bundle=name, force=True, unload=True)
        for name in bundles(world)
    ]
    calls = counted(monkeypatch, placement, "make_snapshot")
    batches = len(world.reports)
    world.run(1_000)
    assert 1 <= len(calls) <= 2 * (len(world.reports) - batches)
    world.run(20_000)
    assert {outcome(world, one)["status"] for one in asked} == {"done"}
    live = [row for row in world.newest() if row["state"] == State.OWNED.value]
    assert len(live) == 2 * COUNT
    assert len({row["destination"] for row in live}) == 3


def test_what_comes_after_a_split_of_the_same_batch_waits_for_its_end() -> None:
    world = running()
    first, second, *_ = bundles(world)
    kept = [
        world.command("split_bundle", bundle=first, force=True, unload=True),
        world.command("split_bundle", bundle=first, force=True, unload=True),
        world.command("split_bundle", bundle=second, force=True, unload=True),
        world.command("unload_namespace", namespace="t/n"),
    ]
    world.run(30_000)
    statuses = [outcome(world, one)["status"] for one in kept]
    assert statuses == ["done", "refused", "done", "done"]


def test_pause_and_drain_are_taken_while_very_many_commands_are_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "MAX_WAITING", 2)
    world = running()
    for broker in world.brokers.values():
        broker.is_hanging = True
    asked = [world.command("unload_bundle", bundle=name) for name in bundles(world)[:3]]
    world.run(3_000)
    assert [outcome(world, one)["status"] for one in asked] == ["accepted", "accepted", "refused"]
    rules = [
        world.command("drain_broker", broker=min(world.brokers)),
        world.command("pause", reason="too much at once"),
    ]
    world.run(3_000)
    assert [outcome(world, one)["status"] for one in rules] == ["accepted", "done"]


def test_partitions_by_the_million_are_known_by_some_that_lie_evenly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    for number in range(4):
        topic = f"persistent://t/n/t{number}"
        world.command("create_record", record_type="topic", name=topic, value=1 << 20)
    world.run(2_000)
    formatted = counted(monkeypatch, topics, "format_partition")
    split = world.command("split_bundle", namespace="t/n", which="LARGEST")
    world.run(8_000)
    assert outcome(world, split)["status"] == "done"
    assert len(formatted) <= topics.HASHED_MAX

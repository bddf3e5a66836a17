"""A command under an id that was used: the same again changes nothing, another is not carried out.

Judged in a whole cluster in virtual time, also after a restart and a rebuild of the balancer.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lbcore.balancer.tasks.waiting import identity_of, is_same, status_of
from lbcore.config.tree import Config
from lbcore.wire.messages import Command
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.world import CLUSTER, World

ID = "one-id"
FIRST: dict[str, Any] = {
    "kind": "create_namespace",
    "arguments": {"namespace": "t/n", "bundles": 4},
    "principal": "ada",
}
OTHERS = {
    "another kind": {"kind": "delete_namespace", "arguments": {"namespace": "t/n"}},
    "other arguments": {"arguments": {"namespace": "t/other", "bundles": 4}},
    "another principal": {"principal": "eve"},
}
AGAIN: dict[str, Callable[[CheckedWorld], object]] = {
    "at once": lambda _: None,
    "after a restart": lambda world: world.restart_job(),
    "after a rebuild": lambda world: world.rebuild_job(),
}


def world_with_one() -> CheckedWorld:
    world = CheckedWorld(Config(), 3, seed=5)
    world.run(3_000)
    send(world)
    world.run(5_000)
    return world


def send(world: World, command_id: str = ID, **changed: Any) -> None:
    world.append(Command(cluster=CLUSTER, command_id=command_id, **{**FIRST, **changed}))


def counted(world: World, name: str) -> int:
    rows = [dict(row) for row in world.other_rows["commands"] if row["command_id"] == name]
    return len(rows)


@pytest.mark.parametrize("when", AGAIN)
@pytest.mark.parametrize("what", OTHERS)
def test_another_command_under_a_used_id_does_nothing(what: str, when: str) -> None:
    world = world_with_one()
    AGAIN[when](world)
    before = world.newest()
    assert world.state is not None
    namespaces, remembered = world.state.namespaces, world.state.commands
    send(world, **OTHERS[what])
    world.run(5_000)
    assert world.newest() == before
    assert world.state.namespaces == namespaces
    assert world.state.commands == remembered
    assert counted(world, ID) == 1


@pytest.mark.parametrize("when", AGAIN)
def test_what_is_remembered_of_a_command_is_the_same_after_everything(when: str) -> None:
    world = world_with_one()
    AGAIN[when](world)
    send(world)
    world.run(2_000)
    assert world.state is not None
    held = world.state.commands[ID]
    assert status_of(held) == "done"
    assert is_same(held, Command(cluster=CLUSTER, command_id=ID, **FIRST))
    for changed in OTHERS.values():
        asked = Command(cluster=CLUSTER, command_id=ID, **{**FIRST, **changed})
        assert not is_same(held, asked)


def test_command_that_waits_keeps_its_id_for_itself() -> None:
    world = world_with_one()
    bundle = str(world.newest()[0]["bundle"])
    for broker in world.brokers:
        world.pause(broker, is_paused=True)
    moving = {"kind": "unload_bundle", "arguments": {"bundle": bundle}}
    send(world, "moving", **moving)
    world.run(1_000)
    assert world.state is not None
    waiting = world.state.waiting["moving"]
    send(world, "moving", kind="pause", arguments={})
    send(world, "moving", **moving, principal="eve")
    world.run(1_000)
    assert world.state.waiting["moving"] == waiting


def test_two_commands_in_one_batch_under_one_id_are_the_first_alone() -> None:
    world = world_with_one()
    bundle = str(world.newest()[0]["bundle"])
    send(world, "both", kind="assign_bundle", arguments={"bundle": bundle})
    send(world, "both", kind="create_namespace", arguments={"namespace": "t/b", "bundles": 1})
    send(world, "both", kind="assign_bundle", arguments={"bundle": bundle})
    world.run(5_000)
    assert world.state is not None
    assert "t/b" not in world.state.namespaces
    kinds = {row["kind"] for row in world.other_rows["commands"] if row["command_id"] == "both"}
    assert kinds == {"assign_bundle"}


def test_identity_does_not_depend_on_the_order_of_arguments() -> None:
    one = identity_of("k", {"a": 1, "b": [1, {"x": 1, "y": 2}]}, "p")
    assert one == identity_of("k", {"b": [1, {"y": 2, "x": 1}], "a": 1}, "p")
    others = [("k2", {"a": 1}, "p"), ("k", {"a": 2}, "p"), ("k", {"a": 1}, "q"), ("k", {}, "p")]
    assert len({identity_of(*other) for other in others}) == len(others)
    assert identity_of("k", {"a": "\ud800"}, "p")

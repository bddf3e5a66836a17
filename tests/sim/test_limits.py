"""What one tenant may have: refused beyond it with a sentence, until something is gone."""

from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.config.tree import Config
from tests.support.values.clusters import with_constants
from tests.support.worlds.checked_world import outcome
from tests.support.worlds.world import World, copied

FIRST = "acme/one/0x00000000_0x80000000"
LIMITS = {
    "limits.tenant_namespaces_max": 2,
    "limits.tenant_bundles_max": 5,
    "limits.tenant_topics_max": 2,
    "limits.tenant_partitions_max": 10,
    "limits.tenant_rules_max": 2,
}


@copied
def running() -> World:
    world = World(with_constants(Config(), LIMITS), 2, seed=2)
    world.run(2_000)
    for name in ("acme/one", "other/one"):
        assert ask(world, "create_namespace", namespace=name, bundles=2) == ("done", "")
    world.run(10_000)
    return world


def ask(world: World, kind: str, **arguments: object) -> tuple[str, str]:
    command_id = world.command(kind, **arguments)
    world.run(4_000)
    row = outcome(world, command_id)
    return str(row["status"]), str(row["reason"])


def is_refused(told: tuple[str, str], kind: str) -> bool:
    words = f" {kind} and may have"
    return told[0] == "refused" and "tenant acme has" in told[1] and words in told[1]


def test_namespace_in_the_making_counts_with_all_its_bundles() -> None:
    limits = {**LIMITS, "limits.tenant_bundles_max": 100, "limits.bundles_made_max": 10}
    world = World(with_constants(Config(), limits), 2, seed=2)
    world.run(2_000)
    world.command("create_namespace", namespace="acme/one", bundles=90)
    world.run(2_000)
    told = ask(world, "create_namespace", namespace="acme/two", bundles=11)
    assert is_refused(told, "bundles")


def test_topics_and_partitions_of_a_tenant_are_limited() -> None:
    world = running()
    topic = "persistent://acme/one/t"
    assert is_refused(
        ask(world, "create_record", record_type="topic", name=topic, value=11),
        "partitions",
    )
    assert ask(world, "create_record", record_type="topic", name=topic, value=8) == ("done", "")
    assert is_refused(
        ask(world, "update_record", record_type="topic", name=topic, value=11),
        "partitions",
    )
    assert ask(world, "create_record", record_type="topic", name=f"{topic}2") == ("done", "")
    assert is_refused(
        ask(world, "create_record", record_type="topic", name=f"{topic}3"),
        "topics",
    )
    assert (
        ask(world, "create_record", record_type="topic", name="persistent://other/one/t", value=8)[
            0
        ]
        == "done"
    )
    assert ask(world, "delete_record", record_type="topic", name=topic) == ("done", "")
    assert ask(world, "create_record", record_type="topic", name=f"{topic}3", value=10) == (
        "done",
        "",
    )


@pytest.mark.parametrize(
    ("kind", "arguments", "undo"),
    [
        ("pin_bundle", {"bundle": FIRST, "broker": "broker-0:8080"}, "unpin_bundle"),
        ("pause", {"namespace": "acme/one"}, "resume"),
        ("exclude_namespace", {"namespace": "acme/one"}, "include_namespace"),
        (
            "set_anti_affinity_group",
            {"namespace": "acme/one", "group": "g"},
            "delete_anti_affinity_group",
        ),
    ],
)
def test_rules_of_a_tenant_are_limited(kind: str, arguments: Mapping[str, Any], undo: str) -> None:
    world = running()
    for group in ("acme/a", "acme/b"):
        assert ask(world, "set_anti_affinity_group", namespace=group, group="g")[0] == "done"
    assert is_refused(ask(world, kind, **arguments), "rules")
    assert ask(world, "set_anti_affinity_group", namespace="acme/a", group="h")[0] == "done"
    assert ask(world, "delete_anti_affinity_group", namespace="acme/a")[0] == "done"
    assert ask(world, kind, **arguments)[0] == "done"
    named = {name: arguments[name] for name in ("bundle", "namespace") if name in arguments}
    assert ask(world, undo, **named)[0] == "done"
    assert ask(world, kind, **arguments)[0] == "done"


def test_commands_of_one_batch_count_together() -> None:
    world = running()
    asked = [world.command("pause", namespace="acme/one")]
    asked += [world.command("exclude_namespace", namespace=f"acme/{number}") for number in range(4)]
    world.run(2_000)
    assert [outcome(world, one)["status"] for one in asked] == ["done"] * 2 + ["refused"] * 3

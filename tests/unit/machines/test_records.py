"""Tenants and topics: made once, kept across restarts and rebuilds, given up in order."""

from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer.state.records import Records
from lbcore.config.tree import Config
from tests.support.worlds.world import World

NAMESPACE = "acme/ns1"


@pytest.fixture
def world() -> World:
    """A cluster with one namespace."""
    made = World(Config(), 1, seed=3)
    made.run(2_000)
    ask(made, "create_namespace", namespace=NAMESPACE, bundles=1)
    return made


def ask(world: World, kind: str, **arguments: Any) -> tuple[str, str]:
    """Status and reason of a command."""
    command_id = world.command(kind, **arguments)
    world.run(3_000)
    (row,) = [row for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return row["status"], row["reason"]


def kept(world: World) -> Records:
    assert world.state is not None
    return world.state.records


def test_tenant_is_made_once_changed_and_deleted(world: World) -> None:
    roles = {"admin_roles": ["ops"], "allowed_clusters": ["c1"]}
    assert ask(world, "create_record", record_type="tenant", name="other", value=roles) == (
        "done",
        "",
    )
    status, reason = ask(world, "create_record", record_type="tenant", name="other")
    assert (status, reason) == (
        "refused",
        "tenant other exists already; change it with update_record",
    )
    assert ask(
        world, "update_record", record_type="tenant", name="other", value={"admin_roles": ["dev"]}
    ) == ("done", "")
    value = {"admin_roles": ["dev"], "allowed_clusters": []}
    assert kept(world).by_type["tenant"] == {"other": value}
    assert ask(world, "delete_record", record_type="tenant", name="other") == ("done", "")
    assert kept(world).by_type["tenant"] == {}
    assert ask(world, "delete_record", record_type="tenant", name="other")[0] == "refused"


def test_tenant_with_a_namespace_exists_and_stays(world: World) -> None:
    assert ask(
        world, "update_record", record_type="tenant", name="acme", value={"admin_roles": ["dev"]}
    ) == ("done", "")
    status, reason = ask(world, "delete_record", record_type="tenant", name="acme")
    assert (status, "acme/ns1" in reason) == ("refused", True)
    assert ask(world, "update_record", record_type="tenant", name="nobody")[0] == "refused"


@pytest.mark.parametrize(
    ("kind", "arguments", "why"),
    [
        ("create_record", {"name": "persistent://acme/none/t"}, "no namespace"),
        ("create_record", {"name": f"persistent://{NAMESPACE}/t-partition-1"}, "exists already"),
        (
            "create_record",
            {"name": f"persistent://{NAMESPACE}/u-partition-1", "value": 2},
            "name of a partition",
        ),
        ("create_record", {"name": f"persistent://{NAMESPACE}/t"}, "exists already"),
        ("update_record", {"name": f"persistent://{NAMESPACE}/t", "value": 3}, "4 partitions"),
        ("update_record", {"name": f"persistent://{NAMESPACE}/u", "value": 3}, "create it"),
        ("delete_record", {"name": f"persistent://{NAMESPACE}/u"}, "no topic"),
    ],
)
def test_topic_that_does_not_fit_is_refused(
    world: World, kind: str, arguments: Mapping[str, Any], why: str
) -> None:
    ask(world, "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/t", value=4)
    status, reason = ask(world, kind, record_type="topic", **arguments)
    assert status == "refused"
    assert why in reason


def test_records_survive_a_restart_and_a_rebuild(world: World) -> None:
    topic = f"persistent://{NAMESPACE}/t"
    ask(world, "create_record", record_type="tenant", name="other", value={"admin_roles": ["ops"]})
    ask(world, "create_record", record_type="tenant", name="gone")
    ask(world, "delete_record", record_type="tenant", name="gone")
    ask(world, "create_record", record_type="topic", name=topic, value=4)
    ask(world, "update_record", record_type="topic", name=topic, value=8)
    ask(world, "create_record", record_type="topic", name=f"{topic}2")
    ask(world, "delete_record", record_type="topic", name=f"{topic}2")
    value = {"admin_roles": ["ops"], "allowed_clusters": []}
    wanted = Records(by_type={"tenant": {"other": value}, "topic": {topic: 8}})
    assert kept(world) == wanted
    world.restart_job()
    assert kept(world) == wanted
    world.rebuild_job()
    assert kept(world) == wanted


@pytest.mark.parametrize(
    ("record_type", "name", "value", "why"),
    [
        ("tenant", "a/b", None, "letters"),
        ("tenant", "a", 3, "admin_roles"),
        ("tenant", "a", {"roles": []}, "admin_roles"),
        ("tenant", "a", {"admin_roles": [1]}, "a string"),
        ("topic", "t", 0, "full name"),
        ("topic", f"persistent://{NAMESPACE}/t", -1, "negative"),
        ("topic", f"persistent://{NAMESPACE}/t", True, "whole number"),
        ("topic", f"persistent://{NAMESPACE}/t", {"partitions": 1}, "whole number"),
        ("namespace", NAMESPACE, None, "one of"),
    ],
)
def test_name_or_value_that_its_type_cannot_have_is_refused(
    world: World, record_type: str, name: str, value: Any, why: str
) -> None:
    before = kept(world)
    arguments = {"record_type": record_type, "name": name, "value": value}
    status, reason = ask(world, "create_record", **arguments)
    assert (status, why in reason) == ("refused", True), reason
    assert kept(world) is before

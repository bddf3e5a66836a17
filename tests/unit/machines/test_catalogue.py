"""Tenants and topics: made once, kept across restarts and rebuilds, given up in order."""

from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer.state.catalogue import Catalogue, Tenant
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


def kept(world: World) -> Catalogue:
    assert world.state is not None
    return world.state.catalogue


def test_tenant_is_made_once_changed_and_deleted(world: World) -> None:
    roles = {"admin_roles": ["ops"], "allowed_clusters": ["c1"]}
    assert ask(world, "create_tenant", tenant="other", **roles) == ("done", "")
    status, reason = ask(world, "create_tenant", tenant="other")
    assert (status, reason) == (
        "refused",
        "tenant other exists already; change it with update_tenant",
    )
    assert ask(world, "update_tenant", tenant="other", admin_roles=["dev"]) == ("done", "")
    assert kept(world).tenants == {"other": Tenant(admin_roles=("dev",))}
    assert ask(world, "delete_tenant", tenant="other") == ("done", "")
    assert kept(world).tenants == {}
    assert ask(world, "delete_tenant", tenant="other")[0] == "refused"


def test_tenant_with_a_namespace_exists_and_stays(world: World) -> None:
    assert ask(world, "update_tenant", tenant="acme", admin_roles=["dev"]) == ("done", "")
    status, reason = ask(world, "delete_tenant", tenant="acme")
    assert (status, "acme/ns1" in reason) == ("refused", True)
    assert ask(world, "update_tenant", tenant="nobody")[0] == "refused"


@pytest.mark.parametrize(
    ("kind", "arguments", "why"),
    [
        ("create_topic", {"topic": "persistent://acme/none/t"}, "no namespace"),
        ("create_topic", {"topic": f"persistent://{NAMESPACE}/t-partition-1"}, "exists already"),
        (
            "create_topic",
            {"topic": f"persistent://{NAMESPACE}/u-partition-1", "partitions": 2},
            "name of a partition",
        ),
        ("create_topic", {"topic": f"persistent://{NAMESPACE}/t"}, "exists already"),
        ("update_topic", {"topic": f"persistent://{NAMESPACE}/t", "partitions": 3}, "4 partitions"),
        ("update_topic", {"topic": f"persistent://{NAMESPACE}/u", "partitions": 3}, "create it"),
        ("delete_topic", {"topic": f"persistent://{NAMESPACE}/u"}, "no topic"),
    ],
)
def test_topic_that_does_not_fit_is_refused(
    world: World, kind: str, arguments: Mapping[str, Any], why: str
) -> None:
    ask(world, "create_topic", topic=f"persistent://{NAMESPACE}/t", partitions=4)
    status, reason = ask(world, kind, **arguments)
    assert status == "refused"
    assert why in reason


def test_catalogue_survives_a_restart_and_a_rebuild(world: World) -> None:
    topic = f"persistent://{NAMESPACE}/t"
    ask(world, "create_tenant", tenant="other", admin_roles=["ops"])
    ask(world, "create_tenant", tenant="gone")
    ask(world, "delete_tenant", tenant="gone")
    ask(world, "create_topic", topic=topic, partitions=4)
    ask(world, "update_topic", topic=topic, partitions=8)
    ask(world, "create_topic", topic=f"{topic}2")
    ask(world, "delete_topic", topic=f"{topic}2")
    wanted = Catalogue(tenants={"other": Tenant(admin_roles=("ops",))}, topics={topic: 8})
    assert kept(world) == wanted
    world.restart_job()
    assert kept(world) == wanted
    world.rebuild_job()
    assert kept(world) == wanted


def test_state_without_a_catalogue_has_an_empty_one() -> None:
    assert Catalogue.unpack(None) == Catalogue()

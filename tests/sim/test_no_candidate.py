"""A setting that leaves no broker for a bundle raises an alarm that names the setting."""

from typing import Any

import pytest

from lbcore.config.tree import Config
from lbcore.explain.status import StatusRows, make_status
from tests.support.worlds.world import CLUSTER, World, is_settled, states

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
EXTENSIBLE = {"filters.pipeline": "extensible"}


def running() -> World:
    world = World(Config(), 3, seed=9)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(20_000)
    assert is_settled(world)
    return world


def alarms(world: World) -> tuple[str, ...]:
    """What `ballast status` says of the tables as the world has them."""
    rows = StatusRows(
        writer_ms=world.now_ms,
        bundles=list(world.current.values()),
        brokers=[],
        decisions=world.decisions,
        policies=[],
        pins=[],
        load=[],
        rejected=[],
    )
    return make_status(CLUSTER, rows, Config(), world.now_ms).alarms


@pytest.mark.parametrize("name", [MODULAR, "no.such.Class"])
def test_a_load_manager_class_that_no_broker_advertises_is_named(name: str) -> None:
    setting = "filters.load_manager_class"
    world = running()
    assert alarms(world) == ()
    world.command("set_config", values={**EXTENSIBLE, setting: name})
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.run(30_000)
    assert states(world) == {"Free": 4}
    report: Any = world.reports[-1]
    assert report["alarms"] == [f"no_candidate:{setting}"]
    assert report["without_candidate"] == {setting: 4}
    assert any(setting in alarm for alarm in alarms(world))
    world.command("reset_config", keys=[setting])
    world.run(20_000)
    assert is_settled(world)
    assert not [alarm for alarm in world.reports[-1]["alarms"] if "no_candidate" in alarm]


def test_bundles_of_a_policy_without_brokers_name_the_policies() -> None:
    world = running()
    policy = {"namespaces": ["t/n"], "primary": ["nobody.*"], "secondary": [], "min_limit": 1}
    world.command("set_isolation_policy", policy="p", **policy)
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.run(20_000)
    assert world.reports[-1]["without_candidate"] == {"isolation policies": 4}

"""A setting that leaves no broker for a bundle raises an alarm that names the setting."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.operating.status_rows import read_status_rows
from lbcore.config.tree import Config
from lbcore.explain.recent_findings import policy_alarms
from lbcore.explain.status import StatusRows, make_status
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER, World, is_settled, states

MODULAR = "org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl"
FAILOVER = {
    "policy_type": "min_available",
    "parameters": {"min_limit": "1", "usage_threshold": "100"},
}
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
        blocked=world.decisions,
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


POLICY = {"namespaces": ["t/n"], "secondary": [], "min_limit": 1}


def test_bundles_of_a_policy_without_brokers_name_policy_and_namespace(tmp_path: Path) -> None:
    world = running()
    world.command("set_isolation_policy", policy="p", primary=["nobody.*"], **POLICY)
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.run(20_000)
    assert world.reports[-1]["without_candidate"] == {"isolation policies": 4}
    told = "policy p admits no broker for bundles of t/n"
    assert any(told in alarm for alarm in alarms(world))
    write_tables(world, tmp_path)
    rows = read_status_rows(TableReader(tmp_path, CLUSTER), world.now_ms)
    assert any(told in alarm for alarm in make_status(CLUSTER, rows, Config(), world.now_ms).alarms)


def test_bundles_without_a_policy_beside_those_of_one_have_an_alarm_of_their_own() -> None:
    world = running()
    world.command("set_isolation_policy", policy="p", primary=["nobody.*"], **POLICY)
    world.command("set_isolation_policy", policy="q", namespaces=["t/q"], primary=[".*"])
    world.command("create_namespace", namespace="t/free", bundles=2)
    world.run(2_000)
    world.command("unload_namespace", namespace="t/n")
    world.command("unload_namespace", namespace="t/free")
    world.run(20_000)
    assert world.reports[-1]["without_candidate"] == {"isolation policies": 6}
    found = "\n".join(alarms(world))
    assert "policy p admits no broker for bundles of t/n" in found
    assert "reserve every broker, so none may take bundles of t/free" in found


@pytest.mark.parametrize(
    "primary", ["broker-1:8080", "broker-1", "broker-1.*", "[a-z0-9-]+-1:80[0-9]+"]
)
def test_policy_that_names_brokers_with_their_port_is_served(primary: str) -> None:
    world = running()
    world.command("set_isolation_policy", policy="p", primary=[primary], **POLICY)
    world.command("unload_namespace", namespace="t/n")
    world.run(20_000)
    assert {row["destination"] for row in world.current.values()} == {"broker-1:8080"}


def test_pattern_that_cannot_be_matched_is_refused_and_a_kept_one_is_an_alarm() -> None:
    world = running()
    refused = world.command("set_isolation_policy", policy="p", primary=["(?=b).*"], **POLICY)
    slow = ["([a-z0-9-]+[.]?)+:8443"]
    taken = world.command("set_isolation_policy", policy="q", primary=slow, namespaces=["t/q"])
    world.run(5_000)
    results = {row["command_id"]: row for row in world.other_rows["commands"]}
    assert results[refused]["status"] == "refused"
    assert "linear time" in results[refused]["reason"]
    assert results[taken]["status"] == "done"
    kept = {**POLICY, "primary": ["(?=b).*"], "auto_failover_policy": FAILOVER}
    row = {"kind": "isolation", "name": "p", "value": json.dumps(kept), "is_set": True}
    assert any("it matches nobody until" in alarm for alarm in policy_alarms([row]))
    assert list(policy_alarms([{**row, "is_set": False}])) == []

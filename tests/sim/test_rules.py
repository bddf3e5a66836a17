"""What operators set and what becomes of it, in a cluster in virtual time."""

from tests.support.worlds.checked_world import (
    HOUR_MS,
    decided,
    newest,
    outcome,
    owners,
    running,
    skewed,
)
from tests.support.worlds.world import is_settled


def test_bundle_pinned_moves_there_and_back_when_its_broker_is_back() -> None:
    world = running()
    bundle, broker = min(owners(world)), "broker-3:8080"
    world.command("pin_bundle", bundle=bundle, broker=broker, reason="debugging")
    world.run(15_000)
    assert owners(world)[bundle] == broker
    assert decided(world, "transfer", "Pinned")
    world.kill(broker)
    world.run(30_000)
    assert owners(world)[bundle] != broker
    assert sum(r["counts"].get("pin_broken", 0) for r in world.reports) == 1
    world.start(broker)
    world.run(90_000)
    assert owners(world)[bundle] == broker
    assert is_settled(world)


def test_pin_ends_with_its_time_or_by_command() -> None:
    world = running()
    first, second = sorted(owners(world))[:2]
    world.command("pin_bundle", bundle=first, broker="broker-0:8080", ttl_ms=20_000)
    world.command("pin_bundle", bundle=second, broker="broker-0:8080")
    world.run(15_000)
    rows = newest(world, "pins", "bundle")
    assert rows[first,]["is_set"]
    assert rows[second,]["is_set"]
    world.command("unpin_bundle", bundle=second)
    world.run(10_000)
    rows = newest(world, "pins", "bundle")
    assert not rows[first,]["is_set"]
    assert not rows[second,]["is_set"]
    assert decided(world, "pin", "Expired")


def test_children_of_a_pinned_bundle_inherit_its_pin() -> None:
    world = running(4, 8)
    bundle, broker = "t/n/0x00000000_0x20000000", "broker-2:8080"
    world.command("pin_bundle", bundle=bundle, broker=broker)
    world.rates = {bundle: 40_000.0}
    world.run(400_000)
    pins = {name[0] for name, row in newest(world, "pins", "bundle").items() if row["is_set"]}
    assert bundle not in pins
    assert len(pins) >= 2
    assert {owners(world)[name] for name in pins} == {broker}


def test_paused_cluster_sheds_nothing_and_fails_over() -> None:
    world = running()
    world.command("pause", reason="works")
    skewed(world)
    world.run(300_000)
    assert not [d for d in world.decisions if d["kind"] in ("transfer", "unload")]
    assert decided(world, "skip", "Paused")
    world.kill("broker-0:8080")
    world.run(30_000)
    assert "broker-0:8080" not in owners(world).values()
    assert is_settled(world)
    world.command("resume")
    world.run(300_000)
    assert [d for d in world.decisions if d["kind"] in ("transfer", "unload")]


def test_paused_namespace_keeps_its_bundles_while_others_are_shed() -> None:
    world = running()
    world.command("create_namespace", namespace="t/other", bundles=24)
    world.run(25_000)
    world.command("pause", namespace="t/n")
    skewed(world)
    hot = owners(world)[min(owners(world))]
    others = [name for name, b in owners(world).items() if b == hot and "t/other" in name]
    world.rates |= dict.fromkeys(others, 3_000.0)
    world.run(300_000)
    moved = {
        str(d["bundle"]).rpartition("/")[0] for d in world.decisions if d["kind"] == "transfer"
    }
    assert moved == {"t/other"}


def test_excluded_namespace_is_never_shed() -> None:
    world = running()
    world.command("exclude_namespace", namespace="t/n")
    skewed(world)
    world.run(200_000)
    assert not decided(world, "transfer")
    world.command("include_namespace", namespace="t/n")
    world.run(200_000)
    assert decided(world, "transfer")


def test_isolated_namespace_is_placed_on_its_primary_brokers() -> None:
    world = running()
    world.command(
        "set_isolation_policy",
        policy="mine",
        namespaces=["t/own"],
        primary=["broker-1", "broker-2"],
    )
    world.command("create_namespace", namespace="t/own", bundles=8)
    world.run(25_000)
    mine = {b for name, b in owners(world).items() if name.startswith("t/own")}
    assert mine == {"broker-1:8080", "broker-2:8080"}
    bad = world.command("set_isolation_policy", policy="x", namespaces=["("], primary=["a"])
    gone = world.command("delete_isolation_policy", policy="mine")
    world.run(2_000)
    assert "regular expression" in str(outcome(world, bad)["reason"])
    assert outcome(world, gone)["status"] == "done"


def test_anti_affinity_group_spreads_its_namespaces() -> None:
    world = running()
    for name in ("t/a", "t/b", "t/c"):
        world.command("set_anti_affinity_group", namespace=name, group="g")
        world.command("create_namespace", namespace=name, bundles=1)
        world.run(25_000)
    spread = {
        b for name, b in owners(world).items() if name.split("/0x")[0] in ("t/a", "t/b", "t/c")
    }
    assert len(spread) == 3


def test_rules_and_settings_rebuilt_from_the_tables_are_those_of_the_state() -> None:
    world = running(9, 36)
    bundles = sorted(owners(world))
    world.command("pin_bundle", bundle=bundles[0], broker="broker-0:8080", ttl_ms=HOUR_MS)
    world.command("pin_bundle", bundle=bundles[1], broker="broker-0:8080")
    world.command("pin_bundle", bundle=bundles[2], broker="broker-0:8080")
    world.command("unpin_bundle", bundle=bundles[1])
    world.command("pause", namespace="t/n", reason="works")
    world.command("pause")
    world.command("resume")
    world.command("exclude_namespace", namespace="t/x")
    world.command("set_isolation_policy", policy="p", namespaces=["t/i"], primary=["broker-1"])
    world.command("set_anti_affinity_group", namespace="t/a", group="g")
    world.command("set_config", values={"shedding.max_unload_fraction": 0.3})
    world.command("set_config", values={"shedding.cool_down_ms": 5_000})
    world.command("reset_config", keys=["shedding.max_unload_fraction"])
    world.command("drain_broker", broker="broker-8:8080", max_in_flight=1, deadline_ms=HOUR_MS)
    world.run(3_000)
    for name in ("broker-1:8080", "broker-2:8080", "broker-3:8080"):
        world.kill(name)
    world.run(45_000)
    assert world.state is not None
    before = world.state
    assert before.rules.brake is not None
    assert set(before.rules.pins) == {bundles[0], bundles[2]}
    world.rebuild_job()
    assert world.state.rules == before.rules
    assert world.state.settings == before.settings == {"shedding.cool_down_ms": 5_000}
    world.run(40_000)
    assert world.state.rules.brake == before.rules.brake
    numbers = [row["number"] for row in world.other_rows["config_versions"]]
    assert numbers == [1, 2, 3]
    assert is_settled(world)

"""Rules and settings that operators set while the cluster runs, and strategies of their own."""

import json
import pickle
from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.config.load import digest, parse_config
from lbcore.config.tree import Config, CustomStrategy
from lbcore.explain.broker import explain_broker
from lbcore.plan.snapshot import Proposal, ProposedMove, Snapshot
from lbcore.validation.check import with_dynamic
from tests.support.worlds.checked_world import (
    HOUR_MS,
    decided,
    newest,
    outcome,
    owners,
    running,
    skewed,
)
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.world import World, is_settled


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


def running_settings_changed() -> World:
    world = World(Config(), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    world.run(25_000)
    return world


def outcome_settings_changed(world: World, command_id: str) -> tuple[object, object]:
    (row,) = [r for r in world.other_rows["commands"] if r["command_id"] == command_id]
    return row["status"], row["reason"]


def test_settings_changed_survive_a_restart_and_can_be_taken_back() -> None:
    world = running_settings_changed()
    world.command("set_config", values={"loadBalancerAvgShedderLowThreshold": 5})
    world.run(11_000)
    changed = world.decisions[-1]["config_version"]
    world.restart_job()
    world.run(11_000)
    assert world.decisions[-1]["config_version"] == changed
    world.command("reset_config", keys=[])
    world.run(11_000)
    assert world.decisions[-1]["config_version"] == world.decisions[0]["config_version"]


def test_setting_that_needs_a_restart_is_refused_with_what_to_do() -> None:
    world = running_settings_changed()
    command_id = world.command("set_config", values={"pipeline.trigger_ms": 500})
    world.run(3_000)
    status, reason = outcome_settings_changed(world, command_id)
    assert status == "refused"
    assert "overlay" in str(reason)


def restarted_with(world: World, config: Config, **settings: Any) -> None:
    """The job starts again under other files; settings: changed by a version that knew more."""
    assert world.state is not None
    world.job.balancer = ClusterBalancer(cluster="local", config=config)
    changed = {name.replace("__", "."): value for name, value in settings.items()}
    world.job.state = replace(world.state, settings={**world.state.settings, **changed})
    world.restart_job()


def set_aside(world: World) -> dict[str, str]:
    rules: Any = world.reports[-1]["rules"]
    return dict(rules["set_aside"])


def test_a_setting_that_only_a_newer_version_knows_is_set_aside_until_it_is_reset() -> None:
    world = running_settings_changed()
    world.command("set_config", values={"shedding.avg_low_hits": 3})
    world.run(2_000)
    restarted_with(world, Config(), shedding__of_tomorrow=7)
    world.run(11_000)
    assert list(set_aside(world)) == ["shedding.of_tomorrow"]
    in_force = digest(with_dynamic(Config(), {"shedding.avg_low_hits": 3}))
    assert world.decisions[-1]["config_version"] == in_force
    (row,) = [row for row in world.other_rows["policies"] if row["kind"] == "set_aside"]
    assert (row["name"], row["is_set"]) == ("shedding.of_tomorrow", True)
    other = world.command("set_config", values={"shedding.avg_high_hits": 4})
    world.run(2_000)
    assert outcome_settings_changed(world, other) == ("done", "")
    assert list(set_aside(world)) == ["shedding.of_tomorrow"]
    reset = world.command("reset_config", keys=["shedding.of_tomorrow"])
    world.run(2_000)
    assert outcome_settings_changed(world, reset) == ("done", "")
    assert set_aside(world) == {}
    assert world.state is not None
    assert world.state.settings == {"shedding.avg_low_hits": 3, "shedding.avg_high_hits": 4}


@pytest.mark.parametrize("is_rebuilt", [False, True], ids=["restarted", "rebuilt"])
def test_a_setting_that_does_not_suit_new_files_is_set_aside_and_comes_back_with_them(
    *, is_rebuilt: bool
) -> None:
    files = parse_config(
        {
            "shedding": {"strategy": "threshold"},
            "placement": {"strategy": "least_long_term_message_rate"},
        }
    )
    world = World(files, 3, seed=4)
    world.run(3_000)
    world.command("set_config", values={"shedding.strategy": "overload"})
    world.run(2_000)
    restarted_with(world, Config())
    if is_rebuilt:
        world.rebuild_job()
    world.run(11_000)
    assert "placement" in set_aside(world)["shedding.strategy"]
    assert world.decisions[-1]["config_version"] == digest(Config())
    restarted_with(world, files)
    world.run(11_000)
    assert set_aside(world) == {}
    changed = with_dynamic(files, {"shedding.strategy": "overload"})
    assert world.decisions[-1]["config_version"] == digest(changed)


SET = {"shedding.strategy": "mine", "placement.strategy": "least_long_term_message_rate"}


def rotate(snapshot: Snapshot, state: dict[str, Any], _config: Any, _now_ms: int) -> Any:
    """Every cycle the first bundle that may move goes to the next broker."""
    names, owner = snapshot.brokers.names, snapshot.bundles.owner
    rows = [row for row, may in enumerate(snapshot.bundles.can_move.tolist()) if may]
    if not rows:
        return Proposal(), state
    to = names[(int(owner[rows[0]]) + 1) % len(names)]
    move = ProposedMove(bundle=snapshot.bundles.names[rows[0]], destination=to)
    return Proposal(moves=(move,)), {"moved": state.get("moved", 0) + 1}


def fail(*_: Any) -> Any:
    raise RuntimeError("no idea")


def running_custom_strategy(decide: Any, problem: str = "") -> World:
    own = CustomStrategy(
        name="mine", origin="p:f", digest="c0de" * 16, decide=decide, problem=problem
    )
    world = World(Config(own={"mine": own}), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    world.run(25_000)
    world.command("set_config", values=SET)
    return world


def of_mine(world: World) -> list[dict[str, Any]]:
    return [dict(row) for row in world.decisions if row["strategy"] == "mine"]


def test_own_strategy_moves_bundles_and_its_state_survives_a_restart() -> None:
    world = running_custom_strategy(rotate)
    world.run(31_000)
    before = len(of_mine(world))
    world.restart_job()
    world.run(31_000)
    moves = [row for row in of_mine(world) if row["kind"] == "transfer"]
    assert len(of_mine(world)) > before
    assert {json.loads(row["inputs"])["code"] for row in moves} == {"p:f@c0dec0dec0de"}
    assert {row["reason"] for row in moves} == {"Proposed"}


def test_own_strategy_that_raises_is_an_alarm_and_the_job_goes_on() -> None:
    world = running_custom_strategy(fail)
    world.run(21_000)
    (reason,) = {row["reason"] for row in of_mine(world)}
    skipped = json.loads(of_mine(world)[-1]["inputs"])["skipped"]
    assert reason == "StrategyFailed"
    assert "raised RuntimeError in fail, line" in skipped["strategy"]
    assert any("strategy" in report["alarms"] for report in world.reports)  # type: ignore[operator]
    explained = explain_broker(rows_of(world), "broker-0:8080")
    assert explained is not None
    (change,) = explained.changes
    assert change.startswith("cycles decide nothing now (StrategyFailed): the strategy raised")
    world.command("create_namespace", namespace="t/m", bundles=4)
    world.run(25_000)
    placed = [row for row in world.decisions if row["kind"] == "assign"]
    assert len(placed) > 1


def test_own_strategy_that_is_gone_is_a_skip_that_says_so() -> None:
    world = running_custom_strategy(None, problem="mine is not installed any more: install it")
    world.run(21_000)
    assert {row["reason"] for row in of_mine(world)} == {"StrategyMissing"}
    skipped = json.loads(of_mine(world)[-1]["inputs"])["skipped"]
    assert skipped["strategy"] == "mine is not installed any more: install it"


def test_configuration_with_an_own_strategy_goes_to_another_process() -> None:
    own = CustomStrategy(name="mine", origin="p:f", digest="c0de", decide=json.dumps)
    assert pickle.loads(pickle.dumps(Config(own={"mine": own}))).own["mine"] == own  # noqa: S301 ours

"""A command changes settings while the cluster runs; the next cycle decides under them."""

from lbcore.config.tree import Config
from lbcore.machines.balancer import ClusterBalancer
from tests.world import World


def running() -> World:
    world = World(Config(), 3, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    world.run(25_000)
    return world


def strategies(world: World, since: int) -> set[object]:
    return {d["strategy"] for d in world.decisions[since:] if d["kind"] == "skip"}


def outcome(world: World, command_id: str) -> tuple[object, object]:
    (row,) = [r for r in world.other_rows["commands"] if r["command_id"] == command_id]
    return row["status"], row["reason"]


def test_strategy_changed_by_a_command_decides_the_next_cycle() -> None:
    world = running()
    before = len(world.decisions)
    changes = {
        "shedding.strategy": "threshold",
        "placement.strategy": "least_long_term_message_rate",
    }
    command_id = world.command("set_config", values=changes)
    world.run(21_000)
    assert outcome(world, command_id) == ("done", "")
    assert strategies(world, before) == {"threshold"}
    versions = [d["config_version"] for d in world.decisions]
    assert versions[-1] != versions[0]


def test_settings_changed_survive_a_restart_and_can_be_taken_back() -> None:
    world = running()
    world.command("set_config", values={"loadBalancerAvgShedderLowThreshold": 5})
    world.run(11_000)
    changed = world.decisions[-1]["config_version"]
    world.restart_job()
    world.run(11_000)
    assert world.decisions[-1]["config_version"] == changed
    world.command("reset_config", keys=[])
    world.run(11_000)
    assert world.decisions[-1]["config_version"] == world.decisions[0]["config_version"]


def test_avg_for_only_one_of_shedding_and_placement_is_refused() -> None:
    world = running()
    command_id = world.command("set_config", values={"shedding.strategy": "threshold"})
    world.run(3_000)
    status, reason = outcome(world, command_id)
    assert status == "refused"
    assert "avg" in str(reason)


def test_setting_that_needs_a_restart_is_refused_with_what_to_do() -> None:
    world = running()
    command_id = world.command("set_config", values={"pipeline.trigger_ms": 500})
    world.run(3_000)
    status, reason = outcome(world, command_id)
    assert status == "refused"
    assert "overlay" in str(reason)


def test_state_packed_keeps_the_settings() -> None:
    world = running()
    world.command("set_config", values={"shedding.max_unload_fraction": 0.3})
    world.run(3_000)
    balancer = ClusterBalancer(cluster="local", config=Config())
    assert world.state is not None
    assert balancer.unpack(balancer.pack(world.state)).settings == world.state.settings != {}

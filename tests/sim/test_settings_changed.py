"""A command changes settings while the cluster runs; the next cycle decides under them."""

from dataclasses import replace
from typing import Any

import pytest

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.config.load import digest, parse_config
from lbcore.config.tree import Config
from lbcore.validation.dynamic import with_dynamic
from tests.support.worlds.world import World


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


def test_ballast_for_only_one_of_shedding_and_placement_is_refused() -> None:
    world = running()
    command_id = world.command("set_config", values={"shedding.strategy": "threshold"})
    world.run(3_000)
    status, reason = outcome(world, command_id)
    assert status == "refused"
    assert "ballast" in str(reason)


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
    world = running()
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
    assert outcome(world, other) == ("done", "")
    assert list(set_aside(world)) == ["shedding.of_tomorrow"]
    reset = world.command("reset_config", keys=["shedding.of_tomorrow"])
    world.run(2_000)
    assert outcome(world, reset) == ("done", "")
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

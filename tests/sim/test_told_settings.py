"""The job tells the tables what it decides by: at a start, and whenever that changes."""

from dataclasses import replace

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.model.tables import SETTINGS_IN_FORCE
from tests.support.worlds.world import CLUSTER, World

SETTING = "shedding.max_unload_fraction"


def running() -> World:
    world = World(parse_assignments(Config(), ["shedding.avg_low_hits=9"]), 3, seed=4)
    world.run(5_000)
    return world


def tellings(world: World) -> list[tuple[str, str]]:
    """Value of SETTING and who set it, each time that all was told."""
    rows = world.other_rows[SETTINGS_IN_FORCE.name]
    return [(str(row["value"]), str(row["origin"])) for row in rows if row["setting"] == SETTING]


def start_with(world: World, *assignments: str) -> None:
    """The job's next start, configured otherwise."""
    world.config = parse_assignments(Config(), assignments)
    world.job.balancer = ClusterBalancer(cluster=CLUSTER, config=world.config)
    world.restart_job()


def test_first_batch_tells_every_setting_once() -> None:
    world = running()
    rows = world.other_rows[SETTINGS_IN_FORCE.name]
    assert len({row["setting"] for row in rows}) == len(rows) > 100
    assert {row["at_ms"] for row in rows} == {world.reports[0]["now_ms"]}
    assert tellings(world) == [("0.5", "default")]


def test_start_with_the_same_settings_tells_nothing_and_with_others_all() -> None:
    world = running()
    world.restart_job()
    world.run(5_000)
    world.rebuild_job()
    world.run(5_000)
    assert len(tellings(world)) == 1
    start_with(world, f"{SETTING}=0.4")
    world.run(5_000)
    assert tellings(world)[1:] == [("0.4", "--set")]


def test_command_and_its_end_are_told_with_the_batch_that_obeys() -> None:
    world = running()
    world.command("set_config", values={SETTING: 0.3})
    world.run(5_000)
    world.restart_job()
    world.run(5_000)
    world.rebuild_job()
    world.run(5_000)
    assert tellings(world)[1:] == [("0.3", "command")]
    told_ms = world.other_rows[SETTINGS_IN_FORCE.name][-1]["at_ms"]
    assert told_ms == world.other_rows["config_versions"][-1]["at_ms"]
    world.command("reset_config", keys=[])
    world.run(5_000)
    assert tellings(world)[2:] == [("0.5", "default")]


def test_what_is_set_aside_is_told_as_it_is_without() -> None:
    world = running()
    world.command("set_config", values={SETTING: 0.3})
    world.run(5_000)
    assert world.state is not None
    old = {**world.state.settings, SETTING: 7.0}  # of a version that took it
    world.job.state = replace(world.state, settings=old)
    world.run(5_000)
    assert tellings(world)[2:] == [("0.5", "default")]

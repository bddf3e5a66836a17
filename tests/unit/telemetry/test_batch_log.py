"""The job's log: one line a batch, plan and command, leading to the tables; more in debug mode."""

import json
from functools import cache

from jobs.adapters.spark.batch_sink import lines_of
from jobs.telemetry.job_counts import WrittenBatch
from lbcore.config.tree import Config
from tests.support.worlds.measured_world import MeasuredWorld


@cache
def story() -> MeasuredWorld:
    """A namespace is made; then debug mode is on for 20 s."""
    world = MeasuredWorld(Config(), 3, seed=2)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(30_000)
    world.command("set_config", values={"loadBalancerDebugModeEnabled": "true"})
    world.run(20_000)
    world.command("unload_bundle", bundle="t/n/0x00000000_0x20000000")
    world.run(20_000)
    world.command("set_config", values={"telemetry.debug": False})
    world.run(20_000)
    return world


def test_batch_has_one_line_without_what_is_for_metrics() -> None:
    lines = story().lines_of("batch")
    assert [line["batch_id"] for line in lines] == list(range(len(lines)))
    assert not any({"gauges", "ends"} & line.keys() for line in lines)
    json.dumps(lines)


def test_plan_and_command_lines_lead_to_the_tables() -> None:
    world = story()
    ids = [one for line in world.lines_of("plan") for one in line["decision_ids"]]
    assert ids == [row["decision_id"] for row in world.decisions]
    commands = world.lines_of("command")
    assert {line["command_id"] for line in commands} == {f"command-{i}" for i in range(1, 5)}
    assert {line["kind"] for line in commands} >= {"create_namespace", "unload_bundle"}


def test_debug_mode_is_switched_while_running_and_shows_each_transition() -> None:
    world = story()
    modes = [line["is_debugging"] for line in world.lines_of("batch")]
    first, last = modes.index(True), len(modes) - modes[::-1].index(True)
    assert first > 10
    assert all(modes[first:last])
    assert not any([*modes[:first], *modes[last:]])
    assert last < len(modes)
    moved = [line["bundle"] for line in world.lines_of("transition")]
    assert set(moved) == {"t/n/0x00000000_0x20000000"}
    assert len(world.lines_of("decision")) > 0
    versions = {line["config_version"] for line in world.lines_of("plan")}
    assert len(versions) <= 2  # Pulsar's key also changes a setting of transfer


def test_brokers_of_a_large_cluster_are_told_by_each_tenth_batch() -> None:
    """Those of a small one by every batch."""

    def told(count: int, batch_id: int) -> bool:
        brokers = {f"b{number}": {} for number in range(count)}
        report = {"cluster": "local", "brokers": brokers, "is_debugging": False}
        seen = WrittenBatch(
            batch_id=batch_id, reports=[report], tables={}, versions={}, parts_ms={}
        )
        (line,) = lines_of(seen, {})
        return "brokers" in line

    assert [told(201, batch_id) for batch_id in (0, 1, 9, 10)] == [True, False, False, True]
    assert told(200, 1)

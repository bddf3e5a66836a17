"""Quiet hours: no cycle sheds or splits, and all else goes on."""

import json

from lbcore.explain.cluster import explain_cluster
from lbcore.model.times import instant
from tests.support.worlds.checked_world import (
    COLD,
    HOT,
    decided,
    foreseen,
    hot_world,
    outcome,
    owners,
)
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.world import World, gapless, is_settled

UNTIL_MS = 1_700_001_600_000  # Tuesday 2023-11-14 22:40, sixteen minutes after the load is hot
QUIET = "cluster.quiet_hours=mon-fri 22:00-22:40"


def moved(world: World) -> list[int]:
    """When balancing has moved something."""
    kinds = ("transfer", "unload")
    return sorted({int(str(d["at_ms"])) for d in world.decisions if d["kind"] in kinds})


def test_nothing_is_balanced_in_quiet_hours_and_all_of_it_afterwards() -> None:
    otherwise = hot_world()
    otherwise.run(300_000)
    assert moved(otherwise), "without quiet hours it would be"
    world = hot_world(QUIET)
    world.run(UNTIL_MS - world.now_ms - 1_000, step_ms=3_000)
    assert moved(world) == []
    told = decided(world, "skip", "QuietHours")
    assert {json.loads(str(row["inputs"]))["until_ms"] for row in told} == {UNTIL_MS}
    world.run(300_000)
    assert moved(world)[0] >= UNTIL_MS
    assert gapless(world)


def test_explain_says_until_when_it_is_quiet() -> None:
    world = hot_world(QUIET)
    world.run(30_000)
    found = explain_cluster(rows_of(world))
    assert f"quiet hours until {instant(UNTIL_MS)}: no cycle sheds or splits" in found.blocks
    assert "these are quiet hours" in " ".join(found.lines())


def test_failover_drains_pins_and_approved_plans_go_on() -> None:
    world = hot_world(QUIET)
    pinned = next(bundle for bundle, owner in owners(world).items() if owner == HOT)
    drained = next(bundle for bundle, owner in owners(world).items() if owner == COLD)
    commands = [world.command("pin_bundle", bundle=pinned, broker="broker-2:8080")]
    commands += [world.command("propose_plan", moves={drained: HOT}, why="its own disk")]
    world.run(20_000)
    (plan,) = world.state.rules.proposals if world.state else ()
    commands += [world.command("approve_plan", plan=plan)]
    world.run(60_000)
    assert owners(world)[pinned] == "broker-2:8080"
    assert owners(world)[drained] == HOT
    commands += [world.command("drain_broker", broker=COLD)]
    world.run(90_000)
    assert COLD not in owners(world).values()
    assert {outcome(world, one)["status"] for one in commands} == {"done"}
    world.kill("broker-2:8080")
    world.run(90_000)
    assert set(owners(world).values()) == {HOT}
    assert is_settled(world)
    assert world.now_ms < UNTIL_MS
    assert not decided(world, "transfer", "Overloaded")


def test_quiet_hours_outlast_a_restart_and_a_rebuild_and_are_changed_by_a_command() -> None:
    world = hot_world(QUIET)
    world.restart_job()
    world.run(60_000)
    world.rebuild_job()
    world.run(120_000)
    assert moved(world) == []
    refused = world.command("set_config", values={"cluster.quiet_hours": "at night"})
    others = world.command("set_config", values={"cluster.quiet_hours": "sat-sun 08:00-20:00"})
    world.run(5_000)
    assert "a window is written as 22:00-06:00" in outcome(world, refused)["reason"]
    assert outcome(world, others)["status"] == "done"
    world.restart_job()
    world.run(300_000)
    assert moved(world)


def test_dry_run_moves_nothing_in_quiet_hours() -> None:
    otherwise, world = hot_world(), hot_world(QUIET)
    for one in (otherwise, world):
        one.run(1_000)  # it is told to shed
    assert foreseen(otherwise).decisions, "without quiet hours it does"
    found = foreseen(world)
    assert not found.decisions
    assert {skip["reason"] for skip in found.skips} == {"QuietHours"}

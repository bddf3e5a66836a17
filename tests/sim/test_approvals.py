"""Plans that wait for a person: proposed, approved, carried out, stopped, taken back."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer.rebuild import newest_rows
from lbcore.balancer.rules import PlanProposal, PlanStatus
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.explain.bundle import explain_bundle
from lbcore.explain.recent_findings import plan_alarms
from tests.support.worlds.checked_world import (
    COLD,
    HOT,
    CheckedWorld,
    hot_world,
    outcome,
    owners,
)
from tests.support.worlds.explained_world import about
from tests.support.worlds.world import World, copied, gapless, is_settled, states


def hot(*more: str, **constants: int) -> World:
    """Under a policy that asks."""
    return hot_world("cluster.approval=ask", *more, **constants)


def proposals(world: World) -> Mapping[str, PlanProposal]:
    assert world.state is not None
    return world.state.rules.proposals


def waiting(world: World, within_ms: int = 600_000) -> str:
    """The name of the plan that waits."""
    end_ms = world.now_ms + within_ms
    while world.now_ms < end_ms:
        world.run(1_000)
        for name, one in proposals(world).items():
            if one.station is PlanStatus.WAITS:
                return name
    raise AssertionError("nothing was proposed")


def told(world: World, reason: str) -> list[dict[str, Any]]:
    rows = [d for d in world.decisions if (d["kind"], d["reason"]) == ("plan", reason)]
    return [json.loads(str(row["inputs"])) for row in rows]


def test_cycle_moves_nothing_until_its_plan_is_approved_and_then_what_it_showed() -> None:
    world = hot()
    before = owners(world)
    name = waiting(world)
    world.run(300_000)
    assert owners(world) == before
    skips = [d for d in world.decisions if (d["kind"], d["reason"]) == ("skip", "PlanWaits")]
    assert json.loads(str(skips[-1]["inputs"]))["plan"] == name
    (alarm,) = plan_alarms(newest_rows(world.newest(), world.other_rows).policies)
    assert alarm.startswith(f"plan {name} waits for somebody until ")
    assert "no cycle moves anything meanwhile" in alarm
    proposal = proposals(world)[name]
    assert proposal.after["max"] < proposal.before["max"]
    assert len([one for one in proposals(world).values() if one.station.is_open]) == 1
    approved = world.command("approve_plan", plan=name)
    world.run(60_000)
    assert outcome(world, approved)["status"] == "done"
    after = owners(world)
    moved = {step.bundle: step.destination for step in proposal.steps}
    assert {bundle: after[bundle] for bundle in moved} == moved
    assert {b: o for b, o in after.items() if b not in moved} == {
        b: o for b, o in before.items() if b not in moved
    }
    assert proposals(world)[name].station is PlanStatus.DONE
    (end,) = told(world, "Done")
    assert (end["steps"], end["done"], end["passed_over"]) == (len(moved), len(moved), 0)
    assert gapless(world)
    rows = [row for row in world.other_rows["policies"] if row["name"] == name]
    assert [json.loads(str(row["value"]))["station"] for row in rows][-1] == "done"
    inputs = [json.loads(str(d["inputs"])) for d in world.decisions if d["kind"] == "transfer"]
    assert [one["plan"] for one in inputs] == [name] * len(proposals(world)[name].steps)


@pytest.mark.parametrize("way_back", ["restart_job", "rebuild_job"])
def test_plan_that_waits_and_one_half_done_survive(way_back: str) -> None:
    world = hot()
    name = waiting(world)
    getattr(world, way_back)()
    world.run(5_000)
    world.command("approve_plan", plan=name)
    world.run(1_500)
    getattr(world, way_back)()
    world.run(60_000)
    assert proposals(world)[name].station is PlanStatus.DONE
    after = owners(world)
    assert all(after[step.bundle] == step.destination for step in proposals(world)[name].steps)


def test_rejected_plan_is_not_proposed_again_within_the_grace_period() -> None:
    world = hot()
    before = owners(world)
    name = waiting(world)
    rejected = world.command("reject_plan", plan=name, reason="not today")
    world.run(100_000)
    assert outcome(world, rejected)["status"] == "done"
    assert owners(world) == before
    was = {step.bundle for step in proposals(world)[name].steps}
    assert not [
        one
        for one in proposals(world).values()
        if one.station is PlanStatus.WAITS and was & {step.bundle for step in one.steps}
    ]
    assert told(world, "Rejected")[0]["why"] == "not today"
    assert waiting(world) != name


@pytest.mark.parametrize("way_back", ["restart_job", "rebuild_job"])
def test_rejected_plan_is_not_proposed_again_after_the_job_came_back(way_back: str) -> None:
    world = hot()
    name = waiting(world)
    world.command("reject_plan", plan=name)
    world.run(5_000)
    getattr(world, way_back)()
    world.run(90_000)
    was = {step.bundle for step in proposals(world)[name].steps}
    others = [one.steps for other, one in proposals(world).items() if other != name]
    assert not was & {step.bundle for steps in others for step in steps}
    assert waiting(world) != name


def test_bundle_of_a_rejected_plan_is_explained_by_it_while_it_rests() -> None:
    world = hot()
    name = waiting(world)
    world.command("reject_plan", plan=name)
    world.run(5_000)
    rest = {step.bundle for step in proposals(world)[name].steps}
    found = {bundle: explain_bundle(about(world, bundle), bundle) for bundle in owners(world)}
    named = {b for b, one in found.items() if one and f"plan {name}" in " ".join(one.blocks)}
    assert named == rest
    world.run(world.config.shedding.grace_period_ms)
    bundle = min(rest)
    later = explain_bundle(about(world, bundle), bundle)
    assert later is not None
    assert name not in " ".join(later.blocks)


def test_shorter_grace_period_ends_the_rest_of_a_rejected_plan() -> None:
    world = hot()
    name = waiting(world)
    was = {step.bundle for step in proposals(world)[name].steps}
    world.command("reject_plan", plan=name)
    shorter = world.command("set_config", values={"shedding.grace_period_ms": 0})
    world.run(1_000)
    assert outcome(world, shorter)["status"] == "done"
    again = waiting(world, 60_000)
    assert was & {step.bundle for step in proposals(world)[again].steps}


def test_rejection_by_a_clock_that_was_ahead_rests_its_plan_from_the_rebuild_on() -> None:
    world = hot()
    name = waiting(world)
    world.command("reject_plan", plan=name)
    world.run(5_000)
    was = {step.bundle for step in proposals(world)[name].steps}
    (row,) = [row for row in world.other_rows["policies"] if row["name"] == name][-1:]
    value = json.loads(str(row["value"]))
    row["value"] = json.dumps({**value, "rejected_ms": value["rejected_ms"] + 3_600_000})
    world.rebuild_job()
    world.run(1_000)
    assert proposals(world)[name].rejected_ms <= world.now_ms
    world.run(89_000)
    others = [one.steps for other, one in proposals(world).items() if other != name]
    assert not was & {step.bundle for steps in others for step in steps}


def test_plan_of_a_clock_that_was_ahead_lapses_in_time_after_the_rebuild() -> None:
    world = hot(approval_wait_ms=60_000)
    name = waiting(world)
    (row,) = [row for row in world.other_rows["policies"] if row["name"] == name][-1:]
    value = json.loads(str(row["value"]))
    ahead = {key: value[key] + 86_400_000 for key in ("since_ms", "until_ms")}
    row["value"] = json.dumps({**value, **ahead})
    world.rebuild_job()
    world.run(70_000)
    assert proposals(world)[name].station is PlanStatus.LAPSED


def test_rejected_split_is_not_proposed_again_within_the_grace_period() -> None:
    world = hot(
        "splitting.enabled=true", "splitting.max_msg_rate_per_s=1000", "shedding.is_balancing=false"
    )
    name = waiting(world)
    was = {step.bundle for step in proposals(world)[name].steps if step.kind == "split"}
    assert was
    world.command("reject_plan", plan=name)
    world.run(100_000)
    others = [
        one for one in proposals(world).values() if one.since_ms > proposals(world)[name].since_ms
    ]
    assert not was & {step.bundle for one in others for step in one.steps}
    world.run(60_000)
    again = [one for one in proposals(world).values() if one.station is PlanStatus.WAITS]
    assert was & {step.bundle for one in again for step in one.steps}


def test_unanswered_plan_lapses_and_the_next_cycle_plans_anew() -> None:
    world = hot(approval_wait_ms=60_000)
    name = waiting(world)
    world.run(70_000)
    assert proposals(world)[name].station is PlanStatus.LAPSED
    late = world.command("approve_plan", plan=name)
    world.run(2_000)
    assert outcome(world, late)["status"] == "refused"
    assert f"plan {name} is lapsed already" in outcome(world, late)["reason"]
    assert waiting(world) != name


@pytest.mark.parametrize("kind", ["approve_plan", "reject_plan"])
def test_answer_that_is_read_after_the_end_is_refused_though_no_batch_has_come_between(
    kind: str,
) -> None:
    world = hot(approval_wait_ms=60_000)
    before, name = owners(world), waiting(world)
    world.now_ms = proposals(world)[name].until_ms
    late = world.command(kind, plan=name)
    world.run(2_000)
    assert outcome(world, late)["status"] == "refused"
    assert f"plan {name} has lapsed: its time was over at " in outcome(world, late)["reason"]
    assert proposals(world)[name].station is PlanStatus.LAPSED
    assert owners(world) == before


def test_failover_drains_and_pins_do_not_wait() -> None:
    world = hot()
    name = waiting(world)
    mine = sorted(bundle for bundle, owner in owners(world).items() if owner == HOT)
    world.command("pin_bundle", bundle=mine[0], broker=COLD)
    world.run(60_000)
    assert owners(world)[mine[0]] == COLD
    world.kill("broker-2:8080")
    world.run(120_000)
    assert "broker-2:8080" not in owners(world).values()
    world.command("drain_broker", broker=HOT)
    world.run(120_000)
    assert HOT not in owners(world).values()
    assert states(world)["Owned"] == 24
    # what it would move is elsewhere now: it is taken back by itself
    assert proposals(world)[name].station is PlanStatus.LAPSED


def test_step_that_suits_no_more_is_passed_over_and_the_others_done() -> None:
    world = hot()
    name = waiting(world)
    steps = proposals(world)[name].steps
    assert len(steps) > 1
    elsewhere = next(b for b in world.brokers if b not in (HOT, steps[0].destination))
    world.command("unload_bundle", bundle=steps[0].bundle, destination=elsewhere)
    world.run(10_000)
    world.command("approve_plan", plan=name)
    world.run(60_000)
    became = [step.became for step in proposals(world)[name].steps]
    assert became[0] == f"it is not {HOT}'s to give any more"
    assert set(became[1:]) == {"done"}
    assert owners(world)[steps[0].bundle] == elsewhere


def test_plan_stops_where_a_step_would_not_help_any_more() -> None:
    world = hot(max_drains_in_flight=1)
    name = waiting(world)
    steps = proposals(world)[name].steps
    world.command("approve_plan", plan=name)
    while not any(step.became for step in proposals(world)[name].steps):
        world.run(500)
    for broker in world.brokers.values():
        broker.is_hanging = True  # the first move stands still while load shifts
    for bundle, owner in owners(world).items():
        world.rates[bundle] = 1.0 if owner == HOT else 2_000.0
    world.run(60_000, step_ms=1_000)
    for broker in world.brokers.values():
        broker.is_hanging = False
    world.run(120_000)
    ended = proposals(world)[name]
    assert ended.station is PlanStatus.STOPPED
    assert "would not help any more" in ended.why
    assert 0 < sum(step.became == "done" for step in ended.steps) < len(steps)


@copied
def exchanging(pairs: int = 1) -> World:
    """Four brokers that exchanges alone balance, from HOT to COLD first; their plan waits."""
    settings = [
        "shedding.strategy=ballast",
        "ideal_load.churn_budget=1",
        "splitting.enabled=false",
        "cluster.approval=ask",
    ]
    world = CheckedWorld(parse_assignments(Config(), [*settings, "shedding.is_shedding=false"]), 4)
    world.topics_else = 0
    world.command("create_namespace", namespace="acme/a", bundles=8)
    world.run(60_000)
    hot, cold, mean = (4_500.0, 4_500.0), (3_500.0, 500.0), (3_000.0, 3_500.0)
    loads = [hot, cold, *([hot, cold] if pairs == 2 else [mean, mean])]
    left = {name: list(load) for name, load in zip(sorted(world.brokers), loads, strict=True)}
    for bundle, owner in sorted(owners(world).items()):
        world.rates[bundle] = left[owner].pop()
    world.run(600_000, step_ms=10_000)
    world.command("set_config", values={"shedding.is_shedding": True})
    waiting(world)
    return world


def test_exchange_stays_proposed_and_is_carried_out_whole() -> None:
    world = exchanging()
    world.run(300_000, step_ms=5_000)
    (name,) = proposals(world)
    steps = proposals(world)[name].steps
    assert {(step.source, step.destination) for step in steps} == {(HOT, COLD), (COLD, HOT)}
    assert proposals(world)[name].after["max"] == pytest.approx(0.8, abs=0.05)  # 40 + 45 - 5 %
    world.command("approve_plan", plan=name)
    world.run(60_000)
    assert proposals(world)[name].station is PlanStatus.DONE
    after = owners(world)
    assert all(after[step.bundle] == step.destination for step in steps)


@pytest.mark.parametrize("half", [HOT, COLD])
def test_exchange_is_not_carried_out_by_half(half: str) -> None:
    world = exchanging()
    before = owners(world)
    (name,) = proposals(world)
    (stays,) = (one.bundle for one in proposals(world)[name].steps if one.source == half)
    world.command("pin_bundle", bundle=stays, broker=half)
    world.command("approve_plan", plan=name)
    world.run(60_000)
    assert owners(world) == before
    assert proposals(world)[name].station is PlanStatus.STOPPED


def test_exchange_whose_other_bundle_was_split_is_left_out_alone() -> None:
    world = exchanging(pairs=2)
    (name,) = proposals(world)
    steps = proposals(world)[name].steps
    light = [step.bundle for step in steps if world.rates[step.bundle] < 1_000.0]
    assert len(steps) == 2 * len(light) == 4
    gone = next(step for step in reversed(steps) if step.bundle in light)
    world.command("pause")
    world.command("approve_plan", plan=name)
    split = world.command("split_bundle", bundle=gone.bundle)
    world.run(10_000)
    assert outcome(world, split)["status"] == "done"
    world.command("resume")
    world.run(60_000)
    ended = proposals(world)[name]
    assert ended.station is PlanStatus.DONE
    stayed = {step.bundle for step in ended.steps if step.is_skipped}
    (left,) = (
        one for one in steps if (one.source, one.destination) == (gone.destination, gone.source)
    )
    assert stayed == {gone.bundle, left.bundle}


def test_person_stops_a_plan_that_is_being_carried_out() -> None:
    world = hot(max_drains_in_flight=1)
    name = waiting(world)
    world.command("approve_plan", plan=name)
    while not any(step.became for step in proposals(world)[name].steps):
        world.run(500)
    world.command("reject_plan", plan=name, reason="enough")
    world.run(60_000)
    ended = proposals(world)[name]
    assert (ended.station, ended.why) == (PlanStatus.STOPPED, "enough")
    bundle = ended.left[0].bundle
    found = explain_bundle(about(world, bundle), bundle)
    assert found is not None
    assert f" stopped plan {name}, which would move or split it" in " ".join(found.blocks)
    assert is_settled(world)


def test_small_plan_is_carried_out_at_once_where_only_large_ones_are_asked_about() -> None:
    large = ("cluster.approval=ask_above", "cluster.approval_bundles=0")
    world = hot(*large)
    assert waiting(world)
    small = ("cluster.approval=ask_above", "cluster.approval_percent=100")
    world = hot(*small)
    world.run(120_000)
    assert not proposals(world)
    assert [d for d in world.decisions if d["kind"] in ("transfer", "unload")]


@pytest.mark.parametrize(
    ("bundles", "percent", "is_asked"),
    [(1_000, 0.1, True), (1_000, 100.0, False), (0, 100.0, True), (0, 0.1, True)],
)
def test_either_bound_alone_lets_a_plan_wait(
    bundles: int, percent: float, *, is_asked: bool
) -> None:
    world = hot(
        "cluster.approval=ask_above",
        f"cluster.approval_bundles={bundles}",
        f"cluster.approval_percent={percent}",
    )
    world.run(120_000)
    moved = {d["kind"] for d in world.decisions} & {"transfer", "unload"}
    assert bool(proposals(world)) is is_asked
    assert bool(moved) is not is_asked


def test_waiting_plan_of_a_person_is_told_as_one_that_holds_no_cycle_up() -> None:
    world = hot_world()
    moved = next(bundle for bundle, owner in owners(world).items() if owner == HOT)
    world.command("propose_plan", moves={moved: COLD}, why="its own disk", plan="mine")
    world.run(120_000)
    assert proposals(world)["mine"].station is PlanStatus.WAITS
    assert {d["kind"] for d in world.decisions} & {"transfer", "unload"}
    (told_by_status,) = plan_alarms(newest_rows(world.newest(), world.other_rows).policies)
    assert "1 step, hottest broker" in told_by_status
    assert ", by somebody: `ballast plan show mine`" in told_by_status


def test_ended_plans_are_forgotten_after_a_day_and_stay_in_the_table() -> None:
    world = hot(approval_wait_ms=60_000)
    name = waiting(world)
    world.command("set_config", values={"cluster.approval": "auto"})
    world.run(120_000)
    assert name in proposals(world)
    world.run(87_000_000, step_ms=900_000)
    assert name not in proposals(world)
    rows = [row for row in world.other_rows["policies"] if row["name"] == name]
    assert [row["is_set"] for row in rows][-1] is False

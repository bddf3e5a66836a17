"""Protections that hold balancing back, quiet hours, hourly limits and the grid of cycles."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from lbcore.balancer import cycle
from lbcore.balancer.batch_context import BalancerState, BatchContext
from lbcore.balancer.brokers import suspected, suspicion_ms
from lbcore.balancer.effects import Effect
from lbcore.balancer.placement import cycle_offset_ms, make_snapshot, next_on_grid_ms
from lbcore.config.load import parse_assignments, parse_config
from lbcore.config.tree import Config
from lbcore.explain.cluster import explain_cluster
from lbcore.machine import Step
from lbcore.model.names import namespace_of_bundle, tenant_of
from lbcore.model.times import HOUR_MS as HOURLY_LIMIT_HOUR_MS
from lbcore.model.times import instant
from lbcore.scorer.group_update import GroupUpdate
from tests.support.values.clusters import few
from tests.support.worlds.checked_world import (
    COLD,
    HOT,
    HOUR_MS,
    MINUTE_MS,
    CheckedWorld,
    decided,
    foreseen,
    hot_world,
    outcome,
    owners,
    running,
    skewed,
)
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.world import World, copied, gapless, is_settled


def test_brake_engages_when_three_of_nine_vanish_and_failover_goes_on_after_a_while() -> None:
    world = running(9, 36)
    lost = ["broker-1:8080", "broker-2:8080", "broker-3:8080"]
    for name in lost:
        world.kill(name)
    world.run(17_000)
    while not decided(world, "brake"):
        world.run(500)
    (engaged,) = decided(world, "brake", "Engaged")
    assert world.reports[-1]["alarms"] == ["brake"]
    at_ms = engaged["at_ms"]
    while set(lost) & set(owners(world).values()):
        world.run(500)
    assert 9_000 <= world.now_ms - at_ms <= 13_000
    world.run(30_000)
    assert is_settled(world)
    assert decided(world, "skip", "Brake")
    world.command("release_brake")
    world.run(25_000)
    assert decided(world, "brake", "Released")
    assert world.reports[-1]["alarms"] == []


def test_brake_is_released_when_the_brokers_come_back() -> None:
    world = running(9, 36)
    before = owners(world)
    lost = ["broker-1:8080", "broker-2:8080", "broker-3:8080"]
    for name in lost:
        world.cut_off(name, is_cut_off=True)
    while not decided(world, "brake", "Engaged"):
        world.run(500)
    world.run(4_000)
    for name in lost:
        world.cut_off(name, is_cut_off=False)
    world.run(15_000)
    assert decided(world, "brake", "Recovered")
    assert owners(world) == before
    assert is_settled(world)


def test_brake_stays_off_when_two_vanish_or_drained_brokers_leave() -> None:
    world = running(9, 36)
    for name in ("broker-1:8080", "broker-2:8080", "broker-3:8080"):
        world.command("drain_broker", broker=name)
    world.run(20_000)
    for name in ("broker-1:8080", "broker-2:8080", "broker-3:8080", "broker-4:8080"):
        world.kill(name)
    world.run(40_000)
    assert not decided(world, "brake")
    assert is_settled(world)


def test_flapping_broker_gets_nothing_until_it_has_been_steady() -> None:
    world = running()
    for _ in range(3):
        world.start("broker-1:8080")
        world.run(5_000)
    assert decided(world, "back_off", "Flapping")
    assert "flapping:broker-1:8080" in world.reports[-1]["alarms"]
    world.kill("broker-2:8080")
    world.run(40_000)
    assert is_settled(world)
    assert "broker-1:8080" not in owners(world).values()
    world.run(600_000, step_ms=5_000)
    world.command("create_namespace", namespace="t/more", bundles=8)
    world.run(20_000)
    assert "broker-1:8080" in owners(world).values()


@pytest.mark.parametrize("later_ms", [1_000, 2_500])
def test_what_a_dead_broker_had_goes_to_nobody_who_died_with_it(later_ms: int) -> None:
    """A rack fails: its brokers are found dead one after the other, as their heartbeats fell."""
    world = running(9, 72)
    world.kill("broker-1:8080")
    world.run(later_ms)
    world.kill("broker-2:8080")
    since = len(world.events)
    world.run(40_000)
    given = Counter(row["destination"] for row in world.events[since:] if row["destination"])
    assert given
    assert "broker-2:8080" not in given
    assert is_settled(world)


def test_broker_whose_heartbeats_are_rare_is_not_suspected_between_two() -> None:
    world = running(4, 12, agent={"heartbeat_interval_ms": 9_000})
    for name in ("broker-0:8080", "broker-1:8080"):  # the four no longer beat as one
        world.run(2_500)
        world.start(name)
    world.run(10_000)
    for _ in range(60):
        world.run(1_000)
        assert world.state is not None
        assert not suspected(BatchContext.on(world.state, world.config, "", world.now_ms))


def test_new_bundles_go_to_the_brokers_that_are_heard_where_most_are_silent() -> None:
    world = running(9, 36)
    for name in sorted(world.brokers)[:5]:
        world.cut_off(name, is_cut_off=True)
    world.run(10_000)
    world.command("create_namespace", namespace="t/more", bundles=18)
    world.run(3_000)
    more = [row for row in world.newest() if str(row["bundle"]).startswith("t/more")]
    assert {row["destination"] for row in more} == {*sorted(world.brokers)[5:]}


def test_bundle_that_moved_is_not_moved_again_within_its_cool_down() -> None:
    shedding = {"cool_down_ms": HOUR_MS, "grace_period_ms": 0, "role_cool_down_ms": 0}
    world = running(shedding=shedding)
    world.kill("broker-3:8080")
    world.run(40_000)
    taken = {str(r["bundle"]) for r in world.events if r["cause"] == "failover"}
    assert taken
    heir = Counter(owners(world)[name] for name in taken).most_common(1)[0][0]
    world.rates = {name: 3_000.0 if b == heir else 1.0 for name, b in owners(world).items()}
    world.run(400_000)
    moved = {str(d["bundle"]) for d in decided(world, "transfer")}
    assert moved
    assert not moved & taken


def test_nothing_is_shed_just_after_most_brokers_have_restarted() -> None:
    world = running(pipeline={"restart_settle_ms": 120_000})
    for name in sorted(world.brokers)[:3]:
        world.start(name)
    skewed(world)
    world.run(60_000)
    (skip, *_) = decided(world, "skip", "JustRestarted")
    assert '"restarted":3' in str(skip["inputs"])
    assert not decided(world, "transfer")


def test_nothing_is_shed_on_stale_reports() -> None:
    world = running(pipeline={"report_age_max_ms": 20_000})
    world.run(90_000)  # load is steady, so a report comes only once a minute
    assert decided(world, "skip", "StaleReports")


def test_missing_ticks_raise_an_alarm() -> None:
    world = running()
    world.job.are_ticks_away = True
    world.run(30_000)
    assert decided(world, "ticks", "Missing")
    assert world.reports[-1]["alarms"] == ["ticks"]
    world.job.are_ticks_away = False
    world.run(5_000)
    assert decided(world, "ticks", "Back")
    assert world.reports[-1]["alarms"] == []


class HearingWorld(CheckedWorld):
    """Checks in each batch that nothing is given to a broker that has been silent for too long."""

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        step = super().step_balancer(updates)
        assert step.state is not None
        max_ms = suspicion_ms(self.config)
        for effect in step.effects:
            for row in effect.rows if effect.kind == "ownership_events" else ():
                if row["state"] in ("Assigning", "Releasing") and row["destination"]:
                    assert step.state.liveness.silence_ms(row["destination"]) <= max_ms, row
        return step

    def freeze(self, names: Iterable[str], *, is_paused: bool = True) -> None:
        """Stop the brokers' processes, or let them go on."""
        for name in names:
            self.pause(name, is_paused=is_paused)


@copied
def hearing(brokers: int = 6, bundles: int = 60, seed: int = 5) -> HearingWorld:
    """Such a world at rest, in which brokers do not beat as one."""
    world = HearingWorld(Config(), brokers, seed=seed)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(25_000)
    for name in sorted(world.brokers):
        world.run(world.random.randrange(500, 3_500, 500))
        world.start(name)
    world.run(25_000)
    assert is_settled(world)
    return world


def test_frozen_fleet_is_an_alarm_within_two_heartbeats_and_nothing_moves() -> None:
    world = hearing()
    before = owners(world)
    world.freeze(world.brokers)
    world.run(2 * 3_000 + 1_500)  # and a tick, and a batch
    assert "silence" in world.reports[-1]["alarms"]
    world.run(60_000)
    (*_, many) = decided(world, "silence", "Many")
    assert '"count":6' in str(many["inputs"])
    assert owners(world) == before
    world.freeze(world.brokers, is_paused=False)
    world.run(20_000)
    assert owners(world) == before
    assert decided(world, "silence", "Over")
    assert "silence" not in world.reports[-1]["alarms"]


@pytest.mark.parametrize("later_ms", few((0, 6_000, 11_000, 2_000, 9_000), 3))
def test_fleet_that_freezes_beside_a_dead_broker_is_given_nothing(later_ms: int) -> None:
    world = hearing()
    world.kill("broker-0:8080")
    world.run(later_ms)
    world.freeze(sorted(world.brokers)[1:])
    since = len(world.events)
    world.run(60_000)
    assert not [row for row in world.events[since:] if row["cause"] == "failover"]
    assert world.reports[-1]["alarms"] == ["silence"]
    world.freeze(sorted(world.brokers)[1:], is_paused=False)
    world.run(40_000)
    assert is_settled(world)
    assert "broker-0:8080" not in owners(world).values()
    lost = {row["bundle"] for row in world.events[since:] if row["cause"] == "failover"}
    assert {row["source"] or "broker-0:8080" for row in world.events if row["bundle"] in lost}


def test_half_of_the_brokers_cut_off_wait_until_judged_and_get_nothing() -> None:
    world = hearing()
    lost = sorted(world.brokers)[:3]  # a rack, cut off while its brokers serve on
    for name in lost:
        world.cut_off(name, is_cut_off=True)
    world.run(2 * 3_000 + 1_500)
    assert "silence" in world.reports[-1]["alarms"]
    since = len(world.events)
    world.run(60_000)
    moved = world.events[since:]
    assert {str(row["destination"]) for row in moved} <= {*sorted(world.brokers)[3:]}
    assert not set(lost) & set(owners(world).values())


@pytest.mark.parametrize("brokers", [2, 3, 6])
def test_single_dead_broker_is_failed_over_as_soon_as_it_is_found_dead(brokers: int) -> None:
    world = hearing(brokers)
    world.kill("broker-0:8080")
    while not decided(world, "silence", "Dead"):
        world.run(500)
    assert "broker-0:8080" not in owners(world).values()
    suspected_row, dead = (
        decided(world, "silence", reason)[-1] for reason in ("Suspected", "Dead")
    )
    assert suspected_row["source"] == dead["source"] == "broker-0:8080"
    assert dead["at_ms"] - suspected_row["at_ms"] >= 8_000


def test_pinned_bundle_stays_with_a_broker_that_is_suspected() -> None:
    world = hearing()
    bundle, broker = min(owners(world).items())
    world.command("pin_bundle", bundle=bundle, broker=broker)
    world.run(3_000)
    world.kill(broker)
    while not decided(world, "silence", "Suspected"):
        world.run(500)
    work = BatchContext.on(world.state, world.config, "", world.now_ms)
    assert suspected(work) == {broker}
    names = sorted(world.brokers)
    bundles = make_snapshot(work, names)[0].bundles
    assert bundles.pin is not None
    assert names[bundles.pin[bundles.names.index(bundle)]] == broker


def test_dead_broker_waits_while_the_only_brokers_that_may_take_its_bundles_are_silent() -> None:
    world = hearing()
    first, second = "broker-0:8080", "broker-1:8080"
    policy = {"policy": "two", "namespaces": ["t/n"], "primary": ["broker-[01].*"]}
    world.command("set_isolation_policy", **policy)
    world.command("unload_namespace", namespace="t/n")
    world.run(60_000)
    assert {*owners(world).values()} == {first, second}
    world.kill(first)
    world.run(4_000)
    world.freeze([second])
    since = len(world.events)
    world.run(60_000)
    assert not [row for row in world.events[since:] if row["destination"] == second]
    assert any("no_candidate:silent brokers" in report["alarms"] for report in world.reports)


@pytest.mark.parametrize("seed", few(range(6), 3))
def test_nothing_is_given_to_the_silent_whatever_falls_silent(seed: int) -> None:
    world = hearing(world_size := 3 + seed % 5, 30, seed)
    names = sorted(world.brokers)
    for _ in range(5):
        some = world.random.sample(names, world.random.randint(1, world_size))
        kind = world.random.choice(("freeze", "cut", "kill"))
        for name in some:
            if kind == "kill":
                world.kill(name)
            elif kind == "cut":
                world.cut_off(name, is_cut_off=True)
            else:
                world.freeze([name])
        world.run(world.random.randrange(1_000, 40_000, 500))
        world.command("create_namespace", namespace=f"t/{world.now_ms}", bundles=6)
        world.run(world.random.randrange(1_000, 20_000, 500))
        for name in some:
            if kind == "kill":
                world.start(name)
            elif kind == "cut":
                world.cut_off(name, is_cut_off=False)
            else:
                world.freeze([name], is_paused=False)
    world.run(90_000)
    assert is_settled(world)


UNTIL_MS = 1_700_001_600_000  # Tuesday 2023-11-14 22:40, sixteen minutes after the load is hot
QUIET = "cluster.quiet_hours=mon-fri 22:00-22:40"


def moved(world: World) -> list[int]:
    """When balancing has moved something."""
    kinds = ("transfer", "unload")
    return sorted({int(str(d["at_ms"])) for d in world.decisions if d["kind"] in kinds})


def test_nothing_is_balanced_in_quiet_hours_and_all_of_it_afterwards() -> None:
    otherwise = hot_world()
    otherwise.run(1_000)
    assert foreseen(otherwise).decisions, "without quiet hours it would be"
    otherwise.run(300_000)
    assert moved(otherwise), "without quiet hours it would be"
    world = hot_world(QUIET)
    world.run(1_000)
    found = foreseen(world)
    assert not found.decisions
    assert {skip["reason"] for skip in found.skips} == {"QuietHours"}
    world.run(29_000)
    explained = explain_cluster(rows_of(world))
    assert f"quiet hours until {instant(UNTIL_MS)}: no cycle sheds or splits" in explained.blocks
    assert "these are quiet hours" in " ".join(explained.lines())
    world.run(UNTIL_MS - world.now_ms - 1_000, step_ms=3_000)
    assert moved(world) == []
    told = decided(world, "skip", "QuietHours")
    assert {json.loads(str(row["inputs"]))["until_ms"] for row in told} == {UNTIL_MS}
    world.run(300_000)
    assert moved(world)[0] >= UNTIL_MS
    assert gapless(world)


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
    world.run(120_000, step_ms=3_000)
    assert moved(world) == []
    refused = world.command("set_config", values={"cluster.quiet_hours": "at night"})
    others = world.command("set_config", values={"cluster.quiet_hours": "sat-sun 08:00-20:00"})
    world.run(5_000)
    assert "a window is written as 22:00-06:00" in outcome(world, refused)["reason"]
    assert outcome(world, others)["status"] == "done"
    world.restart_job()
    while not moved(world):
        assert world.now_ms < UNTIL_MS
        world.run(10_000, step_ms=2_500)


def moved_hourly_limit(world: World) -> list[tuple[int, str]]:
    """When balancing moved a bundle of which tenant, oldest first."""
    moves = (d for d in world.decisions if d["kind"] in ("transfer", "unload"))
    return sorted(
        (int(str(d["at_ms"])), tenant_of(namespace_of_bundle(str(d["bundle"])))) for d in moves
    )


def most_in_an_hour(moves: list[tuple[int, str]]) -> int:
    """The most moves of any hour."""
    times = [at_ms for at_ms, _ in moves]
    return max(
        sum(at_ms - HOURLY_LIMIT_HOUR_MS < other <= at_ms for other in times) for at_ms in times
    )


def keep_hot(world: World) -> None:
    """One broker carries most, again and again: balancing would never be done."""
    for _ in range(7):
        most = Counter(owners(world).values()).most_common(1)[0][0]
        for bundle, owner in owners(world).items():
            world.rates[bundle] = 800.0 if owner == most else 50.0
        world.run(10 * MINUTE_MS, step_ms=10_000)


def test_no_hour_has_more_moves_than_it_may_also_when_the_job_was_rebuilt_in_it() -> None:
    otherwise = hot_world()
    until_ms = otherwise.now_ms + 20 * MINUTE_MS
    while len(moved_hourly_limit(otherwise)) <= 3:  # without the limit there are more
        assert otherwise.now_ms < until_ms
        otherwise.run(MINUTE_MS, step_ms=5_000)
    world = hot_world("shedding.max_moves_per_hour=3")
    world.run(1_000)  # it is told to shed
    assert len(foreseen(world).decisions) + len(moved_hourly_limit(world)) == 3
    world.run(10 * MINUTE_MS, step_ms=5_000)
    assert len(moved_hourly_limit(world)) == 3
    found = foreseen(world)
    assert not found.decisions
    assert {skip["reason"] for skip in found.skips} == {"Limit"}
    told = decided(world, "skip", "Limit")[-1]
    assert json.loads(str(told["inputs"]))["counts"]["limit.hour_limit"]
    assert "(shedding.max_moves_per_hour)" in " ".join(explain_cluster(rows_of(world)).lines())
    world.rebuild_job()
    keep_hot(world)
    assert most_in_an_hour(moved_hourly_limit(world)) == 3
    assert len(moved_hourly_limit(world)) > 3, "it goes on when the hour is over"
    assert gapless(world)


@pytest.mark.long
def test_each_tenant_has_an_hour_of_its_own() -> None:
    world = hot_world("shedding.max_moves_per_hour_of_tenant=2")
    world.command("create_namespace", namespace="beta/b", bundles=24)
    world.run(5 * MINUTE_MS, step_ms=5_000)
    keep_hot(world)
    by_tenant = {
        tenant: [one for one in moved_hourly_limit(world) if one[1] == tenant]
        for tenant in ("acme", "beta")
    }
    assert {tenant: most_in_an_hour(moves) for tenant, moves in by_tenant.items()} == {
        "acme": 2,
        "beta": 2,
    }


def test_drains_and_failover_are_not_held_back() -> None:
    world = hot_world("shedding.max_moves_per_hour=0")
    first, second, _ = sorted(set(owners(world).values()))
    world.command("drain_broker", broker=first)
    world.run(5 * MINUTE_MS, step_ms=5_000)
    assert first not in owners(world).values()
    world.kill(second)
    world.run(5 * MINUTE_MS, step_ms=5_000)
    assert second not in owners(world).values()
    assert moved_hourly_limit(world) == []


def test_a_cycle_sheds_and_splits_only_when_the_interval_of_each_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline = {
        "decision_interval_ms": 10_000,
        "shed_interval_ms": 30_000,
        "split_interval_ms": 50_000,
    }
    world = World(parse_config({"pipeline": pipeline}), 3, seed=2)
    scopes: list[tuple[int, bool, bool]] = []
    plan = cycle.plan  # type: ignore[attr-defined]

    def seen(snapshot: Any, state: Any, config: Any, now_ms: int, scope: Any) -> Any:
        scopes.append((now_ms, scope.sheds, scope.splits))
        return plan(snapshot, state, config, now_ms, scope)

    monkeypatch.setattr(cycle, "plan", seen)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=4)
    world.run(310_000)
    sheds = [at for at, is_shedding, _ in scopes if is_shedding]
    splits = [at for at, _, is_splitting in scopes if is_splitting]
    # the first ones come at once, the others on the grid
    assert {b - a for a, b in pairwise(sheds[1:])} == {30_000}
    assert {b - a for a, b in pairwise(splits[1:])} == {50_000}
    assert len(scopes) >= 30
    assert any(not is_shedding and not is_splitting for _, is_shedding, is_splitting in scopes)


MINUTE_MS_OF_TURNS = 60_000
LATE = parse_assignments(
    Config(),
    [
        "pipeline.trigger_ms=1300",  # of which no interval is a multiple
        "pipeline.shed_interval_ms=30000",
        "pipeline.split_interval_ms=60000",
    ],
)


@pytest.mark.parametrize(("kind", "interval_ms"), [("", 10_000), ("sheds", 30_000)])
def test_cycles_that_come_late_are_no_fewer(
    monkeypatch: pytest.MonkeyPatch, kind: str, interval_ms: int
) -> None:
    times: list[int] = []
    plan = cycle.plan  # type: ignore[attr-defined]

    def seen(snapshot: Any, state: Any, config: Any, now_ms: int, scope: Any) -> Any:
        if not kind or getattr(scope, kind):
            times.append(now_ms)
        return plan(snapshot, state, config, now_ms, scope)

    monkeypatch.setattr(cycle, "plan", seen)
    World(LATE, brokers=2).run(20 * interval_ms, step_ms=100)
    grid = [time // interval_ms for time in times[1:]]  # the first came at once
    assert len(grid) >= 17
    assert {after - before for before, after in pairwise(grid)} == {1}
    assert max(time % interval_ms for time in times[1:]) > 1_000, "none was late"


@pytest.mark.parametrize(
    ("last_ms", "due_ms"),
    [(20_000, 30_000), (20_900, 30_000), (24_999, 30_000), (25_000, 40_000), (29_999, 40_000)],
)
def test_next_is_half_an_interval_away_at_least(last_ms: int, due_ms: int) -> None:
    assert next_on_grid_ms(last_ms, 10_000) == due_ms
    assert next_on_grid_ms(last_ms + 3_000, 10_000, 3_000) == due_ms + 3_000


def test_clusters_of_one_job_plan_in_turn() -> None:
    config = parse_assignments(
        Config(), ["pipeline.clusters=a,b,c,d,e", "pipeline.decision_interval_ms=10000"]
    )
    assert [cycle_offset_ms(name, config) for name in "abcde"] == [0, 2_000, 4_000, 6_000, 8_000]
    assert cycle_offset_ms("else", config) == 0


RARE = parse_assignments(
    Config(),
    [
        "shedding.strategy=ballast",
        "placement.strategy=ballast",
        "pipeline.shed_interval_ms=60000",
        "signals.report_max_interval_ms=10000",
        "shedding.grace_period_ms=0",
        "shedding.cool_down_ms=0",
        "splitting.enabled=false",
    ],
)


@pytest.mark.parametrize(
    "later_ms", few((0, 21_000, 42_000, 56_000, 7_000, 14_000, 28_000, 35_000, 49_000), 4)
)
def test_hot_broker_does_not_wait_for_a_rare_round(later_ms: int) -> None:
    world = World(RARE, brokers=3)
    world.command("create_namespace", namespace="acme/a", bundles=24)
    world.run(5 * MINUTE_MS_OF_TURNS + later_ms)
    before = len(moves(world))
    hot = "broker-0:8080"
    world.rates = {name: 900.0 for name, by in world.served().items() if hot in by}
    jump_ms = world.now_ms
    world.run(4 * MINUTE_MS_OF_TURNS)
    rounds = sorted(set(moves(world)[before:]))
    assert rounds[0] - jump_ms <= 42_000
    assert all(after - last >= 30_000 for last, after in pairwise(rounds))


def moves(world: World) -> list[int]:
    """When each was decided."""
    return [int(str(row["at_ms"])) for row in world.decisions if row["kind"] == "transfer"]

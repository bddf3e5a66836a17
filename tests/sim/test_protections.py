"""What holds balancing back where it would do harm, in a cluster in virtual time."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest

from lbcore.balancer.intake.brokers import suspected, suspicion_ms
from lbcore.balancer.state.batch_context import BalancerState, BatchContext
from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.scorer.group_update import GroupUpdate
from tests.support.worlds.checked_world import (
    HOUR_MS,
    CheckedWorld,
    decided,
    owners,
    running,
    skewed,
)
from tests.support.worlds.world import World, is_settled


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
    world.run(600_000, step_ms=1_000)
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
        most_ms = suspicion_ms(self.config)
        for effect in step.effects:
            for row in effect.rows if effect.kind == "ownership_events" else ():
                if row["state"] in ("Assigning", "Releasing") and row["destination"]:
                    assert step.state.liveness.silence_ms(row["destination"]) <= most_ms, row
        return step

    def freeze(self, names: Iterable[str], *, is_paused: bool = True) -> None:
        """Stop the brokers' processes, or let them go on."""
        for name in names:
            self.pause(name, is_paused=is_paused)


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


def failed_over(world: World) -> set[str]:
    return {str(row["bundle"]) for row in world.events if row["cause"] == "failover"}


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


@pytest.mark.parametrize("later_ms", [0, 2_000, 6_000, 9_000, 11_000])
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


@pytest.mark.parametrize("seed", range(6))
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

"""What holds balancing back where it would do harm, in a cluster in virtual time."""

from collections import Counter

import pytest

from lbcore.balancer.intake.eligible_brokers import suspected
from lbcore.balancer.state.work import Work
from tests.support.worlds.ruled_world import (
    HOUR_MS,
    decided,
    owners,
    running,
    skewed,
)
from tests.support.worlds.world import is_settled


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
        assert not suspected(Work.on(world.state, world.config, "", world.now_ms))


def test_where_most_brokers_are_silent_nobody_is_suspected() -> None:
    world = running(9, 36)
    for name in sorted(world.brokers)[:5]:
        world.cut_off(name, is_cut_off=True)
    world.run(10_000)
    world.command("create_namespace", namespace="t/more", bundles=18)
    world.run(3_000)
    more = [row for row in world.newest() if str(row["bundle"]).startswith("t/more")]
    assert {row["destination"] for row in more} == {*world.brokers}


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

"""Wrong clocks, leases beside them, and fencing by a lease."""

import json
import random
import time
from itertools import pairwise
from typing import Any

import pytest

from lbcore.balancer.clock import KEPT_MS, LATE_MS
from lbcore.config.tree import Config
from lbcore.ownership.records import State
from lbcore.wire.messages import Command
from tests.support.values.clusters import few
from tests.support.worlds.checked_world import LEASED, LeasedWorld, decided, outcome
from tests.support.worlds.stories import begun, heal, healing_ms, unsettled
from tests.support.worlds.story_actions import ACTIONS
from tests.support.worlds.world import CLUSTER, World, copied, gapless, is_settled

CONFIG = Config()
CLOCKS = ("driver", "kafka", "kafka 0", "kafka 1", "kafka 2")
AHEAD_MS = (-3_600_000, -40_000, 5_000, 40_000, 3_600_000)
WRONG = few(
    (
        (clock, AHEAD_MS[(at + step) % len(AHEAD_MS)])
        for step in range(len(AHEAD_MS))
        for at, clock in enumerate(CLOCKS)
    ),
    len(CLOCKS),
)
"""Each clock by each amount; in the short run each clock by one, each amount on one clock."""
LASTS_MS = few((60_000, 2_000, 120_000), 1)
"""How long a clock is wrong: longer than a broker may be silent, for a moment, twice as long."""
BUNDLES = 8
NAMES = {
    "kafka 0": {"broker-load-0", "broker-load-3"},
    "kafka 1": {"broker-load-1"},
    "kafka 2": {"broker-load-2"},
}


class ClockWorld(World):
    """A World.

    cycles_ms: when a cycle was made, by a clock that is right.
    """

    def __init__(self, config: Config, brokers: int, *, seed: int = 0) -> None:
        self.cycles_ms: list[int] = []
        super().__init__(config, brokers, seed=seed)

    def step_job(self) -> None:
        """One micro-batch, perhaps with a cycle."""
        before = self.state.times.cycle if self.state else 0
        super().step_job()
        if self.state and self.state.times.cycle > before:
            self.cycles_ms.append(self.now_ms)

    def turn(self, clock: str, ahead_ms: int) -> None:
        """Set a clock, right with 0."""
        if clock == "driver":
            self.driver_ahead_ms = ahead_ms
        elif clock == "kafka":
            self.log_ahead_ms = ahead_ms
        else:
            self.leaders_ahead_ms[int(clock.removeprefix("kafka "))] = ahead_ms


@copied
def at_rest() -> ClockWorld:
    world = ClockWorld(CONFIG, 3, seed=3)
    settle(world, BUNDLES, 30_000)
    return world


def settle(world: World, bundles: int, rest_ms: int) -> None:
    """Create a namespace, and see everything served after that time."""
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(rest_ms)
    assert is_settled(world)


def _command_for(world: World, duration_ms: int) -> dict[str, int]:
    """A command every two seconds; id → when it was sent."""
    sent = {}
    for _ in range(duration_ms // 2_000):
        kind = ("resume", "pause")[world.command_count % 2]
        sent[world.command(kind, namespace="t/n")] = world.now_ms
        world.run(2_000)
    return sent


@pytest.mark.parametrize("lasts_ms", LASTS_MS)
@pytest.mark.parametrize(("clock", "ahead_ms"), WRONG)
def test_one_wrong_clock_decides_nothing_and_is_named(
    clock: str, ahead_ms: int, lasts_ms: int
) -> None:
    world = at_rest()
    began_ms = world.now_ms
    world.turn(clock, ahead_ms)
    sent = _command_for(world, lasts_ms)
    (apart,) = decided(world, "clock", "Apart")
    assert world.reports[-1]["alarms"] == ["clock"]
    wrong = set(apart["source"].split(", "))
    assert wrong == NAMES.get(clock, {clock})
    assert all(abs(of - ahead_ms) <= 2_000 for of in world.reports[-1]["clocks_ahead_ms"].values())
    world.turn(clock, 0)
    sent |= _command_for(world, KEPT_MS + 10_000)
    assert {name: outcome(world, name)["status"] for name in sent} == dict.fromkeys(sent, "done")
    assert world.reports[-1]["alarms"] == []
    (together,) = decided(world, "clock", "Together")
    assert set(together["source"].split(", ")) == wrong
    _check_decisions(world, began_ms)


def test_kafkas_clock_that_is_an_hour_behind_holds_a_rebuilt_state_up_for_one_batch() -> None:
    world = at_rest()
    world.turn("kafka", -3_600_000)
    world.rebuild_job()
    since = len(world.reports)
    world.run(3_000)
    assert [row["gauges"]["is_catching_up"] for row in world.reports[since:]] == [
        True,
        False,
        False,
    ]
    world.kill("broker-0:8080")
    world.run(45_000)
    assert is_settled(world)


@pytest.mark.parametrize("later_ms", few((-40_000, 40_000), 1))
@pytest.mark.parametrize("clock", CLOCKS)
def test_clock_that_is_wrong_otherwise_than_before_is_told_as_it_is_now(
    clock: str, later_ms: int
) -> None:
    world = at_rest()
    world.turn(clock, 3_600_000)
    world.run(2_000)
    world.turn(clock, later_ms)
    world.run(20_000)
    told = world.reports[-1]["clocks_ahead_ms"]
    assert told.keys() == NAMES.get(clock, {clock})
    assert all(abs(of - later_ms) <= 2_000 for of in told.values()), told


@pytest.mark.parametrize(("clock", "ahead_ms"), WRONG)
def test_clock_that_turned_while_the_job_was_away_is_named_by_how_much_it_is_wrong(
    clock: str, ahead_ms: int
) -> None:
    """A job whose clock goes back by much ends, and is started again: as of then it knows best."""
    world = at_rest()
    world.job.is_away = True
    world.run(48_000)
    world.turn(clock, ahead_ms)
    world.run(2_000)
    world.job.is_away, away_ms = False, world.now_ms
    world.run(2_000)  # a command that is read now may be as old as its stamp says: nobody can tell
    sent = _command_for(world, 20_000)
    told = world.reports[-1]["clocks_ahead_ms"]
    assert told.keys() == NAMES.get(clock, {clock})
    assert all(abs(of - ahead_ms) <= 2_000 for of in told.values()), told
    assert abs(world.reports[-1]["now_ms"] - world.now_ms) <= CONFIG.ownership.clock_step_max_ms
    world.turn(clock, 0)
    sent |= _command_for(world, KEPT_MS + 10_000)
    assert {name: outcome(world, name)["status"] for name in sent} == dict.fromkeys(sent, "done")
    assert world.reports[-1]["alarms"] == []
    _check_decisions(world, min(at_ms for at_ms in world.cycles_ms if at_ms > away_ms))


def _check_decisions(world: ClockWorld, began_ms: int) -> None:
    """Nobody died, cycles were made all the time, and all is written in its order, on time."""
    assert all(brokers["state"] == "active" for brokers in world.other_rows["brokers"])
    assert is_settled(world)
    moments_ms = [*world.cycles_ms, world.now_ms]
    late_ms = max(after - before for before, after in pairwise(moments_ms) if after > began_ms)
    assert late_ms <= 2 * CONFIG.pipeline.decision_interval_ms
    for rows in (world.events, world.decisions, world.other_rows["commands"]):
        times_ms = [row["at_ms"] for row in rows]
        assert times_ms == sorted(times_ms)
        assert times_ms[-1] <= world.now_ms + CONFIG.ownership.clock_step_max_ms


@pytest.mark.parametrize("lasts_ms", LASTS_MS)
@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_agent_that_starts_by_a_wrong_clock_is_served_as_any_and_named(
    ahead_ms: int, lasts_ms: int
) -> None:
    """An agent's clock goes on from what the machine's showed when it started."""
    world = at_rest()
    began_ms, name = world.now_ms, "broker-1:8080"
    broker = world.brokers[name]
    broker.machine_ahead_ms = ahead_ms
    world.start(name)
    sent = _command_for(world, lasts_ms)
    broker.machine_ahead_ms = 0
    sent |= _command_for(world, 10_000)
    is_seen = ahead_ms > 0 or -ahead_ms > LATE_MS
    rows = decided(world, "clock", "Apart")
    assert [row["source"] for row in rows] == [f"agent {name}"] * is_seen
    assert ("clock" in world.reports[-1]["alarms"]) == is_seen
    _check_decisions(world, began_ms)
    world.start(name)
    sent |= _command_for(world, KEPT_MS + CONFIG.signals.report_max_interval_ms + 10_000)
    assert "clock" not in world.reports[-1]["alarms"]
    assert {one: outcome(world, one)["status"] for one in sent} == dict.fromkeys(sent, "done")


@pytest.mark.parametrize("lasts_ms", LASTS_MS)
@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_command_of_a_producer_whose_clock_is_wrong_is_carried_out_and_the_clock_named(
    ahead_ms: int, lasts_ms: int
) -> None:
    world = at_rest()
    began_ms = world.now_ms
    sent = []
    for number in range(lasts_ms // 2_000):
        made_s = (world.now_ms + ahead_ms) // 1_000
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(made_s))
        sent.append(f"{stamp}-{number:012x}")
        kind = ("pause", "resume")[number % 2]
        arguments = {"namespace": "t/n"}
        world.append(
            Command(
                cluster=CLUSTER,
                command_id=sent[-1],
                kind=kind,
                arguments=arguments,
                principal="ada@build-7",
                timeout_ms=3_000,
            )
        )
        world.run(2_000)
    (apart,) = decided(world, "clock", "Apart")[:1]
    assert apart["source"] == "producer"
    assert json.loads(apart["inputs"])["principals"] == ["ada@build-7"]
    assert abs(world.reports[-1]["clocks_ahead_ms"]["producer"] - ahead_ms) <= 4_000
    assert {one: outcome(world, one)["status"] for one in sent} == dict.fromkeys(sent, "done")
    world.run(KEPT_MS + CONFIG.signals.report_max_interval_ms + 10_000)
    assert world.reports[-1]["alarms"] == []
    _check_decisions(world, began_ms)


class LeasedClockWorld(ClockWorld, LeasedWorld):
    """A world under leases whose clocks can be turned. unused: moments without all permits."""

    unused = 0

    def look(self) -> None:
        """Count the moments at which a bundle could not be used."""
        super().look()
        self.unused += len(self.used()) < BUNDLES


@pytest.mark.parametrize("lasts_ms", LASTS_MS)
@pytest.mark.parametrize(("clock", "ahead_ms"), WRONG)
def test_permits_are_kept_beside_a_wrong_clock(clock: str, ahead_ms: int, lasts_ms: int) -> None:
    world = leases_at_rest()
    world.turn(clock, ahead_ms)
    world.run(lasts_ms)
    world.turn(clock, 0)
    world.run(30_000)
    assert world.unused == 0
    assert is_settled(world)


@copied
def leases_at_rest() -> LeasedClockWorld:
    world = LeasedClockWorld(LEASED, 3, seed=3)
    settle(world, BUNDLES, 60_000)
    assert len(world.used()) == BUNDLES
    world.unused = 0
    return world


HOLDER = "broker-0:8080"
LOST_MS = 20_000
"""A holder that nobody hears has lost its permits by then, by any clock that is not too slow."""


class OwnClockWorld(LeasedClockWorld):
    """The first broker goes by a clock of its own that is this much ahead from its start."""

    holder_ahead_ms = 0

    def start(self, name: str) -> None:
        """Start a broker, on a machine whose clock may be wrong."""
        super().start(name)
        self.brokers[name].ahead_ms = self.holder_ahead_ms if name == HOLDER else 0


@copied
def served_by(ahead_ms: int) -> OwnClockWorld:
    """A world at rest whose holder goes by its own clock."""
    world = OwnClockWorld(LEASED, 3, seed=3)
    world.holder_ahead_ms = ahead_ms
    world.start(HOLDER)
    settle(world, BUNDLES, 60_000)
    return world


def cut_off(ahead_ms: int = 0, *, slow: float = 0.0, jump_ms: int = 0) -> OwnClockWorld:
    """A holder that serves by its own clock and is then heard by nobody for a minute.

    slow: part of each second that its clock loses from then on; jump_ms: how far it jumps.
    """
    world = served_by(ahead_ms)
    holder = world.brokers[HOLDER]
    assert any(HOLDER in of for of in world.used().values())
    world.cut_off(HOLDER, is_cut_off=True)
    holder.ahead_ms += jump_ms
    begun_ms = world.now_ms
    while world.now_ms < begun_ms + 60_000:
        world.run(100, step_ms=100)
        holder.ahead_ms -= round(100 * slow)
        if world.now_ms > begun_ms + LOST_MS:
            assert not any(HOLDER in of for of in world.used().values())
    assert len(world.used()) == BUNDLES
    return world


WRONG_HOLDERS = (
    *({"ahead_ms": ahead_ms} for ahead_ms in (-3_600_000, 3_600_000)),
    *({"slow": 0.3}, {"jump_ms": 3_600_000}, {"slow": 0.1}, {"jump_ms": 40_000}),
    *({"ahead_ms": ahead_ms} for ahead_ms in (0, *AHEAD_MS[1:-1])),
)


@pytest.mark.parametrize("wrong", few(WRONG_HOLDERS, 4))
def test_holder_with_a_wrong_clock_stops_in_time_when_it_is_heard_no_more(
    wrong: dict[str, Any],
) -> None:
    cut_off(**wrong)


@pytest.mark.parametrize("wrong", [{"slow": 0.7}, {"jump_ms": -40_000}])
def test_clock_that_goes_back_or_loses_most_of_its_time_is_beyond_what_a_lease_can_bear(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(AssertionError):
        cut_off(**wrong)


LEASE_MS = LEASED.agent.agent_lease_ms
TIMEOUT_MS = LEASED.ownership.broker_timeout_ms
BROKER = "broker-0:8080"
STEPS = 6


@copied
def leased(brokers: int = 3, seed: int = 1) -> LeasedWorld:
    world = LeasedWorld(LEASED, brokers, seed=seed)
    begun(world, 6)
    return world


def all_used(world: LeasedWorld) -> bool:
    """Whether each live bundle is used by its owner."""
    used = world.used()
    live = [row for row in world.newest() if row["state"] != State.DELETED.value]
    return all(list(used.get(str(row["bundle"]), {})) == [row["destination"]] for row in live)


def users(world: LeasedWorld) -> set[str]:
    return {name for names in world.used().values() for name in names}


def owned_by(world: World, name: str) -> set[object]:
    return {row["bundle"] for row in world.newest() if row["destination"] == name}


def tell_leased(seed: int, steps: int) -> LeasedWorld:
    """A whole story; raises AssertionError with its seed when something is wrong at its end."""
    chooser = random.Random(seed)
    world = LeasedWorld(LEASED, chooser.randint(2, 4), seed=seed)
    begun(world, chooser.randint(1, 4))
    for _ in range(steps):
        ACTIONS[chooser.choice(sorted(ACTIONS))](world, chooser)
        world.run(chooser.choice((500, 1_000, 4_000, 9_000, 20_000)))
    heal(world)
    world.run(healing_ms(world.config) + 2 * LEASE_MS)
    assert gapless(world), seed
    assert not unsettled(world), (seed, unsettled(world))
    assert all_used(world), seed
    return world


def test_broker_cut_off_stops_before_its_bundles_are_given_away_and_serves_none_back() -> None:
    world = leased()
    mine = owned_by(world, BROKER)
    assert mine
    world.cut_off(BROKER, is_cut_off=True)
    world.run(LEASE_MS - LEASED.agent.heartbeat_interval_ms - 1_000)
    assert BROKER in users(world)
    world.run(TIMEOUT_MS - LEASE_MS)
    assert BROKER not in users(world)
    assert owned_by(world, BROKER) == mine
    world.run(10_000)
    assert owned_by(world, BROKER) == set()
    assert all_used(world)
    world.run(30_000)
    world.cut_off(BROKER, is_cut_off=False)
    world.run(500)
    assert BROKER not in users(world)
    world.run(60_000)
    assert all_used(world)


def test_broker_frozen_past_its_lease_does_not_use_what_it_had() -> None:
    world = leased()
    world.pause(BROKER, is_paused=True)
    world.run(60_000)
    assert owned_by(world, BROKER) == set()
    world.pause(BROKER, is_paused=False)
    assert BROKER not in users(world)
    world.run(30_000)
    assert all_used(world)


def test_broker_back_before_its_timeout_keeps_its_bundles_and_resumes_them() -> None:
    world = leased()
    mine = owned_by(world, BROKER)
    world.cut_off(BROKER, is_cut_off=True)
    world.run(TIMEOUT_MS - 3_000)
    assert BROKER not in users(world)
    world.cut_off(BROKER, is_cut_off=False)
    world.run(LEASE_MS + 5_000)
    assert owned_by(world, BROKER) == mine
    assert all_used(world)


def test_outage_of_kafka_beyond_the_lease_stops_everybody_and_all_resume() -> None:
    world = leased()
    before = {name: owned_by(world, name) for name in world.brokers}
    world.job.is_away = world.job.are_ticks_away = True
    for name in world.brokers:
        world.cut_off(name, is_cut_off=True)
    world.run(LEASE_MS + 1_000)
    assert users(world) == set()
    world.run(110_000)
    world.job.is_away = world.job.are_ticks_away = False
    for name in world.brokers:
        world.cut_off(name, is_cut_off=False)
    world.run(2 * LEASE_MS)
    assert {name: owned_by(world, name) for name in world.brokers} == before
    assert all_used(world)


def test_record_of_a_late_batch_is_read_before_a_broker_that_returned_serves_again() -> None:
    """The batch judges a broker by a log that ends just before its return."""
    world = leased()
    mine = owned_by(world, BROKER)
    world.cut_off(BROKER, is_cut_off=True)
    world.run(10_000)
    world.read_until_ms = world.now_ms
    world.run(TIMEOUT_MS - 9_000)
    gone_until_ms = world.now_ms
    world.cut_off(BROKER, is_cut_off=False)
    world.run(1_000)
    world.late_readers = {BROKER}
    world.read_until_ms = gone_until_ms - 1
    world.run(1_000)
    world.read_until_ms = None
    world.run(7_000)
    assert owned_by(world, BROKER).isdisjoint(mine)
    world.late_readers = set()
    world.run(2 * LEASE_MS)
    assert all_used(world)


def test_bundle_opened_too_late_is_never_used_by_who_opened_it() -> None:
    world = leased(brokers=2)
    (other,) = world.brokers.keys() - {BROKER}
    world.slow_ms = {BROKER: world.config.ownership.in_flight_timeout_ms + 2_000}
    bundle = min(map(str, owned_by(world, other)))
    world.command("unload_bundle", bundle=bundle, destination=BROKER)
    world.run(10_000)
    world.late_readers = {BROKER}
    world.run(LEASE_MS + 2_000)
    assert list(world.used()[bundle]) == [other]
    world.late_readers, world.slow_ms = set(), {}
    world.run(40_000)
    assert all_used(world)


def test_bundle_that_is_anothers_by_now_is_not_used_while_closing_it_takes_long() -> None:
    world = leased()
    world.cut_off(BROKER, is_cut_off=True)
    world.run(60_000)
    world.slow_ms = {BROKER: 40_000}
    world.cut_off(BROKER, is_cut_off=False)
    world.run(30_000)
    assert any(BROKER in names and len(names) > 1 for names in world.served().values())
    world.run(40_000)
    assert all_used(world)


@pytest.mark.parametrize("seed", few(range(24), 5))
def test_cluster_with_leases_after_random_faults_never_uses_a_bundle_twice(seed: int) -> None:
    tell_leased(seed, STEPS)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(2))
def test_cluster_with_leases_after_many_long_stories_comes_to_rest(hundred: int) -> None:
    for seed in range(20_000 + hundred * 100, 20_100 + hundred * 100):
        tell_leased(seed, STEPS * 3)

"""A wrong clock decides nothing: each of them, by more and by less, for a while and for good.

Kafka's partitions are led by three brokers, each with a clock of its own.
"""

import json
import time
from copy import deepcopy
from functools import cache
from itertools import pairwise

import pytest

from lbcore.balancer.intake.clock import KEPT_MS, LATE_MS
from lbcore.config.tree import Config
from lbcore.wire.messages import Command
from tests.support.values.seeds import few
from tests.support.worlds.checked_world import decided, outcome
from tests.support.worlds.world import CLUSTER, World, is_settled

CONFIG = Config()
CLOCKS = ("driver", "kafka", "kafka 0", "kafka 1", "kafka 2")
AHEAD_MS = (-3_600_000, -40_000, 5_000, 40_000, 3_600_000)
WRONG = few(
    (
        (clock, AHEAD_MS[(at + step) % len(AHEAD_MS)])
        for step in range(len(AHEAD_MS))
        for at, clock in enumerate(CLOCKS)
    ),
    2 * len(CLOCKS),
)
"""Each clock by each amount; in the short run each clock by two, each amount on two clocks."""

FOR_GOOD_MS = 120_000
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


@cache
def _at_rest() -> ClockWorld:
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


@pytest.mark.parametrize("lasts_ms", [2_000, FOR_GOOD_MS])
@pytest.mark.parametrize(("clock", "ahead_ms"), WRONG)
def test_one_wrong_clock_decides_nothing_and_is_named(
    clock: str, ahead_ms: int, lasts_ms: int
) -> None:
    world = deepcopy(_at_rest())
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


@pytest.mark.parametrize("later_ms", [40_000, -40_000])
@pytest.mark.parametrize("clock", CLOCKS)
def test_clock_that_is_wrong_otherwise_than_before_is_told_as_it_is_now(
    clock: str, later_ms: int
) -> None:
    world = deepcopy(_at_rest())
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
    world = deepcopy(_at_rest())
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


@pytest.mark.parametrize("lasts_ms", [2_000, FOR_GOOD_MS])
@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_agent_that_starts_by_a_wrong_clock_is_served_as_any_and_named(
    ahead_ms: int, lasts_ms: int
) -> None:
    """An agent's clock goes on from what the machine's showed when it started."""
    world = deepcopy(_at_rest())
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


@pytest.mark.parametrize("lasts_ms", [2_000, FOR_GOOD_MS])
@pytest.mark.parametrize("ahead_ms", AHEAD_MS)
def test_command_of_a_producer_whose_clock_is_wrong_is_carried_out_and_the_clock_named(
    ahead_ms: int, lasts_ms: int
) -> None:
    world = deepcopy(_at_rest())
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

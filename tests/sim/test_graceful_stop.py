"""Agents that stop in order: they ask to be emptied, wait for it, and leave within their time."""

import pytest

from lbcore.agent.state import Stop, Stopped
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import CheckedWorld, most_unserved, owners
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import gapless, is_settled

BROKER = "broker-1:8080"
CONFIG = Config()
MOST_MS = CONFIG.agent.shutdown_timeout_ms + CONFIG.agent.stop_grace_ms
TIMEOUT_MS = CONFIG.ownership.broker_timeout_ms
STEP_MS = 500


class StoppingWorld(CheckedWorld):
    """A world whose brokers can be told to stop; a process ends when its agent says so.

    ended: when each one ended, and what was not moved away in time.
    """

    def __init__(self, brokers: int, bundles: int) -> None:
        self.ended: dict[str, tuple[int, tuple[str, ...]]] = {}
        super().__init__(CONFIG, brokers, seed=3)
        self.run(2_000)
        self.command("create_namespace", namespace="t/n", bundles=bundles)
        self.run(25_000)
        assert is_settled(self)

    def stop(self, name: str) -> None:
        """SIGTERM."""
        self.advance(self.brokers[name], [Stop()])

    def stopped(self, broker: Broker, last: Stopped) -> None:
        """Note it; the process ends with the moment."""
        self.ended[broker.name] = (self.now_ms, last.left)

    def _step_broker(self, broker: Broker) -> None:
        super()._step_broker(broker)
        if broker.agent is not None and broker.agent.is_stopped:
            self.kill(broker.name)


def mine(world: StoppingWorld, name: str = BROKER) -> set[str]:
    return {bundle for bundle, owner in owners(world).items() if owner == name}


def test_broker_told_to_stop_hands_on_every_bundle_before_it_ends() -> None:
    world = StoppingWorld(4, 24)
    assert len(mine(world)) == 6
    begun_ms = world.now_ms
    world.stop(BROKER)
    longest = most_unserved(world, 40_000)
    ended_ms, left = world.ended[BROKER]
    assert (left, mine(world)) == ((), set())
    assert ended_ms - begun_ms < CONFIG.agent.shutdown_timeout_ms
    assert longest * STEP_MS < TIMEOUT_MS  # each was moved, none waited to be missed
    assert gapless(world)
    assert is_settled(world)


def test_broker_that_has_left_in_order_is_not_missed_and_comes_back_as_a_new_one() -> None:
    world = StoppingWorld(4, 24)
    world.stop(BROKER)
    world.run(40_000)
    before = len(world.events)
    world.run(TIMEOUT_MS * 2)
    assert len(world.events) == before
    assert world.state is not None
    assert world.state.rules.brake is None
    world.start(BROKER)
    world.rates = dict.fromkeys(owners(world), 1_000.0)
    world.run(180_000)
    assert mine(world)
    assert is_settled(world)


def test_all_brokers_but_one_stopped_together_leave_everything_to_it_without_a_brake() -> None:
    world = StoppingWorld(4, 24)
    for name in ("broker-1:8080", "broker-2:8080", "broker-3:8080"):
        world.stop(name)
    world.run(MOST_MS + TIMEOUT_MS * 2)
    assert {left for _, left in world.ended.values()} == {()}
    assert len(world.ended) == 3
    assert set(owners(world).values()) == {"broker-0:8080"}
    assert world.state is not None
    assert world.state.rules.brake is None
    assert is_settled(world)


def test_broker_without_anybody_to_take_its_bundles_ends_in_its_time_and_says_what_is_left() -> (
    None
):
    world = StoppingWorld(1, 4)
    name = "broker-0:8080"
    every = mine(world, name)
    begun_ms = world.now_ms
    world.stop(name)
    world.run(MOST_MS + 5_000)
    ended_ms, left = world.ended[name]
    assert set(left) == every
    assert CONFIG.agent.shutdown_timeout_ms <= ended_ms - begun_ms <= MOST_MS
    world.start(name)
    world.run(TIMEOUT_MS * 2)
    assert mine(world, name) == every
    assert is_settled(world)


def test_broker_stopped_while_the_job_is_away_gives_back_what_the_job_then_places() -> None:
    world = StoppingWorld(3, 12)
    world.job.is_away = world.job.are_ticks_away = True
    every = mine(world)
    begun_ms = world.now_ms
    world.stop(BROKER)
    world.run(MOST_MS + 2_000)
    ended_ms, left = world.ended[BROKER]
    assert ended_ms - begun_ms <= MOST_MS
    assert set(left) == every
    world.job.is_away = world.job.are_ticks_away = False
    world.run(TIMEOUT_MS - 5_000)  # by its word that it gave them back, not by its silence
    assert mine(world) == set()
    world.run(20_000)
    assert is_settled(world)


def test_callback_that_hangs_does_not_keep_a_stopping_broker_for_ever() -> None:
    world = StoppingWorld(3, 12)
    broker = world.brokers[BROKER]
    world.stop(BROKER)
    for _ in range((MOST_MS + TIMEOUT_MS * 3) // STEP_MS):
        broker.calls = [(world.now_ms + 3_600_000, call) for _, call in broker.calls]
        world.run(STEP_MS)
    assert world.ended[BROKER][1]
    assert mine(world) == set()
    assert is_settled(world)


@pytest.mark.parametrize("seed", range(4))
def test_brokers_stopped_one_by_one_on_a_bad_network_leave_no_bundle_behind(seed: int) -> None:
    world = StoppingWorld(4, 16)
    world.random.seed(seed)
    world.faults.lost, world.faults.repeated, world.faults.delay_ms = 0.1, 0.1, 1_500
    for name in sorted(world.brokers):
        world.stop(name)
        world.run(MOST_MS + 1_000)
        assert name in world.ended
        world.start(name)
        world.run(TIMEOUT_MS)
    world.faults.lost = world.faults.repeated = 0.0
    world.faults.delay_ms = 0
    world.run(TIMEOUT_MS * 4)
    assert gapless(world)
    assert is_settled(world)

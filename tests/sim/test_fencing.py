"""Fencing by a lease, in virtual time: at no moment do two brokers use one bundle.

Each moment of a LeasedWorld checks that; the stories are those of `stories`, under leases. A
failure names the seed; `tell_leased(seed, steps)` replays it.
"""

import random

import pytest

from lbcore.ownership.records import State
from tests.support.values.seeds import few
from tests.support.worlds.checked_world import LEASED, LeasedWorld
from tests.support.worlds.stories import begun, heal, healing_ms, unsettled
from tests.support.worlds.story_actions import ACTIONS
from tests.support.worlds.world import World, gapless

LEASE_MS = LEASED.agent.agent_lease_ms
TIMEOUT_MS = LEASED.ownership.broker_timeout_ms
BROKER = "broker-0:8080"
STEPS = 6


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


def test_broker_cut_off_stops_before_its_bundles_are_given_away() -> None:
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


def test_broker_cut_off_serves_nothing_of_others_after_its_return() -> None:
    world = leased()
    world.cut_off(BROKER, is_cut_off=True)
    world.run(60_000)
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


@pytest.mark.parametrize("seed", few(range(24), 8))
def test_cluster_with_leases_after_random_faults_never_uses_a_bundle_twice(seed: int) -> None:
    tell_leased(seed, STEPS)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(10))
def test_cluster_with_leases_after_many_long_stories_comes_to_rest(hundred: int) -> None:
    for seed in range(20_000 + hundred * 100, 20_100 + hundred * 100):
        tell_leased(seed, STEPS * 3)

"""Each way in which brokers, the job and Kafka fail: what becomes of the bundles, and when.

Each batch checks itself, see `checked_world`. Names are those of the design's cases.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer import transitions as repairs
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import LaggingWorld, most_unserved, outcome, owners
from tests.support.worlds.world import is_settled

CONFIG = Config()
TIMEOUT_MS = CONFIG.ownership.broker_timeout_ms
IN_FLIGHT_MS = CONFIG.ownership.in_flight_timeout_ms
UNLOAD_MS = CONFIG.ownership.unload_timeout_ms
BATCHES_MS = 5 * CONFIG.pipeline.trigger_ms
SOURCE, DESTINATION, THIRD = "broker-0:8080", "broker-1:8080", "broker-2:8080"


@pytest.fixture
def world() -> LaggingWorld:
    """Three brokers with four bundles each, at rest, never balanced."""
    made = LaggingWorld(CONFIG, 3, seed=3)
    made.run(2_000)
    made.command("create_namespace", namespace="t/n", bundles=12)
    made.command("set_config", values={"shedding.is_balancing": False})
    made.run(25_000)
    assert is_settled(made)
    return made


def mine(world: LaggingWorld, broker: str = SOURCE) -> list[str]:
    return [bundle for bundle, owner in owners(world).items() if owner == broker]


def history(world: LaggingWorld, bundle: str, since: int) -> list[str]:
    """State and brokers of a bundle's newest events: "Releasing broker-0→broker-1"."""
    shown = []
    for row in world.events[since:]:
        if row["bundle"] == bundle:
            brokers = [str(row[end]).partition(":")[0] for end in ("source", "destination")]
            shown.append(f"{row['state']} {brokers[0]}→{brokers[1]}")
    return shown


def record(world: LaggingWorld, bundle: str) -> Mapping[str, Any]:
    return next(row for row in world.newest() if row["bundle"] == bundle)


def until(world: LaggingWorld, bundle: str, state: str) -> None:
    """Wait, 5 s at most, until a bundle is in a state."""
    for _ in range(10):
        world.run(500)
        if record(world, bundle)["state"] == state:
            return
    raise AssertionError(record(world, bundle))


def transfer(world: LaggingWorld, state: str, *stopped: str) -> tuple[str, int]:
    """A bundle on its way from SOURCE to DESTINATION, stopped there because brokers are."""
    bundle, since = mine(world)[0], len(world.events)
    for name in stopped:
        world.pause(name, is_paused=True)
    world.command("unload_bundle", bundle=bundle, destination=DESTINATION)
    until(world, bundle, state)
    return bundle, since


def test_destination_dies_in_assigning_and_another_gets_the_bundle(world: LaggingWorld) -> None:
    bundle, since = transfer(world, "Assigning", DESTINATION)
    world.kill(DESTINATION)
    world.run(TIMEOUT_MS + BATCHES_MS)
    new = record(world, bundle)["destination"].partition(":")[0]
    assert history(world, bundle, since) == [
        "Releasing broker-0→broker-1",
        "Assigning broker-0→broker-1",
        f"Assigning broker-1→{new}",
        f"Owned broker-1→{new}",
    ]
    assert new != "broker-1"
    assert is_settled(world)


def test_source_dies_in_releasing_and_the_destination_gets_the_bundle(world: LaggingWorld) -> None:
    bundle, _ = transfer(world, "Releasing", SOURCE)
    world.kill(SOURCE)
    world.run(TIMEOUT_MS + BATCHES_MS)
    assert record(world, bundle)["destination"] == DESTINATION
    assert mine(world) == []
    assert is_settled(world)


def test_source_and_destination_die_in_releasing_and_the_third_gets_all(
    world: LaggingWorld,
) -> None:
    bundle, _ = transfer(world, "Releasing", SOURCE, DESTINATION)
    world.kill(SOURCE)
    world.kill(DESTINATION)
    world.run(TIMEOUT_MS + BATCHES_MS)
    assert record(world, bundle)["destination"] == THIRD
    assert set(owners(world).values()) == {THIRD}
    assert is_settled(world)


def test_owner_dies_in_splitting_and_the_bundle_is_served_whole_elsewhere(
    world: LaggingWorld,
) -> None:
    bundle, count = mine(world)[0], len(owners(world))
    world.pause(SOURCE, is_paused=True)
    command_id = world.command(
        "split_bundle", bundle=bundle, algorithm="range_equally_divide", force=True
    )
    until(world, bundle, "Splitting")
    world.kill(SOURCE)
    world.run(TIMEOUT_MS + BATCHES_MS)
    assert outcome(world, command_id)["status"] == "failed"
    assert len(owners(world)) == count
    assert mine(world) == []
    assert is_settled(world)


def test_every_broker_silent_moves_nothing_until_one_reports_again(world: LaggingWorld) -> None:
    before, since = owners(world), len(world.events)
    for name in world.brokers:
        world.pause(name, is_paused=True)
    world.run(10 * TIMEOUT_MS)
    assert owners(world) == before
    assert world.events[since:] == []
    world.pause(THIRD, is_paused=False)
    world.run(TIMEOUT_MS + CONFIG.ownership.brake_confirm_ms + BATCHES_MS)
    assert set(owners(world).values()) == {THIRD}
    for name in (SOURCE, DESTINATION):
        world.pause(name, is_paused=False)
    world.run(BATCHES_MS)
    assert is_settled(world)


def test_what_many_dead_brokers_had_is_repaired_in_several_batches(
    world: LaggingWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three bundles a batch; the first three of the dead broker's own can go to nobody."""
    monkeypatch.setattr(repairs, "_REPAIRED_MAX", 3)
    world.command("create_namespace", namespace="t/a", bundles=3)  # comes before t/n
    world.command("set_isolation_policy", policy="p", namespaces=["t/a"], primary=["broker-0.*"])
    world.run(25_000)
    lost = mine(world)
    alone = [bundle for bundle in lost if bundle.startswith("t/a/")]
    assert len(alone) == 3
    since = len(world.events)
    world.kill(SOURCE)
    world.run(TIMEOUT_MS + 2 * BATCHES_MS)
    repaired = [row for row in world.events[since:] if row["cause"] == "failover"]
    assert max(Counter(row["at_ms"] for row in repaired).values()) == 3
    assert {str(row["bundle"]) for row in repaired} == {*lost} - {*alone}
    assert mine(world) == alone
    assert world.state is not None
    assert world.state.times.repaired_up_to == ""  # what nobody can have fits a batch again


def test_broker_restarted_within_the_timeout_gets_its_bundles_again_at_once(
    world: LaggingWorld,
) -> None:
    before = mine(world)
    world.start(SOURCE)
    world.run(BATCHES_MS)
    assert is_settled(world)
    issued = [record(world, bundle) for bundle in before]
    assert all(row["is_forced"] or row["state"] == "Owned" for row in issued)
    assert not [row for row in world.newest() if row["destination_incarnation"] == f"{SOURCE}/1"]


def test_brokers_restarted_one_by_one_leave_nothing_unserved_for_long(world: LaggingWorld) -> None:
    for name in sorted(world.brokers):
        world.start(name)
        steps = most_unserved(world, TIMEOUT_MS)
        assert steps * 500 <= BATCHES_MS
    assert is_settled(world)


def test_job_away_for_ten_minutes_takes_nobody_for_dead(world: LaggingWorld) -> None:
    before, since = owners(world), len(world.events)
    world.job.is_away = True
    assert most_unserved(world, 600_000) == 0
    world.job.is_away = False
    world.run(3 * TIMEOUT_MS)
    assert world.events[since:] == []
    assert owners(world) == before
    assert is_settled(world)


def test_broker_that_died_while_the_job_was_away_is_found_out_after_its_return(
    world: LaggingWorld,
) -> None:
    world.job.is_away = True
    world.kill(SOURCE)
    world.run(600_000, step_ms=1_000)
    world.job.is_away = False
    world.run(TIMEOUT_MS + BATCHES_MS)
    assert mine(world) == []
    assert is_settled(world)


def test_kafka_away_for_two_minutes_moves_nothing_and_brokers_serve_on(
    world: LaggingWorld,
) -> None:
    before, since = owners(world), len(world.events)
    world.job.is_away = world.job.are_ticks_away = True
    for name in world.brokers:
        world.cut_off(name, is_cut_off=True)
    assert most_unserved(world, 120_000) == 0
    world.job.is_away = world.job.are_ticks_away = False
    for name in world.brokers:
        world.cut_off(name, is_cut_off=False)
    world.run(3 * TIMEOUT_MS)
    assert world.events[since:] == []
    assert owners(world) == before


def test_live_source_never_loses_a_bundle_under_its_feet(world: LaggingWorld) -> None:
    """Closing takes for ever; it says so, and after the longest wait the bundle is given back."""
    world.slow_ms = {SOURCE: 10 * UNLOAD_MS}
    bundle, since = transfer(world, "Releasing")
    for _ in range(2 * UNLOAD_MS // 1_000):
        world.run(1_000)
        assert list(world.served()[bundle]) == [SOURCE]
    assert history(world, bundle, since) == ["Releasing broker-0→broker-1", "Owned →broker-0"]
    assert record(world, bundle)["is_forced"]


def test_owner_that_never_opens_is_replaced(world: LaggingWorld) -> None:
    world.slow_ms = {DESTINATION: 4 * IN_FLIGHT_MS}
    bundle, _ = transfer(world, "Assigning")
    world.run(IN_FLIGHT_MS + 2 * BATCHES_MS)
    row = record(world, bundle)
    assert row["state"] == "Owned"
    assert row["destination"] != DESTINATION
    assert list(world.served()[bundle]) == [row["destination"]]
    world.slow_ms = {}
    world.run(4 * IN_FLIGHT_MS)
    assert list(world.served()[bundle]) == [row["destination"]]

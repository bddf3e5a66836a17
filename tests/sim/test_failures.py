"""Failures of brokers, the job and Kafka, old logs, and state that expires."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer import transitions as repairs
from lbcore.balancer.namespaces import FLOOR
from lbcore.balancer.rules import ClusterRules, differing
from lbcore.balancer.waiting import WAIT_MAX_MS
from lbcore.config.tree import Config
from lbcore.scorer.broker_states import BROKER_STATE_KEPT_MS
from lbcore.validation.check import with_dynamic
from tests.sim.test_commands import told
from tests.support.values.clusters import with_constants
from tests.support.worlds.checked_world import (
    CheckedWorld,
    LaggingWorld,
    decided,
    most_unserved,
    outcome,
    owners,
)
from tests.support.worlds.stories import begun, unsettled
from tests.support.worlds.world import World, copied, is_settled

CONFIG = Config()
TIMEOUT_MS = CONFIG.ownership.broker_timeout_ms
IN_FLIGHT_MS = CONFIG.ownership.in_flight_timeout_ms
UNLOAD_MS = CONFIG.ownership.unload_timeout_ms
BATCHES_MS = 5 * CONFIG.pipeline.trigger_ms
SOURCE, DESTINATION, THIRD = "broker-0:8080", "broker-1:8080", "broker-2:8080"


@pytest.fixture
def world() -> LaggingWorld:
    return at_rest()


@copied
def at_rest() -> LaggingWorld:
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


def test_destination_dies_and_only_the_closing_source_is_left_writes_no_empty_failover(
    world: LaggingWorld,
) -> None:
    world.slow_ms = {SOURCE: UNLOAD_MS - 10_000}
    bundle, _ = transfer(world, "Releasing")
    world.kill(DESTINATION)
    world.kill(THIRD)
    world.run(TIMEOUT_MS + BATCHES_MS + 10_000)
    assert record(world, bundle)["state"] == "Releasing"
    failovers = [row for row in world.decisions if row["kind"] == "failover"]
    assert failovers
    assert [row for row in failovers if not json.loads(str(row["inputs"]))["bundles"]] == []


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


AWAY = "broker-0:8080"


@copied
def with_a_backlog(hang_ms: int, away_ms: int | None) -> LaggingWorld:
    """One batch hangs while ticks go on; meanwhile a broker is cut off, for ever with None."""
    world = LaggingWorld(CONFIG, 3, seed=2)
    begun(world, 8)
    world.read_until_ms = world.now_ms
    world.run(5_000)
    world.cut_off(AWAY, is_cut_off=True)
    world.run(away_ms or hang_ms - 5_000)
    if away_ms is not None:
        world.cut_off(AWAY, is_cut_off=False)
        world.run(hang_ms - 5_000 - away_ms)
    return world


def catch_up(world: LaggingWorld, speed_ms: int) -> None:
    """Read the backlog, so much of the log in each batch."""
    while world.read_until_ms is not None and world.read_until_ms < world.now_ms:
        world.read_until_ms += speed_ms
        world.run(CONFIG.pipeline.trigger_ms)
    world.read_until_ms = None


@pytest.mark.parametrize("speed_ms", [4_000, 10_000, 40_000])
def test_backlog_at_full_speed_kills_nobody_who_is_back(speed_ms: int) -> None:
    world = with_a_backlog(hang_ms=120_000, away_ms=40_000)
    before = len(world.events)
    catch_up(world, speed_ms)
    world.run(10_000)
    assert len(world.events) == before
    assert not unsettled(world)


def test_first_full_batch_of_a_rebuilt_state_kills_nobody_who_is_back() -> None:
    """It ends at a moment when the broker had been silent for long enough to be dead."""
    world = with_a_backlog(hang_ms=120_000, away_ms=40_000)
    before = len(world.events)
    world.rebuild_job()
    catch_up(world, 30_000)
    world.run(10_000)
    assert not decided(world, "silence", "Dead")
    assert len(world.events) == before
    assert not unsettled(world)


def test_broker_that_died_in_a_backlog_is_replaced_once_it_is_read() -> None:
    world = with_a_backlog(hang_ms=120_000, away_ms=None)
    world.kill(AWAY)
    before = len(world.events)
    catch_up(world, 10_000)
    world.run(10_000)
    moved = {row["source_before"] or row["destination_before"] for row in world.events[before:]}
    assert AWAY in moved
    assert not unsettled(world)


@pytest.mark.parametrize("skew_ms", [-60_000, 60_000])
def test_clocks_apart_do_not_keep_a_dead_broker_alive(skew_ms: int) -> None:
    world = LaggingWorld(CONFIG, 3, seed=2)
    begun(world, 8)
    world.driver_ahead_ms = skew_ms
    world.run(30_000)
    world.kill(AWAY)
    world.run(30_000)
    assert not unsettled(world)
    assert AWAY not in {row["destination"] for row in world.newest()}


NAMESPACE = "t/n"
KEPT_MS = 600_000
CONFIG_OF_FORGETTING = with_constants(
    with_dynamic(
        Config(),
        {
            "ownership.tombstone_delay_ms": 30_000,
            "shedding.is_balancing": False,
            "splitting.enabled": False,
        },
    ),
    {"ownership.forget_broker_after_ms": KEPT_MS},
)


@copied
def running(brokers: int = 3) -> CheckedWorld:
    world = CheckedWorld(CONFIG_OF_FORGETTING, brokers, seed=4)
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=4)
    world.run(20_000)
    return world


def leap(world: World, duration_ms: int) -> None:
    """All machines sleep for so long."""
    world.now_ms += duration_ms
    world.next_batch_ms = world.now_ms


def highest(world: World) -> int:
    return max(int(str(row["version_id"])) for row in world.newest())


@pytest.mark.parametrize("comes_back", ["restart_job", "rebuild_job", ""])
def test_versions_go_on_above_those_of_a_forgotten_namespace(comes_back: str) -> None:
    world = running()
    for _ in range(3):
        world.command("unload_namespace", namespace=NAMESPACE)
        world.run(10_000)
    world.command("delete_namespace", namespace=NAMESPACE)
    world.run(50_000)
    assert world.state is not None
    assert not world.state.namespaces
    before = highest(world)
    assert world.state.times.version_floor == before > 4
    if comes_back:
        getattr(world, comes_back)()
        assert world.state.times.version_floor == before
        assert not world.state.namespaces
    for name in (NAMESPACE, "t/another"):
        world.command("create_namespace", namespace=name, bundles=4)
    world.run(20_000)
    assert is_settled(world)
    first = {str(row["bundle"]): int(str(row["version_id"])) for row in reversed(world.events)}
    live = [name for name, row in world.current.items() if row["state"] == "Owned"]
    made = [first[name] for name in live if name.startswith("t/another/")]
    assert made == [before + 1] * 4
    assert min(int(str(world.current[name]["version_id"])) for name in live) > before


def test_floor_never_sinks_and_is_written_once_a_rise() -> None:
    world = running()
    for name in ("t/a", "t/b"):
        world.command("create_namespace", namespace=name, bundles=1)
    world.run(15_000)
    floors = []
    for name in ("t/n", "t/a", "t/b"):
        world.command("delete_namespace", namespace=name)
        world.run(50_000)
        assert world.state is not None
        floors.append(world.state.times.version_floor)
    assert floors == sorted(floors)
    rows = [row for row in world.other_rows["namespaces"] if row["namespace"] == FLOOR]
    assert [row["highest_version"] for row in rows] == sorted(set(floors))
    assert {row["is_deleted"] for row in rows} == {True}


def test_rules_of_a_deleted_namespace_go_with_it() -> None:
    world = running()
    world.command("pause", namespace=NAMESPACE)
    world.command("set_anti_affinity_group", namespace=NAMESPACE, group="g")
    world.command("exclude_namespace", namespace=NAMESPACE)
    world.command("pin_bundle", bundle="t/n/0x00000000_0x40000000", broker="broker-1:8080")
    world.run(3_000)
    assert world.state is not None
    assert len(differing(ClusterRules(), world.state.rules)) == 4
    world.command("delete_namespace", namespace=NAMESPACE)
    world.run(15_000)
    assert not differing(ClusterRules(), world.state.rules)
    assert not differing(ClusterRules(), world.job.rebuilt().rules)


@pytest.mark.parametrize("comes_back", ["restart_job", "rebuild_job", ""])
def test_broker_that_is_silent_for_long_is_struck_off_with_its_drain(comes_back: str) -> None:
    world = running()
    gone = "broker-0:8080"
    drain = world.command("drain_broker", broker=gone)
    world.run(500)
    world.kill(gone)
    world.run(60_000)
    if comes_back:
        getattr(world, comes_back)()
    world.run(20_000)
    assert world.state is not None
    assert world.state.brokers[gone].is_dead
    leap(world, KEPT_MS)
    world.run(10_000)
    assert gone not in world.state.brokers
    assert gone not in world.state.liveness.seen
    assert not world.state.rules.drains
    assert told(world, drain)[-1] in ("done", "failed")
    assert world.other_rows["brokers"][-1]["state"] == "forgotten"
    assert gone not in world.job.rebuilt().brokers
    world.start(gone)
    world.run(10_000)
    assert not world.state.brokers[gone].is_dead


def test_clock_of_the_driver_alone_strikes_nobody_off() -> None:
    world = running()
    world.kill("broker-0:8080")
    world.run(40_000)
    world.driver_ahead_ms = 10 * KEPT_MS
    world.run(5_000)
    world.driver_ahead_ms = 0
    assert world.state is not None
    assert world.state.brokers["broker-0:8080"].is_dead


def test_scorers_forget_brokers_that_say_nothing_for_an_hour() -> None:
    world = running(6)
    world.kill("broker-0:8080")
    world.run(40_000)
    for world.driver_ahead_ms, world.log_ahead_ms in (
        (2 * BROKER_STATE_KEPT_MS, 0),
        (0, 2 * BROKER_STATE_KEPT_MS),
    ):
        world.run(3_000)  # one clock alone forgets nobody
    world.driver_ahead_ms = world.log_ahead_ms = 0
    assert len(tracks(world)) == 6
    leap(world, BROKER_STATE_KEPT_MS)
    world.run(10_000)
    assert tracks(world) == world.brokers.keys() - {"broker-0:8080"}


def tracks(world: World) -> set[str]:
    return {name for scored in world.job.scored.values() for name in scored}  # type: ignore[attr-defined]


def test_command_without_a_timeout_does_not_hold_its_place_for_ever() -> None:
    world = running(2)
    world.brokers["broker-0:8080"].is_hanging = True
    world.brokers["broker-1:8080"].is_hanging = True
    world.command("pause")
    drain = world.command("drain_broker", broker="broker-0:8080")
    world.run(30_000)
    assert told(world, drain) == ["accepted"]
    leap(world, WAIT_MAX_MS)
    world.run(10_000)
    assert told(world, drain)[-1] == "timed_out"
    assert world.state is not None
    assert not world.state.waiting


def test_agent_forgets_the_topics_of_bundles_that_it_serves_no_more() -> None:
    world = running()
    world.topics = {f"persistent://t/n/topic-{number}": 10.0 for number in range(40)}
    for _ in range(3):
        world.run(30_000)
        world.command("unload_namespace", namespace=NAMESPACE)
    world.run(60_000)
    for broker in world.brokers.values():
        assert broker.agent is not None
        assert set(broker.agent.state.reporting.topics) <= set(broker.served())

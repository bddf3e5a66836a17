"""What is over for good leaves the state, and nothing that fences anybody is lost with it."""

import pytest

from lbcore.balancer.tasks.deletions import FLOOR
from lbcore.balancer.tasks.waiting import WAIT_MAX_MS
from lbcore.config.tree import Config
from lbcore.scorer.tracks import TRACK_KEPT_MS
from lbcore.validation.dynamic import with_dynamic
from tests.sim.test_commands import told
from tests.support.values.seeds import with_constants
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.world import World, is_settled

NAMESPACE = "t/n"
KEPT_MS = 600_000
CONFIG = with_constants(
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


def running(brokers: int = 3) -> CheckedWorld:
    world = CheckedWorld(CONFIG, brokers, seed=4)
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
    assert len(world.state.rules.facts()) == 4
    world.command("delete_namespace", namespace=NAMESPACE)
    world.run(15_000)
    assert not world.state.rules.facts()
    assert not world.job.rebuilt().rules.facts()


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
    assert world.state.brokers[gone].is_silent
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
    assert not world.state.brokers[gone].is_silent


def test_clock_of_the_driver_alone_strikes_nobody_off() -> None:
    world = running()
    world.kill("broker-0:8080")
    world.run(40_000)
    world.driver_ahead_ms = 10 * KEPT_MS
    world.run(5_000)
    world.driver_ahead_ms = 0
    assert world.state is not None
    assert world.state.brokers["broker-0:8080"].is_silent


def test_scorers_forget_brokers_that_say_nothing_for_an_hour() -> None:
    world = running(6)
    world.kill("broker-0:8080")
    world.run(40_000)
    for world.driver_ahead_ms, world.log_ahead_ms in (
        (2 * TRACK_KEPT_MS, 0),
        (0, 2 * TRACK_KEPT_MS),
    ):
        world.run(3_000)  # one clock alone forgets nobody
    world.driver_ahead_ms = world.log_ahead_ms = 0
    assert len(tracks(world)) == 6
    leap(world, TRACK_KEPT_MS)
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

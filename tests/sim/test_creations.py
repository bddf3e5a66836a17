"""Namespaces that are created, placed in slices and deleted."""

import json
from collections import Counter
from itertools import pairwise

import pytest

from lbcore.balancer.namespaces import CREATING
from lbcore.config.tree import Config
from lbcore.model.bundles import even_boundaries
from lbcore.model.names import FULL_LOWER, FULL_UPPER, format_bundle
from lbcore.ownership.invariants import of_bundles
from lbcore.ownership.records import State
from lbcore.validation.check import with_dynamic
from tests.sim.test_commands import rows, told
from tests.sim.test_split_commands import NAMESPACE, TOPICS, live, running
from tests.support.values.clusters import with_constants
from tests.support.worlds.checked_world import CheckedWorld, outcome
from tests.support.worlds.world import World, copied, gapless

SLICE, BUNDLES = 10, 73
SERVED = format_bundle("t/served", FULL_LOWER, FULL_UPPER)


class WatchedWorld(CheckedWorld):
    """Looks at what each batch makes."""

    def look(self) -> None:
        super().look()
        live_creations: dict[str, list[str]] = {}
        for row in self.newest():
            if row["state"] != State.DELETED.value:
                live_creations.setdefault(str(row["namespace"]), []).append(str(row["bundle"]))
        for name, bundles in live_creations.items():
            assert of_bundles(name, bundles) == []


@copied
def running_creations(**settings: object) -> World:
    config = with_constants(with_dynamic(Config(), settings), {"limits.bundles_made_max": SLICE})
    world = WatchedWorld(config, 3, seed=4)
    serve(world)
    return world


def serve(world: World) -> None:
    """Let a bundle be open for ten minutes, most of them without the job: no new cluster is it."""
    world.run(5_000)
    world.command("create_namespace", namespace="t/served", bundles=1)
    world.run(5_000)
    world.job.is_away = True
    world.run(600_000)
    world.job.is_away = False
    world.run(5_000)


def live_creations(world: World, name: str) -> list[str]:
    assert world.state is not None
    ledger = world.state.ledger
    return [ledger.names[row] for row in ledger.live_rows(name)]


def expected(name: str, boundaries: tuple[int, ...] = ()) -> list[str]:
    cuts = boundaries or even_boundaries(BUNDLES)
    return [format_bundle(name, *ends) for ends in pairwise(cuts)]


def test_small_namespace_is_made_at_once_beside_large_ones() -> None:
    world = running_creations()
    for number in range(4):
        world.command("create_namespace", namespace=f"t/big{number}", bundles=BUNDLES)
    world.run(2_000)
    small = world.command("create_namespace", namespace="u/small", bundles=4)
    world.run(2_000)
    assert outcome(world, small)["status"] == "done"
    assert len(live_creations(world, "t/big0")) < BUNDLES
    world.run(60_000)
    for number in range(4):
        assert live_creations(world, f"t/big{number}") == expected(f"t/big{number}")


@pytest.mark.parametrize("way_back", ["restart_job", "rebuild_job"])
def test_half_made_namespace_goes_on_after_the_job_came_back(way_back: str) -> None:
    world = running_creations()
    made = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    for _ in range(2):
        world.run(2_000)
        getattr(world, way_back)()
    assert 1 < len(live_creations(world, "t/big")) < BUNDLES
    world.run(40_000)
    assert outcome(world, made)["status"] == "done"
    assert live_creations(world, "t/big") == expected("t/big")


def test_half_made_namespace_is_deleted_and_made_again() -> None:
    world = running_creations()
    made = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    world.run(3_000)
    gone = world.command("delete_namespace", namespace="t/big")
    world.run(15_000)
    assert outcome(world, made)["status"] == "failed"
    assert "deleted" in outcome(world, made)["reason"]
    assert outcome(world, gone)["status"] == "done"
    assert live_creations(world, "t/big") == []
    again = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    world.run(40_000)
    assert outcome(world, again)["status"] == "done"
    assert live_creations(world, "t/big") == expected("t/big")
    assert gapless(world)


def _most_at_once(world: World, seen: int) -> int:
    """Return the most transitions of one kind that deletions made in one batch. seen: events."""
    deletions = (event for event in world.events[seen:] if event["cause"] == "delete")
    return max(Counter((event["at_ms"], event["state"]) for event in deletions).values())


def test_large_namespace_is_deleted_in_slices_that_leave_no_gap() -> None:
    world = running_creations()
    made = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    world.run(60_000)
    assert outcome(world, made)["status"] == "done"
    seen = len(world.events)
    gone = world.command("delete_namespace", namespace="t/big")
    world.run(8_000)
    world.rebuild_job()
    world.run(60_000)
    assert outcome(world, gone)["status"] == "done"
    assert json.loads(outcome(world, gone)["result"])["bundles"] == BUNDLES
    assert live_creations(world, "t/big") == []
    assert gapless(world)
    assert _most_at_once(world, seen) <= SLICE
    again = world.command("create_namespace", namespace="t/big", bundles=4)
    world.run(20_000)
    assert outcome(world, again)["status"] == "done"
    assert gapless(world)


def test_more_namespaces_than_a_batch_deletes_bundles_are_deleted_within_its_share() -> None:
    world = running_creations()
    names = [f"t/n{number}" for number in range(SLICE + 2)]
    for name in names:
        world.command("create_namespace", namespace=name, bundles=3)
    world.run(60_000)
    seen = len(world.events)
    gone = [world.command("delete_namespace", namespace=name) for name in names]
    world.run(60_000)
    assert [outcome(world, one)["status"] for one in gone] == ["done"] * len(names)
    assert not any(live_creations(world, name) for name in names)
    assert gapless(world)
    assert _most_at_once(world, seen) <= SLICE


def test_rest_of_a_half_made_namespace_is_nobodys_to_have() -> None:
    world = running_creations()
    made = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    world.run(2_000)
    rest = live_creations(world, "t/big")[-1]
    asked = [
        world.command("assign_bundle", bundle=rest),
        world.command("pin_bundle", bundle=rest, broker="broker-0:8080"),
        world.command("override_bundle", bundle=rest, destination="broker-0:8080"),
    ]
    twice = world.command("create_namespace", namespace="t/big", bundles=1)
    world.run(30_000)
    for command_id in asked:
        status, reason = (outcome(world, command_id)[name] for name in ("status", "reason"))
        assert status == "refused"
        assert "being made" in reason or "is gone" in reason
    assert outcome(world, twice)["status"] == "refused"
    assert outcome(world, made)["status"] == "done"
    owned = {str(e["bundle"]) for e in world.events if e["state"] == State.OWNED.value}
    assert owned == {SERVED, *expected("t/big")}


def test_splits_while_a_namespace_is_made_do_not_disturb_it() -> None:
    world = running_creations()
    made = world.command("create_namespace", namespace="t/big", bundles=BUNDLES)
    world.run(4_000)
    first = live_creations(world, "t/big")[0]
    split = world.command("split_bundle", bundle=first, force=True)
    world.run(40_000)
    assert outcome(world, split)["status"] == "done"
    assert outcome(world, made)["status"] == "done"
    assert set(expected("t/big")[1:]) <= set(live_creations(world, "t/big"))
    assert len(live_creations(world, "t/big")) == BUNDLES + 1


class SlowWorld(World):
    """Runs the job on a machine on which a batch takes as long as it makes bundles, and then some.

    took_ms: of each batch that made or deleted any. made_ms: what one bundle takes.
    """

    def __init__(self, config: Config, *, made_ms: float) -> None:
        super().__init__(config, 3)
        self.made_ms = made_ms
        self.took_ms: list[float] = []

    def step_job(self) -> None:
        before = len(self.events)
        super().step_job()
        took_ms = 300 + self.made_ms * (len(self.events) - before)
        if len(self.events) > before + 1:
            self.took_ms.append(took_ms)
        self.next_batch_ms = max(self.next_batch_ms, self.now_ms + int(took_ms))


def slow(most: int, *, made_ms: float) -> SlowWorld:
    """A cluster that has served somebody for ten minutes."""
    config = with_constants(Config(), {"limits.bundles_made_max": most})
    world = SlowWorld(config, made_ms=made_ms)
    serve(world)
    world.took_ms.clear()
    return world


def test_slow_machine_makes_less_in_a_batch_so_that_nobody_waits_for_long() -> None:
    world = slow(200, made_ms=20.0)
    for kind, arguments in (("create_namespace", {"bundles": 500}), ("delete_namespace", {})):
        world.took_ms.clear()
        world.command(kind, namespace="t/big", **arguments)
        world.run(180_000)
        halvings = 6  # of what was seen once, and a batch in which its acknowledgements come
        assert max(world.took_ms) > 2_000
        assert max(world.took_ms[halvings:]) < 2_000
    assert live_creations(world, "t/big") == []
    assert gapless(world)


def test_new_cluster_is_made_in_fewer_and_longer_batches() -> None:
    config = with_constants(Config(), {"limits.bundles_made_max": 100})
    new = SlowWorld(config, made_ms=4.0)
    new.run(5_000)
    for world in (new, slow(100, made_ms=4.0)):
        world.took_ms.clear()
        made = world.command("create_namespace", namespace="t/big", bundles=2_000)
        for _ in range(100):
            world.run(1_000)
            if CREATING not in world.state.namespaces["t/big"].properties:
                break
        assert outcome(world, made)["status"] == "done"
    assert max(new.took_ms) > 3_000
    assert max(world.took_ms) < 2_000
    assert 2 * len(new.took_ms) < len(world.took_ms)


def test_bundles_that_are_placed_and_opened_count_in_the_batch_that_would_make_more() -> None:
    most = 100
    world = slow(most, made_ms=0.01)
    made = world.command("create_namespace", namespace="t/big", bundles=1_000)
    world.run(30_000)
    assert outcome(world, made)["status"] == "done"
    changed = [(took_ms - 300) / world.made_ms for took_ms in world.took_ms]
    assert max(changed) <= 2.25 * most + 3  # and three rests


def test_very_many_namespaces_at_once_are_not_made_bundle_by_bundle() -> None:
    count, bundles = 30, 20
    world = slow(50, made_ms=0.01)
    made = [
        world.command("create_namespace", namespace=f"t/n{at}", bundles=bundles + at % 30)
        for at in range(count)
    ]
    world.run(45_000)
    assert {outcome(world, one)["status"] for one in made} == {"done"}
    changed = [(took_ms - 300) / world.made_ms for took_ms in world.took_ms]
    assert sum(changed) <= 4 * sum(bundles + at % 30 for at in range(count))


def test_job_that_was_away_makes_as_much_again_at_once() -> None:
    world = running_creations()
    world.job.is_away = True
    world.run(600_000)
    world.job.is_away = False
    world.run(2_000)
    assert world.state is not None
    assert world.state.times.share == SLICE


def delete(world: World) -> str:
    """Ask for it; the last status."""
    command_id = world.command("delete_namespace", namespace=NAMESPACE, only_empty=True)
    world.run(15_000)
    if told(world, command_id)[-1] == "refused":
        assert "not empty" in rows(world, command_id)[-1]["reason"]
    return told(world, command_id)[-1]


@pytest.mark.parametrize("topics", [TOPICS, TOPICS[:1]])
def test_namespace_whose_topics_brokers_report_is_not_deleted(topics: tuple[str, ...]) -> None:
    world = running(topics=topics)
    assert delete(world) == "refused"
    world.restart_job()
    assert delete(world) == "refused"


def test_topics_that_were_created_here_keep_a_namespace_and_system_topics_do_not() -> None:
    world = World(running(topics=()).config, 2, seed=3)
    world.topics_else = 0
    world.run(3_000)
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.command(
        "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/__change_events"
    )
    world.command(
        "create_record", record_type="topic", name=f"persistent://{NAMESPACE}/orders", value=3
    )
    world.run(15_000)
    assert delete(world) == "refused"
    world.command("delete_record", record_type="topic", name=f"persistent://{NAMESPACE}/orders")
    assert delete(world) == "done"


SYSTEM = (
    f"persistent://{NAMESPACE}/__change_events",
    f"persistent://{NAMESPACE}/__transaction_buffer_snapshot-partition-3",
)


def test_system_topics_that_brokers_report_keep_no_namespace_and_others_beside_them_do() -> None:
    world = running(topics=SYSTEM)
    world.topics_else = 0
    world.run(70_000)
    world.topics = {**world.topics, TOPICS[0]: 10.0}
    world.run(70_000)
    assert delete(world) == "refused"
    del world.topics[TOPICS[0]]
    world.run(70_000)
    assert delete(world) == "done"


def test_bundle_whose_last_topic_is_gone_keeps_no_namespace() -> None:
    world = running(topics=TOPICS[:1])
    world.topics_else = 0
    world.run(70_000)
    assert delete(world) == "refused"
    world.topics = {}
    world.run(70_000)
    assert delete(world) == "done"


def test_after_a_rebuild_nothing_is_deleted_that_nobody_has_told_to_be_empty() -> None:
    world = running()
    world.rebuild_job()
    command_id = world.command("delete_namespace", namespace=NAMESPACE, only_empty=True)
    world.run(500)
    assert told(world, command_id) == ["refused"]
    assert "has not reported" in rows(world, command_id)[-1]["reason"]
    world.run(120_000)
    assert delete(world) == "refused"
    assert live(world)


def test_namespace_made_again_has_nothing_of_the_load_of_the_former_one() -> None:
    world = running()
    world.run(70_000)
    world.command("delete_namespace", namespace=NAMESPACE)
    world.run(15_000)
    world.topics, world.topics_else = {}, 0
    world.command("create_namespace", namespace=NAMESPACE, bundles=2)
    world.run(1_500)
    assert world.state is not None
    ledger = world.state.ledger
    rows_made = ledger.live_rows(NAMESPACE)
    assert len(rows_made) == 2
    for name in ("topics", "sessions", "short_count", "long_count", "moved_ms"):
        assert getattr(ledger, name)[rows_made].tolist() == [0, 0], name
    kept = [getattr(ledger, name)[rows_made].tolist() for name in ledger.ARRAYS]
    world.restart_job()
    assert [getattr(world.state.ledger, name)[rows_made].tolist() for name in ledger.ARRAYS] == kept
    assert delete(world) == "done"

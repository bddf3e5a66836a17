"""Merges in a whole cluster in virtual time: two bundles become one, or stay what they were."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lbcore.config.tree import Config
from lbcore.explain.bundle import explain_bundle
from lbcore.ownership.holding import Call, Callback, CallDone
from tests.sim.test_commands import owner, rows, told
from tests.sim.test_split_commands import LOWER, NAMESPACE, UPPER, live, running
from tests.support.values.clusters import few, with_constants
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.explained_world import about
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import World, states

LOW, HIGH = "t/n/0x00000000_0x40000000", "t/n/0x40000000_0x80000000"


class RefusingWorld(CheckedWorld):
    """Services that can't merge."""

    def finish(self, call: Call) -> CallDone:
        done = super().finish(call)
        is_merge = call.callback is Callback.MERGE
        return replace(done, failure="this service can't merge bundles") if is_merge else done


class SlowWorld(CheckedWorld):
    """Callbacks take three seconds."""

    def call_ms(self, broker: Broker) -> int:
        del broker
        return 3_000


def divided(made: Callable[..., World] = CheckedWorld, **values: Any) -> World:
    """The lower of two bundles is split, so that the namespace has one more than at first."""
    world = running(values, made=made)
    world.command("split_bundle", bundle=LOWER)
    world.run(10_000)
    assert live(world) == [LOW, HIGH, UPPER]
    return world


def is_settled(world: World) -> bool:
    """Whether every live bundle is owned and open at its owner, and nowhere else."""
    served = world.served()
    owners = {name: [owner(world, name)] for name in live(world)}
    return owners == {name: list(brokers) for name, brokers in served.items() if brokers}


def merge(world: World, *names: str) -> dict[str, Any]:
    arguments = dict(zip(("bundle", "neighbour"), names, strict=False))
    command_id = world.command("merge_bundle", **arguments)
    world.run(20_000)
    assert told(world, command_id)[-1] != "accepted"
    return rows(world, command_id)[-1]


def test_bundle_of_another_owner_comes_to_the_one_with_more_traffic_first() -> None:
    world = divided()
    owners = [owner(world, name) for name in (LOW, HIGH)]
    if owners[0] == owners[1]:
        other = next(name for name in world.brokers if name not in owners)
        world.command("unload_bundle", bundle=HIGH, destination=other)
        world.run(10_000)
    before = {name: owner(world, name) for name in (LOW, HIGH)}
    assert before[LOW] != before[HIGH]
    outcome = merge(world, LOW, HIGH)
    assert outcome["status"] == "done"
    assert owner(world, LOWER) in before.values()
    causes = [row["cause"] for row in world.events if row["state"] == "Releasing"]
    assert causes[-1] == "merge"


def test_neighbours_of_different_parents_are_merged_with_the_lower_one_named_second() -> None:
    world = divided()
    outcome = merge(world, UPPER, HIGH)
    assert outcome["status"] == "done"
    assert live(world) == [LOW, "t/n/0x40000000_0xffffffff"]


def test_bundle_in_flight_or_pinned_or_of_a_draining_owner_is_not_merged() -> None:
    world = divided()
    broker = owner(world, LOW)
    world.command("pin_bundle", bundle=HIGH, broker=owner(world, HIGH))
    world.run(2_000)
    assert "unpin it first" in merge(world, LOW)["reason"]
    world.command("unpin_bundle", bundle=HIGH)
    other = next(name for name in world.brokers if name != broker)
    world.command("unload_bundle", bundle=LOW, destination=other)
    command_id = world.command("merge_bundle", bundle=LOW)
    world.run(1_000)
    assert "only bundles at rest are merged" in rows(world, command_id)[-1]["reason"]
    world.run(20_000)
    assert is_settled(world)


def test_service_that_can_not_merge_keeps_both_bundles() -> None:
    world = divided(RefusingWorld)
    outcome = merge(world, LOW)
    assert outcome["status"] == "failed"
    assert "this service can't merge bundles" in outcome["reason"]
    assert live(world) == [LOW, HIGH, UPPER]
    assert is_settled(world)


@pytest.mark.parametrize("after_ms", few((500, 1_500, 3_000, 1_000, 2_000), 3))
def test_owner_that_dies_in_the_middle_leaves_no_hash_without_an_owner(after_ms: int) -> None:
    world = divided(**{"ownership.broker_timeout_ms": 6_000})
    broker = owner(world, LOW)
    world.command("merge_bundle", bundle=LOW)
    world.run(after_ms)
    world.kill(broker)
    world.run(60_000)
    assert is_settled(world)
    assert broker not in {owner(world, name) for name in live(world)}


@pytest.mark.parametrize("after_ms", few((500, 1_500, 1_000, 2_000), 2))
def test_job_that_restarts_in_the_middle_ends_the_merge(after_ms: int) -> None:
    world = divided()
    command_id = world.command("merge_bundle", bundle=LOW)
    world.run(after_ms)
    world.rebuild_job()
    world.run(40_000)
    assert is_settled(world)
    assert rows(world, command_id)[-1]["status"] in ("done", "failed")


def test_override_of_one_bundle_in_the_middle_gives_the_other_back() -> None:
    world = divided(SlowWorld)
    slow = owner(world, LOW)
    world.command("merge_bundle", bundle=LOW)
    world.run(3_000)
    assert states(world)["Merging"] == 2
    other = next(name for name in world.brokers if name != slow)
    world.command("override_bundle", bundle=HIGH, destination=other)
    world.run(60_000)
    assert is_settled(world)
    assert owner(world, HIGH) == other
    assert owner(world, LOW) == slow


def cold(world: type[World] = CheckedWorld, **values: Any) -> World:
    """Merging is on, of what was cold for a minute."""

    def made(config: Config, *about: Any, **more: Any) -> World:
        config = with_constants(config, {"splitting.merge_after_ms": 60_000})
        return world(config, *about, **more)

    return divided(made, **{"splitting.merge_enabled": True, **values})


def test_cold_neighbours_are_merged_down_to_the_number_at_creation() -> None:
    world = cold()
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 2
    assert [row["reason"] for row in world.decisions if row["kind"] == "merge"] == ["Cold"]
    assert is_settled(world)


def test_cold_bundles_of_a_service_that_can_not_merge_are_left_alone() -> None:
    world = cold(RefusingWorld)
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 3
    pairs = [row["bundle"] for row in world.decisions if row["kind"] == "merge"]
    assert len(pairs) <= 2, "each pair once"


@pytest.mark.parametrize(
    "values",
    [
        {"splitting.max_topics": 10},
        {"splitting.max_msg_rate_per_s": 4_000},
        {"cluster.observe_only": True},
        {"cluster.approval": "ask"},
    ],
)
def test_neighbours_above_half_of_a_limit_are_not_merged(values: dict[str, Any]) -> None:
    world = cold(**values)
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 3


class SlowClosingWorld(CheckedWorld):
    """A bundle is closed only after some plans."""

    def call_ms(self, broker: Broker) -> int:
        del broker
        return 40_000 if states(self).get("Releasing") else 100


def waiting_to_merge() -> tuple[World, str]:
    """LOW waits for HIGH; without the merge, the next round moves it to the idle broker."""
    pinned = "t/m/0x00000000_0xffffffff"
    world = running({"shedding.is_balancing": True}, topics=(), made=SlowClosingWorld)
    world.command("pause")
    world.command("split_bundle", bundle=LOWER)
    world.command("create_namespace", namespace="t/m", bundles=1)
    world.run(20_000)
    world.rates = {LOW: 3_000.0, HIGH: 2_500.0, UPPER: 1.0, pinned: 2_500.0}
    brokers = [*sorted(world.brokers), min(world.brokers)]
    for bundle, broker in zip(world.rates, brokers, strict=True):
        if owner(world, bundle) != broker:
            world.command("unload_bundle", bundle=bundle, destination=broker)
    world.command("pin_bundle", bundle=pinned, broker=min(world.brokers))
    world.run(300_000)
    world.command("resume")
    return world, world.command("merge_bundle", bundle=LOW)


def blocks(world: World, bundle: str) -> str:
    found = explain_bundle(about(world, bundle), bundle)
    assert found is not None
    return " ".join(found.blocks)


def test_plan_leaves_a_bundle_where_its_neighbour_comes_to_be_merged() -> None:
    world, command_id = waiting_to_merge()
    before = owner(world, LOW)
    world.run(32_000)
    assert states(world)["Releasing"] == 1
    assert owner(world, LOW) == before
    verdicts = {(row["subject"], row["verdict"]) for row in world.other_rows["decision_candidates"]}
    assert (LOW, "merging") in verdicts
    assert "waits for its merge with a neighbour" in blocks(world, LOW)
    world.run(30_000)
    assert told(world, command_id)[-1] == "done"
    assert owner(world, LOWER) == before


def test_bundle_is_balanced_again_when_its_merge_was_given_up() -> None:
    world, command_id = waiting_to_merge()
    before = owner(world, LOW)
    world.run(32_000)
    world.command("override_bundle", bundle=HIGH, destination=sorted(world.brokers)[1])
    world.run(60_000)
    assert told(world, command_id)[-1] == "failed"
    assert owner(world, LOW) != before
    assert "waits for its merge" not in blocks(world, LOW)


@pytest.mark.parametrize("is_apart", [True, False])
def test_merges_at_once_leave_the_number_at_creation(is_apart: bool) -> None:  # noqa: FBT001 a case
    world = running(made=SlowWorld)
    world.command("create_namespace", namespace="t/m", bundles=3)
    world.run(20_000)
    first = next(name for name in live(world) if name.startswith("t/m/"))
    world.command("split_bundle", bundle=first)
    world.run(20_000)
    lower = [name for name in live(world) if name.startswith("t/m/")]
    brokers = sorted(world.brokers)
    for bundle, broker in zip(lower, (brokers[0], brokers[is_apart]) * 2, strict=True):
        if owner(world, bundle) != broker:
            world.command("unload_bundle", bundle=bundle, destination=broker)
    world.run(20_000)
    ids = [world.command("merge_bundle", bundle=lower[at]) for at in (0, 2)]
    world.run(60_000)
    assert [told(world, one)[-1] for one in ids] == ["done", "refused"]
    assert "when its merges have ended" in rows(world, ids[1])[-1]["reason"]
    assert sum(name.startswith("t/m/") for name in live(world)) == 3


def test_merge_whose_owners_differ_again_after_its_transfer_moves_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, command_id = waiting_to_merge()
    before = owner(world, LOW)
    world.run(32_000)
    monkeypatch.setattr(SlowClosingWorld, "call_ms", CheckedWorld.call_ms)
    other = next(name for name in world.brokers if name not in (before, owner(world, HIGH)))
    world.command("override_bundle", bundle=LOW, destination=other)
    world.run(120_000)
    assert told(world, command_id)[-1] == "failed"
    assert "their owners differ again" in rows(world, command_id)[-1]["reason"]
    assert sum(row["kind"] == "merge" for row in world.decisions) == 1


def test_cold_neighbours_of_two_owners_are_merged_for_one_reason() -> None:
    world = cold()
    if owner(world, LOW) == owner(world, HIGH):
        other = next(name for name in world.brokers if name != owner(world, LOW))
        world.command("unload_bundle", bundle=HIGH, destination=other)
    world.command("unload_bundle", bundle=UPPER, destination=owner(world, LOW))
    world.run(900_000, step_ms=5_000)
    reasons = [row["reason"] for row in world.decisions if row["kind"] == "merge"]
    assert reasons == ["Cold", "Cold"]


@pytest.mark.parametrize(
    "limit", ["shedding.max_moves_per_hour", "shedding.max_moves_per_hour_of_tenant"]
)
def test_transfers_before_automatic_merges_count_as_moves_of_cycles(limit: str) -> None:
    world = cold(**{limit: 0})
    low = owner(world, LOW)
    apart = next(name for name in world.brokers if name not in (low, owner(world, UPPER)))
    for bundle in (HIGH, UPPER):
        target = apart if bundle == HIGH else low
        if owner(world, bundle) != target:
            world.command("unload_bundle", bundle=bundle, destination=target)
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 3
    world.command("set_config", values={limit: 1})
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 2
    assert world.state is not None
    assert sum(count for _, count in world.state.plan.hourly["t"]) == 1


@pytest.mark.parametrize("kind", ["pause", "exclude_namespace"])
def test_paused_or_excluded_namespace_is_not_merged(kind: str) -> None:
    world = cold()
    world.command(kind, namespace=NAMESPACE)
    world.run(900_000, step_ms=5_000)
    assert len(live(world)) == 3

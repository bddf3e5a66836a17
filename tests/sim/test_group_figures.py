"""Dry runs and plans that wait judge brokers within their isolation group."""

from collections.abc import Mapping, Sequence

import pytest

from lbcore.balancer.state.rules import PlanProposal, PlanStatus
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import foreseen, owners
from tests.support.worlds.world import World

RESERVED = ("broker-4", "broker-5")
QUIET = ("splitting.enabled=false", "shedding.grace_period_ms=1000", "shedding.cool_down_ms=0")


def grouped(*settings: str) -> World:
    """Six brokers at rest, of which a policy reserves the last two."""
    world = World(parse_assignments(Config(), [*QUIET, *settings]), 6)
    world.run(2_000)
    world.command(
        "set_isolation_policy", policy="stores", namespaces=["t/stores"], primary=["broker-[45].*"]
    )
    for name, bundles in (("t/n", 32), ("t/stores", 8)):
        world.command("create_namespace", namespace=name, bundles=bundles)
    world.run(60_000)
    return world


def is_reserved(broker: str) -> bool:
    return broker.startswith(RESERVED)


def load(world: World, shared: float, reserved: float) -> None:
    """Give each broker of a group the same message rate, msg/s."""
    held: dict[str, int] = {}
    for owner in owners(world).values():
        held[owner] = held.get(owner, 0) + 1
    world.rates = {
        bundle: (reserved if is_reserved(owner) else shared) / held[owner]
        for bundle, owner in owners(world).items()
    }
    world.run(180_000, step_ms=5_000)


def proposals(world: World) -> Mapping[str, PlanProposal]:
    assert world.state is not None
    return world.state.rules.proposals


@pytest.mark.parametrize("reserved", [0.0, 100.0], ids=["without load", "nearly idle"])
def test_dry_run_of_even_groups_has_no_imbalance(reserved: float) -> None:
    world = grouped()
    load(world, 4_000.0, reserved)
    found = foreseen(world)
    rates = [one.msg_rate for one in found.before.brokers]
    assert max(rates) > 1.4 * sum(rates) / len(rates)
    for moment in (found.before, found.after):
        assert moment.imbalance == pytest.approx(1.0, abs=0.05)
        assert moment.floor_adjusted == pytest.approx(1.0, abs=0.05)
        groups = {one.group for one in moment.brokers}
        assert groups == {"broker-0:8080", "broker-4:8080"}
    assert not [one for one in found.decisions if one["kind"] in ("transfer", "split")]


def test_broker_that_is_added_joins_the_group_that_may_use_it() -> None:
    world = grouped()
    load(world, 4_000.0, 100.0)
    found = foreseen(world, add_brokers=1)
    (added,) = (one for one in found.after.brokers if one.broker.startswith("new-broker"))
    assert added.group == "broker-0:8080"
    assert found.after.imbalance is not None
    assert found.after.imbalance <= 1.3


def waiting(world: World, hot: Sequence[str]) -> PlanProposal | None:
    """The plan that waits once the load of these bundles has grown."""
    for bundle in hot:
        world.rates[bundle] *= 4.0
    for _ in range(180):
        world.run(2_000)
        for one in proposals(world).values():
            if one.station is PlanStatus.WAITS:
                return one
    return None


def bundles_of(world: World, broker: str) -> list[str]:
    return [name for name, owner in owners(world).items() if owner.startswith(broker)]


def test_plan_that_waits_shows_the_mean_of_the_brokers_group() -> None:
    world = grouped("cluster.approval=ask")
    load(world, 3_000.0, 300.0)
    found = waiting(world, bundles_of(world, "broker-0")[:4])
    assert found is not None
    names = {step.source for step in found.steps} | {step.destination for step in found.steps}
    assert not any(is_reserved(name) for name in names)
    foreseen_means = [one.usage for one in foreseen(world).before.brokers]
    assert found.before["mean"] > 1.2 * sum(foreseen_means) / len(foreseen_means)
    assert found.before["mean"] == pytest.approx(found.after["mean"], abs=0.01)
    assert found.after["max"] < found.before["max"]


@pytest.mark.parametrize(("percent", "waits"), [(5, True), (99, False)])
def test_share_of_messages_that_asks_is_that_of_the_group(percent: int, *, waits: bool) -> None:
    """The reserved group carries a tenth of all messages: a bundle of it is below 5 % of all."""
    world = grouped(
        "cluster.approval=ask_above",
        "cluster.approval_bundles=100",
        f"cluster.approval_percent={percent}",
    )
    load(world, 6_000.0, 1_200.0)
    bundles = bundles_of(world, RESERVED[0])
    assert (waiting(world, bundles[:2]) is not None) is waits

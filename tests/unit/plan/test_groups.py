"""Isolation groups: found from policies, and each planned as a cluster of its own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig
from lbcore.plan.decision import Plan, PlanState, Scope, Skip, TriggerRows
from lbcore.plan.filter.policies import IsolationPolicy, Policies
from lbcore.plan.planner import plan
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.snapshot import Snapshot
from tests.support.values.clusters import (
    BYTES_PER_MESSAGE,
    FULL_RATE,
    Sections,
    broker_table,
    bundle_table,
    snapshot,
)

NOW_MS = 100_000
BUSY = {"a1": [6_000.0] * 10, "a2": [2_000.0] * 10}
EVEN_AND_IDLE = {"b1": [100.0] * 4, "b2": [100.0] * 4}
GROUPED = ("avg", "threshold", "overload", "uniform", "ballast")


def divided(*groups: Mapping[str, Sequence[float]]) -> Snapshot:
    """A cluster of groups: broker → the rates of its bundles, 100,000 msg/s are 100 % of CPU.

    Bundles of group i are of namespace t/gi, whose policy admits that group's brokers alone.
    """
    names = list(dict.fromkeys(name for group in groups for name in group))
    owned = [
        (number, names.index(name), rate)
        for number, group in enumerate(groups)
        for name, rates in group.items()
        for rate in rates
    ]
    short = np.zeros((len(owned), 4))
    short[:, 0] = [rate for _, _, rate in owned]
    short[:, 2] = short[:, 0] * BYTES_PER_MESSAGE
    owner = np.array([at for _, at, _ in owned], dtype=np.int64)
    traffic = np.zeros((len(names), 4))
    np.add.at(traffic, owner, short)
    table = broker_table(names)
    percent = table.percent.copy()
    percent[:, 0] = traffic[:, 0] / FULL_RATE * 100
    brokers = replace(
        table,
        percent=percent,
        traffic=traffic,
        bundle_count=np.bincount(owner, minlength=len(names)),
        updated_at_ms=np.full(len(names), 1_000),
    )
    made = [f"t/g{number}/{row:08x}" for row, (number, _, _) in enumerate(owned)]
    policies = tuple(
        IsolationPolicy(name=f"p{number}", namespaces=(f"t/g{number}",), primary=tuple(group))
        for number, group in enumerate(groups)
    )
    found = snapshot(brokers, bundle_table(made, owner=owner, short=short, long=short))
    return replace(found, policies=Policies(isolation=policies))


def at_once(strategy: str, **settings: object) -> Sections:
    return Sections(
        shedding=SheddingConfig(
            strategy=strategy,
            avg_low_hits=1,
            avg_high_hits=1,
            min_unload_rate_msg_per_s=0.0,
            min_throughput_mib_per_s=0.0,
            overloaded_threshold_percent=50.0,
            **settings,
        ),
        ideal_load=IdealLoadConfig(low_hits=1, high_hits=1),
        placement=PlacementConfig(strategy=SHEDDING_STRATEGIES[strategy].usual_placement),
    )


def decided(answer: Plan | Skip) -> list[tuple[str, str, str]]:
    if isinstance(answer, Skip):
        return []
    return [(one.bundle, one.source, one.destination) for one in answer.decisions]


@pytest.mark.parametrize("strategy", GROUPED)
def test_gauge_of_a_group_is_that_of_it_alone(strategy: str) -> None:
    config, scope = at_once(strategy), Scope(is_traced=True)
    alone, _ = plan(divided(BUSY), PlanState(), config, NOW_MS, scope)
    beside, _ = plan(divided(BUSY, EVEN_AND_IDLE), PlanState(), config, NOW_MS, scope)
    (first,) = (part.trigger for part in alone.trace.parts if isinstance(part, TriggerRows))
    (both,) = (part.trigger for part in beside.trace.parts if isinstance(part, TriggerRows))
    np.testing.assert_array_equal(both.number[:2], first.number)
    np.testing.assert_array_equal(both.partner[:2], first.partner)
    for level, own in zip(both.levels, first.levels, strict=True):
        np.testing.assert_array_equal(level.threshold[:2], own.threshold)
        np.testing.assert_array_equal(level.hits[:2], own.hits)
    assert set(both.partner[2:].tolist()) <= {-1, 2, 3}


def test_stray_bundle_of_a_hot_broker_goes_back_under_ballast() -> None:
    """b1 carries bundles of t/g0, which only a1 and a2 may have by now."""
    cluster = divided({"a1": [500.0], "a2": [500.0]}, {"b1": [500.0], "b2": [500.0]})
    hot = {"b1": [500.0] + [6_000.0] * 4, "b2": [500.0]}
    strays = divided({"a1": [500.0], "a2": [500.0]}, hot)
    namespace = np.where(strays.bundles.short[:, 0] > 1_000, 0, strays.bundles.namespace)
    strays = replace(strays, bundles=replace(strays.bundles, namespace=namespace))
    quiet, _ = plan(cluster, PlanState(), at_once("ballast"), NOW_MS)
    answer, _ = plan(strays, PlanState(), at_once("ballast"), NOW_MS)
    assert decided(quiet) == []
    assert {("b1", "a1"), ("b1", "a2")} <= {(source, to) for _, source, to in decided(answer)}


def test_hot_broker_is_relieved_although_the_emptiest_brokers_may_not_take_its_bundles() -> None:
    hot = {"a": [4_000.0] * 15}
    middle = {f"b{at:02}": [4_000.0] * 8 for at in range(35)}
    empty = {f"c{at}": [4_000.0] * 2 for at in range(9)}
    cluster = divided(hot | middle | empty)
    flapping = np.array([name in empty for name in cluster.brokers.names])
    flaps = replace(cluster, brokers=replace(cluster.brokers, is_flapping=flapping))
    joined = divided(hot | middle, {"b00": [], **empty})  # b00 may take all bundles
    for one in (flaps, joined):
        answer, _ = plan(one, PlanState(), at_once("ballast"), NOW_MS)
        assert {source for _, source, _ in decided(answer)} == {"a"}
        assert {taker[0] for _, _, taker in decided(answer)} == {"b"}


def test_policies_change_nothing_where_all_brokers_are_one_group() -> None:
    cluster = divided(BUSY)
    free = replace(cluster, policies=Policies())
    for strategy in GROUPED:
        config = at_once(strategy)
        with_policy = plan(cluster, PlanState(), config, NOW_MS, Scope(is_traced=True))
        without = plan(free, PlanState(), config, NOW_MS, Scope(is_traced=True))
        assert decided(with_policy[0]) == decided(without[0])
        assert with_policy[1] == without[1]


HOT_AND_COLD = {"a1": [6_000.0] * 10, "a2": [500.0] * 10}
EVEN = {"b1": [2_000.0] * 10, "b2": [2_000.0] * 10}


def with_policies(cluster: Snapshot, *policies: tuple[str, str]) -> Snapshot:
    """The cluster under policies, each for a pattern of namespaces and one of brokers."""
    isolation = tuple(
        IsolationPolicy(name=f"p{at}", namespaces=(namespaces,), primary=(brokers,))
        for at, (namespaces, brokers) in enumerate(policies)
    )
    return replace(cluster, policies=Policies(isolation=isolation))


def with_brokers(cluster: Snapshot, **columns: object) -> Snapshot:
    arrays = {name: np.array(column) for name, column in columns.items()}
    return replace(cluster, brokers=replace(cluster.brokers, **arrays))


def planned(strategy: str, cluster: Snapshot) -> tuple[list[tuple[str, str, str]], PlanState]:
    """What a strategy decides in three cycles; a division by zero raises."""
    state, found = PlanState(), []
    with np.errstate(divide="raise", invalid="raise"):
        for cycle in range(3):
            now_ms = NOW_MS + cycle * 10_000
            due = np.full(len(cluster.brokers.names), now_ms)
            fresh = replace(cluster, brokers=replace(cluster.brokers, updated_at_ms=due))
            answer, state = plan(fresh, state, at_once(strategy), now_ms, Scope(is_traced=True))
            found += decided(answer)
    return found, state


@pytest.mark.parametrize("strategy", GROUPED)
def test_groups_of_one_broker_exchange_nothing(strategy: str) -> None:
    found, state = planned(strategy, divided({"a": [9_000.0] * 10}, {"b": [10.0]}, {"c": [0.0]}))
    assert found == []
    assert dict(state.groups) == {"a": "a", "b": "b", "c": "c"}


@pytest.mark.parametrize("strategy", GROUPED)
@pytest.mark.parametrize("is_draining", [True, False], ids=["draining", "dead"])
def test_group_without_a_broker_waits_and_the_others_go_on(
    strategy: str,
    is_draining: bool,  # noqa: FBT001 a case of the table
) -> None:
    """Two brokers that policy p0 admits are gone; its bundles have no owner, or leave for none."""
    whole = divided(HOT_AND_COLD, BUSY | EVEN) if not is_draining else divided(HOT_AND_COLD, EVEN)
    busy = divided({"c1": [6_000.0] * 10, "c2": [2_000.0] * 10})
    if is_draining:
        cluster = with_brokers(whole, is_draining=[True, True, False, False])
        left = "a"
    else:
        owner = np.full(len(busy.bundles.names), -1)
        lost = replace(busy, bundles=replace(busy.bundles, owner=owner, needs_owner=owner < 0))
        cluster, left = with_policies(lost, ("t/g0", "dead.*")), "c"
    found, _ = planned(strategy, cluster)
    assert [move for move in found if left in (move[1][:1], move[2][:1])] == []


ALL = [f"b{at}" for at in range(1, 9)]


def reserving(name: str, primary: str, **more: Any) -> IsolationPolicy:
    return IsolationPolicy(name=name, namespaces=(f"t/{name}",), primary=(primary,), **more)


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        ([], [ALL]),
        ([reserving("stores", "b[78]")], [ALL[:6], ALL[6:]]),
        ([reserving("stores", "b[78]", secondary=("b6",), min_limit=3)], [ALL]),
        ([reserving("a", "b[1-4]"), reserving("b", "b[4-8]")], [ALL]),
        ([reserving("x", "nobody")], [ALL]),
        ([reserving("stores", "b[78]"), reserving("x", "nobody")], [ALL[:6], ALL[6:]]),
        ([reserving("y", ".*")], [ALL]),
    ],
    ids=["none", "reserved", "failed over", "overlap", "no broker", "beside it", "all brokers"],
)
def test_groups_are_those_of_the_worked_example(
    policies: Sequence[IsolationPolicy], expected: list[list[str]]
) -> None:
    """The table of docs/strategies.md; each namespace has bundles, so have those without policy."""
    namespaces = ("t/shared", *(one.namespaces[0] for one in policies))
    names = [f"{namespace}/{row:08x}" for namespace in namespaces for row in range(8)]
    owner = np.full(len(names), -1)
    cluster = snapshot(broker_table(ALL), bundle_table(names, owner=owner))
    cluster = replace(cluster, policies=Policies(isolation=tuple(policies)))
    _, state = plan(cluster, PlanState(), at_once("ballast"), NOW_MS)
    found: dict[str, list[str]] = {}
    for name in ALL:
        found.setdefault(state.groups.get(name, ""), []).append(name)
    assert list(found.values()) == expected

"""The strategy `ballast`: objective, search, thresholds, giver and receiver order."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig
from lbcore.config.splitting import Splitting
from lbcore.plan.decision import Decision, Kind, PlanState, Scope, Skip
from lbcore.plan.groups import shed_by_group
from lbcore.plan.planner import plan
from lbcore.plan.readings import demand_factor_of, missing_brokers, readings_of, with_demand
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_problem import departed_demand_factor
from lbcore.plan.shed.ballast_search import (
    Found,
    SearchProblem,
    lower_bound,
    objective,
    search,
)
from lbcore.plan.shed.common import Relief, ShedState, ShedView
from lbcore.plan.snapshot import THROUGHPUT_IN, Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.strategy import ShedCycle
from lbcore.signals.usage import BANDWIDTH_IN
from tests.support.values.clusters import (
    Sections,
    broker_table,
    check_trace,
    cluster_of,
    shed_view,
)

POINT = 1_000.0
HOUR_MS = 3_600_000
FAST = IdealLoadConfig(low_hits=1, high_hits=1)


def seen(points: dict[str, list[float]], foreign: dict[str, float] | None = None) -> ShedView:
    """A view in which a point of load is a point of usage, and other processes use some more."""
    cluster = cluster_of({name: [POINT * one for one in of] for name, of in points.items()})
    percent = cluster.brokers.percent.copy()
    percent[:, 0] += [(foreign or {}).get(name, 0.0) for name in points]
    cluster = replace(cluster, brokers=replace(cluster.brokers, percent=percent))
    return shed_view(cluster, percent[:, 0] / 100.0)


def config_of(**splitting: object) -> Sections:
    return Sections(
        shedding=SheddingConfig(strategy="ballast"),
        placement=PlacementConfig(strategy="ballast"),
        ideal_load=FAST,
        splitting=Splitting(**splitting),
    )


def hot_bundle(topics: int) -> Snapshot:
    """b1 has a bundle of 60 points of so many topics beside a small one; b2 and b3 idle."""
    cluster = cluster_of({"b1": [60 * POINT, POINT], "b2": [5 * POINT], "b3": [5 * POINT]})
    names = tuple(f"t/n/0x{at}0000000_0x{at + 1}0000000" for at in range(4))
    bundles = replace(
        cluster.bundles,
        names=names,
        namespaces=("t/n",),
        namespace=np.zeros(4, dtype=np.int64),
        topics=np.array([topics, 1, 1, 1]),
    )
    return replace(cluster, bundles=bundles)


def decided(cluster: Snapshot, config: Sections) -> tuple[tuple[Decision, ...], PlanState]:
    answer, state = plan(cluster, PlanState(), config, 10_000, Scope(is_traced=True))
    check_trace(answer.trace, cluster)
    return (() if isinstance(answer, Skip) else answer.decisions), state


def test_bundle_above_the_fair_share_is_divided_while_its_namespace_may_have_more() -> None:
    decisions, state = decided(hot_bundle(topics=40), config_of())
    (one,) = [found for found in decisions if found.kind is Kind.SPLIT]
    assert (one.bundle, one.reason) == ("t/n/0x00000000_0x10000000", "FairShare")
    assert set(one.children.values()) >= {"b2", "b3"}
    assert one.inputs["excess"] > 2
    assert one.bundle in state.split.pending
    decisions, state = decided(hot_bundle(topics=40), config_of(max_namespace_bundles=4))
    assert all(one.kind is not Kind.SPLIT for one in decisions)
    assert state.split.pending == {}


def test_bundle_above_the_fair_share_is_cut_between_its_known_topics() -> None:
    hashes = np.array([0x1000000, 0x2000000, 0x3000000])
    rates = np.array([20, 20, 20]) * POINT
    loads = TopicLoads(hashes=hashes, msg_rate=rates, throughput=rates)
    cluster = replace(hot_bundle(topics=3), topics_of=lambda _: loads)
    decisions, _ = decided(cluster, config_of(require_division=True))
    (one,) = [found for found in decisions if found.kind is Kind.SPLIT]
    assert one.split is not None
    assert one.split.boundaries == (0x1800001, 0x2800001)


def test_bundle_that_no_split_divides_stays_known_while_its_broker_is_hot() -> None:
    rates = np.array([60.0, 0.0]) * POINT
    loads = TopicLoads(hashes=np.array([0x1000000, 0x2000000]), msg_rate=rates, throughput=rates)
    cluster = replace(hot_bundle(topics=2), topics_of=lambda _: loads)
    config = replace(config_of(max_msg_rate_per_s=100_000), ideal_load=IdealLoadConfig())
    state, known = PlanState(), []
    for cycle in range(1, 13):  # a round in every third cycle, as on Pulsar
        now_ms = 10_000 * cycle
        brokers = replace(cluster.brokers, updated_at_ms=np.full(3, now_ms))
        scope = Scope(sheds=cycle % 3 == 0, observes=cycle % 3 != 0)
        _, state = plan(replace(cluster, brokers=brokers), state, config, now_ms, scope)
        known.append(set(state.split.unsplittable))
    first = known.index({cluster.bundles.names[0]})
    assert all(known[first:])


def test_bundle_that_left_a_broker_lately_goes_back_only_if_nobody_else_can_take_it() -> None:
    def given_to(loads: dict[str, list[float]]) -> set[int]:
        view = seen(loads)
        bundles = view.snapshot.bundles
        left = np.where(bundles.owner == 0, 1, -1)
        cluster = replace(view.snapshot, bundles=replace(bundles, left=left))
        answer = shed_ballast(replace(view, snapshot=cluster), ShedState(), FAST)
        return {one.destination for one in answer.selections}

    assert given_to({"b1": [6.0] * 10, "b2": [6.0] * 5, "b3": [6.0] * 5}) == {2}
    assert given_to({"b1": [6.0] * 10, "b2": [6.0] * 2}) == {1}


def test_broker_that_stays_hot_on_another_resource_keeps_its_hits() -> None:
    view = seen({"b1": [30.0], "b2": [30.0], "b3": [30.0]})
    brokers, bundles = view.snapshot.brokers, view.snapshot.bundles
    percent, short = brokers.percent.copy(), bundles.short.copy()
    percent[:, BANDWIDTH_IN], short[:, THROUGHPUT_IN] = [60.0, 10.0, 10.0], [6e6, 1e6, 1e6]
    cluster = replace(
        view.snapshot,
        brokers=replace(brokers, percent=percent),
        bundles=replace(bundles, short=short),
    )
    answer = shed_ballast(replace(view, snapshot=cluster), ShedState(), FAST)
    assert answer.selections == ()
    assert answer.columns["deviation"][0] > answer.numbers["tolerance"]
    assert answer.state.hits_high == {"b1": 1}


def test_move_soon_after_another_is_dear_and_gets_cheaper_with_its_age() -> None:
    view = seen({"b1": [6.0] * 10, "b2": [6.0] * 4, "b3": [6.0] * 4})
    bundles = view.snapshot.bundles

    def moves(minutes: float) -> int:
        moved_ms = np.full(len(bundles.names), HOUR_MS - int(minutes * 60_000))
        cluster = replace(view.snapshot, bundles=replace(bundles, moved_ms=moved_ms))
        later = replace(view, snapshot=cluster, now_ms=HOUR_MS, grace_ms=HOUR_MS // 2)
        return sum(len(one.rows) for one in shed_ballast(later, ShedState(), FAST).selections)

    assert [moves(minutes) for minutes in (0, 30, 60)] == [3, 4, 4]


def test_broker_that_gets_worse_although_it_carries_less_is_left_alone_after_three_rounds() -> None:
    state, gave = ShedState(), []
    for step in range(6):
        loads = {"b1": [2.0] * (40 - 2 * step), "b2": [2.0] * 10, "b3": [2.0] * 10}
        view = seen(loads, {"b1": 10.0 * step})
        answer = shed_ballast(view, state, replace(FAST, churn_budget=0.03))
        state = answer.state
        gave.append(any(one.source == 0 for one in answer.selections))
    assert gave == [True, True, True, False, False, False]
    assert answer.verdicts[0] == "suspended"
    busier = shed_ballast(seen({**loads, "b1": [2.0] * 50}), state, FAST)
    assert any(one.source == 0 for one in busier.selections)


def full_view(points: dict[str, list[float]], demand: dict[str, float] | None = None) -> ShedView:
    view = seen(points)
    times = np.array([(demand or {}).get(name, np.nan) for name in points])
    brokers = replace(view.snapshot.brokers, demand=times if demand else None)
    return replace(view, snapshot=replace(view.snapshot, brokers=brokers))


def received(view: ShedView, state: ShedState | None = None) -> dict[str, float]:
    """Points that each broker is given, as shown now."""
    answer = shed_ballast(view, state or ShedState(), FAST)
    names, load = view.snapshot.brokers.names, view.snapshot.bundles.short[:, 0] / POINT
    found: dict[str, float] = {}
    for one in answer.selections:
        name = names[one.destination]
        found[name] = found.get(name, 0.0) + float(load[one.rows].sum())
    return found


def test_full_broker_fills_nobody_even_if_its_bundles_grow_threefold() -> None:
    given = received(full_view({"b1": [5.0] * 20, "b2": [60.0], "b3": [30.0], "b4": [74.0]}))
    assert given["b3"] > 0
    assert 60 + 3 * given.get("b2", 0.0) <= 90
    assert 30 + 3 * given["b3"] <= 90
    assert 74 + 3 * given.get("b4", 0.0) <= 90


def test_reported_demand_replaces_what_is_served_and_needs_no_guess() -> None:
    points = {"b1": [5.0] * 20, "b2": [10.0], "b3": [10.0], "b4": [10.0]}
    view = full_view(points, {"b1": 2.0})
    readings = with_demand(readings_of(view.snapshot, view.usage), view.snapshot)
    assert readings.usage.tolist() == pytest.approx([200.0, 10.0, 10.0, 10.0])
    assert readings.bundle[:20].tolist() == pytest.approx([10.0] * 20)
    factors = demand_factor_of(readings.usage, view.snapshot.brokers.demand)
    assert factors.tolist() == [1.0, 1.0, 1.0, 1.0]
    assert all(10 + 2 * shown <= 90 for shown in received(view).values())
    assert sum(received(view).values()) > 0


def test_what_left_a_full_broker_shows_how_much_the_rest_may_grow() -> None:
    view = full_view({"b1": [10.0] * 10, "b2": [12.0, 40.0], "b3": [50.0]})
    left, moved_ms = np.full(13, -1), np.zeros(13, dtype=np.int64)
    left[10], moved_ms[10] = 0, 4_000
    bundles = replace(view.snapshot.bundles, left=left, moved_ms=moved_ms)
    view = replace(view, snapshot=replace(view.snapshot, bundles=bundles))
    told = Relief(usage=100.0, traffic=1.0, gone=10.0, count=1, gone_ms=1_000, demand_factor=3.0)
    state = ShedState(reliefs={"b1": told})
    readings = readings_of(view.snapshot, view.usage)
    later = replace(view, now_ms=700_000)
    assert departed_demand_factor(later, state, readings)[0] == pytest.approx(1.32)
    assert departed_demand_factor(replace(view, now_ms=500_000), state, readings)[0] == 3.0
    refused = ShedState(reliefs={"b1": replace(told, count=2)})
    assert departed_demand_factor(later, refused, readings)[0] == 3.0
    assert departed_demand_factor(later, ShedState(), readings).tolist() == [3.0, 3.0, 3.0]


def test_parts_of_a_full_brokers_bundle_stay_with_it() -> None:
    view = full_view({"b1": [100.0], "b2": [40.0], "b3": [40.0]})
    bundles = replace(view.snapshot.bundles, topics=np.array([40, 1, 1]))
    view = replace(view, snapshot=replace(view.snapshot, bundles=bundles))
    too_big = shed_ballast(view, ShedState(), FAST).too_big
    assert too_big is not None
    assert too_big.rows.tolist() == [0]
    assert too_big.stays.tolist() == [True]


def test_bundles_of_several_groups_to_divide_keep_all_that_is_known_of_them() -> None:
    view = full_view({"b1": [100.0], "b2": [40.0], "c1": [40.0], "c2": [10.0, 10.0]})
    bundles = replace(view.snapshot.bundles, topics=np.array([40, 1, 1, 1, 1]))
    view = replace(view, snapshot=replace(view.snapshot, bundles=bundles))
    config = Sections(ideal_load=FAST)
    cycle = ShedCycle(view=view, state=PlanState(), config=config, now_ms=view.now_ms)
    answer, _, _ = shed_by_group(SHEDDING_STRATEGIES["ballast"], cycle, np.array([0, 0, 1, 1]))
    assert answer.too_big is not None
    assert answer.too_big.rows.tolist() == [0, 2]
    assert answer.too_big.stays.tolist() == [True, False]


@pytest.mark.parametrize(
    ("usages", "sizes", "missing"),
    [
        ([1.0] * 6, [1.0] * 6, 2),
        ([0.9] * 5, [1.0] * 5, 1),
        ([0.89] * 5, [1.0] * 5, 0),
        ([1.0, 0.5], [9.0, 1.0], 1),
        ([1.0, 1.0], [0.0, 0.0], 0),
        ([], [], 0),
    ],
)
def test_full_cluster_names_the_brokers_that_bring_it_to_the_target(
    usages: list[float], sizes: list[float], missing: int
) -> None:
    names = [f"b{at}" for at in range(len(usages))]
    brokers = broker_table(names, capacity=np.array(sizes))
    assert missing_brokers(brokers, np.array(usages), np.arange(len(usages)))[0] == missing


def problem_of(
    owned: list[list[float]], sizes: list[float] | None = None, price: float = 0.1
) -> SearchProblem:
    """Brokers with bundles of so many points on a broker of mean size."""
    size = np.array(sizes or [1.0] * len(owned))
    size = size * (len(size) / size.sum())
    weight = np.array([one for own in owned for one in own])
    home = np.array([at for at, own in enumerate(owned) for _ in own], dtype=np.int64)
    load = np.bincount(home, weight, len(owned)) / size
    level = float(load @ size) / len(owned)
    return SearchProblem(
        load=load[:, np.newaxis],
        size=size,
        weight=weight[:, np.newaxis],
        home=home,
        price=price * weight / level,
        min_price=price,
        level=level,
        can_move=np.ones(len(home), dtype=np.bool_),
        may_give=np.ones(len(owned), dtype=np.bool_),
        may_take=np.ones(len(owned), dtype=np.bool_),
        row=np.zeros(len(home), dtype=np.int64),
        admits=np.ones((1, len(owned)), dtype=np.bool_),
    )


def test_nothing_moves_where_nobody_has_room() -> None:
    problem = problem_of([[10.0] * 10, [9.5] * 10, [9.0] * 10])
    full = replace(problem, room=np.zeros(3), demand_factor=np.ones(30))
    assert found_by(full).moves == ()


def random_problem(seed: int, brokers: int, bundles: int) -> SearchProblem:
    rng = np.random.default_rng(seed)
    owned: list[list[float]] = [[] for _ in range(brokers)]
    loads = rng.pareto(1.5, bundles) + 0.2
    for load in np.minimum(loads, 0.5 * loads.sum() / brokers).tolist():
        owned[int(rng.integers(brokers) * rng.random())].append(load)
    sizes = rng.choice([0.5, 1.0, 2.0], brokers).tolist()
    return problem_of(owned, sizes, float(rng.choice([0.05, 0.2, 0.4])))


def cost_of(problem: SearchProblem, owner: np.ndarray) -> float:
    load = np.bincount(owner, problem.weight[:, 0], len(problem.size)) / problem.size
    return objective(problem, load[:, np.newaxis], np.flatnonzero(owner != problem.home))


def found_by(problem: SearchProblem, steps: int = 1_000, budget: float = np.inf) -> Found:
    found = search(problem, steps, budget)
    owner = problem.home.copy()
    for row, taker in found.moves:
        owner[row] = taker
    assert found.after == pytest.approx(cost_of(problem, owner))
    return found


def test_objective_of_the_worked_example() -> None:
    problem = problem_of([[60.0], [20.0]])
    assert objective(problem, problem.load, np.zeros(0, dtype=np.int64)) == pytest.approx(1.25)


def test_tiny_clusters_are_mostly_found_the_best_and_never_below_the_bound() -> None:
    gaps = []
    for seed in range(40):
        problem = random_problem(seed, brokers=3, bundles=7)
        best = min(cost_of(problem, np.array(one)) for one in product(range(3), repeat=7))
        found = found_by(problem)
        assert max(lower_bound(problem), found.bound) <= best + 1e-9, seed
        assert best - 1e-9 <= found.after <= found.before, seed
        gaps.append(found.after / best - 1.0)
    assert np.median(gaps) <= 0.02
    assert np.quantile(gaps, 0.8) <= 0.2


def test_clusters_of_a_usual_size_are_near_the_bound() -> None:
    gaps = []
    for seed in range(20):
        found = found_by(random_problem(seed, brokers=20, bundles=500))
        gaps.append(found.after / found.bound - 1.0)
    assert np.median(gaps) <= 0.02


def test_exchange_is_found_where_no_single_move_helps() -> None:
    problem = problem_of([[30.0, 25.0], [24.0, 21.0]], price=0.001)
    found = found_by(problem)
    assert sorted(found.moves) == [(1, 1), (3, 0)]
    assert found.after < found.before


@pytest.mark.parametrize("role", ["gave_ms", "took_ms"])
def test_exchange_is_never_done_by_half_while_a_broker_keeps_its_role(role: str) -> None:
    loads = {"b0": [21.0, 21.0], "b1": [11.0, 21.0], "b2": [14.0, 9.0], "b3": [20.0, 12.0]}
    cluster = cluster_of({name: [POINT * one for one in of] for name, of in loads.items()})

    def moved(state: PlanState) -> list[tuple[str, str]]:
        answer, _ = plan(cluster, state, config_of(enabled=False), 100_000)
        found = () if isinstance(answer, Skip) else answer.decisions
        return [(one.source, one.destination) for one in found]

    assert moved(PlanState()) == [("b0", "b2"), ("b2", "b0")]
    keeps = {"gave_ms": "b0", "took_ms": "b2"}[role]
    assert moved(PlanState(strategy="ballast", **{role: {keeps: 90_000}})) == []


def test_equal_problems_have_equal_answers_to_the_bit() -> None:
    problem = random_problem(11, brokers=20, bundles=400)
    one, other = search(problem, 500, np.inf), search(problem, 500, np.inf)
    assert (one.moves, one.after, one.bound) == (other.moves, other.after, other.bound)

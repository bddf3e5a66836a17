"""The search of `ballast`: its objective, its bound, what it finds beside everything tried."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from lbcore.plan.shed.ballast_objective import SearchProblem, broker_costs, lower_bound, objective
from lbcore.plan.shed.ballast_search import Found, search


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


def test_taker_has_room_for_what_a_bundle_of_a_full_broker_may_grow_to() -> None:
    problem = problem_of([[10.0] * 10, [30.0], [60.0]])
    growth = np.array([3.0] * 10 + [1.0, 1.0])
    full = replace(problem, room=np.array([-10.0, 60.0, 29.0]), growth=growth)
    taken = np.bincount([taker for _, taker in found_by(full).moves], minlength=3)
    assert taken.tolist() == [0, 2, 0]  # two of 10 points that may come to 30 each
    assert len(found_by(problem).moves) > 2


def test_nothing_moves_where_nobody_has_room() -> None:
    problem = problem_of([[10.0] * 10, [9.5] * 10, [9.0] * 10])
    full = replace(problem, room=np.zeros(3), growth=np.ones(30))
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


def test_overshoot_is_that_of_the_worst_resource_and_undershoot_of_the_busiest() -> None:
    load = np.array([[30.0, 60.0], [50.0, 10.0]])
    costs = broker_costs(load, np.ones(2), 40.0)
    assert costs.tolist() == pytest.approx([4 * 0.5**2 + 0.25**2, 4 * 0.25**2])


@pytest.mark.parametrize("seed", range(40))
def test_tiny_clusters_are_as_good_as_everything_tried_and_never_below_the_bound(seed: int) -> None:
    problem = random_problem(seed, brokers=3, bundles=7)
    best = min(cost_of(problem, np.array(one)) for one in product(range(3), repeat=7))
    assert lower_bound(problem) <= best + 1e-9
    found = found_by(problem)
    assert found.bound <= best + 1e-9
    assert found.after <= found.before
    assert found.after >= best - 1e-9


def test_tiny_clusters_are_mostly_found_the_best() -> None:
    gaps = []
    for seed in range(40):
        problem = random_problem(seed, brokers=3, bundles=7)
        best = min(cost_of(problem, np.array(one)) for one in product(range(3), repeat=7))
        gaps.append(found_by(problem).after / best - 1.0)
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


def test_search_that_is_stopped_early_is_no_worse_than_before_and_a_longer_one_no_worse() -> None:
    problem = random_problem(3, brokers=8, bundles=120)
    costs = [found_by(problem, steps=steps).after for steps in (1, 5, 20, 80, 1_000)]
    assert costs[0] < found_by(problem).before
    assert costs == sorted(costs, reverse=True)
    assert found_by(problem, steps=5).stopped == "steps"


def test_budget_ends_the_search_after_the_bundle_that_exceeds_it() -> None:
    found = found_by(problem_of([[5.0] * 12, [1.0], [1.0]]), budget=7.0)
    assert len(found.moves) == 2
    assert found.stopped == "budget"


def test_move_that_gains_less_than_it_costs_is_not_made() -> None:
    owned = [[5.0] * 9, [5.0] * 7]
    assert found_by(problem_of(owned, price=0.1)).moves
    assert found_by(problem_of(owned, price=4.0)).moves == ()


def test_brokers_that_may_not_give_or_take_do_not() -> None:
    problem = problem_of([[5.0] * 9, [5.0] * 9, [5.0], [5.0]])
    closed = np.array([True, True, False, True])
    found = found_by(replace(problem, may_give=~np.array([True, False, False, False])))
    assert {int(problem.home[row]) for row, _ in found.moves} == {1}
    found = found_by(replace(problem, may_take=closed))
    assert 2 not in {taker for _, taker in found.moves}


def test_equal_problems_have_equal_answers_to_the_bit() -> None:
    problem = random_problem(11, brokers=20, bundles=400)
    one, other = search(problem, 500, np.inf), search(problem, 500, np.inf)
    assert (one.moves, one.after, one.bound) == (other.moves, other.after, other.bound)

"""Bounds: nobody is below them, by brute force on small cases and by the solver on larger ones."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.bounds.imbalance import Brokers, least_highest, least_imbalance
from lbcore.bounds.moves import Course, least_moves, moves_by_report
from tests.support.models.exact_moves import exact_highest, exact_moves, worst_times

EPS = 1e-6
WEIGHTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)
BROKERS = st.lists(
    st.tuples(st.sampled_from([1.0, 1.0, 2.0, 0.5]), st.sampled_from([0.0, 0.0, 7.0])),
    min_size=1,
    max_size=3,
)


def brokers_of(pairs: list[tuple[float, float]]) -> Brokers:
    capacity, foreign = np.array(pairs).T
    return Brokers(capacity=capacity, foreign=foreign)


def loads_of(owners: tuple[int, ...], weights: np.ndarray, brokers: Brokers) -> np.ndarray:
    points = np.bincount(owners, weights=weights, minlength=len(brokers.capacity))
    return points / brokers.capacity + brokers.foreign


@settings(max_examples=300, deadline=None)
@given(WEIGHTS, BROKERS)
def test_no_assignment_is_below_the_bounds(
    drawn: list[int], pairs: list[tuple[float, float]]
) -> None:
    weights, brokers = np.array(drawn, dtype=float), brokers_of(pairs)
    every = [
        loads_of(owners, weights, brokers)
        for owners in product(range(len(pairs)), repeat=len(drawn))
    ]
    highest = min(float(loads.max()) for loads in every)
    assert least_highest(weights, brokers) <= highest + EPS
    ratios = [float(loads.max() / loads.mean()) for loads in every if loads.mean() > 0]
    if ratios:
        assert 1.0 <= least_imbalance(weights, brokers) <= min(ratios) + EPS


@pytest.mark.parametrize(
    ("weights", "brokers", "expected"),
    [
        ([30, 30, 30], 2, 60.0),
        ([50, 10, 10], 2, 50.0),
        ([10] * 10, 5, 20.0),
        ([40, 30, 20, 20], 3, 40.0),
        ([24, 24, 20, 20, 20, 20], 4, 40.0),
    ],
)
def test_bound_is_what_can_be_reached_where_counting_decides(
    weights: list[float], brokers: int, expected: float
) -> None:
    alike = Brokers(capacity=np.ones(brokers), foreign=np.zeros(brokers))
    assert least_highest(np.array(weights, dtype=float), alike) == pytest.approx(expected)


def test_load_of_other_processes_is_in_the_bound() -> None:
    uneven = Brokers(capacity=np.ones(2), foreign=np.array([60.0, 0.0]))
    assert least_highest(np.array([10.0] * 4), uneven) == pytest.approx(60.0)
    assert least_highest(np.array([10.0] * 10), uneven) == pytest.approx(80.0)


COURSES = st.integers(1, 4).flatmap(
    lambda bundles: st.tuples(
        st.lists(
            st.lists(st.integers(0, 20), min_size=bundles, max_size=bundles),
            min_size=1,
            max_size=3,
        ),
        st.lists(st.integers(0, 1), min_size=bundles, max_size=bundles),
        st.sampled_from([1.1, 1.3, 1.6]),
        st.booleans(),
    )
)


def course_of(drawn: tuple[list[list[int]], list[int], float, bool]) -> Course:
    """On two brokers; the last moment may be without the second one."""
    rows, first, bar, is_lost = drawn
    is_there = np.ones((len(rows), 2), dtype=np.bool_)
    is_there[-1, 1] = not is_lost
    return Course(
        weights=np.array(rows, dtype=float),
        first=np.array(first, dtype=np.int64),
        capacity=np.ones(2),
        foreign=np.zeros(2),
        is_there=is_there,
        bar=bar,
    )


def fewest_by_force(course: Course, times: list[int]) -> int | None:
    """The fewest moves that hold the bar at these times; None: nobody can. By trying everything."""
    limits = course.limits()
    count = len(course.first)
    costs: dict[tuple[int, ...], int] = {tuple(course.first.tolist()): 0}
    for at in times:
        fine = [
            owners
            for owners in product(range(2), repeat=count)
            if all(course.is_there[at][owner] for owner in owners)
            and np.bincount(owners, weights=course.weights[at], minlength=2).max()
            <= limits[at] + EPS
        ]
        costs = {
            new: min(cost + sum(map(int.__ne__, old, new)) for old, cost in costs.items())
            for new in fine
        }
    return min(costs.values(), default=None)


def possible_times(course: Course) -> list[int]:
    """When somebody can be under the bar, whatever was before."""
    return [at for at in range(len(course.weights)) if fewest_by_force(course, [at]) is not None]


@settings(max_examples=300, deadline=None)
@given(COURSES)
def test_no_plan_has_fewer_moves_than_the_bound(
    drawn: tuple[list[list[int]], list[int], float, bool],
) -> None:
    course = course_of(drawn)
    times = possible_times(course)
    counts = np.isin(np.arange(len(course.weights)), times)
    fewest = fewest_by_force(course, times)
    lost = [at for at in range(len(counts)) if not course.is_there[at].all()]
    if fewest is not None and set(lost) <= set(times):
        assert least_moves(course, counts) <= fewest


@settings(max_examples=60, deadline=None)
@given(COURSES)
def test_solver_and_brute_force_agree(
    drawn: tuple[list[list[int]], list[int], float, bool],
) -> None:
    course = course_of(drawn)
    times = possible_times(course)
    fewest = fewest_by_force(course, times)
    if times and fewest is not None:
        assert exact_moves(course, times) == fewest
        counts = np.isin(np.arange(len(course.weights)), times)
        worst = exact_moves(course, worst_times(course, counts))
        assert worst is not None
        assert worst <= fewest
        if course.is_there.all():
            assert least_moves(course, counts) <= worst


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=4, max_size=14), st.integers(2, 4))
def test_relaxation_is_never_above_the_solver(drawn: list[int], count: int) -> None:
    weights = np.array(drawn, dtype=float)
    alike = Brokers(capacity=np.ones(count), foreign=np.zeros(count))
    exact = exact_highest(weights, alike)
    assert least_highest(weights, alike) <= exact + EPS
    assert exact <= 3 / 2 * least_highest(weights, alike) + EPS


@settings(max_examples=100, deadline=None)
@given(COURSES)
def test_plan_by_report_needs_no_fewer_moves_where_it_holds_the_bar(
    drawn: tuple[list[list[int]], list[int], float, bool],
) -> None:
    course = course_of(drawn)
    plan = moves_by_report(course, 1)
    held = plan.imbalance <= course.bar - EPS
    assert (plan.imbalance >= 1.0 - EPS).all()
    if course.is_there.all():
        assert plan.moves >= least_moves(course, held)


def test_who_knows_only_the_report_is_surprised_by_a_jump() -> None:
    rows = np.array([[10.0, 10.0, 0.0, 0.0], [0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 10.0]])
    course = Course(
        weights=rows,
        first=np.array([0, 1, 0, 0]),
        capacity=np.ones(2),
        foreign=np.zeros(2),
        is_there=np.ones((3, 2), dtype=np.bool_),
        bar=1.2,
    )
    plan = moves_by_report(course, 1)
    assert plan.imbalance.tolist() == [1.0, 2.0, 1.0]
    assert plan.moves == 1
    assert least_moves(course, np.ones(3, dtype=np.bool_)) == 1

"""The load model, bounds of a run and weekly windows against plain references."""

from datetime import datetime, timezone
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.bounds.moves import (
    Brokers,
    Course,
    least_highest,
    least_imbalance,
    least_moves,
    moves_by_report,
)
from lbcore.model.bundles import HASH_SPACE, HashFunction, even_boundaries
from lbcore.model.names import FULL_UPPER
from lbcore.model.times import WeeklyWindow, quiet_until_ms
from lbcore.sim.load.load import (
    FULL_RATE_MSG_PER_S,
    LoadModel,
    LoadProfile,
    LoadShape,
    NamespaceLoad,
    uniforms,
    wave,
)

SPACES = (
    NamespaceLoad(name="t/a", hash_function=HashFunction.CRC32, bundles=100),
    NamespaceLoad(name="t/b", hash_function=HashFunction.MURMUR3_32, bundles=100),
)
boundaries = st.lists(st.integers(1, FULL_UPPER - 1), max_size=20, unique=True).map(sorted)
shapes = st.sampled_from(LoadShape)
times = st.integers(0, 10**9)


def model(shape: LoadShape, seed: int = 2, brokers: int = 5) -> LoadModel:
    return LoadModel(SPACES, LoadProfile(shape=shape, brokers=brokers, seed=seed))


def hotspot_at(load: LoadModel, virtual_ms: int) -> tuple[str, int, int]:
    """The hot namespace and its hot window [start, end); it wraps where end < start."""
    space, start, width = load._window(load.step_at(virtual_ms))  # noqa: SLF001 (nothing else says it)
    return space.name, start, (start + width) % HASH_SPACE


def over(load: LoadModel, at_ms: int, namespace: str, edges: list[int]) -> np.ndarray:
    cuts = np.array([0, *edges, FULL_UPPER])
    return load.at(at_ms).bundles(namespace, cuts[:-1], cuts[1:])


def total_rate(load: LoadModel, at_ms: int) -> float:
    rows = [over(load, at_ms, space.name, []) for space in SPACES]
    return float(sum(row[0, 0] + row[0, 1] for row in rows))


@settings(deadline=None, max_examples=40)
@given(shape=shapes, at_ms=times, edges=boundaries, seed=st.integers(0, 99))
def test_load_of_split_bundles_adds_up_to_the_whole_exactly(
    shape: LoadShape, at_ms: int, edges: list[int], seed: int
) -> None:
    load = model(shape, seed)
    parts, whole = over(load, at_ms, "t/b", edges), over(load, at_ms, "t/b", [])
    assert np.array_equal(parts.sum(axis=0), whole[0])
    assert bool(np.all(parts >= 0.0))


@settings(deadline=None, max_examples=20)
@given(shape=shapes, at_ms=times, seed=st.integers(0, 99))
def test_load_of_two_models_with_equal_arguments_is_equal(
    shape: LoadShape, at_ms: int, seed: int
) -> None:
    edges = list(even_boundaries(100)[1:-1])
    once, again = model(shape, seed), model(shape, seed)
    again.at(at_ms + 5_000_000)  # what was asked before must not matter
    assert np.array_equal(over(once, at_ms, "t/a", edges), over(again, at_ms, "t/a", edges))


@pytest.mark.parametrize("shape", LoadShape)
def test_load_of_the_whole_cluster_is_the_profiles_total(shape: LoadShape) -> None:
    expected = 5 * 0.45 * FULL_RATE_MSG_PER_S
    assert total_rate(model(shape), 0) == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("step", range(8))
def test_hotspot_carries_its_share_within_its_window(step: int) -> None:
    load = model(LoadShape.MOVING_HOTSPOT)
    at_ms = step * 600_000
    name, start, end = hotspot_at(load, at_ms)
    edges = sorted({start, end} - {0})
    rows = over(load, at_ms, name, edges)
    rate = rows[:, 0] + rows[:, 1]
    hot = rate[1] if start < end else rate[0] + rate[2]
    width = (end - start) % HASH_SPACE / HASH_SPACE
    assert width == pytest.approx(0.06, rel=0.001)
    # 0.2 of a broker's mean for each of 6 bundles, on top of 3 % of what is left
    assert hot / total_rate(load, at_ms) == pytest.approx(0.24 + 0.76 * 0.03, abs=0.02)


@pytest.mark.parametrize("shape", LoadShape)
def test_load_has_no_bundle_that_outweighs_a_brokers_mean(shape: LoadShape) -> None:
    edges = list(even_boundaries(100)[1:-1])
    load = model(shape)
    rows = np.concatenate([over(load, 0, space.name, edges) for space in SPACES])
    rate = rows[:, 0] + rows[:, 1]
    assert rate.max() < 0.9 * rate.sum() / 5


def test_daily_wave_leads_each_namespace_through_peak_and_trough() -> None:
    load = model(LoadShape.DAILY_WAVE)
    rates = [float(over(load, hour * 3_600_000, "t/a", [])[0, :2].sum()) for hour in range(24)]
    mean = sum(rates) / 24
    assert max(rates) / mean == pytest.approx(1.6, rel=0.01)
    assert min(rates) / mean == pytest.approx(0.4, rel=0.01)


@given(phase=st.floats(0, 100))
def test_wave_stays_within_one_and_is_odd(phase: float) -> None:
    assert -1.0 <= wave(phase) <= 1.0
    assert wave(phase) == pytest.approx(-wave(phase + 0.5), abs=1e-9)


def test_uniforms_have_known_values() -> None:
    """The model's numbers must never change with a library's version."""
    assert [round(float(u), 6) for u in uniforms(2, "base t/a", 3)] == [
        0.787739,
        0.276041,
        0.606778,
    ]


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


DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE_MS = 60_000
WEEK_MIN = 7 * 24 * 60
minutes = st.integers(0, 24 * 60 - 1)


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


@st.composite
def written(draw: st.DrawFn) -> tuple[str, set[int], int, int]:
    """A window's text, and what it means: days, from and until which minute."""
    start = draw(minutes)
    until = draw(minutes.filter(lambda one: one != start))
    first, last = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    form = draw(st.sampled_from(("every day", "a day", "days")))
    days, words = set(range(7)), ""
    if form == "a day":
        days, words = {first}, f"{DAYS[first]} "
    elif form == "days":
        days, day = {first}, first
        while day != last:
            day = (day + 1) % 7
            days.add(day)
        words = f"{DAYS[first]}-{DAYS[last]} "
    return f"{words}{clock(start)}-{clock(until)}", days, start, until


def lies_in(local: datetime, days: set[int], start: int, until: int) -> bool:
    """By the calendar: it began today, or yesterday and goes on."""
    minute, today = local.hour * 60 + local.minute, local.weekday()
    if start < until:
        return today in days and start <= minute < until
    return (today in days and minute >= start) or ((today - 1) % 7 in days and minute < until)


@given(
    st.lists(written(), min_size=1, max_size=3),
    st.integers(0, 60 * 365 * 24 * 60),
    st.integers(0, MINUTE_MS - 1),
)
def test_quiet_lasts_to_the_first_minute_that_lies_in_no_window(
    windows: list[tuple[str, set[int], int, int]], at_min: int, rest_ms: int
) -> None:
    def is_quiet(utc_min: int) -> bool:
        now = datetime.fromtimestamp(utc_min * 60, timezone.utc)
        return any(lies_in(now, *meaning) for _, *meaning in windows)

    parsed = [WeeklyWindow.parse(text) for text, *_ in windows]
    until_ms = quiet_until_ms(parsed, at_min * MINUTE_MS + rest_ms)
    if not is_quiet(at_min):
        assert until_ms == 0
        return
    until_min, rest = divmod(until_ms, MINUTE_MS)
    assert rest == 0
    assert at_min < until_min <= at_min + WEEK_MIN
    assert all(is_quiet(one) for one in range(at_min, until_min, 7))
    assert is_quiet(until_min - 1)
    assert until_min == at_min + WEEK_MIN or not is_quiet(until_min)


@pytest.mark.parametrize(
    "text", ["", "always", "mon", "8:00-9:00", "24:00-01:00", "08:00-08:00", "moo 08:00-09:00",
             "mon-fre 08:00-09:00", "08:60-09:00", "25:00-26:00", "mon  08:00-09:00"]
)  # fmt: skip
def test_what_is_no_window_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        WeeklyWindow.parse(text)


def test_whole_day_and_whole_week() -> None:
    day = WeeklyWindow.parse("sun 00:00-24:00")
    sunday_ms = 3 * 86_400_000  # 1970-01-04
    assert quiet_until_ms([day], sunday_ms) == sunday_ms + 86_400_000
    assert quiet_until_ms([day], sunday_ms - 1) == 0
    week = WeeklyWindow.parse("00:00-24:00")
    assert quiet_until_ms([week], sunday_ms) == sunday_ms + 7 * 86_400_000

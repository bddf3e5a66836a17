"""What the strategy `ballast` promises, on random clusters under its own decisions."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.ideal_load import IdealLoadConfig
from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.plan.readings import readings_of
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_ideal_load import attainable_level
from lbcore.plan.shed.ballast_problem import round_of
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from tests.support.values.clusters import Sections, cluster_of, shed_view
from tests.support.worlds.closed_loop import Loop, loop_of

POINT = 1_000.0  # msg/s of one point in `cluster_of`
LOADS = st.sampled_from((0.0, 0.1, 0.5, 1.0, 3.0, 8.0)) | st.floats(0.01, 30.0)
CLUSTERS = st.lists(st.lists(LOADS, max_size=14), min_size=2, max_size=8)
CONFIGS = st.builds(
    IdealLoadConfig,
    low_hits=st.just(1),
    high_hits=st.just(1),
    tolerance_percent=st.sampled_from((5.0, 10.0, 25.0)),
    churn_budget=st.sampled_from((0.01, 0.09, 0.5, 1.0)),
)
SIZES = st.lists(st.sampled_from((0.5, 1.0, 1.0, 2.0, 4.0)), min_size=8, max_size=8)
CYCLE_MS = 60_000
EPSILON = 1e-6


def view_of(loads: list[list[float]], sizes: list[float], foreign: list[float]) -> ShedView:
    """Brokers of several sizes; usage is load by size, and what other processes take."""
    cluster = cluster_of({f"b{at}": [POINT * load for load in of] for at, of in enumerate(loads)})
    count = len(loads)
    capacity = np.array(sizes[:count])
    percent = cluster.brokers.percent / capacity[:, np.newaxis]
    percent[:, 0] += foreign[:count]
    brokers = replace(cluster.brokers, percent=percent, capacity=capacity)
    cluster = replace(cluster, brokers=brokers)
    return shed_view(cluster, percent[:, 0] / 100.0)


def traffic_after(view: ShedView, answer: Shed) -> np.ndarray:
    """Each broker's traffic in points of its own size once everything has moved."""
    owner = view.snapshot.bundles.owner.copy()
    for one in answer.selections:
        owner[one.rows] = one.destination
    readings = readings_of(view.snapshot, view.usage)
    return (
        np.bincount(owner, weights=readings.bundle, minlength=len(view.usage)) / readings.capacity
    )


@given(loads=CLUSTERS, sizes=SIZES, config=CONFIGS, foreign=st.booleans())
@settings(max_examples=200, deadline=None)
def test_receiver_never_ends_above_the_hottest_that_there_was(
    loads: list[list[float]], sizes: list[float], config: IdealLoadConfig, *, foreign: bool
) -> None:
    others = [50.0 if foreign and at % 3 == 0 else 0.0 for at in range(8)]
    view = view_of(loads, sizes, others)
    answer = shed_ballast(view, ShedState(), config)
    before, after = readings_of(view.snapshot, view.usage).traffic, traffic_after(view, answer)
    moved = [row for one in answer.selections for row in one.rows.tolist()]
    assert len(moved) == len(set(moved))
    for one in answer.selections:
        assert after[one.destination] <= before.max() + EPSILON
    if answer.selections:
        told = answer.numbers
        assert told["objective_bound"] <= told["objective_after"] + EPSILON
        assert told["objective_after"] < told["objective_before"]


@given(loads=CLUSTERS, sizes=SIZES, config=CONFIGS)
@settings(max_examples=150, deadline=None)
def test_round_moves_the_budget_and_one_bundle_at_most(
    loads: list[list[float]], sizes: list[float], config: IdealLoadConfig
) -> None:
    view = view_of(loads, sizes, [0.0] * 8)
    answer = shed_ballast(view, ShedState(), config)
    readings = readings_of(view.snapshot, view.usage)
    moved = [float(readings.bundle[row]) for one in answer.selections for row in one.rows.tolist()]
    cycle = round_of(view, ShedState(), config)
    worst = float((cycle.away * readings.capacity).max())  # points of capacity 1, as the bundles'
    budget = max(config.churn_budget * float(readings.bundle.sum()), worst)
    assert sum(moved) <= budget + max(moved, default=0.0) + EPSILON


@given(loads=CLUSTERS, sizes=SIZES, noise=st.lists(st.floats(-1, 1), min_size=8, max_size=8))
@settings(max_examples=150, deadline=None)
def test_cluster_within_the_tolerance_is_left_alone_however_often_it_is_seen(
    loads: list[list[float]], sizes: list[float], noise: list[float]
) -> None:
    even = [[10.0] * int(4 * size) for size in sizes[: len(loads)]]
    config = IdealLoadConfig(low_hits=1, high_hits=1)
    state = ShedState()
    for sign in (1.0, -1.0, 1.0):
        view = view_of(even, sizes, [sign * 3.5 * part for part in noise])
        answer = shed_ballast(view, state, config)
        state = answer.state
        assert answer.selections == ()


def ours(**changes: float) -> Sections:
    """Ballast's strategy, no bundle held back after a move: what stops it is the strategy."""
    return Sections(
        shedding=SheddingConfig(strategy="ballast", grace_period_ms=0, cool_down_ms=0),
        placement=PlacementConfig(strategy="ballast"),
        ideal_load=IdealLoadConfig(**{"low_hits": 1, "high_hits": 1, **changes}),
    )


def run(loop: Loop, cycles: int) -> list[int]:
    """The moves of each cycle, a report before each."""
    made = []
    for cycle in range(1, cycles + 1):
        loop.report(cycle * CYCLE_MS - 5_000)
        made.append(loop.cycle(cycle * CYCLE_MS))
    return made


@given(loads=CLUSTERS, budget=st.sampled_from((0.09, 0.5)))
@settings(max_examples=60, deadline=None)
def test_moves_end_and_the_spread_never_grows(loads: list[list[float]], budget: float) -> None:
    loop = loop_of(ours(churn_budget=budget), {f"b{at}": of for at, of in enumerate(loads)})
    spreads, made = [], []
    for cycle in range(1, 41):
        points = list(loop.true_points().values())
        spreads.append(sum(point * point for point in points))
        loop.report(cycle * CYCLE_MS - 5_000)
        made.append(loop.cycle(cycle * CYCLE_MS))
    assert all(later <= before + EPSILON for before, later in pairwise(spreads))
    assert not any(made[-10:])


@given(loads=CLUSTERS, sizes=SIZES)
@settings(max_examples=200, deadline=None)
def test_level_lies_between_the_coldest_and_the_hottest(
    loads: list[list[float]], sizes: list[float]
) -> None:
    view = view_of(loads, sizes, [0.0] * 8)
    readings = readings_of(view.snapshot, view.usage)
    level = attainable_level(view, readings)
    assert readings.traffic.min() - EPSILON <= level <= readings.traffic.max() + EPSILON


@given(size=st.integers(2, 12), bundles=st.integers(4, 20), load=st.floats(0.5, 4.0))
@settings(max_examples=40, deadline=None)
def test_restarted_broker_is_not_left_idle(size: int, bundles: int, load: float) -> None:
    loop = loop_of(ours(), {"back": [], **{f"b{at}": [load] * bundles for at in range(size)}})
    run(loop, 20)
    level = size * bundles * load / (size + 1)
    assert loop.true_points()["back"] >= 0.75 * level - load


@given(size=st.integers(2, 6), hot=st.floats(20.0, 90.0))
@settings(max_examples=40, deadline=None)
def test_lone_hot_bundle_stays_and_its_neighbours_make_room(size: int, hot: float) -> None:
    loop = loop_of(
        ours(), {"b0": [hot, 1.0, 1.0], **{f"b{at}": [1.0] * 5 for at in range(1, size)}}
    )
    made = run(loop, 20)
    assert loop.owner["t/n/b0-000"] == "b0"
    assert sum(made) <= 2
    assert loop.true_points()["b0"] == hot

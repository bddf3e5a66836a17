"""Properties of every plan, of `ballast` and of fitted costs."""

import json
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig, TransferConfig
from lbcore.config.splitting import Splitting
from lbcore.packing import from_plain, to_plain
from lbcore.plan.decision import Decision, Kind, Plan, PlanState, Scope
from lbcore.plan.pending import placed_load
from lbcore.plan.planner import plan
from lbcore.plan.readings import readings_of
from lbcore.plan.registry import PLACEMENT_STRATEGIES, SHEDDING_STRATEGIES
from lbcore.plan.shed.ballast import shed_ballast
from lbcore.plan.shed.ballast_problem import measure_round
from lbcore.plan.shed.common import Shed, ShedState, ShedView
from lbcore.plan.snapshot import Snapshot
from lbcore.signals.cost import Costs, Evidence, fit_costs, with_reports
from lbcore.wire.fields import flushed
from tests.support.values.clusters import Sections, check_trace, cluster_of, shed_view
from tests.support.worlds.closed_loop import Loop, loop_of

CYCLE_MS = 10_000
RATES = st.sampled_from((0.0, 10.0, 500.0, 5_000.0, 20_000.0))


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to six brokers, some draining; bundles at rest, at work, pinned or without an owner."""
    count = draw(st.integers(1, 6))
    bundles = {f"b{at}": draw(st.lists(RATES, max_size=9)) for at in range(count)}
    cluster = cluster_of(bundles)
    size = len(cluster.bundles.names)
    owner = cluster.bundles.owner.copy()
    is_lost = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)), dtype=np.bool_)
    owner[is_lost & (np.arange(size) % 4 == 0)] = -1
    at_rest = draw(st.lists(st.booleans(), min_size=size, max_size=size))
    pins = draw(st.lists(st.integers(-6, count - 1), min_size=size, max_size=size))
    draining = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    rows = cluster.brokers
    return replace(
        cluster,
        brokers=replace(
            rows,
            is_draining=np.array(draining, dtype=np.bool_),
            weighted_max_ema=rows.percent[:, 0] / 100,
            throughput_ema=rows.traffic[:, 2],
        ),
        bundles=replace(
            cluster.bundles,
            owner=owner,
            can_move=(np.array(at_rest, dtype=np.bool_) | (np.arange(size) % 3 > 0)) & (owner >= 0),
            pin=np.maximum(np.array(pins, dtype=np.int64), -1),
        ),
    )


@st.composite
def configs(draw: st.DrawFn) -> Sections:
    """Any strategy, acting soon, with tight limits now and then."""
    shedding = SheddingConfig(
        strategy=draw(st.sampled_from(sorted(SHEDDING_STRATEGIES))),
        avg_low_hits=1,
        min_throughput_mib_per_s=0,
        min_unload_rate_msg_per_s=10,
        lower_boundary=draw(st.booleans()),
        multi_hit=draw(st.booleans()),
        max_moves_per_cycle=draw(st.sampled_from((-1, 0, 2))),
        max_moves_per_broker=draw(st.sampled_from((-1, 1))),
        max_drains_in_flight=3,
        grace_period_ms=draw(st.sampled_from((0, 60_000))),
    )
    return Sections(
        shedding=shedding,
        transfer=TransferConfig(hit_count_threshold=0, target_std=0.05),
        placement=PlacementConfig(strategy=draw(st.sampled_from(sorted(PLACEMENT_STRATEGIES)))),
        splitting=Splitting(enabled=False),
    )


def after(cluster: Snapshot, decisions: tuple[Decision, ...], at_ms: int) -> Snapshot:
    """The cluster when everything was carried out, with newer reports of the old load."""
    number = {name: at for at, name in enumerate(cluster.brokers.names)}
    owner = cluster.bundles.owner.copy()
    rows = {name: row for row, name in enumerate(cluster.bundles.names)}
    for one in decisions:
        owner[rows[one.bundle]] = number.get(one.destination, -1)
    brokers = len(cluster.brokers.names)
    return replace(
        cluster,
        brokers=replace(cluster.brokers, updated_at_ms=np.full(brokers, at_ms)),
        bundles=replace(cluster.bundles, owner=owner),
    )


def check(cluster: Snapshot, decisions: tuple[Decision, ...], config: Sections) -> None:
    """No decision touches what it must not."""
    brokers, bundles = cluster.brokers, cluster.bundles
    rows = {name: row for row, name in enumerate(bundles.names)}
    number = {name: at for at, name in enumerate(brokers.names)}
    assert len({one.bundle for one in decisions}) == len(decisions)
    for one in decisions:
        row = rows[one.bundle]
        assert bundles.can_move[row], one
        assert brokers.names[bundles.owner[row]] == one.source != one.destination
        if one.reason != "Pinned":
            assert not brokers.is_draining[number[one.destination]]
        if one.kind is Kind.DRAIN:
            assert brokers.is_draining[number[one.source]]
    balanced = [one for one in decisions if one.kind is Kind.TRANSFER and one.reason != "Pinned"]
    cap = config.shedding.max_moves_per_cycle
    assert cap == -1 or len(balanced) <= cap
    leaving = Counter(one.source for one in decisions if one not in balanced)
    assert max(leaving.values(), default=0) <= config.shedding.max_drains_in_flight


@given(cluster=clusters(), config=configs())
@settings(max_examples=600, deadline=None)
def test_plan_never_touches_what_it_must_not(cluster: Snapshot, config: Sections) -> None:
    state = PlanState()
    for cycle in range(1, 4):
        scope = Scope(is_traced=cycle == 2)
        answer, later = plan(cluster, state, config, cycle * CYCLE_MS, scope)
        again, _ = plan(cluster, state, config, cycle * CYCLE_MS)
        decisions = answer.decisions if isinstance(answer, Plan) else ()
        assert decisions == (again.decisions if isinstance(again, Plan) else ())
        check(cluster, decisions, config)
        check_trace(answer.trace, cluster)
        row = json.dumps(to_plain(later))  # compared as text: a NaN in it equals no other
        state = from_plain(PlanState, json.loads(row))
        assert json.dumps(to_plain(state)) == row
        cluster = after(cluster, decisions, cycle * CYCLE_MS + 5_000)


TRAFFIC = (0.0, 5e-324, 1e-310, 1e-12, 1e-9, 1.0, 1e18)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), percent=st.sampled_from((0.0, 1e-30, 50.0, 1e29)))
def test_expected_load_is_finite_whatever_traffic_is_reported(
    data: st.DataObject, percent: float
) -> None:
    cluster = cluster_of({"b1": [1.0, 1.0], "b2": [1.0]})
    brokers, bundles = len(cluster.brokers.names), len(cluster.bundles.names)
    values = st.lists(st.sampled_from(TRAFFIC), min_size=4, max_size=4)
    reported = flushed(np.array([data.draw(values) for _ in range(brokers)]))
    short = flushed(np.array([data.draw(values) for _ in range(bundles)]))
    cluster = replace(
        cluster,
        brokers=replace(
            cluster.brokers,
            traffic=reported,
            percent=np.full_like(cluster.brokers.percent, percent),
        ),
        bundles=replace(cluster.bundles, short=short, long=short),
    )
    usage = cluster.brokers.percent[:, 0] / 100
    with np.errstate(over="raise", divide="raise", invalid="raise"):
        added = placed_load(cluster, np.arange(bundles), np.zeros(bundles, dtype=np.int64))
        readings = readings_of(cluster, usage, lags=True)
    assert np.isfinite(added).all()
    assert np.isfinite(readings.hot).all()
    assert np.isfinite(readings.cold).all()


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
CYCLE_MS_OF_BALLAST = 60_000
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
    cycle = measure_round(view, ShedState(), config)
    worst = float(
        (cycle.deviation * readings.capacity).max()
    )  # points of capacity 1, as the bundles'
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
        loop.report(cycle * CYCLE_MS_OF_BALLAST - 5_000)
        made.append(loop.cycle(cycle * CYCLE_MS_OF_BALLAST))
    return made


@given(loads=CLUSTERS, budget=st.sampled_from((0.09, 0.5)))
@settings(max_examples=60, deadline=None)
def test_moves_end_and_the_spread_never_grows(loads: list[list[float]], budget: float) -> None:
    loop = loop_of(ours(churn_budget=budget), {f"b{at}": of for at, of in enumerate(loads)})
    spreads, made = [], []
    for cycle in range(1, 41):
        points = list(loop.true_points().values())
        spreads.append(sum(point * point for point in points))
        loop.report(cycle * CYCLE_MS_OF_BALLAST - 5_000)
        made.append(loop.cycle(cycle * CYCLE_MS_OF_BALLAST))
    assert all(later <= before + EPSILON for before, later in pairwise(spreads))
    assert not any(made[-10:])


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


SEEDS = st.integers(0, 2**32 - 1)


def reports(seed: int, count: int = 20) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Capacity, messages and bytes a second of so many reports."""
    drawn = np.random.default_rng(seed)
    messages = drawn.uniform(100.0, 40_000.0, count)
    return drawn.choice([1.0, 2.0], count), messages, messages * drawn.uniform(20.0, 4_000.0, count)


def fitted(cpu: np.ndarray, *columns: np.ndarray) -> Costs | None:
    """The costs that so many reports give, seen at once."""
    return fit_costs(with_reports(Evidence(), np.stack([cpu, *columns], axis=1)))


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([(3.0, 0.002, 1e-7), (0.0, 0.001, 0.0), (5.0, 0.0, 2e-7)]))
def test_costs_that_made_the_cpu_are_found_again(
    seed: int, truth: tuple[float, float, float]
) -> None:
    capacity, messages, volume = reports(seed)
    idle, per_message, per_byte = truth
    cpu = idle + (per_message * messages + per_byte * volume) / capacity
    found = fitted(cpu, capacity, messages, volume)
    assert found is not None
    assert (found.idle, found.per_message, found.per_byte) == pytest.approx(
        truth, rel=1e-4, abs=1e-6
    )
    assert found.explained == pytest.approx(1.0, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_no_cost_is_negative_whatever_is_reported(seed: int) -> None:
    capacity, messages, volume = reports(seed)
    cpu = np.random.default_rng(seed + 1).uniform(0.0, 100.0, len(capacity))
    found = fitted(cpu, capacity, messages, volume)
    assert found is not None
    assert min(found.idle, found.per_message, found.per_byte) >= 0.0
    assert 0.0 <= found.explained <= 1.0


def test_two_reports_say_nothing() -> None:
    two = np.ones(2)
    assert fitted(two, two, two, two) is None

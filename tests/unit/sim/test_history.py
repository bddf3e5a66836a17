"""A run beside the least that was possible: recorded and simulated, by worked examples."""

from itertools import product
from typing import Any

import pytest

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.bounds import attainable_results, compare_run_with_bound, first_owners
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.load.recording import COLUMNS, make_recording
from lbcore.sim.reports.backtest import (
    backtest_scenario,
    compare_history_with_bound,
    make_history,
    recorded_metrics,
    run_cost,
)
from lbcore.sim.scenario.parse import parse_scenario

BUNDLES = [f"t/n/0x{at:08x}_0x{at + 0x10000000:08x}" for at in range(0, 0x40000000, 0x10000000)]


def row(minute: int, broker: str, bundles: list[str], rate: float) -> dict[str, Any]:
    count = len(bundles)
    return {
        "minute_ms": minute * 60_000,
        "broker": broker,
        "percent": [],
        "bundles": bundles,
        "msg_rate_in": [rate] * count,
        "msg_rate_out": [0.0] * count,
    }


def test_run_is_held_against_what_its_bundles_could_have_been() -> None:
    """Three bundles of four on one broker of two: 1.5; from the second minute on two each."""
    rows = [row(1, "a", BUNDLES[:3], 10.0), row(1, "b", BUNDLES[3:], 10.0)]
    for minute in (2, 3, 4):
        rows += [row(minute, "a", BUNDLES[:2], 10.0), row(minute, "b", BUNDLES[2:], 10.0)]
    history = make_history(rows, {})
    found = compare_history_with_bound(history)
    assert found.imbalance == pytest.approx((1.5 + 3 * 1.0) / 4)
    assert found.bound == pytest.approx(1.0)
    assert found.over == pytest.approx((1.5 + 3 * 1.0) / 4)
    assert (found.above_ms, found.nobody_ms) == (60_000, 0)
    happened = recorded_metrics(history)
    assert happened["imbalance.mean"] == pytest.approx(found.imbalance)
    assert happened["moves"] == 1.0


def test_what_nobody_could_have_evened_is_told() -> None:
    """One bundle has all the load: 2 over two brokers, and no assignment is below."""
    rows = [row(minute, "a", BUNDLES[:1], 10.0) for minute in (1, 2)]
    rows += [row(minute, "b", [], 0.0) for minute in (1, 2)]
    found = compare_history_with_bound(make_history(rows, {}))
    assert found.bound == pytest.approx(2.0)
    assert found.over == pytest.approx(1.0)
    assert (found.above_ms, found.nobody_ms) == (120_000, 120_000)


def test_interval_lasts_until_the_next_one() -> None:
    """A recording of an interval each five minutes: the last is as long as the one before."""
    rows = [row(minute, "a", BUNDLES, 10.0) for minute in (5, 10)]
    rows += [row(minute, "b", [], 0.0) for minute in (5, 10)]
    assert compare_history_with_bound(make_history(rows, {})).above_ms == 600_000


@pytest.mark.parametrize(
    ("floor_adjusted", "moves", "bundles", "length_ms", "points"),
    [
        (1.25, 0, 100, 3_600_000.0, 25.0),
        (1.0, 10, 200, 1_800_000.0, 2.0),  # 5 % in half an hour
        (None, 0, 0, 1.0, 0.0),  # there was no load
    ],
)
def test_cost_is_percent_above_the_floor_and_a_price_for_moves(
    floor_adjusted: float | None, moves: float, bundles: int, length_ms: float, points: float
) -> None:
    assert run_cost(floor_adjusted, moves, bundles, length_ms) == pytest.approx(points)


def test_recorded_imbalance_is_that_of_the_worst_isolation_group() -> None:
    """Loads 20 and 20 beside 2 and 4, each pair a group: 1.33, and no bundle need be elsewhere."""
    rates = {"a": 20.0, "b": 20.0, "c": 2.0, "d": 4.0}
    rows = [
        {**row(1, name, [bundle], rate), "broker_group": "a" if name in "ab" else "c"}
        for (name, rate), bundle in zip(rates.items(), BUNDLES, strict=True)
    ]
    history = make_history(rows, {})
    found = compare_history_with_bound(history)
    assert found.imbalance == pytest.approx(4 / 3)
    assert found.bound == pytest.approx(4 / 3)
    assert recorded_metrics(history)["floor_adjusted.mean"] == pytest.approx(1.0)
    whole = compare_history_with_bound(
        make_history([{**one, "broker_group": ""} for one in rows], {})
    )
    assert whole.imbalance == pytest.approx(20 / 11.5)


def recorded(minute: int, broker: str, bundles: list[str], rate: float) -> dict[str, Any]:
    found = row(minute, broker, bundles, rate)
    extra = dict.fromkeys(COLUMNS[2:], found["msg_rate_in"]) | {"topics": [1.0] * len(bundles)}
    return {**found, **extra}


def test_backtest_begins_with_the_recorded_load_at_its_first_owners() -> None:
    rows = [
        recorded(minute, name, BUNDLES if name == home else [], 10.0)
        for minute, home in ((1, "b"), (2, "a"))
        for name in "ab"
    ]
    scenario = backtest_scenario(make_history(rows, {}), make_recording(rows), {})
    assert scenario.owners[0].brokers == ("b",)
    assert {spec.rate.value for spec in scenario.loads} == {1.0}


def test_backtest_keeps_bundles_in_their_isolation_groups() -> None:
    """As recorded: three bundles and one in each of two groups, the second nearly idle."""
    names = ("b-1", "b-2", "b-3", "b-4")
    spaces = ("t/busy-1", "t/idle-1")
    rows = []
    for minute, at in product(range(1, 11), range(4)):
        bundles = [one.replace("t/n", spaces[at // 2]) for one in BUNDLES]
        own = bundles[3:] if at % 2 else bundles[:3]
        found = recorded(minute, names[at], own, 1.0 if at > 1 else 2_000.0)
        rows.append({**found, "broker_group": names[at // 2 * 2]})
    scenario = backtest_scenario(make_history(rows, {}), make_recording(rows), {})
    run = run_scenario(scenario, Config())
    assert [len(group.brokers) for group in run.recorder.samples[-1].groups] == [2, 2]
    assert run.recorder.moves
    for move in (one.move for one in run.recorder.moves):
        assert names.index(move.source) // 2 == names.index(move.destination) // 2


UNEVEN = """\
brokers 2
namespace t/n bundles=100 topics=1
own t/n 0-89 b1
own t/n 90-99 b2
load t/n even 1pt each
set pipeline.trigger_ms=2000
run 5m
"""
HOT = """\
brokers 4
namespace t/n bundles=8 topics=1
own t/n all all
load t/n even 2pt each
load t/n topic 60pt bundles=0-0
set pipeline.trigger_ms=2000
run 5m
"""
STILL = "shedding.is_shedding=false"


def run_of(text: str, *settings: str) -> Run:
    scenario = parse_scenario(text)
    return run_scenario(scenario, parse_assignments(Config(), [*scenario.settings, *settings]))


def test_run_that_moves_nothing_is_above_where_somebody_could_have_been_below() -> None:
    run = run_of(UNEVEN, STILL)
    found = attainable_results(run)
    assert found.bound_p95 == pytest.approx(1.0)
    assert found.above_ms == 300_000
    assert found.nobody_ms == 0
    assert found.least == 30
    assert (found.report_moves, found.report_above_ms) == (30, 60_000)
    means = compare_run_with_bound(run)
    assert (means.imbalance, means.bound, means.over) == pytest.approx((1.8, 1.0, 1.8))


def test_bundle_that_is_more_than_a_fair_load_is_nobodys_fault() -> None:
    run = run_of(HOT, STILL)
    found, means = attainable_results(run), compare_run_with_bound(run)
    assert found.bound_p95 == pytest.approx(62 / 19, rel=0.01)
    assert found.nobody_ms == found.above_ms == 300_000
    assert found.least == 0
    assert means.bound == pytest.approx(62 / 19, rel=0.01)
    assert means.over == pytest.approx(1.0, abs=0.05)


def test_bundles_of_a_broker_that_is_gone_must_move() -> None:
    crash = UNEVEN.replace("run 5m", "at 60s crash b2\nrun 5m")
    assert attainable_results(run_of(crash, STILL)).least == 40


def test_run_that_split_is_held_against_single_topics() -> None:
    text = HOT.replace("topics=1", "topics=4").replace(" bundles=0-0", "")
    split = text.replace(
        "run 5m", "at 60s command split_bundle bundle=t/n/0x00000000_0x20000000\nrun 5m"
    )
    found = attainable_results(run_of(split, STILL))
    assert (found.least, found.report_moves) == (None, None)
    whole = attainable_results(run_of(text, STILL))
    assert found.bound_p95 is not None
    assert whole.bound_p95 is not None
    assert found.bound_p95 <= whole.bound_p95


def test_first_owners_are_those_before_all_moves() -> None:
    run = run_of(UNEVEN.replace("run 5m", "at 20s crash b2\nrun 90s"), STILL)
    assert set(run.recorder.owner.values()) == {"b1"}
    assert list(first_owners(run).values()).count("b2") == 10


GROUPS = """\
brokers 4
namespace t/busy bundles=40 topics=1
namespace t/idle bundles=4 topics=1
own t/busy 0-29 b1
own t/busy 30-39 b2
own t/idle 0-1 b3
own t/idle 2-3 b4
load t/busy even 2pt each
load t/idle even 1pt each
at 1s command set_isolation_policy policy=busy namespaces=t/busy, primary=b1,b2
at 1s command set_isolation_policy policy=idle namespaces=t/idle, primary=b3,b4
set pipeline.trigger_ms=2000
run 5m
"""


def test_bounds_are_those_of_the_isolation_groups() -> None:
    """60 and 20 beside 2 and 2: 1.5 within the busy group, and six moves for 1.2."""
    found = attainable_results(run_of(GROUPS, STILL))
    assert found.bound_p95 == pytest.approx(1.0)
    assert (found.above_ms, found.nobody_ms) == (300_000, 0)
    assert (found.least, found.report_moves, found.report_above_ms) == (6, 6, 60_000)


def test_even_groups_of_different_means_are_even() -> None:
    even = GROUPS.replace("0-29 b1", "0-19 b1").replace("30-39 b2", "20-39 b2")
    run = run_of(even, STILL)
    found = attainable_results(run)
    assert (found.above_ms, found.least, found.report_moves) == (0, 0, 0)
    assert measure_named(run, "imbalance.max") == pytest.approx(1.0)
    assert measure_named(run, "floor_adjusted.max") == pytest.approx(1.0)
    assert measure_named(run, "gap.max") == pytest.approx(0.0)
    assert measure_named(run, "highest.end") == pytest.approx(40.0)

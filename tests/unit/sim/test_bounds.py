"""What a run is held against: what nobody could, what nobody could know, and the rest."""

import pytest

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.sim.engine.engine import Run
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.judge.bounds import attainable_results, beside_bound, first_owners
from lbcore.sim.judge.measures import measure_named
from lbcore.sim.scenario.parse import parse_scenario

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
    means = beside_bound(run)
    assert (means.imbalance, means.bound, means.over) == pytest.approx((1.8, 1.0, 1.8))


def test_bundle_that_is_more_than_a_fair_load_is_nobodys_fault() -> None:
    run = run_of(HOT, STILL)
    found, means = attainable_results(run), beside_bound(run)
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

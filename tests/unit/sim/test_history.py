"""What a recorded run was beside the least that was possible, by worked examples."""

from itertools import product
from typing import Any

import pytest

from lbcore.config.tree import Config
from lbcore.sim.engine.scenario_run import run_scenario
from lbcore.sim.load.recording import COLUMNS, make_recording
from lbcore.sim.reports.backtest import (
    backtest_scenario,
    beside_least,
    make_history,
    run_cost,
    what_happened,
)

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
    found = beside_least(history)
    assert found.imbalance == pytest.approx((1.5 + 3 * 1.0) / 4)
    assert found.bound == pytest.approx(1.0)
    assert found.over == pytest.approx((1.5 + 3 * 1.0) / 4)
    assert (found.above_ms, found.nobody_ms) == (60_000, 0)
    happened = what_happened(history)
    assert happened["imbalance.mean"] == pytest.approx(found.imbalance)
    assert happened["moves"] == 1.0


def test_what_nobody_could_have_evened_is_told() -> None:
    """One bundle has all the load: 2 over two brokers, and no assignment is below."""
    rows = [row(minute, "a", BUNDLES[:1], 10.0) for minute in (1, 2)]
    rows += [row(minute, "b", [], 0.0) for minute in (1, 2)]
    found = beside_least(make_history(rows, {}))
    assert found.bound == pytest.approx(2.0)
    assert found.over == pytest.approx(1.0)
    assert (found.above_ms, found.nobody_ms) == (120_000, 120_000)


def test_interval_lasts_until_the_next_one() -> None:
    """A recording of an interval each five minutes: the last is as long as the one before."""
    rows = [row(minute, "a", BUNDLES, 10.0) for minute in (5, 10)]
    rows += [row(minute, "b", [], 0.0) for minute in (5, 10)]
    assert beside_least(make_history(rows, {})).above_ms == 600_000


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
    found = beside_least(history)
    assert found.imbalance == pytest.approx(4 / 3)
    assert found.bound == pytest.approx(4 / 3)
    assert what_happened(history)["floor_adjusted.mean"] == pytest.approx(1.0)
    whole = beside_least(make_history([{**one, "broker_group": ""} for one in rows], {}))
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

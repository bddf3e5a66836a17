"""Known pathologies of strategies: the one that fails, and the one that doesn't.

From the documents that led to AvgShedder (Pulsar PIP-364, issues 17456, 18173, 18215) and from the
balancers of other systems. Each text shows true loads after each plan.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from lbcore.config.placement import PlacementConfig
from lbcore.config.pulsar_keys import from_pulsar_keys
from lbcore.config.shedding import IdealLoadConfig, SheddingConfig
from lbcore.config.tree import Config
from lbcore.plan.shed.avg import shed_avg
from lbcore.plan.shed.common import ShedState
from lbcore.signals.averages import ema_step
from tests.conftest import Golden
from tests.support.values.clusters import Sections, cluster_of, shed_view
from tests.support.worlds.closed_loop import Loop, loop_of, run_minutes


def pulsar(strategy: str, **keys: Any) -> Config:
    """Pulsar 4.0.8's behaviour: every cycle counts, moves under way are not counted."""
    given = {"loadBalancerLoadSheddingStrategy": strategy, **keys}
    config, _ = from_pulsar_keys(given)
    return config


def ours(strategy: str, **changes: Any) -> Sections:
    """Ballast's own rules with a strategy; placement is avg for all but ballast."""
    placement = PlacementConfig(strategy="ballast" if strategy == "ballast" else "avg")
    return Sections(shedding=SheddingConfig(strategy=strategy, **changes), placement=placement)


def spread(loop: Loop) -> float:
    """Hottest minus coldest broker, points."""
    points = loop.true_points().values()
    return max(points) - min(points)


def two_brokers(config: Config) -> Loop:
    """True load 90 and 10, in bundles of one point."""
    return loop_of(config, {"hot": [1.0] * 90, "cold": [1.0] * 10})


def test_equalising_by_smoothed_scores_moves_far_more_than_is_left() -> None:
    true, smoothed = np.array([90.0, 10.0]), np.array([90.0, 10.0])
    moves = []
    for cycle in range(3):
        smoothed = ema_step(smoothed, true, 0.9) if cycle else smoothed
        moves.append(float(smoothed[0] - smoothed[1]) / 2)
        true = true + np.array([-moves[-1], moves[-1]])
    assert moves == pytest.approx([40.0, 36.0, 28.8])
    assert smoothed == pytest.approx([78.8, 21.2])
    assert true[0] < 0


def test_threshold_with_smoothed_scores_unloads_past_the_balance(golden: Golden) -> None:
    loop = run_minutes(two_brokers(pulsar("ThresholdShedder")), 6)
    golden.check("smoothed_scores_threshold_pulsar", loop.text())
    assert loop.true_points()["hot"] < loop.true_points()["cold"] - 20


@pytest.mark.parametrize("strategy", ["threshold", "avg", "ballast"])
def test_adjusted_load_stops_at_the_balance(golden: Golden, strategy: str) -> None:
    loop = run_minutes(two_brokers(ours(strategy)), 12)
    golden.check(f"smoothed_scores_{strategy}_ours", loop.text())
    assert loop.true_points()["hot"] >= loop.true_points()["cold"]
    assert spread(loop) <= 20


def storm(config: Config) -> Loop:
    """Decide at 60 s; the report of 65 s still shows the load before; decide at 120 s."""
    loop = two_brokers(config)
    before = loop.true_points()
    loop.report(55_000)
    loop.cycle(60_000, lands=False)
    loop.seen, loop.seen_ms = before, 65_000
    loop.land()
    loop.cycle(120_000)
    return loop


STORM = {"maxUnloadPercentage": 0.5, "loadBalancerAvgShedderHitCountHighThreshold": 1}


def test_stale_report_makes_pulsars_rule_move_twice(golden: Golden) -> None:
    loop = storm(pulsar("AvgShedder", **STORM))
    golden.check("stale_report_avg_pulsar", loop.text())
    assert loop.moves > 41
    assert loop.true_points()["hot"] < 20


def test_stale_report_is_not_acted_upon_by_ours(golden: Golden) -> None:
    loop = storm(ours("avg", avg_high_hits=1))
    golden.check("stale_report_avg_ours", loop.text())
    assert loop.moves == 40
    assert loop.true_points() == {"hot": 50.0, "cold": 50.0}


@pytest.mark.parametrize("strategy", ["avg", "threshold", "uniform", "overload", "ballast"])
def test_second_plan_before_the_first_is_reported_does_not_overshoot(strategy: str) -> None:
    config = ours(strategy, avg_high_hits=1, rate_difference_percent=50)
    config = replace(config, ideal_load=IdealLoadConfig(high_hits=1))
    loop = two_brokers(config)
    loop.report(9_000)
    first = loop.cycle(10_000, lands=False)
    assert first > 0
    for now_ms in (20_000, 30_000, 40_000):
        loop.seen_ms = now_ms - 1_000
        loop.cycle(now_ms, lands=False)
    slack = 2.0 if strategy == "uniform" else 0.0
    assert loop.true_points()["hot"] >= loop.true_points()["cold"] - slack


@pytest.mark.parametrize("hottest", [(0, 1, 0), (1, 0, 1), (0, 0, 1), (1, 1, 1)])
def test_alternating_hottest_fires_on_the_third_hit_of_the_coldest(
    hottest: tuple[int, ...],
) -> None:
    config = SheddingConfig(avg_low_hits=3, avg_high_hits=9)
    state, fired = ShedState(), []
    cluster = cluster_of({"b1": [1_000.0] * 80, "b2": [1_000.0] * 80, "b3": [1_000.0] * 20})
    for hot in hottest:
        usage = np.array([0.80, 0.80, 0.20])
        usage[hot] += 0.01
        answer = shed_avg(shed_view(cluster, usage), state, config)
        state = answer.state
        fired.append([cluster.brokers.names[one.source] for one in answer.selections])
    assert fired == [[], [], [f"b{hottest[2] + 1}"]]


def all_at_ninety(config: Config) -> Loop:
    """Four brokers, all at 90."""
    return loop_of(config, {f"b{at}": [3.0] * 30 for at in range(4)})


def test_all_overloaded_overload_sheds_everywhere_for_nothing(golden: Golden) -> None:
    loop = run_minutes(all_at_ninety(pulsar("OverloadShedder")), 3)
    golden.check("all_at_90_overload", loop.text())
    assert loop.moves > 0


@pytest.mark.parametrize("strategy", ["ThresholdShedder", "UniformLoadShedder", "AvgShedder"])
def test_all_overloaded_the_others_move_nothing(strategy: str) -> None:
    loop = run_minutes(all_at_ninety(pulsar(strategy)), 10)
    assert loop.moves == 0


def test_all_overloaded_overload_with_multi_hit_moves_nothing() -> None:
    loop = run_minutes(all_at_ninety(ours("overload", multi_hit=True)), 10)
    assert loop.moves == 0


G2 = {"b1": [1.0] * 12, "b2": [1.0] * 2, "b3": [1.0], "b4": [1.0]}
G3 = {**{f"b{at}": [2.0] * 25 for at in range(5)}, "new": []}
G4 = {**{f"b{at:02d}": [2.0] * 40 for at in range(10)}, "new": []}


@pytest.mark.parametrize(("name", "bundles"), [("G2", G2), ("G3", G3), ("G4", G4)])
def test_distance_to_the_average_never_reaches_the_threshold(
    golden: Golden, name: str, bundles: dict[str, list[float]]
) -> None:
    loop = run_minutes(loop_of(pulsar("ThresholdShedder"), bundles), 8)
    golden.check(f"{name}_threshold", loop.text())
    assert loop.moves == 0


@pytest.mark.parametrize("strategy", ["uniform", "ballast"])
def test_g2_ratio_is_seen(golden: Golden, strategy: str) -> None:
    loop = run_minutes(loop_of(ours(strategy), G2), 8)
    golden.check(f"G2_{strategy}", loop.text())
    assert loop.true_points()["b1"] <= 7


@pytest.mark.parametrize(("name", "bundles"), [("G3", G3), ("G4", G4)])
@pytest.mark.parametrize("strategy", ["avg", "uniform", "ballast"])
def test_new_empty_broker_is_filled(
    golden: Golden, name: str, bundles: dict[str, list[float]], strategy: str
) -> None:
    loop = run_minutes(loop_of(ours(strategy), bundles), 20)
    golden.check(f"{name}_{strategy}", loop.text())
    assert loop.true_points()["new"] >= 20
    assert spread(loop) < 60


def test_new_empty_broker_is_filled_by_the_lower_boundary(golden: Golden) -> None:
    loop = run_minutes(loop_of(ours("threshold", lower_boundary=True), G4), 20)
    golden.check("G4_threshold_lower_boundary", loop.text())
    assert loop.true_points()["new"] >= 20


G7 = {"b10": [1.0] * 10, "b50": [1.0] * 50, "b70": [0.1] * 20}
FOREIGN = {"b70": 68.0}


@pytest.mark.parametrize("strategy", ["ThresholdShedder", "AvgShedder"])
def test_load_of_another_process_blinds_the_strategy(golden: Golden, strategy: str) -> None:
    loop = run_minutes(loop_of(pulsar(strategy), G7, FOREIGN), 8)
    golden.check(f"G7_{strategy}", loop.text())
    assert loop.true_points()["b50"] == pytest.approx(50.0, abs=2.5)


@pytest.mark.parametrize("strategy", ["uniform", "ballast"])
def test_load_of_another_process_does_not_keep_it_from_relieving(
    golden: Golden, strategy: str
) -> None:
    loop = run_minutes(loop_of(ours(strategy), G7, FOREIGN), 8)
    golden.check(f"G7_{strategy}", loop.text())
    assert loop.true_points()["b50"] < 40

"""What tuning weighs: steps of settings within their ranges, costs, and what is noise."""

import math

import pytest

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.plan.shed.registry import AVG_SHEDDER, SHEDDERS
from lbcore.plan.shed.strategy import Shedding
from lbcore.sim.reports.tuning import gain, imbalance_cost, move_cost, steps
from lbcore.validation.check import require_suitable


def test_steps_are_half_and_double_within_the_range() -> None:
    config = parse_assignments(Config(), ["shedding.max_unload_fraction=0.8"])
    found = set(steps(config, AVG_SHEDDER))
    assert {"shedding.avg_low_hits=4", "shedding.avg_low_hits=16"} <= found
    assert {"shedding.max_unload_fraction=0.4", "shedding.max_unload_fraction=1"} <= found
    assert (
        f"shedding.keep_destination={str(not Config().shedding.keep_destination).lower()}" in found
    )
    assert not any(one.startswith("signals.") for one in found)


def test_large_numbers_stay_exact() -> None:
    found = [parse_assignments(Config(), [one]).shedding for one in steps(Config(), AVG_SHEDDER)]
    assert 2_097_152.0 in {one.min_unload_throughput_bytes_per_s for one in found}


def test_setting_at_its_end_goes_one_way_only() -> None:
    config = parse_assignments(Config(), ["shedding.avg_high_hits=1"])
    found = [one for one in steps(config, AVG_SHEDDER) if "avg_high_hits" in one]
    assert found == ["shedding.avg_high_hits=2"]


@pytest.mark.parametrize("shedder", SHEDDERS, ids=lambda one: one.name)
def test_each_step_alone_can_be_set(shedder: Shedding) -> None:
    base = parse_assignments(
        Config(),
        [
            f"shedding.strategy={shedder.name}",
            f"placement.strategy={shedder.usual_placement}",
        ],
    )
    for step in steps(base, shedder):
        assert parse_assignments(base, [step]) != base
    assert require_suitable(base) == base


def test_costs_are_points() -> None:
    assert imbalance_cost(1.25) == pytest.approx(25.0)
    assert imbalance_cost(None) == 0.0
    assert move_cost(moves=10, bundles=200, length_ms=1_800_000.0, price=2.0) == pytest.approx(20.0)
    assert move_cost(moves=0, bundles=0, length_ms=1.0, price=1.0) == 0.0


def test_same_gain_on_each_stretch_is_real_however_different_they_are() -> None:
    found = gain([50.0, 10.0, 30.0], [48.0, 8.0, 28.0])
    assert (found.points, found.noise, found.is_real) == (2.0, 0.0, True)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([50.0, 10.0, 30.0], [40.0, 20.0, 29.0]),  # now better, now worse
        ([50.0, 10.0, 30.0], [49.6, 9.6, 29.6]),  # sure, and not worth a change
        ([50.0, 10.0], [40.0, 0.0]),  # too few to say
        ([50.0, 10.0, 30.0], [52.0, 12.0, 32.0]),  # worse
    ],
)
def test_other_differences_are_not(before: list[float], after: list[float]) -> None:
    assert not gain(before, after).is_real
    assert math.isfinite(gain(before, after).points)

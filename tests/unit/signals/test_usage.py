"""Percentages in single precision, and usages."""

import numpy as np
import pytest

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import complete
from lbcore.signals.usage import (
    max_usage_reported,
    resource_percent,
    weighted_usage,
    weighted_usage_with_memory,
)
from tests.conformance.reference.load_models import max_usage_local
from tests.conformance.reference.pulsar_section import section_from_pulsar


@pytest.mark.parametrize(
    ("usage", "limit", "percent"),
    [
        (30, 100, 30.000001907348633),
        (60, 100, 60.000003814697266),
        (999, 1000, 99.9000015258789),
        (50, 100, 50.0),
        (150, 100, 150.0),
        (5, 0, 0.0),
        (5, -1, 0.0),
    ],
)
def test_percent_is_computed_in_single_precision(
    usage: float, limit: float, percent: float
) -> None:
    found = resource_percent(np.array([usage], dtype=float), np.array([limit], dtype=float))
    assert found.tolist() == [percent]


def test_local_maximum_leaves_the_heap_out_and_divides_in_single_precision() -> None:
    percent = np.array([complete([1.0, 400.0, 2.0, 3.0, 4.0])])
    assert max_usage_local(percent).tolist() == [0.03999999910593033]
    assert max_usage_reported(percent).tolist() == [0.04]


def test_weighted_usage_has_four_weights_and_the_reported_one_five() -> None:
    config = SignalsConfig(
        cpu_weight=0.5, memory_weight=0.01, direct_memory_weight=1, bandwidth_in_weight=0.1
    )
    percent = np.array([complete([80.0, 9_000.0, 30.0, 100.0, 20.0])])
    assert weighted_usage(percent, config).tolist() == [0.4]
    assert weighted_usage_with_memory(percent, config).tolist() == [0.9]


def test_nan_never_wins_a_maximum() -> None:
    percent = np.array([complete([np.nan, 0.0, 10.0, np.nan, 5.0])])
    assert weighted_usage(percent, SignalsConfig(direct_memory_weight=1)).tolist() == [0.1]


@pytest.mark.parametrize(
    ("keys", "weight"),
    [
        ({}, 1.0),
        ({"loadBalancerBandwidthInResourceWeight": 0.3}, 0.3),
        ({"loadBalancerBandwithInResourceWeight": 0.4}, 0.4),
        (
            {
                "loadBalancerBandwidthInResourceWeight": 1.0,
                "loadBalancerBandwithInResourceWeight": 0.4,
            },
            0.4,
        ),
        (
            {
                "loadBalancerBandwidthInResourceWeight": 0.3,
                "loadBalancerBandwithInResourceWeight": 0.4,
            },
            0.3,
        ),
    ],
)
def test_bandwidth_weight_of_the_right_spelling_wins_unless_it_is_one(
    keys: dict[str, float], weight: float
) -> None:
    assert section_from_pulsar(SignalsConfig, keys).bandwidth_in_weight == weight

"""Load signals: averages, orderings, report triggers, usages."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import RESOURCES, complete
from lbcore.signals.averages import (
    DEFAULT_TRAFFIC,
    LONG_SAMPLES,
    SHORT_SAMPLES,
    BundleAverages,
    inherited_averages,
    observe_bundles,
)
from lbcore.signals.broker_score import BrokerReports, cleared_scores, observe_reports
from lbcore.signals.ema import ema_step
from lbcore.signals.ordering import stats_order, top_bundles
from lbcore.signals.report_trigger import ReportedLoad, reported_load, should_report
from lbcore.signals.shown_load import usage_of, usages_of
from lbcore.signals.usage import (
    max_usage_reported,
    resource_percent,
    weighted_usage,
    weighted_usage_with_memory,
)
from tests.conformance.reference.load_models import (
    average_order,
    compare_rows,
    max_usage_local,
)


def averages_of(
    traffic: Sequence[Sequence[float]], short_count: int, long_count: int
) -> BundleAverages:
    """Averages of so many samples, a row a bundle."""
    bundles = len(traffic)
    return BundleAverages(
        short=np.array(traffic),
        short_count=np.full(bundles, short_count),
        long=np.array(traffic),
        long_count=np.full(bundles, long_count),
        topics=np.zeros(bundles, dtype=np.int64),
    )


def ample(*values: float) -> BundleAverages:
    """Averages of as many samples as their horizons have."""
    return averages_of([(value,) * 4 for value in values], SHORT_SAMPLES, LONG_SAMPLES)


def stats(*rows: float) -> np.ndarray:  # type: ignore[type-arg]
    """Bundle stats whose every column is the given number."""
    return np.array([[value] * 8 for value in rows])


def test_ema_step_weighs_history_and_sample() -> None:
    assert ema_step(np.array([0.9]), np.array([0.5]), 0.9).tolist() == [0.9 * 0.9 + (1 - 0.9) * 0.5]


def test_first_report_replaces_the_cleared_score() -> None:
    reports = BrokerReports(
        rows=np.array([1]),
        percent=np.array([complete([40.0])]),
        traffic=np.array([[1.0, 2.0, 30.0, 40.0]]),
        at_ms=np.array([5]),
    )
    scores = observe_reports(cleared_scores(2), reports, SignalsConfig())
    assert scores.weighted_max_ema.tolist() == [1.0, 0.4]
    assert scores.throughput_ema.tolist() == [0.0, 70.0]


def test_bundle_average_is_a_mean_and_then_exponential() -> None:
    averages = averages_of([DEFAULT_TRAFFIC], 0, 0)
    rows = np.array([0])
    for sample in range(1, 13):
        averages = observe_bundles(averages, rows, stats(float(sample)))
    assert averages.short_count.tolist() == [10]
    assert averages.long_count.tolist() == [12]
    assert averages.long[0, 0] == pytest.approx(6.5)
    tenth = 5.5
    expected = (9 * ((9 * tenth + 11) / 10) + 12) / 10
    assert averages.short[0, 0] == pytest.approx(expected)
    assert averages.topics.tolist() == [12]


def test_bundle_averages_of_other_rows_stay() -> None:
    before = averages_of([DEFAULT_TRAFFIC] * 3, 0, 0)
    after = observe_bundles(before, np.array([1]), stats(7.0))
    assert after.short[1].tolist() == [7.0] * 4
    assert after.short[[0, 2]].tolist() == before.short[[0, 2]].tolist()
    assert before.short_count.tolist() == [0, 0, 0]


def test_ample_history_weighs_a_sample_by_its_horizon() -> None:
    averages = observe_bundles(ample(100.0), np.array([0]), stats(200.0))
    assert averages.short[0, 0] == (9 * 100.0 + 200.0) / 10
    assert averages.long[0, 0] == (999 * 100.0 + 200.0) / 1000


def test_children_inherit_their_share_and_their_parents_history() -> None:
    parents = ample(10.0, 40.0)
    children = inherited_averages(parents, np.array([1, 1, 0]), np.array([0.25, 0.75, 1.0]))
    assert children.short[:, 0].tolist() == [10.0, 30.0, 10.0]
    assert children.long_count.tolist() == [1000, 1000, 1000]


def stats_ordering(**columns: float) -> list[float]:
    """A row of bundle stats."""
    names = ("rate_in", "rate_out", "in_", "out", "topics", "consumers", "producers", "cache")
    return [columns.get(name, 0.0) for name in names]


@pytest.mark.parametrize(
    ("left", "right", "of_stats", "of_averages"),
    [
        ({"rate_in": 149}, {"rate_in": 151}, -1, 0),
        ({"rate_in": 199}, {"rate_in": 201}, 0, -1),
        ({"in_": 100_001}, {"in_": 199_999}, -1, 0),
        ({"in_": 99_999}, {"in_": 100_001}, 0, -1),
        ({"in_": 300_000}, {"out": 900_000}, 1, 1),
        ({"topics": 200, "consumers": 50}, {"producers": 249}, 1, 0),
        ({"cache": 50_000}, {"cache": 49_999}, 1, 0),
        ({}, {}, 0, 0),
    ],
)
def test_orderings_round_and_truncate(
    left: dict[str, float], right: dict[str, float], of_stats: int, of_averages: int
) -> None:
    rows = np.array([stats_ordering(**left), stats_ordering(**right)])
    assert compare_rows(*stats_order(rows)) == of_stats
    assert compare_rows(*stats_order(rows[::-1])) == -of_stats
    assert compare_rows(*average_order(rows)) == of_averages


@pytest.mark.parametrize("limit", [0, 1, 3, 10, 99])
def test_top_list_is_the_heaviest_lightest_first(limit: int) -> None:
    rows = np.array([stats_ordering(in_=float(value) * 1e6) for value in (3, 1, 4, 15, 9, 2, 6)])
    top = rows[top_bundles(rows, limit)][:, 2]
    expected = sorted(rows[:, 2].tolist(), reverse=True)[:limit][::-1]
    assert top.tolist() == expected


LAST = ReportedLoad(usage=0.5, rate=1_000.0, throughput=1e6, bundles=100)
QUIET_MS = 1_000


@pytest.mark.parametrize(
    ("usage", "rate", "throughput", "bundles", "expected"),
    [
        (0.5, 1_000.0, 1e6, 100, False),
        (0.75, 1_000.0, 1e6, 100, True),
        (0.5, 1_100.0, 1e6, 100, False),
        (0.5, 1_101.0, 1e6, 100, True),
        (0.5, 1_000.0, 0.89e6, 100, True),
        (0.5, 1_000.0, 1e6, 89, True),
        (0.5, 1_000.0, 1e6, 90, False),
    ],
)
def test_report_is_published_on_a_change_above_the_threshold(
    usage: float, rate: float, throughput: float, bundles: int, *, expected: bool
) -> None:
    now = ReportedLoad(usage=usage, rate=rate, throughput=throughput, bundles=bundles)
    assert should_report(LAST, now, QUIET_MS, SignalsConfig()) is expected


def test_report_is_published_after_the_longest_interval() -> None:
    limit_ms = SignalsConfig().report_max_interval_ms
    assert not should_report(LAST, LAST, limit_ms, SignalsConfig())
    assert should_report(LAST, LAST, limit_ms + 1, SignalsConfig())


def test_report_of_something_where_nothing_was_is_published() -> None:
    idle = ReportedLoad(usage=0.0, rate=0.0, throughput=0.0, bundles=0)
    assert not should_report(idle, idle, QUIET_MS, SignalsConfig())
    first = ReportedLoad(usage=0.0, rate=0.001, throughput=0.0, bundles=0)
    assert should_report(idle, first, QUIET_MS, SignalsConfig())


def test_change_by_weight_does_not_see_a_resource_of_weight_0() -> None:
    """As the modular manager's getMaxResourceUsageWithWeight; the extensible one sees it."""
    percent, traffic = np.array(complete([10.0, 0.0, 80.0])), np.array([1.0, 2.0, 30.0, 40.0])
    by_weight = reported_load(percent, traffic, 5, SignalsConfig(report_by_weight=True))
    assert by_weight == ReportedLoad(usage=0.1, rate=3.0, throughput=70.0, bundles=5)
    assert reported_load(percent, traffic, 5, SignalsConfig()).usage == 0.8


def test_usage_of_many_brokers_is_that_of_each() -> None:
    chance = random.Random(3)
    rows = [[chance.uniform(0, 300) for _ in RESOURCES] for _ in range(50)]
    rows += [[], [70.0], [float("inf")] + [0.0] * (len(RESOURCES) - 1)]  # of older versions too
    for signals in (SignalsConfig(), SignalsConfig(cpu_weight=0.3, memory_weight=0.5)):
        assert usages_of(rows, signals) == [usage_of(row, signals) for row in rows]


def test_usage_of_no_broker_is_none_of_any() -> None:
    assert usages_of([], SignalsConfig()) == []


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

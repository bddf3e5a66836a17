"""Exponential averages, bundle averages and sums."""

from collections.abc import Sequence

import numpy as np
import pytest

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import complete
from lbcore.signals.averages import (
    DEFAULT_TRAFFIC,
    LONG_SAMPLES,
    SHORT_SAMPLES,
    BundleAverages,
    inherited_averages,
    observe_bundles,
)
from lbcore.signals.broker_score import (
    BrokerReports,
    cleared_scores,
    observe_reports,
)
from lbcore.signals.ema import ema_step
from tests.conformance.reference.load_models import broker_sums


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


def test_broker_sums_add_in_row_order_and_leave_unowned_out() -> None:
    values = np.array([[0.1] * 4, [0.2] * 4, [0.3] * 4, [DEFAULT_TRAFFIC[0]] * 4])
    sums = broker_sums(values, np.array([0, 0, 0, -1]), 2)
    assert sums[0].tolist() == [0.1 + 0.2 + 0.3] * 4
    assert sums[1].tolist() == [0.0] * 4

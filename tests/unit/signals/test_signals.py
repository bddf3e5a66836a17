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
from lbcore.signals.shown_load import usage_of, usages_of
from lbcore.signals.usage import ReportedLoad, reported_load, should_report


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

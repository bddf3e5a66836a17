"""Load signals: averages, orderings, report triggers, usages."""

from collections.abc import Sequence

import numpy as np

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


QUIET_MS = 1_000


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

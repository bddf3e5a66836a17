"""When a broker publishes its report."""

import numpy as np
import pytest

from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import complete
from lbcore.signals.report_trigger import ReportedLoad, reported_load, should_report

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

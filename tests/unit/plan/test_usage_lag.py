"""Usages that are a mean of the past minute, taken once a minute, while reports follow in seconds.

The gauges of a Pulsar broker, in virtual time: what is decided counts until they can show it.
"""

import numpy as np
import pytest

from lbcore.config.pipeline import Pipeline
from lbcore.config.shedding import SheddingConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.resources import complete
from lbcore.plan.pending import COLUMNS, SCALED, UnreportedLoad, unreported_arrays
from tests.support.values.clusters import Sections, broker_table
from tests.support.worlds.closed_loop import Loop, loop_of

MINUTE_MS, REPORT_MS, GAUGES_AT_MS = 60_000, 10_000, 20_000
GAUGES = SignalsConfig(usage_window_ms=MINUTE_MS)


def lagging_gauges(strategy: str, signals: SignalsConfig) -> Loop:
    """A broker at 90 beside two at 30; a report and a cycle every ten seconds.

    The gauges are read ten seconds after the first moves. A broker is judged once a minute, as
    with the overlay `pulsar`, and nothing that has moved has a rest.
    """
    shedding = SheddingConfig(
        strategy=strategy,
        avg_high_hits=1,
        cool_down_ms=0,
        role_cool_down_ms=0,
        grace_period_ms=0,
    )
    pipeline = Pipeline(hit_period_ms=MINUTE_MS)
    config = Sections(signals=signals, shedding=shedding, pipeline=pipeline)
    loop = loop_of(config, {"a": [1.5] * 60, "b": [1.5] * 20, "c": [1.5] * 20})
    past = [loop.true_points()] * 6
    for now_ms in range(REPORT_MS, 4 * MINUTE_MS, REPORT_MS):
        past.append(loop.true_points())
        if now_ms % MINUTE_MS == GAUGES_AT_MS or not loop.usages:
            minute = past[-6:]
            loop.usages = {b: sum(one[b] for one in minute) / len(minute) for b in loop.names}
        loop.report(now_ms - 1)
        loop.cycle(now_ms)
    return loop


def moved_until(loop: Loop, until_ms: int) -> list[str]:
    """The cycles that moved something until then."""
    return [line for line in loop.lines[: until_ms // REPORT_MS] if "moved   0" not in line]


@pytest.mark.parametrize("strategy", ["avg", "overload"])
def test_move_counts_until_gauges_can_show_it_so_no_second_follows(strategy: str) -> None:
    assert len(moved_until(lagging_gauges(strategy, GAUGES), 3 * MINUTE_MS)) == 1
    assert len(moved_until(lagging_gauges(strategy, SignalsConfig()), 3 * MINUTE_MS)) > 1


@pytest.mark.parametrize(("age_ms", "left"), [(119_999, -40.0), (120_001, -20.0)])
def test_usages_are_doubted_only_when_they_are_all_of_the_time_since(
    age_ms: int, left: float
) -> None:
    line = (90.0, *(0.0,) * (COLUMNS - 1))
    load = (-40.0, *(0.0,) * (SCALED - 1), -400.0, *(0.0,) * (COLUMNS - SCALED - 1))
    known = UnreportedLoad(report_ms=1_000, shown=line, load=load, busy_ms=1_000)
    percent, at_ms = np.array([complete([90.0])]), np.array([1_000 + age_ms])
    brokers = broker_table(["b"], percent=percent, updated_at_ms=at_ms)
    found = unreported_arrays({"b": known}, brokers, np.zeros(1, dtype=np.bool_), 0.5, 120_000)
    assert (found[0, 0], found[0, SCALED]) == (left, -200.0)

"""How far each broker is from shedding, strategy by strategy."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from lbcore.config.placement import PlacementConfig
from lbcore.config.shedding import SheddingConfig
from lbcore.config.transfer import TransferConfig
from lbcore.plan.decision import Plan, PlanState, Scope, Skip
from lbcore.plan.planner import plan
from lbcore.plan.registry import SHEDDING_STRATEGIES
from lbcore.plan.trace import GaugeRows, Trace
from tests.support.values.clusters import Sections, cluster_of

CYCLE_MS = 10_000
FULL = {"cold": [1_000.0] * 10, "hot": [9_000.0] * 10, "mild": [3_000.0] * 10}
HOT = {"cold": [1_000.0] * 10, "hot": [6_000.0] * 10, "mild": [3_000.0] * 10}


def traced(cycles: int, strategy: str, **settings: object) -> tuple[Trace, bool]:
    """The trace of the last of some cycles, and whether it decided something."""
    (*_, answer) = itertools.islice(answers(HOT, strategy, **settings), cycles)
    return answer.trace, isinstance(answer, Plan)


def answers(
    bundles: Mapping[str, Sequence[float]], strategy: str, **settings: object
) -> Iterator[Plan | Skip]:
    """What cycle after cycle answers, on fresh reports of loads that never change."""
    config, state = config_of(strategy, **settings), PlanState()
    for cycle in itertools.count(1):
        seen = cluster_of(bundles)
        usage = seen.brokers.percent[:, 0] / 100
        seen = replace(
            seen,
            brokers=replace(
                seen.brokers,
                updated_at_ms=np.full(len(usage), cycle * CYCLE_MS - 5),
                weighted_max_ema=usage,
                throughput_ema=seen.brokers.traffic.sum(axis=1),
            ),
        )
        answer, state = plan(seen, state, config, cycle * CYCLE_MS, Scope(is_traced=True))
        yield answer


def config_of(strategy: str, **settings: object) -> Sections:
    return Sections(
        shedding=SheddingConfig(strategy=strategy, min_throughput_mib_per_s=0.0, **settings),
        transfer=TransferConfig(hit_count_threshold=3),
        placement=PlacementConfig(strategy=SHEDDING_STRATEGIES[strategy].usual_placement),
    )


def gauge_of(trace: Trace) -> GaugeRows:
    (found,) = (part for part in trace.parts if isinstance(part, GaugeRows))
    return found


def test_gauge_of_avg_counts_hits_of_the_pair_against_both_levels() -> None:
    trace, is_plan = traced(3, "avg", avg_high_threshold=60)
    rows = gauge_of(trace)
    hot = trace.brokers.index("hot")
    assert not is_plan
    assert rows.verdicts == ["", "too_few_hits", ""]  # mild stands alone, cold is the partner
    assert trace.brokers[rows.gauge.partner[hot]] == "cold"
    assert rows.gauge.number[hot] == pytest.approx(50.0)
    assert list(rows.gauge.of(hot)) == [
        {"threshold": 15, "hits": 3, "needed": 8},
        {"threshold": 60, "hits": 0, "needed": 2},
    ]


@pytest.mark.parametrize(
    ("strategy", "settings", "number", "threshold", "needed"),
    [
        ("threshold", {"threshold_percent": 40}, 60.0, 100 / 3 + 40, 1),
        ("overload", {"overloaded_threshold_percent": 85}, 60.0, 85.0, 1),
        ("overload", {"multi_hit": True, "overloaded_threshold_percent": 50}, 60.0, 50.0, 5),
        ("uniform", {"rate_difference_percent": 900, "throughput_ratio": 0}, 500.0, 900.0, 1),
        ("transfer", {}, 20.548, 25.0, 4),
    ],
)
def test_gauge_of_a_strategy_has_what_it_judges(
    strategy: str, settings: dict[str, object], number: float, threshold: float, needed: int
) -> None:
    trace, _ = traced(2, strategy, **settings)
    gauge = gauge_of(trace).gauge
    hot = trace.brokers.index("hot")
    level = next(iter(gauge.of(hot)))
    assert gauge.number[hot] == pytest.approx(number, rel=1e-3)
    assert level["threshold"] == pytest.approx(threshold)
    assert level["needed"] == needed


@pytest.mark.parametrize("multi_hit", [False, True])
@pytest.mark.parametrize("strategy", SHEDDING_STRATEGIES)
def test_strategy_acts_where_its_gauge_has_reached_a_level(
    strategy: str, *, multi_hit: bool
) -> None:
    cycles = list(itertools.islice(answers(FULL, strategy, multi_hit=multi_hit), 20))
    first = next((one for one in cycles if isinstance(one, Plan)), None)
    assert first is not None, f"{strategy} gives nothing in FULL: change it, so that it does"
    gauge = gauge_of(first.trace).gauge
    needed = (gauge.levels[0].needed, gauge.levels[-1].needed)
    told = SHEDDING_STRATEGIES[strategy].hits_needed(config_of(strategy, multi_hit=multi_hit))
    assert told == needed, (
        f"with multi_hit={multi_hit}, hits_needed of {strategy}'s record is not what its gauge "
        "counts: a rule that reads multi_hit has hits_needed=multi_hits, one that doesn't gives "
        "gauge_usage settings with it off"
    )
    givers = {first.trace.brokers.index(one.source) for one in first.decisions}
    reached = {
        giver
        for giver in givers
        for level in gauge.levels
        if gauge.number[giver] >= level.threshold[giver] - 1e-9
    }
    assert reached, (
        f"{strategy} has taken bundles, but no giver's number is at a threshold of the `gauge` of "
        "its record: make one by what it judges by (lbcore/plan/shed/gauge.py)"
    )


def test_decision_has_hits_thresholds_and_what_is_expected_of_it() -> None:
    config = Sections(shedding=SheddingConfig(strategy="avg", avg_low_hits=1))
    seen = cluster_of(HOT)
    answer, _ = plan(seen, PlanState(), config, CYCLE_MS)
    assert isinstance(answer, Plan)
    inputs = answer.decisions[0].inputs
    assert (inputs["hits_low"], inputs["hits_low_needed"], inputs["threshold_low"]) == (1, 1, 15)
    assert inputs["difference"] == pytest.approx(50.0)
    assert inputs["msg_rate"] == pytest.approx(6_000.0)
    assert inputs["source_usage"] == pytest.approx(0.6)
    moved = 0.06 * len(answer.decisions)
    assert inputs["source_usage_expected"] == pytest.approx(0.6 - moved)
    assert inputs["destination_usage_expected"] == pytest.approx(0.1 + moved)


def test_trace_changes_no_decision() -> None:
    config = Sections(shedding=SheddingConfig(strategy="avg", avg_low_hits=1))
    plain, state = plan(cluster_of(HOT), PlanState(), config, CYCLE_MS)
    traced_, same = plan(cluster_of(HOT), PlanState(), config, CYCLE_MS, Scope(is_traced=True))
    assert isinstance(plain, Plan)
    assert isinstance(traced_, Plan)
    assert plain.decisions == traced_.decisions
    assert state == same

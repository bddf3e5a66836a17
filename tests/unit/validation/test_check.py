"""Settings that don't suit each other are found, and the defaults and overlays suit."""

from typing import Any

import pytest

from lbcore.config.findings import UsageGaps
from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.validation.check import check_config, require_suitable

AVG: dict[str, dict[str, Any]] = {"shedding": {"strategy": "avg"}, "placement": {"strategy": "avg"}}
THRESHOLD = {
    "shedding": {"strategy": "threshold"},
    "placement": {"strategy": "least_long_term_message_rate"},
}


def findings(mapping: Any, gaps: UsageGaps | None = None) -> list[tuple[bool, str]]:
    found = check_config(parse_config(mapping), gaps)
    return [(item.is_error, item.problem.key) for item in found]


def test_check_of_the_defaults_finds_nothing() -> None:
    assert check_config(Config()) == ()


@pytest.mark.parametrize(
    ("mapping", "key"),
    [
        ({"shedding": {"strategy": "threshold"}}, "shedding.strategy"),
        ({"placement": {"strategy": "round_robin"}}, "placement.strategy"),
        ({"pipeline": {"clusters": []}}, "pipeline.clusters"),
        ({"pipeline": {"clusters": ["a", "a"]}}, "pipeline.clusters"),
        ({"pipeline": {"shed_interval_ms": 15_000}}, "pipeline.shed_interval_ms"),
        ({"pipeline": {"split_interval_ms": 5_000}}, "pipeline.split_interval_ms"),
        ({"ownership": {"broker_timeout_ms": 4_000}}, "ownership.broker_timeout_ms"),
        (
            {
                "ownership": {"fencing": "lease", "broker_timeout_ms": 20_000},
                "agent": {"heartbeat_interval_ms": 6_000},
            },
            "agent.heartbeat_interval_ms",
        ),
        (
            {
                "ownership": {
                    "tombstone_delay_ms": 30_000,
                    "in_flight_timeout_ms": 40_000,
                }
            },
            "ownership.tombstone_delay_ms",
        ),
        ({"cluster": {"authority": "external"}}, "ownership.in_flight_timeout_ms"),
        ({"signals": {"report_check_ms": 90_000}}, "signals.report_check_ms"),
        ({"signals": {"usage_window_ms": 300_000}}, "signals.usage_window_ms"),
    ],
)
def test_check_of_settings_that_must_not_start_is_an_error(mapping: Any, key: str) -> None:
    assert findings(mapping) == [(True, key)]
    with pytest.raises(ConfigError, match=key):
        require_suitable(parse_config(mapping))


@pytest.mark.parametrize(
    ("mapping", "key"),
    [
        ({"ownership": {"broker_timeout_ms": 8_000}}, "ownership.broker_timeout_ms"),
        ({"ownership": {"unload_timeout_ms": 10_000}}, "ownership.unload_timeout_ms"),
        (
            {"pipeline": {"trigger_ms": 20_000}, "ownership": {"broker_timeout_ms": 60_000}},
            "pipeline.trigger_ms",
        ),
        (
            {"ownership": {"fencing": "lease", "broker_timeout_ms": 10_500}},
            "ownership.broker_timeout_ms",
        ),
        ({"topics": {"report_retention_ms": 60_000}}, "topics.report_retention_ms"),
        (
            {**AVG, "shedding": {"strategy": "avg", "avg_low_threshold": 40}},
            "shedding.avg_low_threshold",
        ),
        (
            {**AVG, "shedding": {"strategy": "avg", "avg_high_threshold": 120}},
            "shedding.avg_high_threshold",
        ),
        ({**AVG, "shedding": {"strategy": "avg", "avg_low_hits": 2}}, "shedding.avg_low_hits"),
        (
            {**AVG, "shedding": {"strategy": "avg", "max_unload_fraction": 0.8}},
            "shedding.max_unload_fraction",
        ),
        (
            {**AVG, "shedding": {"strategy": "avg", "max_unload_fraction": 0}},
            "shedding.max_unload_fraction",
        ),
        ({"shedding": {"multi_hit": True}}, "shedding.multi_hit"),
        (
            {**THRESHOLD, "shedding": {"strategy": "threshold", "threshold_percent": -1}},
            "shedding.threshold_percent",
        ),
        (
            {
                **THRESHOLD,
                "shedding": {"strategy": "overload", "overloaded_threshold_percent": 150},
            },
            "shedding.overloaded_threshold_percent",
        ),
        (
            {
                **THRESHOLD,
                "shedding": {
                    "strategy": "uniform",
                    "rate_difference_percent": 0,
                    "throughput_ratio": 0,
                },
            },
            "shedding.rate_difference_percent",
        ),
        (
            {**THRESHOLD, "shedding": {"strategy": "uniform", "throughput_ratio": 1}},
            "shedding.throughput_ratio",
        ),
        (
            {
                **THRESHOLD,
                "placement": {
                    "strategy": "LeastResourceUsageWithWeight",
                    "usage_difference_percent": -5,
                },
            },
            "placement.usage_difference_percent",
        ),
        (
            {
                **THRESHOLD,
                "placement": {
                    "strategy": "least_resource_usage_with_weight",
                    "usage_difference_percent": 80,
                },
            },
            "placement.usage_difference_percent",
        ),
    ],
)
def test_check_of_settings_that_can_not_work_as_meant_is_a_warning(mapping: Any, key: str) -> None:
    assert findings(mapping) == [(False, key)]
    require_suitable(parse_config(mapping))


def test_check_accepts_avg_under_pulsars_name_for_both() -> None:
    pulsar = "org.apache.pulsar.broker.loadbalance.impl.AvgShedder"
    both = {"shedding": {"strategy": pulsar}, "placement": {"strategy": "avg"}}
    assert findings(both) == []


def test_check_of_a_strategy_that_does_not_exist_is_an_error() -> None:
    assert findings({"shedding": {"strategy": "averige"}, "placement": {"strategy": "x"}}) == [
        (True, "shedding.strategy"),
        (True, "placement.strategy"),
    ]


@pytest.mark.parametrize(
    ("gaps", "keys"),
    [
        (UsageGaps(message_rate_per_s=2_000), ["shedding.min_unload_rate_msg_per_s"]),
        (UsageGaps(message_rate_per_s=2_001), []),
        (UsageGaps(message_rate_per_s=100, throughput_bytes_per_s=2_097_153), []),
        (
            UsageGaps(message_rate_per_s=100, throughput_bytes_per_s=2_097_152),
            ["shedding.min_unload_rate_msg_per_s"],
        ),
        (UsageGaps(usage_points=14.9), ["shedding.avg_low_threshold"]),
        (UsageGaps(usage_points=15), []),
    ],
)
def test_check_against_observed_differences_warns_when_nothing_could_be_shed(
    gaps: UsageGaps, keys: list[str]
) -> None:
    assert findings(AVG, gaps) == [(False, key) for key in keys]


def test_check_names_the_cluster_whose_own_settings_do_not_suit() -> None:
    own = {"p": {"cluster": {"authority": "external"}}}
    config = parse_config({"pipeline": {"clusters": ["p"]}, "clusters": own})
    (found,) = check_config(config)
    assert (found.cluster, found.problem.key) == ("p", "ownership.in_flight_timeout_ms")


def test_check_says_once_what_holds_for_all_clusters() -> None:
    mapping = {
        "pipeline": {"clusters": ["p"]},
        **AVG,
        "shedding": {"strategy": "avg", "avg_low_hits": 1},
        "clusters": {"p": {"shedding": {"avg_low_threshold": 14}}},
    }
    assert findings(mapping) == [(False, "shedding.avg_low_hits")]


HEAP = {"signals": {"memory_weight": 0.5}}
BY_SCORE = {
    "shedding": {"strategy": "transfer"},
    "placement": {"strategy": "least_resource_usage_with_weight"},
}


@pytest.mark.parametrize(
    ("mapping", "keys"),
    [
        (HEAP, ["signals.memory_weight"]),
        ({**THRESHOLD, **HEAP}, ["signals.memory_weight"]),
        ({**BY_SCORE, **HEAP}, []),
        (
            {**HEAP, **BY_SCORE, "shedding": {"strategy": "uniform"}},
            ["signals.memory_weight"],
        ),
        (
            {
                **HEAP,
                **BY_SCORE,
                "shedding": {"strategy": "uniform"},
                "filters": {"pipeline": "extensible"},
            },
            [],
        ),
    ],
)
def test_weight_that_no_strategy_reads_is_told(mapping: Any, keys: list[str]) -> None:
    found = check_config(parse_config(mapping))
    assert [item.problem.key for item in found if not item.is_error] == keys
    assert all("has no effect" in item.problem.detail for item in found)


def test_check_of_a_section_of_a_cluster_that_is_not_served_warns() -> None:
    mapping = {"clusters": {"wset": {"shedding": {"avg_low_hits": 9}}}}
    assert findings(mapping) == [(False, "clusters.wset")]

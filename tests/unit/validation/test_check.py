"""Settings that do not suit each other: in files, and changed by commands."""

from typing import Any

import pytest

from lbcore.config.load import parse_assignments, parse_config
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError, UsageGaps
from lbcore.validation.check import check_config, in_force, require_suitable, with_dynamic


def findings(config: Config, gaps: UsageGaps | None = None) -> list[tuple[bool, str]]:
    found = check_config(config, gaps)
    return [(item.is_error, item.problem.key) for item in found]


BY = "shedding.strategy={} placement.strategy={}"
RATE, WEIGHT = "least_long_term_message_rate", "least_resource_usage_with_weight"


def settings(words: str, shedding: str = "", placement: str = "") -> Config:
    strategies = BY.format(shedding, placement) if shedding else ""
    return parse_assignments(Config(), f"{strategies} {words}".split())


@pytest.mark.parametrize(
    ("words", "key"),
    [
        ("shedding.strategy=threshold", ""),
        ("placement.strategy=round_robin", ""),
        ("lookup.key_file=/tls/key.pem", ""),
        ("lookup.client_ca_file=/tls/ca.pem", ""),
        ("pipeline.clusters=", ""),
        ("pipeline.clusters=a,a", ""),
        ("pipeline.shed_interval_ms=15000", ""),
        ("pipeline.split_interval_ms=5000", ""),
        ("ownership.broker_timeout_ms=4000", ""),
        ("agent.heartbeat_interval_ms=6000 ownership.fencing=lease", ""),
        ("ownership.tombstone_delay_ms=30000 ownership.in_flight_timeout_ms=40000", ""),
        ("cluster.authority=external", "ownership.in_flight_timeout_ms"),
        ("signals.report_check_ms=90000", ""),
        ("signals.usage_window_ms=300000", ""),
    ],
)
def test_check_of_settings_that_must_not_start_is_an_error(words: str, key: str) -> None:
    """key: of the finding, "" = the first one given."""
    lenient = "ownership.broker_timeout_ms=20000" if "lease" in words else ""
    key, config = key or words.partition("=")[0], settings(f"{words} {lenient}")
    assert findings(config) == [(True, key)]
    with pytest.raises(ConfigError, match=key):
        require_suitable(config)


@pytest.mark.parametrize(
    ("words", "shedding", "placement"),
    [
        ("kafka.ca_file=/tls/ca.pem", "", ""),
        ("kafka.key_file=/tls/key.pem kafka.security_protocol=SASL_PLAINTEXT", "", ""),
        ("ownership.broker_timeout_ms=8000", "", ""),
        ("ownership.unload_timeout_ms=10000", "", ""),
        ("pipeline.trigger_ms=20000 ownership.broker_timeout_ms=60000", "", ""),
        ("ownership.broker_timeout_ms=10500 ownership.fencing=lease", "", ""),
        ("topics.report_retention_ms=60000", "", ""),
        ("shedding.multi_hit=true", "", ""),
        ("shedding.avg_low_threshold=40", "avg", "avg"),
        ("shedding.avg_high_threshold=120", "avg", "avg"),
        ("shedding.avg_low_hits=2", "avg", "avg"),
        ("shedding.max_unload_fraction=0.8", "avg", "avg"),
        ("shedding.max_unload_fraction=0", "avg", "avg"),
        ("shedding.threshold_percent=-1", "threshold", RATE),
        ("shedding.overloaded_threshold_percent=150", "overload", RATE),
        ("shedding.rate_difference_percent=0 shedding.throughput_ratio=0", "uniform", RATE),
        ("shedding.throughput_ratio=1", "uniform", RATE),
        ("placement.usage_difference_percent=-5", "threshold", "LeastResourceUsageWithWeight"),
        ("placement.usage_difference_percent=80", "threshold", WEIGHT),
    ],
)
def test_check_of_settings_that_can_not_work_as_meant_is_a_warning(
    words: str, shedding: str, placement: str
) -> None:
    config = settings(words, shedding, placement)
    key = words.partition("=")[0]
    assert findings(config) == [(False, key)]
    require_suitable(config)


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
    assert findings(settings("", "avg", "avg"), gaps) == [(False, key) for key in keys]


def test_check_names_the_cluster_whose_own_settings_do_not_suit() -> None:
    own = {"p": {"cluster": {"authority": "external"}}}
    config = parse_config({"pipeline": {"clusters": ["p"]}, "clusters": own})
    (found,) = check_config(config)
    assert (found.cluster, found.problem.key) == ("p", "ownership.in_flight_timeout_ms")


def test_check_says_once_what_holds_for_all_clusters() -> None:
    mapping = {
        "pipeline": {"clusters": ["p"]},
        "placement": {"strategy": "avg"},
        "shedding": {"strategy": "avg", "avg_low_hits": 1},
        "clusters": {"p": {"shedding": {"avg_low_threshold": 14}}},
    }
    assert findings(parse_config(mapping)) == [(False, "shedding.avg_low_hits")]


THRESHOLD = {"shedding.strategy": "threshold"}
LEAST = {"placement.strategy": "least_long_term_message_rate"}
HITS = {"shedding.avg_low_hits": 3}


def test_settings_that_suit_are_all_in_force() -> None:
    values = {**THRESHOLD, **LEAST, **HITS}
    assert in_force(Config(), values) == (with_dynamic(Config(), values), {})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("shedding.of_tomorrow", 1, "no such setting"),
        ("shedding.avg_low_hits", "many", "whole number"),
        ("shedding.avg_low_hits", -1, "at least"),
        ("pipeline.scorer_groups", 3, "restart"),
        ("shedding.avg_low_hits", [1], "whole number"),
        ("shedding.avg_low_threshold", float("nan"), ""),
        ("no section at all", {}, "no such setting"),
    ],
)
def test_a_setting_that_cannot_be_used_is_set_aside_with_its_reason(
    key: str, value: Any, said: str
) -> None:
    kept = {"shedding.avg_high_hits": 4}
    config, aside = in_force(Config(), {**kept, key: value})
    assert config == with_dynamic(Config(), kept)
    assert list(aside) == [key]
    assert said in aside[key]


def test_one_of_two_that_only_together_do_not_suit_is_set_aside() -> None:
    config, aside = in_force(Config(), {**THRESHOLD, **HITS})
    assert config == with_dynamic(Config(), HITS)
    assert list(aside) == ["shedding.strategy"]
    assert "placement" in aside["shedding.strategy"]


def test_two_that_suit_only_together_both_stay() -> None:
    config, aside = in_force(Config(), {**THRESHOLD, **LEAST, "shedding.gone": 1})
    assert list(aside) == ["shedding.gone"]
    assert config == with_dynamic(Config(), {**THRESHOLD, **LEAST})


def test_what_is_set_aside_stays_so_rather_than_another() -> None:
    files = parse_config({"pipeline": {"shed_interval_ms": 60_000}})
    values = {"pipeline.decision_interval_ms": 7_000, "pipeline.shed_interval_ms": 70_000}
    for known in sorted(values):
        _, aside = in_force(files, {**values, "pipeline.split_interval_ms": 61_000}, [known])
        assert "pipeline.split_interval_ms" in aside or known in aside


def test_values_that_a_refusal_does_not_depend_on_stay() -> None:
    files = parse_config({"pipeline": {"shed_interval_ms": 70_000, "split_interval_ms": 60_000}})
    kept = {"cluster.approval": "ask", "cluster.observe_only": True, **THRESHOLD, **LEAST}
    config, aside = in_force(files, {**kept, "pipeline.decision_interval_ms": 30_000})
    assert list(aside) == ["pipeline.decision_interval_ms"]
    assert config == with_dynamic(files, kept)


def test_whatever_is_left_suits() -> None:
    values = {
        **THRESHOLD,
        "pipeline.decision_interval_ms": 7_000,
        "pipeline.shed_interval_ms": 61_000,
        "ownership.broker_timeout_ms": 1_000,
        "agent.heartbeat_interval_ms": 500_000,
        "unknown.key": None,
    }
    config, aside = in_force(Config(), values)
    assert require_suitable(config) == config
    assert in_force(Config(), dict(reversed(values.items()))) == (config, aside)

"""Of the settings that commands have changed, those that suit the files are in force."""

from typing import Any

import pytest

from lbcore.config.load import parse_config
from lbcore.config.tree import Config
from lbcore.validation.check import in_force, require_suitable, with_dynamic

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

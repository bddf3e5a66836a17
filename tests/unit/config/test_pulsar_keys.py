"""Pulsar's broker.conf keys and Java value syntax as settings."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lbcore.config.placement import SHEDDING, java_class, short_name
from lbcore.config.pulsar_keys import (
    INT,
    LONG,
    WITHOUT_EFFECT,
    from_pulsar_keys,
    is_about_balancing,
    is_blank,
    java_kind,
    parse_boolean,
    parse_double,
    parse_integer,
    parse_properties,
    resolve_changes,
    settings_of,
)
from lbcore.config.tree import SETTINGS, Config
from lbcore.config.values import ConfigError
from lbcore.validation.check import with_dynamic

IN = "loadBalancerBandwidthInResourceWeight"
IN_MISSPELT = "loadBalancerBandwithInResourceWeight"
ONE_KEY_FOR_SEVERAL = {
    "loadBalancerDebugModeEnabled",
    "loadBalancerInFlightServiceUnitStateWaitingTimeInMillis",
}


def test_no_keys_give_pulsars_defaults() -> None:
    config, unknown = from_pulsar_keys({})
    assert unknown == ()
    assert config.shedding.strategy == "threshold"
    assert config.placement.strategy == "least_long_term_message_rate"
    assert config.shedding.max_unload_fraction == 0.2
    assert config.pipeline.shed_interval_ms == 60_000
    assert config.signals.report_max_interval_ms == 900_000


@pytest.mark.parametrize(
    ("keys", "weight"),
    [
        ({IN: 2.0}, 2.0),
        ({IN_MISSPELT: 2.0}, 2.0),
        ({IN: 2.0, IN_MISSPELT: 3.0}, 2.0),
        ({IN: 1.0, IN_MISSPELT: 3.0}, 3.0),
        ({IN: "1.0", IN_MISSPELT: "3"}, 3.0),
        ({IN: 1.0}, 1.0),
        ({}, 1.0),
    ],
)
def test_misspelt_bandwidth_key_counts_unless_the_other_says_otherwise(
    keys: dict[str, Any], weight: float
) -> None:
    assert from_pulsar_keys(keys)[0].signals.bandwidth_in_weight == weight


@pytest.mark.parametrize(
    ("key", "text", "setting", "value"),
    [
        ("loadBalancerSheddingIntervalMinutes", "2", "pipeline.shed_interval_ms", 120_000),
        ("loadBalancerSheddingGracePeriodMinutes", "30", "shedding.grace_period_ms", 1_800_000),
        ("loadBalanceSheddingDelayInSeconds", "7", "transfer.shedding_delay_ms", 7_000),
        ("lowerBoundarySheddingEnabled", " TRUE ", "shedding.lower_boundary", True),
        ("loadBalancerSheddingEnabled", "yes", "shedding.is_shedding", False),
        ("loadBalancerSheddingIntervalMinutes", "+2", "pipeline.shed_interval_ms", 120_000),
        ("maxUnloadPercentage", "0.25d", "shedding.max_unload_fraction", 0.25),
        ("minUnloadMessage", "250", "shedding.min_unload_rate_msg_per_s", 250.0),
        (
            "loadBalancerLoadSheddingStrategy",
            "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder",
            "shedding.strategy",
            "uniform",
        ),
        (
            "loadBalancerNamespaceBundleMaxBandwidthMbytes",
            "100",
            "splitting.max_throughput_bytes_per_s",
            104_857_600,
        ),
        (
            "supportedNamespaceBundleSplitAlgorithms",
            "range_equally_divide,flow_or_qps_equally_divide",
            "splitting.supported_algorithms",
            ("range_equally_divide", "flow_or_qps_equally_divide"),
        ),
    ],
)
def test_key_is_converted_to_our_unit_and_name(
    key: str, text: str, setting: str, value: Any
) -> None:
    config, _ = from_pulsar_keys({key: text})
    entry = SETTINGS[setting]
    assert getattr(getattr(config, entry.section), entry.name) == value
    assert settings_of(key, text)[setting] == value


def test_key_without_a_value_keeps_pulsars_default() -> None:
    config, unknown = from_pulsar_keys({"maxUnloadPercentage": "", "minUnloadMessage": None})
    assert config.shedding.max_unload_fraction == 0.2
    assert unknown == ()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("maxUnloadPercentage", "much"),
        ("maxUnloadPercentage", "7"),
        ("loadBalancerSheddingIntervalMinutes", "soon"),
        ("loadBalancerSheddingIntervalMinutes", "nan"),
        ("loadBalancerSheddingIntervalMinutes", "5_000"),
        ("loadBalancerSheddingIntervalMinutes", "5e3"),
        ("loadBalancerSheddingIntervalMinutes", "1.0"),
        ("loadBalancerSheddingIntervalMinutes", "2147483648"),
        ("minUnloadMessage", "1000.5"),
        ("maxUnloadPercentage", "0_0.5"),
        ("maxUnloadPercentage", "NaN"),
        ("defaultNamespaceBundleSplitAlgorithm", "by_magic"),
    ],
)
def test_value_that_can_not_be_used_is_named_by_pulsars_key(key: str, value: str) -> None:
    with pytest.raises(ConfigError) as raised:
        from_pulsar_keys({key: value})
    assert {problem.key for problem in raised.value.problems} == {key}


def test_unknown_keys_are_told_and_those_of_balancing_stand_out() -> None:
    _, unknown = from_pulsar_keys({"zookeeperServers": "x", "loadBalancerMagic": "1"})
    assert unknown == ("loadBalancerMagic", "zookeeperServers")
    assert [key for key in unknown if is_about_balancing(key)] == ["loadBalancerMagic"]
    assert settings_of("loadBalancerMagic", "1") == {}


def test_key_is_mirrored_by_one_setting_unless_it_is_listed_here() -> None:
    owners: dict[str, list[str]] = {}
    for entry in SETTINGS.values():
        for alias in entry.setting.pulsar:
            owners.setdefault(alias, []).append(entry.key)
    assert {key for key, names in owners.items() if len(names) > 1} == ONE_KEY_FOR_SEVERAL


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"shedding.multi_hit": "true"}, {"shedding.multi_hit": True}),
        ({"shedding.multi_hit": True}, {"shedding.multi_hit": True}),
        ({"minUnloadMessage": "5"}, {"shedding.min_unload_rate_msg_per_s": 5.0}),
        (
            {"loadBalancerInFlightServiceUnitStateWaitingTimeInMillis": 7_000},
            {"ownership.in_flight_timeout_ms": 7_000},
        ),
        (
            {"loadBalancerLoadPlacementStrategy": "AvgShedder", "shedding.strategy": "avg"},
            {"placement.strategy": "avg", "shedding.strategy": "avg"},
        ),
        ({"nothing": "x"}, {"nothing": "x"}),
    ],
)
def test_changes_asked_for_by_either_name_are_resolved(
    given: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert resolve_changes(given) == changes


def test_change_of_a_key_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such setting"):
        with_dynamic(Config(), resolve_changes({"loadBalancerMagic": "1"}))


@pytest.mark.parametrize("text", ["", "  ", "\t"])
@pytest.mark.parametrize(
    "key",
    ["loadBalancerLoadSheddingStrategy", "loadBalancerDebugModeEnabled", "loadBalancerMagic"],
)
def test_change_of_a_key_of_pulsars_to_a_blank_is_refused(key: str, text: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}: it has no value"):
        resolve_changes({key: text})


@pytest.mark.parametrize("key", WITHOUT_EFFECT)
def test_a_key_of_pulsars_that_means_nothing_here_is_known_with_its_reason(key: str) -> None:
    assert WITHOUT_EFFECT[key].why
    assert from_pulsar_keys({key: "1"})[1] == (key,)
    assert not is_about_balancing(key)
    assert settings_of(key, "1") == {}


def test_class_of_pulsars_counts_by_its_two_names_and_one_in_another_package_is_none() -> None:
    for short, simple in SHEDDING.items():
        assert {short_name(one, SHEDDING) for one in (short, simple, java_class(simple))} == {short}
    for name in (
        "com.acme.AvgShedder",
        "org.apache.pulsar.broker.loadbalance.AvgShedder",
        "org.apache.pulsar.broker.loadbalance.impl.avgshedder",
        f"{java_class('ThresholdShedder')},{java_class('AvgShedder')}",
        f"com.acme.X,{java_class('AvgShedder')}",
        ".AvgShedder",
        "",
    ):
        assert short_name(name, SHEDDING) == name


FOLDER = Path(__file__).parents[2] / "broker_conf"
TABLE: dict[str, dict[str, Any]] = json.loads((FOLDER / "java_parsing.json").read_text())
TYPES = dict(line.split() for line in (FOLDER / "types-4.2.4.txt").read_text().splitlines())


def texts(kind: str) -> list[Any]:
    return [pytest.param(text, read, id=repr(text)) for text, read in TABLE[kind].items()]


@pytest.mark.parametrize(
    ("kind", "parse"),
    [("int", lambda text: parse_integer(text, INT)), ("long", lambda t: parse_integer(t, LONG))],
)
def test_integers_are_those_that_java_takes(kind: str, parse: Callable[[str], int | None]) -> None:
    found = {text: parse(text) for text in TABLE[kind]}
    assert found == {text: None if one is None else int(one) for text, one in TABLE[kind].items()}


@pytest.mark.parametrize(("text", "read"), texts("double"))
def test_double_is_what_java_reads(text: str, read: str | None) -> None:
    found = parse_double(text)
    assert repr(found) == repr(None if read is None else float(read))


@pytest.mark.parametrize(("text", "read"), texts("boolean"))
def test_boolean_is_true_for_true_alone(text: str, read: str) -> None:
    assert parse_boolean(text) is (read == "true")


@pytest.mark.parametrize(("text", "read"), texts("properties"))
def test_properties_are_what_java_reads(text: str, read: dict[str, str] | None) -> None:
    if read is None:
        with pytest.raises(ValueError, match="Java refuses"):
            parse_properties(text)
    else:
        assert parse_properties(text) == read


@pytest.mark.parametrize("text", ["0" * 5_000 + "7", "9" * 5_000, "-" + "0" * 9_000])
def test_integer_of_thousands_of_digits_ends_nothing(text: str) -> None:
    assert parse_integer(text) == {"7": 7, "9": None, "0": 0}[text[-1]]


def test_blank_is_what_leaves_a_key_at_its_default() -> None:
    assert is_blank(" \t\f")
    assert not is_blank("\xa0")


def test_kind_of_each_key_is_its_type_in_pulsars_configuration() -> None:
    kinds = {
        key: java_kind(entry, key) for entry in SETTINGS.values() for key in entry.setting.pulsar
    }
    known = {key: kind for key, kind in kinds.items() if key in TYPES}
    assert len(known) >= 60
    simple = {"boolean", "double", "int", "long"}
    assert known == {key: TYPES[key] if TYPES[key] in simple else "" for key in known}

"""Mappings become a configuration or every problem they have."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.config.load import (
    digest,
    parse_assignments,
    parse_config,
)
from lbcore.config.tree import SETTINGS, Config, value_of
from lbcore.config.values import ConfigError
from lbcore.validation.check import with_dynamic


def problems_of(mapping: Any) -> dict[str, str]:
    with pytest.raises(ConfigError) as raised:
        parse_config(mapping)
    return {problem.key: problem.detail for problem in raised.value.problems}


def test_parse_of_nothing_is_the_defaults() -> None:
    assert parse_config({}) == Config()


@pytest.mark.parametrize(
    ("mapping", "key", "words"),
    [
        ({"pipelin": {}}, "pipelin", "did you mean [pipeline]?"),
        ({"xyz": {}}, "xyz", "there are cluster, pipeline"),
        ({"pipeline": 3}, "pipeline", "stands outside of a section"),
        (
            {"pipeline": {"triger_ms": 1}},
            "pipeline.triger_ms",
            "did you mean pipeline.trigger_ms?",
        ),
        (
            {"wire": {"trigger_ms": 1}},
            "wire.trigger_ms",
            "did you mean pipeline.trigger_ms?",
        ),
        (
            {"shedding": {"minUnloadMessage": 1}},
            "shedding.minUnloadMessage",
            "here it is shedding.min_unload_rate_msg_per_s",
        ),
        (
            {"pipeline": {"trigger_ms": 7}},
            "pipeline.trigger_ms",
            "take a value within 50 .. 60_000 ms",
        ),
        ({"pipeline": {"trigger_ms": "7"}}, "pipeline.trigger_ms", "write a whole number"),
        ({"pipeline": {"trigger_ms": 500.0}}, "pipeline.trigger_ms", "write a whole number"),
        ({"pipeline": {"trigger_ms": True}}, "pipeline.trigger_ms", "write a whole number"),
        ({"pipeline": {"clusters": "a"}}, "pipeline.clusters", "write a list of texts"),
        ({"pipeline": {"clusters": [1]}}, "pipeline.clusters", "write a list of texts"),
        ({"pipeline": {"clusters": ["a/b"]}}, "pipeline.clusters", "letters, digits and -=:._"),
        (
            {"shedding": {"excluded_namespaces": ["t/a", "t"]}},
            "shedding.excluded_namespaces",
            "tenant/namespace",
        ),
        ({"shedding": {"multi_hit": 1}}, "shedding.multi_hit", "write true or false"),
        ({"signals": {"cpu_weight": math.nan}}, "signals.cpu_weight", "at least 0"),
        ({"signals": {"cpu_weight": math.inf}}, "signals.cpu_weight", "at least 0"),
        ({"signals": {"cpu_weight": 10**400}}, "signals.cpu_weight", "a double can hold"),
        ({"cluster": {"authority": "me"}}, "cluster.authority", "take ballast or external"),
        ({"clusters": 3}, "clusters", "stands outside of a section"),
        ({"clusters": {"a": 3}}, "clusters.a", "stands outside of a section"),
        (
            {"clusters": {"a": {"lookup": {"port": 1}}}},
            "clusters.a.lookup.port",
            "is one for all clusters: write it as lookup.port",
        ),
        (
            {"clusters": {"a": {"pipeline": {"trigger_ms": 100}}}},
            "clusters.a.pipeline.trigger_ms",
            "is one for all clusters",
        ),
        (
            {"clusters": {"a": {"ownership": {"broker_timeout_ms": 1}}}},
            "clusters.a.ownership.broker_timeout_ms",
            "take a value within 1000 .. 3_600_000 ms",
        ),
    ],
)
def test_parse_of_a_wrong_key_or_value_names_it_and_what_to_do(
    mapping: Any, key: str, words: str
) -> None:
    found = problems_of(mapping)
    assert list(found) == [key]
    assert words in found[key]


def test_parse_reports_every_problem_at_once() -> None:
    mapping = {
        "pipeline": {"trigger_ms": 1, "nothing_like_it": 2},
        "kafka": {"security_protocol": "none"},
    }
    assert set(problems_of(mapping)) == {
        "pipeline.trigger_ms",
        "pipeline.nothing_like_it",
        "kafka.security_protocol",
    }


def test_digest_changes_with_every_setting_that_decides_and_with_no_other() -> None:
    before = digest(Config())
    assert digest(parse_config({"lookup": {"port": 9}})) == before
    assert digest(parse_config({"agent": {"heartbeat_interval_ms": 500}})) == before
    assert digest(parse_config({"ownership": {"broker_timeout_ms": 20_000}})) != before
    own = parse_config({"clusters": {"p": {"ownership": {"broker_timeout_ms": 20_000}}}})
    assert digest(own) != before


def test_digest_of_equal_settings_written_differently_is_equal() -> None:
    written = parse_config({"shedding": {"threshold_percent": 10}})
    assert digest(written) == digest(parse_config({"shedding": {"threshold_percent": 10.0}}))
    assert digest(written) == digest(Config())
    assert len(digest(written)) == 64


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"pipeline.trigger_ms": 500}, "takes effect at a restart only"),
        ({"shedding.nothing": 500}, "no such setting"),
        ({"shedding.max_unload_fraction": 2}, "take a value within 0 .. 1"),
        ({"shedding.strategy": "threshold"}, "both strategies must be ballast or neither"),
    ],
)
def test_dynamic_change_that_can_not_be_made_is_refused(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        with_dynamic(Config(), values)


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def outcome(mapping: Any) -> Config | list[str]:
    """The configuration, or the keys of its problems."""
    try:
        return parse_config(mapping)
    except ConfigError as error:
        return [problem.key for problem in error.problems]


@given(key=st.sampled_from(sorted(SETTINGS)), value=JUNK)
def test_parse_of_any_value_gives_a_value_in_range_or_a_problem(key: str, value: Any) -> None:
    entry = SETTINGS[key]
    config = outcome({entry.section: {entry.name: value}})
    if not isinstance(config, Config):
        assert config == [key]
        return
    taken = value_of(config, entry)
    assert type(taken) is (tuple if entry.type not in (bool, int, float, str) else entry.type)
    assert entry.setting.minimum is None or taken >= entry.setting.minimum
    assert entry.setting.maximum is None or taken <= entry.setting.maximum


@given(mapping=st.dictionaries(st.sampled_from(["pipeline", "clusters", "x", ""]), JUNK))
def test_parse_of_any_mapping_raises_nothing_but_config_error(mapping: dict[str, Any]) -> None:
    assert outcome(mapping) != []


@pytest.mark.parametrize("entry", SETTINGS.values(), ids=list(SETTINGS))
def test_setting_has_a_default_in_its_own_range_and_a_reason(entry: Any) -> None:
    config = parse_config({entry.section: {entry.name: entry.default}})
    assert value_of(config, entry) == entry.default
    assert len(entry.setting.doc) > 10
    if entry.type is int and entry.name.endswith("_ms"):
        assert entry.setting.unit == "ms"


@pytest.mark.parametrize("text", ["always", "mon-fri 08:00-18:00, 22-06"])
def test_text_that_its_setting_cannot_read_is_refused_with_how_it_is_written(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"cluster\.quiet_hours: .*a window is written as 22:00-06:00"
    ):
        parse_assignments(Config(), [f"cluster.quiet_hours={text}"])


@pytest.mark.parametrize("name", ["allowed_hosts", "advertised_address"])
@pytest.mark.parametrize("text", ["https://ballast.example.org", "*.example.org"])
def test_address_of_the_service_that_no_request_can_match_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"lookup\.{name}: .*write host or host:port"):
        parse_assignments(Config(), [f"lookup.{name}={text}"])


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("wire.max_message_bytes", "it is always 1048576"),
        ("shedding.by_group", "it is True, and Pulsar's value under shedding.is_pulsar_exact"),
        ("shedding.role_cool_down_ms", "it follows shedding.cool_down_ms"),
    ],
)
def test_setting_that_is_one_no_more_says_what_it_follows(key: str, advice: str) -> None:
    section, name = key.split(".")
    found = problems_of({section: {name: 1}})
    assert found[key] == f"is no setting any more: {advice}; delete the line"

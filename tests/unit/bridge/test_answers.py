"""What real Pulsar 4.0.8 brokers answered to an administrator becomes values, unchanged."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.bridge.answers import (
    Claims,
    Gauges,
    TopicTable,
    Unreadable,
    is_mirrored,
    parse_boundaries,
    parse_claims,
    parse_metrics,
    parse_names,
    parse_settings,
    parse_topics,
    parse_version,
)
from tests.support.admin.pulsar_recordings import read_recording

ANSWERS = Path(__file__).parent / "pulsar_answers"
TOPICS = ("106-x-broker-stats-topics-broker1", "42-broker-stats-topics")


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("name", TOPICS)
def test_topics_of_a_real_broker_are_summed_up_by_bundle(name: str) -> None:
    answer = read_recording(name).body
    table = parse_topics(raw(answer))
    assert isinstance(table, TopicTable)
    assert table.bundles == tuple(sorted(table.bundles))
    assert {bundle.rpartition("/")[0] for bundle in table.bundles} <= {
        namespace for namespace in answer if not namespace.startswith("pulsar/")
    }
    for bundle, row in zip(table.bundles, table.stats, strict=True):
        namespace, _, key = bundle.rpartition("/")
        topics = {
            topic: stats
            for domain in answer[namespace][key].values()
            for topic, stats in domain.items()
        }
        consumers = sum(
            len(subscription["consumers"])
            for stats in topics.values()
            for subscription in stats["subscriptions"].values()
        )
        assert row[0] == pytest.approx(sum(stats["msgRateIn"] for stats in topics.values()))
        assert row[4:7].tolist() == [
            len(topics),
            consumers,
            sum(stats["producerCount"] for stats in topics.values()),
        ]
        assert table.rates[bundle].topics == tuple(sorted(topics))


def test_topics_that_carry_messages_keep_their_rates() -> None:
    table = parse_topics((ANSWERS / "topics-with-traffic.json").read_bytes())
    assert isinstance(table, TopicTable)
    assert table.stats[:, 0].sum() > 50.0
    for bundle, row in zip(table.bundles, table.stats, strict=True):
        assert table.rates[bundle].traffic.sum(axis=0) == pytest.approx(row[:4])


def test_metrics_of_a_real_broker_are_usages_in_the_order_of_resources() -> None:
    gauges = parse_metrics((ANSWERS / "metrics-broker-1.txt").read_bytes())
    assert isinstance(gauges, Gauges)
    text = (ANSWERS / "metrics-broker-1.txt").read_text()
    for name, percent in zip(
        ("cpu", "memory", "directMemory", "bandwidth_in", "bandwidth_out"),
        gauges.percent,
        strict=False,
    ):
        assert f'pulsar_lb_{name}_usage{{cluster="standalone"' in text
        assert 0.0 <= percent <= 100.0
    assert gauges.started_ms > 1_700_000_000_000
    assert gauges.version == "4.0.8"


@pytest.mark.parametrize("name", ["metrics-lb-before.txt", "metrics-lb-after.txt"])
def test_metrics_without_the_process_are_unreadable(name: str) -> None:
    unreadable = parse_metrics((ANSWERS / name).read_bytes())
    assert isinstance(unreadable, Unreadable)
    assert "process_start_time_seconds" in unreadable.detail


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-0.0016", "1.8e308", "x"])
def test_metrics_with_a_usage_that_is_no_number_have_the_others(odd: str) -> None:
    page = f"""process_start_time_seconds{{a="b"}} 1e9
pulsar_lb_cpu_usage{{a="b", broker="host-1"}} {odd}
pulsar_lb_memory_usage{{a="b", broker="host-1"}} 20
"""
    found = parse_metrics(page.encode())
    assert not isinstance(found, Unreadable)
    assert (found.percent[1], found.host) == (20.0, "host-1")
    assert np.isnan(found.percent[[0, 2, 3, 4]]).all()
    assert "pulsar_lb_cpu_usage" in found.unreported


@pytest.mark.parametrize("odd", ["NaN", "+Inf", "-1", "0", "1e300", "x"])
def test_metrics_without_a_start_that_is_a_time_are_unreadable(odd: str) -> None:
    page = f'process_start_time_seconds{{a="b"}} {odd}\n'
    assert isinstance(parse_metrics(page.encode()), Unreadable)


@pytest.mark.parametrize("odd", [-1, "NaN", None, 1e300, [], {}])
@pytest.mark.parametrize("name", ["msgRateIn", "producerCount", "subscriptions"])
def test_odd_field_of_one_topic_counts_as_not_reported_and_is_named(name: str, odd: Any) -> None:
    topics = {"t": {"msgRateIn": 1.0, "msgRateOut": 2.0, name: odd}, "u": None}
    answer = {"a/b": {"0x00000000_0xffffffff": {"persistent": topics}}, "a/c": 3}
    found = parse_topics(json.dumps(answer).encode())
    assert not isinstance(found, Unreadable)
    assert found.stats[0, 1] == 2.0
    is_subscriptions = name == "subscriptions"
    named = {f"topics.{name}"} if not (is_subscriptions and odd == {}) else set()
    assert found.unreported.keys() == named | {"topics.topic", "topics.namespace"}


@pytest.mark.parametrize(
    "boundaries",
    [
        [],
        None,
        ["0x00000000"],
        ["0x10000000", "0xffffffff"],
        ["0x00000000", "0x80000000"],
        ["0x00000000", "0x80000000", "0x40000000", "0xffffffff"],
        ["0x00000000", "0x80000000", "0x80000000", "0xffffffff"],
        ["0x00000000", "0x1ffffffff"],
        [0, "9" * 5_000],
        "0x00000000",
    ],
    ids=lambda one: repr(one)[:40],
)
def test_boundaries_that_are_no_division_of_all_hashes_are_unreadable(boundaries: Any) -> None:
    assert isinstance(parse_boundaries(json.dumps({"boundaries": boundaries}).encode()), Unreadable)


@pytest.mark.parametrize("started", ["+Inf", "1e308", "1e11", "NaN", "-1", "0", "x", "9" * 400])
def test_metrics_with_a_start_that_is_no_time_are_unreadable(started: str) -> None:
    found = parse_metrics(f"process_start_time_seconds {started}\n".encode())
    assert isinstance(found, Unreadable)


def test_boundaries_of_a_real_namespace_are_numbers() -> None:
    answer = raw(read_recording("23-namespaces-bundles").body)
    boundaries = parse_boundaries(answer)
    assert isinstance(boundaries, tuple)
    assert (boundaries[0], boundaries[-1]) == (0, 0xFFFFFFFF)
    assert list(boundaries) == sorted(boundaries)


def test_boundaries_after_a_split_hold_the_positions() -> None:
    before = parse_boundaries(raw(read_recording("23-namespaces-bundles").body))
    after = parse_boundaries(raw(read_recording("75-namespaces-bundles-after").body))
    assert isinstance(before, tuple)
    assert isinstance(after, tuple)
    assert len(after) >= len(before)


def test_brokers_of_a_real_cluster_are_names_in_order() -> None:
    assert parse_names(raw(read_recording("29-brokers-list").body)) == tuple(
        sorted(read_recording("29-brokers-list").body)
    )


def test_owned_namespaces_leave_out_what_brokers_keep_for_themselves() -> None:
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    names = (
        "pulsar/standalone/127.0.0.1:8080/0x00000000_0xffffffff",
        "pulsar/127.0.0.1:8080/0x00000000_0xffffffff",
        "sla-monitor/standalone/127.0.0.1:8080/0x00000000_0xffffffff",
        "pulsar/system/0x00000000_0x40000000",
        "public/load/0xc0000000_0xffffffff",
    )
    claims = parse_claims(raw(dict.fromkeys(names, status)))
    assert claims == Claims(owned=frozenset(names[-1:]))
    closed = parse_claims(raw({name: {**status, "is_active": False} for name in names}))
    assert closed == Claims(owned=frozenset(names[-1:]), closing=frozenset(names[-1:]))


def test_runtime_settings_of_a_real_broker_have_the_shedding_switch() -> None:
    settings = parse_settings((ANSWERS / "runtime.json").read_bytes())
    assert not isinstance(settings, Unreadable)
    assert settings["loadBalancerSheddingEnabled"] in ("true", "false")


@pytest.mark.parametrize(
    ("namespace", "mirrored"),
    [
        ("public/default", True),
        ("pulsar/system", False),
        ("sla-monitor/host:8080", False),
        ("pulsar/host:8080", False),
        ("pulsarian/ns", True),
    ],
)
def test_namespaces_of_pulsar_itself_are_not_mirrored(namespace: str, mirrored: bool) -> None:  # noqa: FBT001 a case's value
    assert is_mirrored(namespace) is mirrored


@pytest.mark.parametrize(
    ("parse", "garbage"),
    [
        (parse_names, b"<html>502</html>"),
        (parse_names, b'{"a": 1}'),
        (parse_names, b"[1]"),
        (parse_version, b"<html>502</html>"),
        (parse_version, b""),
        (parse_claims, b"[]"),
        (parse_boundaries, b'{"boundaries": ["0x0", "x"]}'),
        (parse_boundaries, b'{"numBundles": 4}'),
        (parse_settings, b"null"),
        (parse_topics, b"[]"),
    ],
)
def test_answer_of_another_form_is_unreadable(parse: Any, garbage: bytes) -> None:
    assert isinstance(parse(garbage), Unreadable)


@given(noise=st.binary(max_size=80))
def test_answers_of_arbitrary_bytes_never_raise(noise: bytes) -> None:
    readers = (parse_names, parse_claims, parse_boundaries, parse_settings, parse_topics)
    for parse in (*readers, parse_version):
        parsed: Any = parse(noise)
        assert isinstance(parsed, Unreadable | str | tuple | Claims | dict | TopicTable)
    assert isinstance(parse_metrics(noise), Unreadable)


def test_topics_of_an_idle_broker_are_an_empty_table() -> None:
    table = parse_topics(b"{}")
    assert isinstance(table, TopicTable)
    assert table.bundles == ()
    assert table.stats.shape == (0, 8)
    assert np.array_equal(table.stats, np.empty((0, 8)))

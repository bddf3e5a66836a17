"""A broker's readings become one report a measurement, and heartbeats between."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lbcore.bridge.answers import Gauges, TopicRates, TopicTable
from lbcore.bridge.reports import (
    Measured,
    SentReports,
    measured_extensible,
    measured_modular,
    near_a_split,
    report,
    report_topics,
)
from lbcore.config.signals import SignalsConfig
from lbcore.config.splitting import Splitting
from lbcore.model.resources import COUNT
from lbcore.wire.format import format_message
from lbcore.wire.messages import BrokerLoad, BundleLoad, Envelope, Heartbeat, Rejected, TopicLoad
from lbcore.wire.parse import parse
from lbcore.wire.pulsar import parse_pulsar_report
from tests.support.values.wire_messages import RULES, content

REPORTS = Path(__file__).parents[1] / "wire" / "pulsar_reports"
BUNDLES = ("acme/ns/0x00000000_0x80000000", "acme/ns/0x80000000_0xffffffff")
MINUTE = 60_000
SIGNALS = SignalsConfig(report_max_interval_ms=MINUTE)
NOW = 1_800_000_000_000


def envelope(incarnation: str = "17") -> Envelope:
    return Envelope(cluster="local", broker="b:1", incarnation=incarnation, seq=0, reported_at_ms=0)


def reading(rate: float, incarnation: str = "17", topics: int = 2) -> Measured:
    stats = np.zeros((2, 8))
    stats[:, 0], stats[0, 4] = rate, topics
    gauges = Gauges(percent=np.full(COUNT, rate / 10), started_ms=17, version="4.0.8")
    rates = TopicRates(topics=("t",), traffic=np.array([[rate, 0.0, 0.0, 0.0]]))
    table = TopicTable(bundles=BUNDLES, stats=stats, rates=dict.fromkeys(BUNDLES, rates))
    return measured_extensible(envelope(incarnation), gauges, table, "http://b:1")


def using(measured: Measured, percent: float) -> Measured:
    """The reading with this usage of every resource."""
    return replace(measured, load=replace(measured.load, usage=np.full(COUNT, percent)))


def kinds(told: SentReports, measured: Measured, now_ms: int) -> tuple[SentReports, list[type]]:
    told, messages = report(told, measured, now_ms, SIGNALS, 100)
    return told, [type(message) for message in messages]


@pytest.mark.parametrize("name", sorted(path.name for path in REPORTS.glob("*-broker-*.json")))
def test_report_of_the_modular_manager_is_its_load_without_pulsars_own(name: str) -> None:
    parsed = parse_pulsar_report((REPORTS / name).read_bytes(), "local")
    assert not isinstance(parsed, Rejected)
    measured = measured_modular(parsed)
    _, messages = report(SentReports(), measured, NOW, SIGNALS, 100)
    assert [type(message) for message in messages] == [BrokerLoad, BundleLoad]
    assert all(not bundle.startswith("pulsar/") for bundle in measured.names)
    for message in messages:
        assert content(parse(*format_message(message), RULES)) == content(message)


def test_load_of_the_extensible_manager_is_the_sum_of_its_bundles() -> None:
    _, messages = report(SentReports(), reading(30.0), NOW, SIGNALS, 100)
    load = messages[0]
    assert isinstance(load, BrokerLoad)
    assert load.traffic.tolist() == [60.0, 0.0, 0.0, 0.0]
    assert (load.bundle_count, load.topic_count) == (2, 2)
    assert load.usage.tolist() == [3.0] * COUNT
    for message in messages:
        assert content(parse(*format_message(message), RULES)) == content(message)


def test_same_measurement_read_again_is_a_heartbeat() -> None:
    told, first = kinds(SentReports(), reading(30.0), NOW)
    told, second = kinds(told, reading(30.0), NOW + 5_000)
    told, third = kinds(told, reading(31.0), NOW + 10_000)
    assert (first, second, third) == (
        [BrokerLoad, BundleLoad],
        [Heartbeat],
        [BrokerLoad, BundleLoad],
    )


def test_same_measurement_is_reported_again_after_the_longest_interval() -> None:
    told, _ = kinds(SentReports(), reading(0.0), NOW)
    _, sent = kinds(told, reading(0.0), NOW + MINUTE)
    assert sent == [BrokerLoad, BundleLoad]


def test_usage_that_changed_between_two_measurements_is_reported_without_the_bundles() -> None:
    """A host's usage is taken at times of its own: an idle broker's load is news then."""
    told, _ = kinds(SentReports(), using(reading(0.0), 20.0), NOW)
    told, within = kinds(told, using(reading(0.0), 29.0), NOW + 5_000)
    told, above = kinds(told, using(reading(0.0), 31.0), NOW + 10_000)
    told, again = kinds(told, using(reading(0.0), 31.0), NOW + 15_000)
    _, due = kinds(told, using(reading(0.0), 31.0), NOW + MINUTE)
    assert (within, above, again) == ([Heartbeat], [BrokerLoad], [Heartbeat])
    assert due == [BrokerLoad, BundleLoad]


def test_broker_that_started_again_reports_at_once() -> None:
    told, _ = kinds(SentReports(), reading(30.0), NOW)
    _, sent = kinds(told, reading(30.0, incarnation="18"), NOW + 1)
    assert sent == [BrokerLoad, BundleLoad]


def test_seq_grows_with_each_message_and_over_a_new_start_of_the_collector() -> None:
    told, messages = report(SentReports(), reading(1.0), NOW, SIGNALS, 100)
    told, more = report(told, reading(1.0), NOW - 7_000, SIGNALS, 100)  # a clock that stepped back
    _, restarted = report(SentReports(), reading(1.0), NOW + 5_000, SIGNALS, 100)
    seqs = [each[0].envelope.seq for each in (messages, more, restarted)]
    assert seqs == sorted(set(seqs))


def test_topics_are_reported_for_bundles_near_a_limit_only() -> None:
    config = Splitting(max_topics=10)
    measured = reading(30.0, topics=5)
    table = TopicTable(
        bundles=measured.names,
        stats=measured.stats,
        rates=dict.fromkeys(
            BUNDLES, TopicRates(topics=("t",), traffic=np.array([[30.0, 0.0, 0.0, 0.0]]))
        ),
    )
    told, sent = report_topics(SentReports(), measured, table, config, NOW)
    again, nothing = report_topics(told, measured, table, config, NOW + 1)
    assert [(type(message), message.bundle) for message in sent] == [(TopicLoad, BUNDLES[0])]
    assert nothing == []
    assert again == told


def test_topics_of_bundles_with_partitions_are_reported_when_they_are_others() -> None:
    measured = reading(30.0, topics=5)

    def told_of(
        told: SentReports, names: tuple[str, ...], rate: float
    ) -> tuple[SentReports, list[TopicLoad]]:
        rates = TopicRates(topics=names, traffic=np.full((len(names), 4), rate))
        table = TopicTable(bundles=measured.names, stats=measured.stats, rates={BUNDLES[1]: rates})
        return report_topics(told, measured, table, Splitting(), NOW)

    two = ("persistent://t/n/a-partition-0", "persistent://t/n/b")
    told, sent = told_of(SentReports(), two, 1.0)
    assert [(one.bundle, one.topics) for one in sent] == [(BUNDLES[1], two)]
    told, sent = told_of(told, two, 2.0)
    assert sent == []
    told, sent = told_of(told, two[:1], 2.0)
    assert [one.topics for one in sent] == [two[:1]]
    assert told_of(told, two[1:], 2.0)[1] == []


def test_limit_that_is_switched_off_is_never_near() -> None:
    stats = np.zeros((2, 8))
    stats[:, 5] = 1e6
    assert near_a_split(BUNDLES, stats, Splitting(max_sessions=0)) == []
    assert near_a_split(BUNDLES, stats, Splitting(max_sessions=1_000)) == list(BUNDLES)

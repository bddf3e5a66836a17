"""Load reports as real Pulsar 4.0.8 brokers answered them become messages of ours."""

import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.monitoring import is_monitoring_namespace
from lbcore.model.resources import WIRE_NAMES, complete
from lbcore.wire.format import format_message
from lbcore.wire.messages import BrokerLoad, BundleLoad, Rejected, RejectReason
from lbcore.wire.parse import parse
from lbcore.wire.pulsar import broker_name, parse_pulsar_report
from tests.support.values.wire_messages import RULES, content

REPORTS = Path(__file__).parent / "pulsar_reports"
MODULAR = sorted(REPORTS.glob("*-broker-*.json"))


def read(path: Path) -> tuple[BrokerLoad, BundleLoad]:
    parsed = parse_pulsar_report(path.read_bytes(), "local")
    assert not isinstance(parsed, Rejected), parsed.detail
    return parsed


def spoilt(**changes: Any) -> tuple[BrokerLoad, BundleLoad] | Rejected:
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    return parse_pulsar_report(json.dumps({**report, **changes}).encode(), "local")


@pytest.mark.parametrize("path", MODULAR, ids=lambda path: path.stem)
def test_report_of_a_real_broker_is_read_unchanged(path: Path) -> None:
    load, bundles = read(path)
    report = json.loads(path.read_text())
    assert load.envelope.broker == report["webServiceUrl"].removeprefix("http://")
    assert load.envelope.incarnation == str(report["startTimestamp"])
    assert load.envelope == bundles.envelope
    told = [report[name]["usage"] for name in WIRE_NAMES if name in report]
    assert load.usage.tolist() == [*complete(told)]
    assert load.limit[3] == -1000.0
    assert load.traffic.tolist() == [
        report[name] for name in ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
    ]
    assert load.bundle_count == report["numBundles"]
    kept = [name for name in report["lastStats"] if not name.startswith("pulsar/127.0.0.1")]
    assert list(bundles.names) == kept
    for name, row in zip(bundles.names, bundles.stats, strict=True):
        stats = report["lastStats"][name]
        assert row.tolist() == [
            stats[field]
            for field in (
                "msgRateIn",
                "msgRateOut",
                "msgThroughputIn",
                "msgThroughputOut",
                "topics",
                "consumerCount",
                "producerCount",
                "cacheSize",
            )
        ]


def test_reports_of_real_brokers_are_six_and_one_has_a_heartbeat_bundle() -> None:
    assert len(MODULAR) == 6
    load, bundles = read(REPORTS / "idle-broker-1.json")
    assert (load.bundle_count, len(bundles.names)) == (3, 2)


@pytest.mark.parametrize("path", MODULAR, ids=lambda path: path.stem)
def test_report_travels_over_our_own_wire(path: Path) -> None:
    for message in read(path):
        topic, key, value = format_message(message)
        assert content(parse(topic, key, value, RULES)) == content(message)


def test_report_read_by_another_decoder_is_the_same() -> None:
    raw = (REPORTS / "busy-broker-1.json").read_bytes()
    assert content(parse_pulsar_report(raw, "local", orjson.loads)) == content(
        parse_pulsar_report(raw, "local")
    )


def test_answer_of_the_extensible_manager_is_rejected() -> None:
    rejected = parse_pulsar_report((REPORTS / "extensible-error.json").read_bytes(), "local")
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.MISSING_FIELD


def test_report_with_nulls_is_read_as_if_they_were_not_there() -> None:
    parsed = spoilt(
        webServiceUrlTls=None,
        advertisedListeners={
            "a": {"brokerServiceUrl": "pulsar://x:1", "brokerServiceUrlTls": None}
        },
    )
    assert not isinstance(parsed, Rejected)
    assert parsed[0].web_service_url_tls == ""
    assert parsed[0].advertised_listeners == {"a": {"brokerServiceUrl": "pulsar://x:1"}}


def test_report_of_a_broker_with_tls_only_is_named_by_it() -> None:
    parsed = spoilt(webServiceUrl=None, webServiceUrlTls="https://b:8443")
    assert not isinstance(parsed, Rejected)
    assert parsed[0].envelope.broker == "b:8443"


STATS = {"msgRateIn": 1.0, "topics": 1}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"webServiceUrl": None}, RejectReason.MISSING_FIELD),
        ({"webServiceUrl": "no url"}, RejectReason.OUT_OF_RANGE),
        ({"webServiceUrl": "http://[::1"}, RejectReason.OUT_OF_RANGE),
        ({"webServiceUrl": 3}, RejectReason.WRONG_TYPE),
        ({"startTimestamp": None}, RejectReason.MISSING_FIELD),
        ({"startTimestamp": -1}, RejectReason.NEGATIVE),
        ({"lastUpdate": "now"}, RejectReason.WRONG_TYPE),
        ({"lastStats": None}, RejectReason.MISSING_FIELD),
        ({"lastStats": []}, RejectReason.WRONG_TYPE),
        ({"lastStats": {"acme/ns1/0x0_0x1": STATS}}, RejectReason.MALFORMED_BUNDLE),
        ({"lastStats": {"acme/ns1/0x00000000_0x10000000": 3}}, RejectReason.WRONG_TYPE),
        (
            {"lastStats": {"acme/ns1/0x00000000_0x10000000": {"msgRateIn": "NaN"}}},
            RejectReason.WRONG_TYPE,
        ),
        (
            {"lastStats": {"acme/ns1/0x00000000_0x10000000": {"msgRateIn": -1}}},
            RejectReason.NEGATIVE,
        ),
        ({"cpu": {"usage": float("nan"), "limit": 100}}, RejectReason.NOT_FINITE),
        ({"msgRateIn": -5}, RejectReason.NEGATIVE),
    ],
)
def test_report_that_can_not_be_used_names_the_reason(
    changes: dict[str, Any], reason: RejectReason
) -> None:
    rejected = spoilt(**changes)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://h:8080", "h:8080"),
        ("https://h:8443/", "h:8443"),
        ("http://user@h:1/x", "h:1"),
        ("http://[::1]:8080", "[::1]:8080"),
        ("h:8080", ""),
        ("", ""),
    ],
)
def test_broker_name_is_host_and_port(url: str, name: str) -> None:
    assert broker_name(url) == name


@pytest.mark.parametrize(
    ("namespace", "is_monitoring"),
    [
        ("pulsar/127.0.0.1:28080", True),
        ("pulsar/standalone/127.0.0.1:28080", True),
        ("sla-monitor/standalone/host:8080", True),
        ("pulsar/system", False),
        ("sla-monitor/host:8080", False),
        ("acme/host:8080", False),
        ("pulsar/a/b/host:8080", False),
        ("pulsar/host", False),
    ],
)
def test_monitoring_namespaces_are_those_of_pulsar(namespace: str, is_monitoring: bool) -> None:  # noqa: FBT001 a case's value
    assert is_monitoring_namespace(namespace) is is_monitoring


@given(raw=st.binary(max_size=60))
def test_report_of_arbitrary_bytes_is_rejected(raw: bytes) -> None:
    assert isinstance(parse_pulsar_report(raw, "local"), Rejected)

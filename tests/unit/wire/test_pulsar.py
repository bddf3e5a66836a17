"""Load reports as real Pulsar 4.0.8 brokers answered them become messages of ours."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lbcore.model.names import is_monitoring_namespace
from lbcore.model.resources import WIRE_NAMES, complete
from lbcore.wire.format import format_message
from lbcore.wire.loads import COUNTS, LISTENERS, URLS, VERSIONS
from lbcore.wire.messages import TRAFFIC, BrokerLoad, BundleLoad, Rejected, RejectReason
from lbcore.wire.parse import parse
from lbcore.wire.pulsar import (
    PulsarReport,
    broker_name,
    is_same_broker,
    parse_pulsar_report,
    runtime_addresses,
)
from tests.support.values.wire_messages import RULES, content

REPORTS = Path(__file__).parent / "pulsar_reports"
MODULAR = sorted(REPORTS.glob("*-broker-*.json"))


def read(path: Path) -> tuple[BrokerLoad, BundleLoad]:
    parsed = parse_pulsar_report(path.read_bytes(), "local")
    assert not isinstance(parsed, Rejected), parsed.detail
    assert parsed.unreported == {}
    return parsed.load, parsed.bundles


def spoilt(**changes: Any) -> PulsarReport | Rejected:
    report = json.loads((REPORTS / "busy-broker-1.json").read_text())
    return parse_pulsar_report(json.dumps({**report, **changes}).encode(), "local")


@pytest.mark.parametrize("path", MODULAR, ids=lambda path: path.stem)
def test_report_of_a_real_broker_is_read_unchanged(path: Path) -> None:
    load, bundles = read(path)
    for message in (load, bundles):
        assert content(parse(*format_message(message), RULES)) == content(message)
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


def test_broker_name_is_host_and_port() -> None:
    names = {
        "http://h:8080": "h:8080",
        "https://h:8443/": "h:8443",
        "http://user@h:1/x": "h:1",
        "http://[::1]:8080": "[::1]:8080",
        "h:8080": "",
        "": "",
    }
    assert {url: broker_name(url) for url in names} == names


def test_monitoring_namespaces_are_those_of_pulsar() -> None:
    host = "127.0.0.1:28080"
    for name in (f"pulsar/{host}", f"pulsar/standalone/{host}", f"sla-monitor/standalone/{host}"):
        assert is_monitoring_namespace(name)
    for name in ("pulsar/system", "sla-monitor/host:8080", "acme/host:8080", "pulsar/host:80a"):
        assert not is_monitoring_namespace(name)
    for name in ("pulsar/a/b/host:8080", "pulsar/host"):
        assert not is_monitoring_namespace(name)


def test_answer_of_the_extensible_manager_is_rejected() -> None:
    rejected = parse_pulsar_report((REPORTS / "extensible-error.json").read_bytes(), "local")
    assert isinstance(rejected, Rejected)
    assert rejected.reason is RejectReason.MISSING_FIELD


def test_report_with_nulls_is_read_as_if_they_were_not_there_and_named_by_its_tls_address() -> None:
    parsed = spoilt(
        webServiceUrlTls=None,
        advertisedListeners={
            "a": {"brokerServiceUrl": "pulsar://x:1", "brokerServiceUrlTls": None}
        },
    )
    assert not isinstance(parsed, Rejected)
    assert parsed.load.web_service_url_tls == ""
    assert parsed.load.advertised_listeners == {"a": {"brokerServiceUrl": "pulsar://x:1"}}
    parsed = spoilt(webServiceUrl=None, webServiceUrlTls="https://b:8443")
    assert not isinstance(parsed, Rejected)
    assert parsed.load.envelope.broker == "b:8443"


BUNDLE = "acme/ns1/0x00000000_0x10000000"
STATS = {"msgRateIn": 1.0, "topics": 1}


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"webServiceUrl": None}, RejectReason.MISSING_FIELD, "is this a load report"),
        ({"webServiceUrl": "no url"}, RejectReason.OUT_OF_RANGE, "host:port"),
        ({"webServiceUrl": "http://[::1"}, RejectReason.OUT_OF_RANGE, "host:port"),
        ({"webServiceUrl": 3}, RejectReason.MISSING_FIELD, "webServiceUrl"),
        ({"startTimestamp": None}, RejectReason.MISSING_FIELD, "upgrade the brokers to Pulsar 3.0"),
        ({"systemResourceUsage": {}}, RejectReason.MISSING_FIELD, "ModularLoadManagerImpl"),
    ],
)
def test_report_that_can_not_be_used_names_the_reason_and_what_to_do(
    changes: dict[str, Any], reason: RejectReason, words: str
) -> None:
    rejected = spoilt(**changes)
    assert isinstance(rejected, Rejected)
    assert rejected.reason is reason, rejected.detail
    assert words in rejected.detail


@pytest.mark.parametrize("raw", [b"", b"null", b" null\n"])
def test_answer_of_noop_load_manager_says_which_manager_to_take(raw: bytes) -> None:
    rejected = parse_pulsar_report(raw, "local")
    assert isinstance(rejected, Rejected)
    assert "NoopLoadManager" in rejected.detail
    assert "loadManagerClassName" in rejected.detail


HUGE = json.loads("1.8e308")
ODD = ("NaN", "1.0", float("nan"), -0.0016, -1, None, HUGE, -HUGE, [], {}, True, "Infinity")


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize(
    "field", ["cpu", "memory", "msgRateIn", "msgThroughputOut", "numTopics", "lastUpdate"]
)
def test_field_that_can_not_be_used_is_named_and_the_rest_of_the_report_stands(
    field: str, odd: Any
) -> None:
    whole, parsed = spoilt(), spoilt(**{field: odd})
    assert not isinstance(whole, Rejected)
    assert not isinstance(parsed, Rejected), parsed.detail
    assert list(parsed.unreported) == [field]
    assert parsed.bundles.names == whole.bundles.names
    kept = [name for name in WIRE_NAMES if name != field]
    for name in kept:
        at = WIRE_NAMES.index(name)
        assert parsed.load.usage[at] == whole.load.usage[at]
    assert parsed.load.traffic == pytest.approx(whole.load.traffic, rel=0.01)


@pytest.mark.parametrize("odd", ODD, ids=repr)
@pytest.mark.parametrize("part", ["usage", "limit"])
def test_resource_of_an_odd_usage_or_limit_is_unknown(part: str, odd: Any) -> None:
    parsed = spoilt(cpu={"usage": 20.0, "limit": 100.0, part: odd})
    assert not isinstance(parsed, Rejected)
    at = WIRE_NAMES.index("cpu")
    is_limit_unknown = part == "limit" and type(odd) in (int, float) and -1e18 <= odd <= 0
    assert list(parsed.unreported) == ([] if is_limit_unknown else ["cpu"])
    assert parsed.load.limit[at] <= 0.0


@pytest.mark.parametrize("odd", [one for one in ODD if one is not None], ids=repr)
@pytest.mark.parametrize("column", ["msgRateIn", "topics", "consumerCount"])
def test_odd_number_of_one_bundle_is_named_and_no_other_number_is_lost(
    column: str, odd: Any
) -> None:
    other = "acme/ns1/0x10000000_0xffffffff"
    parsed = spoilt(lastStats={BUNDLE: {**STATS, "msgRateOut": 5.0, column: odd}, other: STATS})
    assert not isinstance(parsed, Rejected)
    assert list(parsed.unreported) == [f"lastStats.{column}"]
    assert parsed.bundles.names == (BUNDLE, other)
    assert parsed.bundles.stats[0, 1] == 5.0
    assert parsed.bundles.stats[1, 0] == 1.0


@pytest.mark.parametrize("stats", [None, [], 3, "x"])
def test_report_without_statistics_of_bundles_has_its_own_load_still(stats: Any) -> None:
    parsed = spoilt(lastStats=stats)
    assert not isinstance(parsed, Rejected)
    assert list(parsed.unreported) == ["lastStats"]
    assert parsed.bundles.names == ()
    assert parsed.load.traffic[0] > 0.0


@pytest.mark.parametrize("name", ["acme/ns1/0x0_0x1", "rubbish", "", BUNDLE])
def test_bundle_without_a_name_or_statistics_is_left_out_and_named(name: str) -> None:
    row = None if name == BUNDLE else STATS
    other = "acme/ns1/0x10000000_0xffffffff"
    parsed = spoilt(lastStats={name: row, other: STATS})
    assert not isinstance(parsed, Rejected)
    assert list(parsed.unreported) == ["lastStats"]
    assert parsed.bundles.names == (other,)


@pytest.mark.parametrize("odd", [0, -1, "now", float("nan"), HUGE])
def test_odd_start_of_a_broker_leaves_the_incarnation_open(odd: Any) -> None:
    parsed = spoilt(startTimestamp=odd)
    assert not isinstance(parsed, Rejected)
    assert list(parsed.unreported) == ["startTimestamp"]
    assert parsed.load.envelope.incarnation == ""
    assert parsed.with_sender(incarnation="7").bundles.envelope.incarnation == "7"


def test_fields_that_can_be_named_are_a_closed_set() -> None:
    names = {*WIRE_NAMES, *TRAFFIC, *COUNTS, *URLS, *VERSIONS, *LISTENERS}
    names |= {"lastUpdate", "startTimestamp", "lastStats"}
    odd: dict[str, Any] = {name: [] for name in sorted(names - {"webServiceUrl"})}
    parsed = spoilt(**odd)
    assert not isinstance(parsed, Rejected)
    assert parsed.unreported.keys() == odd.keys()


def test_addresses_are_those_of_the_web_service_and_of_every_listener() -> None:
    listeners = {"internal": {"brokerServiceUrl": "pulsar://c:1", "brokerHttpUrl": "http://c:2"}}
    parsed = spoilt(
        webServiceUrl="http://A:1", webServiceUrlTls="https://b:2", advertisedListeners=listeners
    )
    assert not isinstance(parsed, Rejected)
    assert parsed.addresses == {"A:1", "b:2", "c:2"}
    assert is_same_broker(parsed.addresses, ("a:1",))
    assert not is_same_broker(parsed.addresses, ("c:1", ""))


def test_addresses_of_a_runtime_configuration_are_its_web_ports() -> None:
    told = {"advertisedAddress": "a", "webServicePort": "Optional[1]", "webServicePortTls": "2"}
    assert runtime_addresses(told) == {"a:1": "http", "a:2": "https"}
    assert runtime_addresses({**told, "webServicePort": "Optional.empty"}) == {"a:2": "https"}
    assert runtime_addresses({**told, "advertisedAddress": ""}) == {}
    unset = {**told, "advertisedAddress": "null"}
    assert runtime_addresses(unset, "b") == {"b:1": "http", "b:2": "https"}


@given(raw=st.binary(max_size=60))
def test_report_of_arbitrary_bytes_is_rejected(raw: bytes) -> None:
    assert isinstance(parse_pulsar_report(raw, "local"), Rejected)

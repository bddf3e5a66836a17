"""A Pulsar broker's load report as the two messages of an agent.

A field that can't be used counts as not reported and is named: Java writes NaN as text, rates a
little below 0, a limit of 1.8e308, or null. Bundles of the namespaces in which brokers monitor
themselves are left out. Source: Pulsar 4.0.8, LocalBrokerData as /admin/v2/broker-stats/load-report
answers it (modular manager; the extensible one answers 500, which is Rejected here).
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from lbcore.model.names import is_monitoring_namespace
from lbcore.model.resources import WIRE_NAMES
from lbcore.wire import fields
from lbcore.wire.fields import MAX_INT64, FieldRefusal, check_bundle, check_bundles
from lbcore.wire.loads import COUNTS, LISTENERS, OFFERED, URLS, VERSIONS, read_field, read_load
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Floats,
    Rejected,
    RejectReason,
)

MAX_REPORT_BYTES = 64 * 1_048_576
MAX_CHARS = 4_096
_ALWAYS = (*WIRE_NAMES, *TRAFFIC, *COUNTS, "lastUpdate")
"""Fields that a LocalBrokerData of Pulsar 3.0 to 5.0 always has."""
_OPTIONAL = (*URLS, *VERSIONS, *LISTENERS)
_HTTP_URLS = ("brokerHttpUrl", "brokerHttpsUrl")
_PORT = re.compile(r"(?:Optional\[)?(\d{1,5})\]?")
_NO_MEASURES = (
    "NoopLoadManager measures nothing: set loadManagerClassName to ModularLoadManagerImpl or"
    " ExtensibleLoadManagerImpl on every broker, and restart them"
)
_SIMPLE = (
    "it is one of SimpleLoadManagerImpl: set loadManagerClassName to ModularLoadManagerImpl or"
    " ExtensibleLoadManagerImpl on every broker, and restart them"
)
_TOO_OLD = (
    "startTimestamp is missing, as in reports of Pulsar before 3.0, which can't unload a bundle to"
    " a chosen broker either: upgrade the brokers to Pulsar 3.0 or later"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PulsarReport:
    """Contents of a load report.

    addresses: host:port of the web addresses that the broker reports as its own. unreported: field
    → why it counts as not reported. Without startTimestamp the incarnation is "".
    """

    load: BrokerLoad
    bundles: BundleLoad
    addresses: frozenset[str]
    unreported: Mapping[str, str]

    def with_sender(self, **sender: Any) -> "PulsarReport":
        """Return the report with another broker or incarnation in its envelope.

        The name by which Pulsar lists the broker, or a start that is known from elsewhere.
        """
        envelope = replace(self.load.envelope, **sender)
        return replace(
            self,
            load=replace(self.load, envelope=envelope),
            bundles=replace(self.bundles, envelope=envelope),
        )


def parse_pulsar_report(raw: bytes, cluster: str) -> PulsarReport | Rejected:
    """Return the broker's load and all its bundles, or the report's fault.

    The bundles are one part. The envelope's incarnation is startTimestamp; seq and reported_at_ms
    are lastUpdate, so a report that is read twice is a duplicate. bundle_count stays Pulsar's, with
    the bundles that are left out. Never raises on any bytes; O(bundles).
    """
    try:
        report = _decode(raw)
        unreported: dict[str, str] = {}
        _drop_unusable(report, unreported)
        updated_at_ms = report["lastUpdate"]
        envelope = Envelope(
            cluster=cluster,
            broker=_read_broker(report),
            incarnation=_read_start(report, unreported),
            seq=updated_at_ms,
            reported_at_ms=updated_at_ms,
        )
        bundles = _read_bundles(report, envelope, unreported)
        for at, name in enumerate(TRAFFIC):  # what all its bundles carry stands for the broker's
            report.setdefault(name, float(bundles.stats[:, at].sum()))
        for ours in ("labels", "draining", OFFERED):  # no fields of Pulsar's
            report.pop(ours, None)
        return PulsarReport(
            load=read_load(report, envelope, MAX_CHARS),
            bundles=bundles,
            addresses=_addresses(report),
            unreported=unreported,
        )
    except FieldRefusal as refusal:
        return Rejected(reason=refusal.reason, detail=refusal.detail, raw=raw, cluster=cluster)


def broker_name(url: str) -> str:
    """Return host:port of a web service URL, as Pulsar names brokers; "" = none."""
    try:
        place = urlsplit(url).netloc
    except ValueError:
        return ""
    return place.rpartition("@")[2]


def is_same_broker(addresses: Collection[str], names: Collection[str]) -> bool:
    """True when one of the addresses, host:port, is one of the names."""
    return not {one.lower() for one in addresses}.isdisjoint(one.lower() for one in names if one)


def runtime_addresses(settings: Mapping[str, str], default: str = "") -> Mapping[str, str]:
    """Return host:port → scheme of a broker's web addresses; {} = unknown.

    By its configuration. default: the host where the configuration names none.
    """
    host = settings.get("advertisedAddress", "").strip().removesuffix("null") or default
    ports = {"http": settings.get("webServicePort"), "https": settings.get("webServicePortTls")}
    return {
        f"{host}:{found[1]}": scheme
        for scheme, port in ports.items()
        if host and (found := _PORT.fullmatch(port or ""))
    }


def _decode(raw: bytes) -> dict[str, Any]:
    if len(raw) > MAX_REPORT_BYTES:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"the report has {len(raw)} bytes and the limit is {MAX_REPORT_BYTES}",
        )
    if raw.strip() in (b"", b"null"):
        raise FieldRefusal(RejectReason.NOT_AN_OBJECT, f"there is none; {_NO_MEASURES}")
    decoded = fields.decode_object(raw, json.loads, "report")
    if "systemResourceUsage" in decoded:
        raise FieldRefusal(RejectReason.MISSING_FIELD, _SIMPLE)
    return _without_nulls(decoded)


def _without_nulls(report: Mapping[str, Any]) -> dict[str, Any]:
    """Java writes null for what isn't there."""
    return {name: value for name, value in report.items() if value is not None}


def _drop_unusable(report: dict[str, Any], unreported: dict[str, str]) -> None:
    """Remove unusable fields; record them and missing required ones in `unreported`."""
    listeners = report.get("advertisedListeners")
    if isinstance(listeners, Mapping):
        report["advertisedListeners"] = {
            name: _without_nulls(urls) if isinstance(urls, Mapping) else urls
            for name, urls in listeners.items()
        }
    for name in (*_ALWAYS, *_OPTIONAL):
        if name not in report:
            if name in _ALWAYS:
                unreported[name] = f"{name} is missing or null"
            continue
        try:
            if name == "lastUpdate":
                fields.integer(report, name)
            else:
                read_field(report, name, MAX_CHARS)
        except FieldRefusal as refusal:
            unreported[name] = refusal.detail
            del report[name]
    report["lastUpdate"] = int(report.get("lastUpdate", 0))


def _read_start(report: Mapping[str, Any], unreported: dict[str, str]) -> str:
    """startTimestamp; "" for one that is no time; FieldRefusal without one."""
    if "startTimestamp" not in report:
        raise FieldRefusal(RejectReason.MISSING_FIELD, _TOO_OLD)
    try:
        return str(fields.integer(report, "startTimestamp", minimum=1, maximum=MAX_INT64))
    except FieldRefusal as refusal:
        unreported["startTimestamp"] = refusal.detail
        return ""


def _read_broker(report: Mapping[str, Any]) -> str:
    field = "webServiceUrl" if "webServiceUrl" in report else "webServiceUrlTls"
    if field not in report:
        raise FieldRefusal(
            RejectReason.MISSING_FIELD,
            "webServiceUrl is missing, so the broker has no name; is this a load report? Ballast"
            " reads those of ModularLoadManagerImpl, Pulsar 3.0 or later",
        )
    name, label = broker_name(fields.text(report, field, MAX_CHARS)), f"host:port of {field}"
    return fields.name({label: name}, label, MAX_CHARS)


def _addresses(report: Mapping[str, Any]) -> frozenset[str]:
    """Those of its web service, of the internal listener and of all others."""
    urls = [report.get(name, "") for name in ("webServiceUrl", "webServiceUrlTls")]
    for listener in report.get("advertisedListeners", {}).values():
        urls += [listener.get(name, "") for name in _HTTP_URLS]
    return frozenset(filter(None, map(broker_name, urls)))


def _read_bundles(
    report: Mapping[str, Any], envelope: Envelope, unreported: dict[str, str]
) -> BundleLoad:
    """Return the bundles of lastStats in order, without those that watch the broker."""
    try:
        stats = fields.mapping(report, "lastStats")
    except FieldRefusal as refusal:
        unreported["lastStats"] = refusal.detail
        stats = {}
    kept = {
        name: row
        for name, row in stats.items()
        if not is_monitoring_namespace(name.rpartition("/")[0])
    }
    try:
        names, table = _table(kept)
    except FieldRefusal:
        names, table = _table(_usable_rows(kept, unreported))
    return BundleLoad(envelope=envelope, part=0, parts=1, names=names, stats=table)


def _table(stats: Mapping[str, Any]) -> tuple[tuple[str, ...], Floats]:
    names = tuple(stats)
    check_bundles(names)
    rows = [fields.mapping(stats, name) for name in names]
    columns = {field: [row.get(field, 0) for row in rows] for field in BUNDLE_COLUMNS}
    return names, fields.table(columns, len(names), fields.COUNT_COLUMNS)


def _usable_rows(stats: Mapping[str, Any], unreported: dict[str, str]) -> dict[str, Any]:
    """Return the rows with 0 for unusable columns, as for absent ones."""
    found: dict[str, Any] = {}
    for name, row in stats.items():
        try:
            check_bundle(name)
            found[name] = dict(fields.mapping(stats, name))
        except FieldRefusal as refusal:
            unreported.setdefault("lastStats", refusal.detail)
            continue
        for column in set(BUNDLE_COLUMNS) & row.keys():
            label, is_count = f"{column} of {name}", column in fields.COUNT_COLUMNS
            read = fields.count if is_count else fields.number
            try:
                read({label: row[column]}, label)
            except FieldRefusal as refusal:
                del found[name][column]
                unreported.setdefault(f"lastStats.{column}", refusal.detail)
    return found

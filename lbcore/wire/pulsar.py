"""A real Pulsar broker's load report as the two messages that an agent would have sent.

Decides what of a report is used and what a broker is called: host:port of its web service. Bundles
that a broker keeps for watching itself are left out. The bridge and tests call it.
Source: Pulsar 4.0.8, LocalBrokerData as /admin/v2/broker-stats/load-report answers it (modular
manager; the extensible one answers 500, which is Rejected here).
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from lbcore.model.monitoring import is_monitoring_namespace
from lbcore.wire import fields
from lbcore.wire.broker_load import read_load
from lbcore.wire.bundles import check_bundles
from lbcore.wire.fields import FieldRefusal, shown
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Rejected,
    RejectReason,
)
from lbcore.wire.rules import MAX_INT64

MAX_REPORT_BYTES = 64 * 1_048_576
MAX_CHARS = 4_096


def parse_pulsar_report(
    raw: bytes, cluster: str, loads: Callable[[str], Any] = json.loads
) -> tuple[BrokerLoad, BundleLoad] | Rejected:
    """The broker's load and all its bundles in one part, or why the report can't be used.

    The envelope's incarnation is startTimestamp; seq and reported_at_ms are lastUpdate, so a report
    that is read twice is a duplicate. bundle_count stays Pulsar's, with the bundles that are left
    out. loads: its errors are ValueError. Never raises on any bytes; O(bundles).
    """
    try:
        return _read_report(_decode(raw, loads), cluster)
    except FieldRefusal as refusal:
        return Rejected(reason=refusal.reason, detail=refusal.detail, raw=raw, cluster=cluster)


def broker_name(url: str) -> str:
    """host:port of a web service URL, as Pulsar names its brokers; "" when there is none."""
    try:
        place = urlsplit(url).netloc
    except ValueError:
        return ""
    return place.rpartition("@")[2]


def _decode(raw: bytes, loads: Callable[[str], Any]) -> dict[str, Any]:
    if len(raw) > MAX_REPORT_BYTES:
        detail = f"the report has {len(raw)} bytes and the limit is {MAX_REPORT_BYTES}"
        raise FieldRefusal(RejectReason.TOO_LARGE, detail)
    try:
        decoded = loads(raw.decode())
    except (ValueError, RecursionError) as error:
        detail = f"the report is not JSON in UTF-8: {shown(str(error))}"
        raise FieldRefusal(RejectReason.NOT_JSON, detail) from None
    if type(decoded) is not dict:
        detail = f"the report must be a JSON object, got {shown(decoded)}"
        raise FieldRefusal(RejectReason.NOT_AN_OBJECT, detail)
    return _without_nulls(decoded)


def _without_nulls(report: Mapping[str, Any]) -> dict[str, Any]:
    """Java writes null for what isn't there."""
    return {name: value for name, value in report.items() if value is not None}


def _read_report(report: dict[str, Any], cluster: str) -> tuple[BrokerLoad, BundleLoad]:
    updated_at_ms = fields.integer(report, "lastUpdate")
    envelope = Envelope(
        cluster=cluster,
        broker=_read_broker(report),
        incarnation=str(fields.integer(report, "startTimestamp", maximum=MAX_INT64)),
        seq=updated_at_ms,
        reported_at_ms=updated_at_ms,
    )
    listeners = fields.mapping(report, "advertisedListeners", {})
    report["advertisedListeners"] = {
        listener: _without_nulls(fields.mapping(listeners, listener)) for listener in listeners
    }
    for ours in ("labels", "draining"):  # no fields of Pulsar's
        report.pop(ours, None)
    return read_load(report, envelope, MAX_CHARS), _read_bundles(report, envelope)


def _read_broker(report: Mapping[str, Any]) -> str:
    field = "webServiceUrl" if "webServiceUrl" in report else "webServiceUrlTls"
    if field not in report:
        detail = "webServiceUrl is missing, so the broker has no name; is this a load report?"
        raise FieldRefusal(RejectReason.MISSING_FIELD, detail)
    url = fields.text(report, field, MAX_CHARS)
    name = broker_name(url)
    return fields.name({f"host:port of {field}": name}, f"host:port of {field}", MAX_CHARS)


def _read_bundles(report: Mapping[str, Any], envelope: Envelope) -> BundleLoad:
    """Every bundle of lastStats but those that watch the broker, in the report's order."""
    stats = fields.mapping(report, "lastStats")
    names = tuple(name for name in stats if not is_monitoring_namespace(name.rpartition("/")[0]))
    check_bundles(names)
    rows = [fields.mapping(stats, name) for name in names]
    columns = {field: [row.get(field, 0) for row in rows] for field in BUNDLE_COLUMNS}
    return BundleLoad(
        envelope=envelope,
        part=0,
        parts=1,
        names=names,
        stats=fields.table(columns, len(names), fields.COUNT_COLUMNS),
    )

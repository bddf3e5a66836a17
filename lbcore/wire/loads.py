"""Messages of broker-load, bundle-load and topic-load.

broker-load has ticks (recognized by key), heartbeats (without any field of load) and brokers' own
load. bundle-load and topic-load have tables by columns; a bundle report may come in several parts.
Source: Pulsar's LocalBrokerData and NamespaceBundleStats (4.0.8).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from lbcore.model.resources import WIRE_NAMES
from lbcore.wire import fields
from lbcore.wire.fields import (
    MAX_NUMBER,
    MIN_POSITIVE_LIMIT,
    Context,
    FieldRefusal,
    check_bundle,
    check_bundles,
    check_key,
    first_duplicate,
    read_envelope,
    shown,
)
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    BrokerLoad,
    BundleLoad,
    Envelope,
    Floats,
    Heartbeat,
    RejectReason,
    Tick,
    TopicLoad,
)


def read_bundle_load(message: Mapping[str, Any], context: Context) -> BundleLoad:
    """A message of bundle-load: parts are numbered from 0."""
    envelope = read_envelope(message, context)
    check_key(context, envelope.broker)
    max_parts = context.limits.max_parts
    part, parts = fields.integer(message, "part"), fields.integer(message, "parts")
    if not part < parts <= max_parts:
        raise FieldRefusal(
            RejectReason.BAD_PART,
            f"part must be below parts, and parts at most {max_parts}, got {part} of {parts}",
        )
    columns = fields.mapping(message, "bundles")
    names, stats = _read_table(
        columns, BUNDLE_COLUMNS, context.limits.max_bundles_per_message, context
    )
    check_bundles(names)
    return BundleLoad(envelope=envelope, part=part, parts=parts, names=names, stats=stats)


def read_topic_load(message: Mapping[str, Any], context: Context) -> TopicLoad:
    """A message of topic-load: the whole set of the bundle's topics."""
    envelope = read_envelope(message, context)
    bundle = fields.nonempty(message, "bundle", context.limits.max_name_chars)
    check_bundle(bundle)
    check_key(context, bundle)
    columns = fields.mapping(message, "topics")
    topics, traffic = _read_table(columns, TRAFFIC, context.limits.max_topics_per_message, context)
    if len(set(topics)) < len(topics):
        raise FieldRefusal(
            RejectReason.DUPLICATE_TOPIC, f"{shown(first_duplicate(topics))} comes twice"
        )
    return TopicLoad(envelope=envelope, bundle=bundle, topics=topics, traffic=traffic)


def _read_table(
    columns: Mapping[str, Any], numbers: Sequence[str], max_rows: int, context: Context
) -> tuple[tuple[str, ...], Floats]:
    """The column `name`, and the numbers as float64[rows, len(numbers)]."""
    items = fields.column(columns, "name", max_rows)
    names = fields.names(items, "name", context.limits.max_name_chars)
    by_name = {field: fields.column(columns, field, max_rows) for field in numbers}
    return names, fields.table(by_name, len(names), fields.COUNT_COLUMNS)


TICK_KEY = "~tick"
OFFERED = "msgRateOffered"
COUNTS = {
    "numTopics": "topic_count",
    "numBundles": "bundle_count",
    "numConsumers": "consumer_count",
    "numProducers": "producer_count",
}
URLS = {
    "webServiceUrl": "web_service_url",
    "webServiceUrlTls": "web_service_url_tls",
    "pulsarServiceUrl": "pulsar_service_url",
    "pulsarServiceUrlTls": "pulsar_service_url_tls",
}
LISTENERS = {"advertisedListeners": "advertised_listeners"}
VERSIONS = {
    "brokerVersionString": "broker_version",
    "loadManagerClassName": "load_manager_class",
}
LABELS = {"failureDomain": "failure_domain", "capacity": "capacity"}
"""Fields of the object `labels`."""

OPTIONAL: Mapping[str, str] = {
    **(COUNTS | URLS | LISTENERS | VERSIONS | LABELS),
    "draining": "is_draining",
    OFFERED: "offered_msg_rate",
}
"""Field → attribute of BrokerLoad; if absent, the attribute's default holds."""

LOAD_FIELDS = frozenset({*WIRE_NAMES, *TRAFFIC, *OPTIONAL, "labels"} - LABELS.keys())
"""A message with any of these is a load; without them it is a heartbeat."""

MAX_LISTENERS = 100
MAX_CAPACITY = 1e6


def read_broker_load(message: Mapping[str, Any], context: Context) -> Tick | Heartbeat | BrokerLoad:
    """A message of broker-load."""
    if context.key.endswith(f"/{TICK_KEY}"):
        check_key(context, TICK_KEY)
        return Tick(cluster=context.cluster, number=fields.integer(message, "tick"))
    envelope = read_envelope(message, context)
    check_key(context, envelope.broker)
    if LOAD_FIELDS.isdisjoint(message):
        return Heartbeat(envelope=envelope)
    return read_load(message, envelope, context.limits.max_text_chars)


def read_load(message: Mapping[str, Any], envelope: Envelope, max_chars: int) -> BrokerLoad:
    """Read a broker's load by Pulsar's field names; absent resources get limit -1."""
    pairs = np.array([_resource(message, field) for field in WIRE_NAMES])
    labels = fields.mapping(message, "labels", {})
    return BrokerLoad(
        envelope=envelope,
        usage=pairs[:, 0].copy(),
        limit=pairs[:, 1].copy(),
        traffic=fields.flushed(np.array([fields.number(message, field) for field in TRAFFIC])),
        **{
            attribute: read_field(given, field, max_chars)
            for field, attribute in OPTIONAL.items()
            if field in (given := labels if field in LABELS else message)
        },
    )


def read_field(message: Mapping[str, Any], field: str, max_chars: int) -> Any:
    """The value of one field, which must be there; raises FieldRefusal."""
    if field in LISTENERS:
        return _listeners(message, max_chars)
    read = _READERS.get(field)
    return read(message, field) if read else fields.text(message, field, max_chars)


def _resource(message: Mapping[str, Any], field: str) -> tuple[float, float]:
    """Return usage and limit; a limit <= 0 is unknown, and its usage ignored."""
    if field not in message:
        return 0.0, -1.0
    pair = fields.mapping(message, field)
    named = {f"{field}.{part}": pair[part] for part in ("usage", "limit") if part in pair}
    limit = fields.number(named, f"{field}.limit", minimum=-MAX_NUMBER)
    if 0.0 < limit < MIN_POSITIVE_LIMIT:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE,
            f"{field}.limit must be at least {MIN_POSITIVE_LIMIT} or not positive, got {limit}",
        )
    minimum = 0.0 if limit > 0.0 else -MAX_NUMBER
    return fields.number(named, f"{field}.usage", minimum=minimum), limit


_READERS: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    **dict.fromkeys(WIRE_NAMES, _resource),
    **dict.fromkeys(COUNTS, fields.count),
    **dict.fromkeys((*TRAFFIC, OFFERED), fields.number),
    "capacity": partial(fields.number, minimum=MIN_POSITIVE_LIMIT, maximum=MAX_CAPACITY),
    "draining": fields.flag,
}
"""Field → its reader, where it is no text."""


def _listeners(message: Mapping[str, Any], max_chars: int) -> Mapping[str, Mapping[str, str]]:
    """Listener → its URLs by Pulsar's names (brokerServiceUrl, brokerHttpUrl, ...)."""
    listeners = fields.mapping(message, "advertisedListeners", {})
    if len(listeners) > MAX_LISTENERS:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"advertisedListeners must be at most {MAX_LISTENERS}, got {len(listeners)}",
        )
    return {
        listener: {
            kind: fields.text(urls, kind, max_chars) for kind in fields.mapping(listeners, listener)
        }
        for listener, urls in listeners.items()
    }

"""The inverse of `parse`: every message as the key and value of one Kafka record.

JSON in UTF-8 with sorted keys and without blanks, so equal messages give equal bytes; fields that
hold the default of `parse` are left out. Agents, the services and the driver write through here.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lbcore.model.names import Wire
from lbcore.model.resources import WIRE_NAMES
from lbcore.wire.fields import OLDEST_SCHEMA, SCHEMA
from lbcore.wire.loads import LABELS, OPTIONAL, TICK_KEY
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    Acks,
    AuditEntry,
    BrokerLoad,
    BundleLoad,
    Command,
    Envelope,
    Floats,
    Heartbeat,
    Message,
    Tick,
    Topic,
    TopicLoad,
)

Written = tuple[Topic, bytes, bytes]
Fields = Mapping[str, Any]
HEAD_BYTES = 16_384
"""Maximum bytes of a message without its rows or arguments: fields, and four encoded names."""
_DEFAULTS: Fields = {one.name: one.default for one in dataclasses.fields(BrokerLoad)} | {
    "advertised_listeners": {}
}


def format_message(message: Message) -> Written:
    """Topic (without prefix), key and value of the record that carries the message.

    Raises ValueError for numbers that JSON doesn't have.
    """
    if isinstance(message, Tick):
        fields = {"schema": OLDEST_SCHEMA, "cluster": message.cluster, "tick": message.number}
        return Topic.BROKER_LOAD, f"{message.cluster}/{TICK_KEY}".encode(), encode(fields)
    if isinstance(message, Command | AuditEntry):
        topic = Topic.COMMANDS if isinstance(message, Command) else Topic.AUDIT
        named = {one.name: getattr(message, one.name) for one in dataclasses.fields(message)}
        return topic, message.cluster.encode(), encode({"schema": SCHEMA, **named})
    envelope = message.envelope
    topic, place, own = _report(message)
    fields = {
        "schema": SCHEMA,
        "cluster": envelope.cluster,
        "broker": envelope.broker,
        "incarnation": envelope.incarnation,
        "seq": envelope.seq,
        "reportedAt": envelope.reported_at_ms,
        **own,
    }
    return topic, f"{envelope.cluster}/{place}".encode(), encode(fields)


def encode(fields: Fields) -> bytes:
    """Encode a JSON object as bytes. Raises ValueError for NaN.

    Sorted keys, no blanks, UTF-8.
    """
    return json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def bundle_load_parts(
    envelope: Envelope, names: Sequence[str], stats: Floats, max_bundles: int
) -> tuple[BundleLoad, ...]:
    """A broker's whole bundle load as parts of at most max_bundles, one at least.

    stats: float64[len(names), 8] in the order of BUNDLE_COLUMNS. All parts share the seq.
    """
    starts = range(0, max(1, len(names)), max_bundles)
    return tuple(
        BundleLoad(
            envelope=envelope,
            part=part,
            parts=len(starts),
            names=tuple(names[start : start + max_bundles]),
            stats=stats[start : start + max_bundles],
        )
        for part, start in enumerate(starts)
    )


def busiest_topics(topics: Sequence[str], traffic: Floats) -> tuple[tuple[str, ...], Floats]:
    """Return a bundle's busiest topics, as many as a message may have, in their order.

    traffic: float64[topics, 4] in the order of TRAFFIC. The traffic of those left out is spread
    evenly over the others: plans compare the sum of a bundle's topics with limits. O(topics).
    """
    limits, total = Wire(), traffic.sum(axis=0)
    busiest = np.argsort(-(traffic / np.maximum(total, 1.0)).sum(axis=1), kind="stable")
    count = min(len(topics), limits.max_topics_per_message)
    while True:
        rows = np.sort(busiest[:count])
        names, kept = tuple(topics[row] for row in rows.tolist()), traffic[rows]
        kept = kept + np.maximum(total - kept.sum(axis=0), 0.0) / max(count, 1)
        size = HEAD_BYTES + len(encode({"name": names, **_columns(TRAFFIC, kept)}))
        if size <= limits.max_message_bytes or count <= 1:
            return names, kept
        count = max(count * limits.max_message_bytes // size, 1)


def _report(
    message: Heartbeat | BrokerLoad | BundleLoad | TopicLoad | Acks,
) -> tuple[Topic, str, Fields]:
    """Topic of a report, what is in its key beside the cluster, and its own fields."""
    broker = message.envelope.broker
    if isinstance(message, Heartbeat):
        return Topic.BROKER_LOAD, broker, {}
    if isinstance(message, BrokerLoad):
        return Topic.BROKER_LOAD, broker, _broker_load(message)
    if isinstance(message, BundleLoad):
        bundles = {"name": message.names, **_columns(BUNDLE_COLUMNS, message.stats)}
        fields = {"part": message.part, "parts": message.parts, "bundles": bundles}
        return Topic.BUNDLE_LOAD, broker, fields
    if isinstance(message, TopicLoad):
        topics = {"name": message.topics, **_columns(TRAFFIC, message.traffic)}
        return Topic.TOPIC_LOAD, message.bundle, {"bundle": message.bundle, "topics": topics}
    acks = [
        {"bundle": ack.bundle, "versionId": ack.version_id, "outcome": ack.outcome.value}
        | ({"reason": reason} if (reason := plain_text(ack.reason)) else {})
        for ack in message.acks
    ]
    return Topic.ACKS, broker, {"acks": acks}


def _broker_load(load: BrokerLoad) -> Fields:
    pairs = zip(WIRE_NAMES, load.usage.tolist(), load.limit.tolist(), strict=True)
    optional = {
        field: value
        for field, attribute in OPTIONAL.items()
        if (value := getattr(load, attribute)) != _DEFAULTS[attribute]
    }
    labels = {field: optional.pop(field) for field in LABELS if field in optional}
    return {
        **{name: {"usage": usage, "limit": limit} for name, usage, limit in pairs},
        **dict(zip(TRAFFIC, load.traffic.tolist(), strict=True)),
        **optional,
        **({"labels": labels} if labels else {}),
    }


def _columns(columns: Sequence[str], numbers: Floats) -> dict[str, list[float] | list[int]]:
    return {
        field: numbers[:, index].tolist()
        if field in TRAFFIC
        else numbers[:, index].astype(np.int64).tolist()
        for index, field in enumerate(columns)
    }


REASON_CHARS_MAX = 256
"""Longest reason that is sent; no receiver's wire.max_text_chars may be set lower."""

_CUT = "..."
_LONE_SURROGATES = range(0xD800, 0xE000)


def plain_text(text: str, max_chars: int = REASON_CHARS_MAX) -> str:
    """Return at most max_chars of the text, with each run of blanks as one.

    Line breaks are blanks; ends are trimmed. Control characters become blanks, lone surrogates
    question marks. What is cut ends in "...". A text that needs nothing stays the same.
    O(max_chars), however long the text is.
    """
    head = str(text[: 4 * max_chars])
    words = " ".join("".join(map(_printable, head)).split())
    is_cut = len(words) > max_chars or len(head) < len(text)
    return words[: max_chars - len(_CUT)].rstrip() + _CUT if is_cut else words


def _printable(char: str) -> str:
    if ord(char) in _LONE_SURROGATES:
        return "?"
    return char if char.isprintable() else " "

"""The inverse of `parse`: every message as the key and value of one Kafka record.

JSON in UTF-8 with sorted keys and without blanks, so equal messages give equal bytes; fields that
hold the default of `parse` are left out. Agents, the services and the driver write through here.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lbcore.model.resources import WIRE_NAMES
from lbcore.wire.fields import OLDEST_SCHEMA, SCHEMA
from lbcore.wire.loads import OFFERED, TICK_KEY
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    NOT_REPORTED,
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


def format_message(message: Message) -> Written:
    """Topic (without prefix), key and value of the record that carries the message.

    Raises ValueError for numbers that JSON doesn't have.
    """
    topic, key, fields = _WRITERS[type(message)](message)
    return topic, key.encode(), encode(fields)


def encode(fields: Fields) -> bytes:
    """Encode a JSON object as bytes. Raises ValueError for NaN.

    Sorted keys, no blanks, UTF-8.
    """
    text = json.dumps(
        fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


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


def _envelope(envelope: Envelope) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "cluster": envelope.cluster,
        "broker": envelope.broker,
        "incarnation": envelope.incarnation,
        "seq": envelope.seq,
        "reportedAt": envelope.reported_at_ms,
    }


def _broker_key(envelope: Envelope) -> str:
    return f"{envelope.cluster}/{envelope.broker}"


def _columns(columns: Sequence[str], numbers: Floats) -> dict[str, list[float] | list[int]]:
    return {
        field: numbers[:, index].tolist()
        if field in TRAFFIC
        else numbers[:, index].astype(np.int64).tolist()
        for index, field in enumerate(columns)
    }


def _without_defaults(fields: Fields, defaults: Fields) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value != defaults.get(name)}


def _tick(tick: Tick) -> tuple[Topic, str, Fields]:
    fields = {"schema": OLDEST_SCHEMA, "cluster": tick.cluster, "tick": tick.number}
    return Topic.BROKER_LOAD, f"{tick.cluster}/{TICK_KEY}", fields


def _heartbeat(heartbeat: Heartbeat) -> tuple[Topic, str, Fields]:
    envelope = heartbeat.envelope
    return Topic.BROKER_LOAD, _broker_key(envelope), _envelope(envelope)


def _broker_load(load: BrokerLoad) -> tuple[Topic, str, Fields]:
    envelope = load.envelope
    pairs = zip(WIRE_NAMES, load.usage.tolist(), load.limit.tolist(), strict=True)
    resources = {name: {"usage": usage, "limit": limit} for name, usage, limit in pairs}
    traffic = dict(zip(TRAFFIC, load.traffic.tolist(), strict=True))
    labels = _without_defaults(
        {"failureDomain": load.failure_domain, "capacity": load.capacity},
        {"failureDomain": "", "capacity": 1.0},
    )
    counts = {
        "numTopics": load.topic_count,
        "numBundles": load.bundle_count,
        "numConsumers": load.consumer_count,
        "numProducers": load.producer_count,
    }
    texts = {
        "webServiceUrl": load.web_service_url,
        "webServiceUrlTls": load.web_service_url_tls,
        "pulsarServiceUrl": load.pulsar_service_url,
        "pulsarServiceUrlTls": load.pulsar_service_url_tls,
        "brokerVersionString": load.broker_version,
        "loadManagerClassName": load.load_manager_class,
    }
    others = {
        "advertisedListeners": load.advertised_listeners,
        "labels": labels,
        "draining": load.is_draining,
        OFFERED: load.offered_msg_rate,
    }
    defaults = {"advertisedListeners": {}, "labels": {}, "draining": False, OFFERED: NOT_REPORTED}
    about = {
        **_without_defaults(counts, dict.fromkeys(counts, 0)),
        **_without_defaults(texts, dict.fromkeys(texts, "")),
        **_without_defaults(others, defaults),
    }
    return (
        Topic.BROKER_LOAD,
        _broker_key(envelope),
        {**_envelope(envelope), **resources, **traffic, **about},
    )


def _bundle_load(load: BundleLoad) -> tuple[Topic, str, Fields]:
    envelope = load.envelope
    fields = {
        **_envelope(envelope),
        "part": load.part,
        "parts": load.parts,
        "bundles": {"name": load.names, **_columns(BUNDLE_COLUMNS, load.stats)},
    }
    return Topic.BUNDLE_LOAD, _broker_key(envelope), fields


def _topic_load(load: TopicLoad) -> tuple[Topic, str, Fields]:
    fields = {
        **_envelope(load.envelope),
        "bundle": load.bundle,
        "topics": {"name": load.topics, **_columns(TRAFFIC, load.traffic)},
    }
    return Topic.TOPIC_LOAD, f"{load.envelope.cluster}/{load.bundle}", fields


def _acks(acks: Acks) -> tuple[Topic, str, Fields]:
    items = [
        _without_defaults(
            {
                "bundle": ack.bundle,
                "versionId": ack.version_id,
                "outcome": ack.outcome.value,
                "reason": plain_text(ack.reason),
            },
            {"reason": ""},
        )
        for ack in acks.acks
    ]
    fields = {**_envelope(acks.envelope), "acks": items}
    return Topic.ACKS, _broker_key(acks.envelope), fields


def _command(command: Command) -> tuple[Topic, str, Fields]:
    fields = {
        "schema": SCHEMA,
        "cluster": command.cluster,
        "command_id": command.command_id,
        "kind": command.kind,
        "arguments": command.arguments,
        "principal": command.principal,
        "address": command.address,
        "timeout_ms": command.timeout_ms,
    }
    return Topic.COMMANDS, command.cluster, fields


def _audit(entry: AuditEntry) -> tuple[Topic, str, Fields]:
    fields = {
        "schema": SCHEMA,
        "cluster": entry.cluster,
        "principal": entry.principal,
        "address": entry.address,
        "action": entry.action,
        "is_allowed": entry.is_allowed,
        "reason": entry.reason,
        "command_id": entry.command_id,
    }
    return Topic.AUDIT, entry.cluster, fields


_WRITERS: Mapping[type, Callable[[Any], tuple[Topic, str, Fields]]] = {
    Tick: _tick,
    Heartbeat: _heartbeat,
    BrokerLoad: _broker_load,
    BundleLoad: _bundle_load,
    TopicLoad: _topic_load,
    Acks: _acks,
    Command: _command,
    AuditEntry: _audit,
}


REASON_CHARS_MAX = 256
"""Longest reason that is sent: the least that wire.max_text_chars can be set to."""

_CUT = "..."
_LONE_SURROGATES = range(0xD800, 0xE000)


def plain_text(text: str, max_chars: int = REASON_CHARS_MAX) -> str:
    """Return at most max_chars of the text, with each run of blanks as one.

    Line breaks are blanks; ends are trimmed. Control characters become blanks, lone surrogates
    question marks. What is cut ends in "...". A text that needs nothing stays the same.
    O(max_chars), however long the text is.
    """
    head = str(text[: 4 * max_chars])
    if len(text) <= max_chars and head.isascii() and head.isprintable() and "  " not in head:
        return head.strip()
    words = " ".join("".join(map(_printable, head)).split())
    is_cut = len(words) > max_chars or len(head) < len(text)
    return words[: max_chars - len(_CUT)].rstrip() + _CUT if is_cut else words


def _printable(char: str) -> str:
    if ord(char) in _LONE_SURROGATES:
        return "?"
    return char if char.isprintable() else " "

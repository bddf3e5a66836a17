"""Messages of the input topics, as values: parsed at the edge, trusted inside.

`parse` makes these from bytes or returns Rejected; the scorer and the balancer read them. One class
per topic. The wire's field names are Pulsar's (LocalBrokerData, NamespaceBundleStats); the names
here are Ballast's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]

TRAFFIC = ("msgRateIn", "msgRateOut", "msgThroughputIn", "msgThroughputOut")
BUNDLE_COLUMNS = (*TRAFFIC, "topics", "consumerCount", "producerCount", "cacheSize")


class Topic(str, Enum):
    """Kafka topics without the configured prefix; the value is the name."""

    BROKER_LOAD = "broker-load"
    BUNDLE_LOAD = "bundle-load"
    TOPIC_LOAD = "topic-load"
    ACKS = "acks"
    COMMANDS = "commands"
    AUDIT = "audit"
    OWNERSHIP = "ownership"


class RejectReason(str, Enum):
    """Reason for a rejection; its value is the metric's label and the table's text."""

    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    UNKNOWN_SCHEMA = "unknown_schema"
    MISSING_FIELD = "missing_field"
    WRONG_TYPE = "wrong_type"
    NOT_FINITE = "not_finite"
    NEGATIVE = "negative"
    OUT_OF_RANGE = "out_of_range"
    TOO_LARGE = "too_large"
    UNEQUAL_LENGTHS = "unequal_lengths"
    DUPLICATE_BUNDLE = "duplicate_bundle"
    DUPLICATE_TOPIC = "duplicate_topic"
    MALFORMED_BUNDLE = "malformed_bundle"
    UNKNOWN_CLUSTER = "unknown_cluster"
    KEY_MISMATCH = "key_mismatch"
    BAD_PART = "bad_part"
    MISSING_PART = "missing_part"
    UNREADABLE = "unreadable"
    NOT_KEPT = "not_kept"
    UNKNOWN_KIND = "unknown_kind"
    UNKNOWN_ARGUMENT = "unknown_argument"
    MALFORMED_NAMESPACE = "malformed_namespace"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Position of a message in Kafka, and its append time (LogAppendTime)."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A message that can't be used: its reason, a sentence for people, and its bytes.

    cluster: that of its key when it is one that is served, else "".
    """

    reason: RejectReason
    detail: str
    raw: bytes
    cluster: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Sender of a message, its incarnation, and the message's sequence number.

    The incarnation is one start of the process; the number counts the messages of this topic.
    """

    cluster: str
    broker: str
    incarnation: str
    seq: int
    reported_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The driver's mark in one partition of broker-load: Kafka's clock went on.

    number: counts the driver's ticks, for people; nothing is judged by it.
    """

    cluster: str
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """An envelope alone: the broker lives."""

    envelope: Envelope


NOT_REPORTED = -1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """A broker's own load.

    usage, limit: float64[resources] in the order of `model.resources`; a limit <= 0 means unknown.
    traffic: float64[4] in the order of TRAFFIC (msg/s, msg/s, bytes/s, bytes/s). offered_msg_rate:
    msg/s in and out that clients ask for, served or not; NOT_REPORTED = nothing is known of it.
    """

    envelope: Envelope
    usage: Floats
    limit: Floats
    traffic: Floats
    topic_count: int = 0
    bundle_count: int = 0
    consumer_count: int = 0
    producer_count: int = 0
    web_service_url: str = ""
    web_service_url_tls: str = ""
    pulsar_service_url: str = ""
    pulsar_service_url_tls: str = ""
    advertised_listeners: Mapping[str, Any] = field(default_factory=dict)
    broker_version: str = ""
    load_manager_class: str = ""
    failure_domain: str = ""
    capacity: float = 1.0
    is_draining: bool = False
    offered_msg_rate: float = NOT_REPORTED


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLoad:
    """Part of a broker's bundles.

    stats: float64[bundles, 8] in the order of BUNDLE_COLUMNS. refused: rows that were left out of
    it.
    """

    envelope: Envelope
    part: int
    parts: int
    names: tuple[str, ...]
    stats: Floats
    refused: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """The topics of one bundle. traffic: float64[topics, 4] in the order of TRAFFIC.

    refused: rows that were left out of it.
    """

    envelope: Envelope
    bundle: str
    topics: tuple[str, ...]
    traffic: Floats
    refused: tuple[Rejected, ...] = ()


class AckOutcome(str, Enum):
    """Outcome of an ownership record, as reported by a broker."""

    OPENED = "opened"
    CLOSING = "closing"
    CLOSED = "closed"
    SPLIT = "split"
    MERGED = "merged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ack:
    """A broker's answer to the record of `bundle` at `version_id`."""

    bundle: str
    version_id: int
    outcome: AckOutcome
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acks:
    """Several answers of one broker. refused: rows that were left out of it."""

    envelope: Envelope
    acks: tuple[Ack, ...]
    refused: tuple[Rejected, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """Request to the balancer; idempotent by `command_id`."""

    cluster: str
    command_id: str
    kind: str
    arguments: Mapping[str, Any]
    principal: str = ""
    address: str = ""
    timeout_ms: int = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """A request that a service allowed or refused and wants recorded."""

    cluster: str
    principal: str
    address: str
    action: str
    is_allowed: bool
    reason: str = ""
    command_id: str = ""


Message: TypeAlias = (
    Tick | Heartbeat | BrokerLoad | BundleLoad | TopicLoad | Acks | Command | AuditEntry
)

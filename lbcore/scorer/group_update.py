"""Update for the balancer from one scorer group about one micro-batch.

Between the two operators it travels as one packed row.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lbcore.signals.averages import Ints
from lbcore.wire.messages import (
    Acks,
    AuditEntry,
    BrokerLoad,
    Command,
    Floats,
    Position,
    Rejected,
    TopicLoad,
)

TICK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Rows of broker-load as they stand in Kafka, for liveness.

    partition, offset, timestamp_ms: int64[rows]. broker: index into the update's `brokers`, or
    TICK. Rows of superseded incarnations are left out.
    """

    partition: Ints
    offset: Ints
    timestamp_ms: Ints
    broker: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerReport:
    """A broker's newest load of this batch, smoothed.

    percent: float64[resources]; weighted_max_ema: 1.0 = 100 %; throughput_ema: bytes/s;
    reported_ms: Kafka's time of the report.
    """

    load: BrokerLoad
    percent: Floats
    weighted_max_ema: float
    throughput_ema: float
    reported_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """A broker's whole set of bundles.

    names: m; stats: float64[m, 8] as BUNDLE_COLUMNS.
    """

    broker: str
    incarnation: str
    names: Sequence[str]
    stats: Floats
    reported_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedMessage:
    """A refused message with its place in Kafka."""

    position: Position
    rejected: Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionedMessage:
    """Message that only passes through, with its position in Kafka."""

    position: Position
    message: Acks | Command | AuditEntry | TopicLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpdate:
    """One group's part of a micro-batch.

    incarnations[i] is the newest start of brokers[i]. counts: messages that were `accepted`,
    `late`, `duplicate`, `early` or `rejected`. ends: topic → partition → the offset after the last
    row seen. not_kept: "TOPIC:REASON" → messages that were refused and are not in `rejected`.
    is_full: the source's bound cut the batch off, and more may wait in the log. faults: isolated
    ones, of `fault_isolation.summarize_faults`.
    """

    group: int
    brokers: tuple[str, ...]
    incarnations: tuple[str, ...]
    arrivals: Arrivals
    loads: tuple[BrokerReport, ...] = ()
    bundles: tuple[BundleReport, ...] = ()
    messages: tuple[PositionedMessage, ...] = ()
    rejected: tuple[RejectedMessage, ...] = ()
    not_kept: Mapping[str, int] = field(default_factory=dict)
    is_full: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    faults: tuple[Mapping[str, Any], ...] = ()


def pack_update(update: GroupUpdate) -> bytes:
    """The update as one blob, for the second operator of the same batch alone."""
    return pickle.dumps(update, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_update(blob: bytes) -> GroupUpdate:
    """The inverse of `pack_update`."""
    update: GroupUpdate = pickle.loads(blob)  # noqa: S301 (made by this job in this batch)
    return update

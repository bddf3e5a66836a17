"""What the scorer of one broker group tells the balancer about one micro-batch.

Decides nothing. Made by `scorer`, read by `balancer`; between the two operators it travels as one
packed row. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.wire.messages import (
    Ack,
    AckOutcome,
    Acks,
    AuditEntry,
    BrokerLoad,
    Command,
    Envelope,
    Position,
    Rejected,
    RejectReason,
    TopicLoad,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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

    percent: float64[5]; traffic: float64[4]; weighted_max_ema: 1.0 = 100 %; throughput_ema:
    bytes/s; reported_ms: Kafka's time of the report.
    """

    load: BrokerLoad
    percent: Floats
    weighted_max_ema: float
    throughput_ema: float
    reported_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleReport:
    """A broker's whole set of bundles. names: m; stats: float64[m, 8] as BUNDLE_COLUMNS."""

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
class Placed:
    """A message that only passes through, with its place in Kafka: its order among others."""

    position: Position
    message: Acks | Command | AuditEntry | TopicLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpdate:
    """One group's part of a micro-batch. brokers[i] started as incarnations[i] most lately.

    counts: `accepted`, `late`, `duplicate` and `rejected` messages. ends: topic → partition →
    the offset after the last row seen. faults: what was put aside, as `put_aside.told` says it.
    """

    group: int
    brokers: tuple[str, ...]
    incarnations: tuple[str, ...]
    arrivals: Arrivals
    loads: tuple[BrokerReport, ...] = ()
    bundles: tuple[BundleReport, ...] = ()
    placed: tuple[Placed, ...] = ()
    rejected: tuple[RejectedMessage, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    faults: tuple[Mapping[str, Any], ...] = ()


def pack_update(update: GroupUpdate) -> bytes:
    """The update as one blob; equal updates give equal bytes."""
    names = [name for report in update.bundles for name in report.names]
    stats = [report.stats for report in update.bundles]
    arrays: dict[str, NDArray[Any]] = {
        "arrivals": np.stack(
            [
                update.arrivals.partition,
                update.arrivals.offset,
                update.arrivals.timestamp_ms,
                update.arrivals.broker,
            ]
        ),
        "loads": np.array([_load_numbers(report) for report in update.loads], dtype=np.float64),
        "bundle_names": packing.join_names(names),
        "bundle_stats": np.concatenate(stats) if stats else np.empty((0, 8)),
        "raw": np.frombuffer(b"".join(r.rejected.raw for r in update.rejected), dtype=np.uint8),
    }
    plain = {
        "group": update.group,
        "brokers": update.brokers,
        "incarnations": update.incarnations,
        "loads": [_load_texts(report) for report in update.loads],
        "bundles": [[r.broker, r.incarnation, len(r.names), r.reported_ms] for r in update.bundles],
        "placed": [[_position(p.position), *_plain_message(p.message)] for p in update.placed],
        "rejected": [_rejected_header(r) for r in update.rejected],
        "counts": dict(update.counts),
        "faults": list(update.faults),
        "ends": {t: {str(p): end for p, end in e.items()} for t, e in update.ends.items()},
    }
    return packing.pack(plain, arrays)


def unpack_update(blob: bytes) -> GroupUpdate:
    """The inverse of `pack_update`. Raises MalformedBlobError."""
    plain, arrays = packing.unpack(blob)
    partition, offset, timestamp_ms, broker = arrays["arrivals"]
    return GroupUpdate(
        group=plain["group"],
        brokers=tuple(plain["brokers"]),
        incarnations=tuple(plain["incarnations"]),
        arrivals=Arrivals(
            partition=partition, offset=offset, timestamp_ms=timestamp_ms, broker=broker
        ),
        loads=tuple(
            _load(texts, numbers)
            for texts, numbers in zip(plain["loads"], arrays["loads"], strict=True)
        ),
        bundles=tuple(_bundle_reports(plain["bundles"], arrays)),
        placed=tuple(
            Placed(position=Position(**position), message=_message(kind, body))
            for position, kind, body in plain["placed"]
        ),
        rejected=tuple(_rejected(plain["rejected"], arrays["raw"].tobytes())),
        counts=plain["counts"],
        faults=tuple(plain.get("faults", ())),
        ends={t: {int(p): end for p, end in e.items()} for t, e in plain["ends"].items()},
    )


def _position(position: Position) -> dict[str, Any]:
    return {
        "topic": position.topic,
        "partition": position.partition,
        "offset": position.offset,
        "timestamp_ms": position.timestamp_ms,
    }


def _rejected_header(message: RejectedMessage) -> list[Any]:
    rejected = message.rejected
    place = _position(message.position)
    return [place, rejected.cluster, rejected.reason.value, rejected.detail, len(rejected.raw)]


def _envelope(envelope: Envelope) -> list[Any]:
    return [
        envelope.cluster,
        envelope.broker,
        envelope.incarnation,
        envelope.seq,
        envelope.reported_at_ms,
    ]


def _envelope_back(body: Sequence[Any]) -> Envelope:
    cluster, broker, incarnation, seq, reported_at_ms = body
    return Envelope(
        cluster=cluster,
        broker=broker,
        incarnation=incarnation,
        seq=seq,
        reported_at_ms=reported_at_ms,
    )


_LOAD_TEXTS = (
    "web_service_url",
    "web_service_url_tls",
    "pulsar_service_url",
    "pulsar_service_url_tls",
    "advertised_listeners",
    "broker_version",
    "load_manager_class",
    "failure_domain",
    "is_draining",
)
_LOAD_COUNTS = ("topic_count", "bundle_count", "consumer_count", "producer_count")


def _load_numbers(report: BrokerReport) -> list[float]:
    load = report.load
    return [
        *load.usage,
        *load.limit,
        *load.traffic,
        *report.percent,
        report.weighted_max_ema,
        report.throughput_ema,
        load.capacity,
        *(float(getattr(load, name)) for name in _LOAD_COUNTS),
    ]


def _load_texts(report: BrokerReport) -> list[Any]:
    load = report.load
    texts = {name: getattr(load, name) for name in _LOAD_TEXTS if getattr(load, name)}
    return [_envelope(load.envelope), texts, report.reported_ms]


def _load(texts: Sequence[Any], numbers: Floats) -> BrokerReport:
    envelope, fields, reported_ms = texts
    counts: dict[str, Any] = {name: int(numbers[22 + i]) for i, name in enumerate(_LOAD_COUNTS)}
    load = BrokerLoad(
        envelope=_envelope_back(envelope),
        usage=numbers[0:5],
        limit=numbers[5:10],
        traffic=numbers[10:14],
        capacity=float(numbers[21]),
        **counts,
        **fields,
    )
    return BrokerReport(
        load=load,
        percent=numbers[14:19],
        weighted_max_ema=float(numbers[19]),
        throughput_ema=float(numbers[20]),
        reported_ms=reported_ms,
    )


def _bundle_reports(
    headers: Sequence[Sequence[Any]], arrays: Mapping[str, NDArray[Any]]
) -> list[BundleReport]:
    total = sum(header[2] for header in headers)
    names = packing.split_names(arrays["bundle_names"], total)
    reports = []
    start = 0
    for broker, incarnation, count, reported_ms in headers:
        reports.append(
            BundleReport(
                broker=broker,
                incarnation=incarnation,
                names=names[start : start + count],
                stats=arrays["bundle_stats"][start : start + count],
                reported_ms=reported_ms,
            )
        )
        start += count
    return reports


def _rejected(headers: Sequence[Sequence[Any]], raw: bytes) -> list[RejectedMessage]:
    messages = []
    start = 0
    for position, cluster, reason, detail, size in headers:
        rejected = Rejected(
            reason=RejectReason(reason),
            detail=detail,
            raw=raw[start : start + size],
            cluster=cluster,
        )
        messages.append(RejectedMessage(position=Position(**position), rejected=rejected))
        start += size
    return messages


def _plain_message(message: Acks | Command | AuditEntry | TopicLoad) -> list[Any]:
    if isinstance(message, Acks):
        acks = [[a.bundle, a.version_id, a.outcome.value, a.reason] for a in message.acks]
        return ["acks", [_envelope(message.envelope), acks]]
    if isinstance(message, TopicLoad):
        body = [message.bundle, message.topics, message.traffic.tolist()]
        return ["topic_load", [_envelope(message.envelope), *body]]
    kind = "command" if isinstance(message, Command) else "audit"
    return [kind, {name: getattr(message, name) for name in message.__dataclass_fields__}]


def _message(kind: str, body: Any) -> Acks | Command | AuditEntry | TopicLoad:
    if kind == "command":
        return Command(**body)
    if kind == "audit":
        return AuditEntry(**body)
    envelope = _envelope_back(body[0])
    if kind == "topic_load":
        traffic = np.array(body[3], dtype=np.float64).reshape(-1, 4)
        return TopicLoad(envelope=envelope, bundle=body[1], topics=tuple(body[2]), traffic=traffic)
    acks = tuple(
        Ack(bundle=b, version_id=v, outcome=AckOutcome(o), reason=r) for b, v, o, r in body[1]
    )
    return Acks(envelope=envelope, acks=acks)

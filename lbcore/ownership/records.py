"""The ownership record: owner, state and version of a bundle; its form in Kafka.

The driver writes records to the compacted topic `ownership`; agents and the lookup service read
them. A record without a value is a tombstone: the bundle is gone. `ownership.resolve` checks
whether a record may follow another. Source: Pulsar 4.0.8, ServiceUnitStateData (state, dstBroker,
sourceBroker, splitServiceUnitToDestBroker, force, timestamp, versionId); other fields are
Ballast's.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from lbcore.wire import fields
from lbcore.wire.fields import (
    OLDEST_SCHEMA,
    FieldRefusal,
    check_bundle,
    check_bundles,
    read_schema,
    shown,
)
from lbcore.wire.format import encode
from lbcore.wire.messages import Rejected, RejectReason


class State(str, Enum):
    """States of Pulsar's ServiceUnitState, and Merging, by their names on the wire.

    States are stored as numbers in this order, so a new state must come last.
    """

    INIT = "Init"
    FREE = "Free"
    OWNED = "Owned"
    ASSIGNING = "Assigning"
    RELEASING = "Releasing"
    SPLITTING = "Splitting"
    DELETED = "Deleted"
    MERGING = "Merging"


class Cause(str, Enum):
    """Cause of a transition, and label of its metric; numbered, so add new ones last."""

    CREATE = "create"
    ASSIGN = "assign"
    SHED = "shed"
    ADMIN = "admin"
    DRAIN = "drain"
    SPLIT = "split"
    FAILOVER = "failover"
    RESTART = "restart"
    REPAIR = "repair"
    ACK = "ack"
    DELETE = "delete"
    EXTERNAL = "external"
    MERGE = "merge"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnershipRecord:
    """One version of a bundle's ownership.

    Brokers are names, "" where there is none. children: child bundle name → broker that shall get
    it ("" = stay with the splitting broker). Of a merge it is the one bundle that the two become.
    """

    cluster: str
    bundle: str
    state: State
    version_id: int
    source: str = ""
    source_incarnation: str = ""
    destination: str = ""
    destination_incarnation: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    is_forced: bool = False
    timestamp_ms: int = 0
    cause: Cause = Cause.ASSIGN
    decision_id: str = ""
    command_id: str = ""
    writer_epoch: int = 0


MAX_NAME_CHARS = 4_096
"""Records are written by one job that has checked its names; this only bounds a reader's memory."""

_STATES = {state.value: state for state in State}
_CAUSES = {cause.value: cause for cause in Cause}


def format_record(record: OwnershipRecord) -> tuple[bytes, bytes]:
    """Return key and value of the Kafka record; equal records give equal bytes."""
    value = {
        "schema": OLDEST_SCHEMA,
        "cluster": record.cluster,
        "bundle": record.bundle,
        "state": record.state.value,
        "dstBroker": record.destination,
        "dstIncarnation": record.destination_incarnation,
        "sourceBroker": record.source,
        "sourceIncarnation": record.source_incarnation,
        "splitServiceUnitToDestBroker": dict(record.children),
        "force": record.is_forced,
        "timestamp": record.timestamp_ms,
        "versionId": record.version_id,
        "decisionId": record.decision_id,
        "commandId": record.command_id,
        "cause": record.cause.value,
        "writerEpoch": record.writer_epoch,
    }
    return record_key(record.cluster, record.bundle), encode(value)


def named_brokers(record: OwnershipRecord) -> set[str]:
    """Return the brokers that the record names, those of children too."""
    return {record.source, record.destination, *record.children.values()} - {""}


def record_key(cluster: str, bundle: str) -> bytes:
    """Return the key of a bundle's records; with a null value it is its tombstone."""
    return f"{cluster}/{bundle}".encode()


def parse_record(
    key: bytes | None, value: bytes | None, loads: Callable[[str], Any] = json.loads
) -> OwnershipRecord | Rejected | None:
    """Return the record, None for a tombstone, or `Rejected` for anything else.

    Raises nothing, whatever the bytes. loads: parses JSON, and raises ValueError if it can't
    (json.loads, orjson.loads).
    """
    if value is None:
        return None
    try:
        return _read_record(fields.decode_object(value, loads, "record"), key or b"")
    except FieldRefusal as refusal:
        return Rejected(reason=refusal.reason, detail=refusal.detail, raw=value)


def _read_record(record: Mapping[str, Any], key: bytes) -> OwnershipRecord:
    read_schema(record)
    cluster = fields.name(record, "cluster", MAX_NAME_CHARS)
    bundle = fields.nonempty(record, "bundle", MAX_NAME_CHARS)
    check_bundle(bundle)
    if key != record_key(cluster, bundle):
        raise FieldRefusal(
            RejectReason.KEY_MISMATCH,
            f"the key must be {shown(record_key(cluster, bundle))}, got {shown(key)}",
        )
    return OwnershipRecord(
        cluster=cluster,
        bundle=bundle,
        state=_STATES[fields.choice(record, "state", _STATES)],
        version_id=fields.integer(record, "versionId", minimum=1),
        source=_text(record, "sourceBroker"),
        source_incarnation=_text(record, "sourceIncarnation"),
        destination=_text(record, "dstBroker"),
        destination_incarnation=_text(record, "dstIncarnation"),
        children=_read_children(record),
        is_forced=fields.flag(record, "force", default=False),
        timestamp_ms=fields.integer(record, "timestamp", default=0),
        cause=_CAUSES[fields.choice(record, "cause", _CAUSES, Cause.ASSIGN.value)],
        decision_id=_text(record, "decisionId"),
        command_id=_text(record, "commandId"),
        writer_epoch=fields.integer(record, "writerEpoch", default=0),
    )


def _text(record: Mapping[str, Any], field: str) -> str:
    return fields.text(record, field, MAX_NAME_CHARS, "")


def _read_children(record: Mapping[str, Any]) -> Mapping[str, str]:
    children = fields.mapping(record, "splitServiceUnitToDestBroker", {})
    check_bundles(list(children))
    return {child: _text(children, child) for child in children}

"""Records of Pulsar's loadbalancer-service-unit-state, checked by its protocol.

An entry holds one message or a batch. The resolver judges each record against the bundle's record
that brokers keep at that point. A version gap is refused, as the whole log is read and nothing is
compacted away. A record with an old version has lost a race: every broker skips it, so it is only
counted.
Source: Pulsar 4.0.8, ServiceUnitStateTableViewImpl, PersistentTopicsBase (headers of an entry),
PulsarApi.proto (SingleMessageMetadata).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lbcore.ownership.records import State
from lbcore.ownership.resolve import MissingOwnerError, ResolverVerdict, StateData, resolve

TOPIC = "persistent/pulsar/system/loadbalancer-service-unit-state"
_BATCH = "x-pulsar-num-batch-message"
_KEY = "x-pulsar-partition-key"
_NULL = "x-pulsar-null-value"
_PARTITION_KEY, _PAYLOAD_SIZE, _COMPACTED_OUT, _NULL_VALUE = 2, 3, 4, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MORE, _SEVEN_BITS = 0x80, 0x7F
_STATES = {state.value: state for state in State}


class UnreadableEntryError(ValueError):
    """An entry that is no record of the channel; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """One message.

    position: ledger:entry, and :number in a batch. data: None = tombstone.
    """

    position: str
    bundle: str
    data: StateData | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelViolation:
    """Record that the protocol forbids after the one before it (None = no record)."""

    record: ChannelRecord
    before: StateData | None
    reason: str

    def text(self) -> str:
        """Return one sentence with both records, their brokers and versions."""
        after, before = _shown(self.record.data), _shown(self.before)
        where = f"{self.record.position} {self.record.bundle}"
        return f"{where}: {self.reason.replace('_', ' ')}: {before} -> {after}"


@dataclass(slots=True)
class ChannelChecker:
    """Judges records in the order of the topic. outdated: records that lost a race."""

    records: int = 0
    outdated: int = 0
    _kept: dict[str, StateData] = field(default_factory=dict)

    @property
    def bundles(self) -> int:
        """Number of bundles that have a record now."""
        return len(self._kept)

    def take(self, record: ChannelRecord) -> ChannelViolation | None:
        """Take the next record; return the violation if it is one.

        Brokers ignore a record that the protocol forbids, and keep the one before.
        """
        self.records += 1
        before = self._kept.get(record.bundle)
        try:
            verdict = resolve(before, record.data).value
        except MissingOwnerError:
            verdict = "owned_by_nobody"
        if verdict == ResolverVerdict.OLD_VERSION.value:
            self.outdated += 1
            return None
        if verdict != ResolverVerdict.ACCEPTED.value:
            return ChannelViolation(record=record, before=before, reason=verdict)
        if record.data is None:
            self._kept.pop(record.bundle, None)
        else:
            self._kept[record.bundle] = record.data
        return None


def parse_entry(
    position: str, headers: Mapping[str, str], content: bytes
) -> Iterator[ChannelRecord]:
    """Yield the records of an entry as the admin interface gives it.

    headers: of the admin interface's answer, names in lower case. Raises UnreadableEntryError.
    """
    if _BATCH not in headers:
        is_null = headers.get(_NULL, "").lower() == "true"
        yield _record(position, headers.get(_KEY, ""), None if is_null else content)
        return
    at = number = 0
    while at < len(content):
        size = int.from_bytes(content[at : at + 4], "big")
        about = dict(_fields(content[at + 4 : at + 4 + size]))
        at += 4 + size
        length = int(about.get(_PAYLOAD_SIZE, 0))
        payload, at = content[at : at + length], at + length
        if not about.get(_COMPACTED_OUT):
            key = bytes(about.get(_PARTITION_KEY, b"")).decode("utf-8", "replace")
            value = None if about.get(_NULL_VALUE) else payload
            yield _record(f"{position}:{number}", key, value)
        number += 1


def _record(position: str, bundle: str, value: bytes | None) -> ChannelRecord:
    if not bundle:
        raise UnreadableEntryError(f"{position}: the record has no key")
    if value is None:
        return ChannelRecord(position=position, bundle=bundle, data=None)
    try:
        found: Any = json.loads(value)
        data = StateData(
            _STATES[found["state"]],
            int(found["versionId"]),
            found.get("dstBroker"),
            found.get("sourceBroker"),
            found.get("force") is True,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{type(error).__name__}: {error}"
        raise UnreadableEntryError(f"{position} {bundle}: no ServiceUnitStateData: {why}") from None
    return ChannelRecord(position=position, bundle=bundle, data=data)


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (number, value) of each protobuf field. Raises UnreadableEntryError."""
    at = 0
    try:
        while at < len(raw):
            tag, at = _varint(raw, at)
            kind = tag & 7
            if kind == _VARINT:
                value, at = _varint(raw, at)
                yield tag >> 3, value
            elif kind == _BYTES:
                length, at = _varint(raw, at)
                yield tag >> 3, raw[at : at + length]
                at += length
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise UnreadableEntryError(f"the metadata of a batch has a field of kind {kind}")
    except IndexError:
        raise UnreadableEntryError("the metadata of a batch ends early") from None


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (raw[at] & _SEVEN_BITS) << shift
        shift, at = shift + 7, at + 1
        if raw[at - 1] < _MORE:
            return value, at


def _shown(data: StateData | None) -> str:
    if data is None:
        return "no record"
    brokers = f"{data.source or 'nobody'} to {data.destination or 'nobody'}"
    force = ", by force" if data.is_forced else ""
    return f"{data.state.value} version {data.version_id} ({brokers}{force})"

"""The one parser of the wire: bytes become a message, or Rejected with a reason.

Runs in the streaming job for every input row, in agents and in tests; never raises on any bytes.
What needs state (late, repeated, of a superseded incarnation) is the scorer's to judge. Field names
are Pulsar's LocalBrokerData and NamespaceBundleStats (4.0.8); those of commands and audit are the
columns of the tables. A readable command with wrong arguments is refused later, in the table
`commands`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from lbcore.model.names import Wire
from lbcore.wire import fields
from lbcore.wire.fields import (
    Context,
    FieldRefusal,
    ParseRules,
    check_bundle,
    check_bundles,
    check_key,
    read_cluster,
    read_envelope,
    read_schema,
    shown,
)
from lbcore.wire.loads import read_broker_load, read_bundle_load, read_topic_load
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    Ack,
    AckOutcome,
    Acks,
    AuditEntry,
    BundleLoad,
    Command,
    Message,
    Rejected,
    RejectReason,
    Topic,
    TopicLoad,
)

MAX_TIMEOUT_MS = 86_400_000
DEFAULT_TIMEOUT_MS = 30_000

_OUTCOMES = {outcome.value: outcome for outcome in AckOutcome}


def read_acks(message: Mapping[str, Any], context: Context) -> Acks:
    """Read a message of acks in order; a bundle may be acknowledged repeatedly."""
    envelope = read_envelope(message, context)
    check_key(context, envelope.broker)
    items = fields.column(message, "acks", context.limits.max_bundles_per_message)
    acks = tuple(read_ack(item, context.limits) for item in items)
    check_bundles(sorted({ack.bundle for ack in acks}))
    return Acks(envelope=envelope, acks=acks)


def read_ack(item: Any, limits: Wire) -> Ack:
    """Read one item of acks; its bundle's name is not checked."""
    ack = fields.mapping({"an item of acks": item}, "an item of acks")
    return Ack(
        bundle=fields.nonempty(ack, "bundle", limits.max_name_chars),
        version_id=fields.integer(ack, "versionId", minimum=1),
        outcome=_OUTCOMES[fields.choice(ack, "outcome", _OUTCOMES)],
        reason=fields.text(ack, "reason", limits.max_text_chars, ""),
    )


def read_command(message: Mapping[str, Any], context: Context) -> Command:
    """A message of commands."""
    check_key(context)
    limits = context.limits
    return Command(
        cluster=context.cluster,
        command_id=fields.nonempty(message, "command_id", limits.max_name_chars),
        kind=fields.nonempty(message, "kind", limits.max_name_chars),
        arguments=_read_arguments(message),
        principal=fields.text(message, "principal", limits.max_text_chars, ""),
        address=fields.text(message, "address", limits.max_text_chars, ""),
        timeout_ms=fields.integer(
            message, "timeout_ms", maximum=MAX_TIMEOUT_MS, default=DEFAULT_TIMEOUT_MS
        ),
    )


def _read_arguments(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments, only if they can be written again: no NaN, no lone surrogates."""
    arguments = fields.mapping(message, "arguments")
    try:
        json.dumps(arguments, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        detail = f"arguments must be JSON that can be written again: {shown(str(error))}"
        raise FieldRefusal(RejectReason.WRONG_TYPE, detail) from None
    return arguments


def read_audit(message: Mapping[str, Any], context: Context) -> AuditEntry:
    """A message of audit."""
    check_key(context)
    limits = context.limits
    return AuditEntry(
        cluster=context.cluster,
        principal=fields.text(message, "principal", limits.max_text_chars),
        address=fields.text(message, "address", limits.max_text_chars),
        action=fields.nonempty(message, "action", limits.max_text_chars),
        is_allowed=fields.flag(message, "is_allowed"),
        reason=fields.text(message, "reason", limits.max_text_chars, ""),
        command_id=fields.text(message, "command_id", limits.max_name_chars, ""),
    )


_REFUSED_ROWS_MAX = 20
"""Maximum bad rows of a message that are reported one by one; others are counted."""

_RAW_CHARS = 4_096

Fields = Mapping[str, Any]
_TABLES: Mapping[Topic, tuple[str, Sequence[str], RejectReason]] = {
    Topic.BUNDLE_LOAD: ("bundles", BUNDLE_COLUMNS, RejectReason.DUPLICATE_BUNDLE),
    Topic.TOPIC_LOAD: ("topics", TRAFFIC, RejectReason.DUPLICATE_TOPIC),
}
"""Field of a report's table, its columns of numbers, and the refusal of a name that comes twice."""


def _rows_of(topic: Topic, message: Fields, limits: Wire) -> Sequence[Any]:
    """Return the rows of a message; none if its columns make no rows, or too many."""
    of_topics = topic is Topic.TOPIC_LOAD
    most = limits.max_topics_per_message if of_topics else limits.max_bundles_per_message
    if topic is Topic.ACKS:
        items = message.get("acks")
        return items if type(items) is list and len(items) <= most else ()
    if topic not in _TABLES:
        return ()
    table, numbers, _ = _TABLES[topic]
    columns = message.get(table)
    named = ("name", *numbers)
    if not isinstance(columns, Mapping) or any(type(columns.get(c)) is not list for c in named):
        return ()
    if len({len(columns[column]) for column in named}) != 1 or len(columns["name"]) > most:
        return ()
    values = zip(*(columns[column] for column in named), strict=True)
    return [dict(zip(named, row, strict=True)) for row in values]


def _check_row(topic: Topic, row: Any, seen: set[str], limits: Wire) -> None:
    """Refuse a bad row. seen: names of the rows before it, to which it is added."""
    if topic is Topic.ACKS:
        check_bundle(read_ack(row, limits).bundle)
        return
    _, numbers, twice = _TABLES[topic]
    (name,) = fields.names([row["name"]], "name", limits.max_name_chars)
    if topic is Topic.BUNDLE_LOAD:
        check_bundle(name)
    fields.table({column: [row[column]] for column in numbers}, 1, fields.COUNT_COLUMNS)
    if name in seen:
        raise FieldRefusal(twice, f"{shown(name)} comes twice; the first row of it counts")
    seen.add(name)


def _with_rows(topic: Topic, message: Fields, rows: Sequence[Any]) -> Fields:
    if topic is Topic.ACKS:
        return {**message, "acks": rows}
    table, numbers, _ = _TABLES[topic]
    columns = {column: [row[column] for row in rows] for column in ("name", *numbers)}
    return {**message, table: {**message[table], **columns}}


def _refused_rows(
    rows: Sequence[Any], refusals: Mapping[int, FieldRefusal], cluster: str
) -> tuple[Rejected, ...]:
    """Return each bad row with its reason; beyond a few, the rest in one."""
    refused = [
        Rejected(
            reason=refusal.reason,
            detail=f"row {at}: {refusal.detail}; the other rows of the message count",
            raw=_raw(rows[at]),
            cluster=cluster,
        )
        for at, refusal in islice(refusals.items(), _REFUSED_ROWS_MAX)
    ]
    more = len(refusals) - len(refused)
    if more:
        last = refusals[max(refusals)]
        detail = f"{more} more rows of this message are refused, the last for: {last.detail}"
        refused.append(Rejected(reason=last.reason, detail=detail, raw=b"", cluster=cluster))
    return tuple(refused)


def _raw(row: Any) -> bytes:
    """Return the row as cut JSON; as shown by Python if nested too deep for that."""
    try:
        text = json.dumps(row)
    except (ValueError, RecursionError):
        text = shown(row)
    return text[:_RAW_CHARS].encode()


Reader = Callable[[Mapping[str, Any], Context], Message]

READERS: Mapping[Topic, Reader] = {
    Topic.BROKER_LOAD: read_broker_load,
    Topic.BUNDLE_LOAD: read_bundle_load,
    Topic.TOPIC_LOAD: read_topic_load,
    Topic.ACKS: read_acks,
    Topic.COMMANDS: read_command,
    Topic.AUDIT: read_audit,
}


def parse(
    topic: Topic, key: bytes | None, value: bytes | None, rules: ParseRules
) -> Message | Rejected:
    """Return the message in one Kafka record of an input topic, or its refusal.

    topic: any but OWNERSHIP, which has a reader of its own. Rejected.cluster is the key's when it
    is one of rules.clusters. O(bytes); about 60 µs for 100 bundles, JSON decoding not counted.
    """
    try:
        return _read(topic, key, _decode(value, rules), rules)
    except FieldRefusal as refusal:
        return _rejected(refusal.reason, refusal.detail, key, value, rules)


def parse_rows(
    topic: Topic, key: bytes | None, value: bytes | None, rules: ParseRules
) -> Message | Rejected:
    """Parse as `parse`, but keep the usable rows; the others are in `refused`.

    A message that is wrong as a whole (its envelope, its key, columns of unequal length) is
    Rejected. O(bytes), some 20 µs a row when one is bad.
    """
    strictly = parse(topic, key, value, rules)
    if not isinstance(strictly, Rejected):
        return strictly
    refusals: dict[int, FieldRefusal] = {}
    seen: set[str] = set()
    try:
        message = _decode(value, rules)
        rows = _rows_of(topic, message, rules.limits)
        for at, row in enumerate(rows):
            try:
                _check_row(topic, row, seen, rules.limits)
            except FieldRefusal as refusal:  # noqa: PERF203 only of a message that was refused
                refusals[at] = refusal
        if not refusals:
            return strictly
        kept = [row for at, row in enumerate(rows) if at not in refusals]
        found = _read(topic, key, _with_rows(topic, message, kept), rules)
    except FieldRefusal:
        return strictly
    if not isinstance(found, Acks | BundleLoad | TopicLoad):
        return strictly
    return replace(found, refused=_refused_rows(rows, refusals, strictly.cluster))


def refused_by_source(
    refusal: str, key: bytes | None, value: bytes | None, rules: ParseRules
) -> Rejected:
    """Return the refusal of a record that was not read whole.

    refusal: "REASON sentence".
    """
    reason, _, detail = refusal.partition(" ")
    return _rejected(RejectReason(reason), detail, key, value, rules)


def _read(
    topic: Topic, key: bytes | None, message: Mapping[str, Any], rules: ParseRules
) -> Message:
    read_schema(message)
    context = Context(
        key=_decode_key(key, rules),
        cluster=read_cluster(message, rules),
        limits=rules.limits,
    )
    return READERS[topic](message, context)


def _decode(value: bytes | None, rules: ParseRules) -> Mapping[str, Any]:
    if not value:
        raise FieldRefusal(RejectReason.NOT_JSON, "the message has no value; send a JSON object")
    if len(value) > rules.limits.max_message_bytes:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"the value has {len(value)} bytes and the limit is {rules.limits.max_message_bytes};"
            " send more parts",
        )
    return fields.decode_object(value, rules.loads, "value")


def _decode_key(key: bytes | None, rules: ParseRules) -> str:
    if not key:
        raise FieldRefusal(
            RejectReason.KEY_MISMATCH, "the message has no key; its partition needs one"
        )
    if len(key) > 8 * rules.limits.max_name_chars:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"the key has {len(key)} bytes; it must be made of two names at most",
        )
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise FieldRefusal(
            RejectReason.KEY_MISMATCH, f"the key is not UTF-8: {fields.shown(key)}"
        ) from None


def _rejected(
    reason: RejectReason, detail: str, key: bytes | None, value: bytes | None, rules: ParseRules
) -> Rejected:
    cluster = (key or b"").partition(b"/")[0].decode(errors="replace")
    is_served = cluster in rules.clusters
    return Rejected(
        reason=reason, detail=detail, raw=value or b"", cluster=cluster if is_served else ""
    )

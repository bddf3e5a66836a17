"""Messages of acks, commands and audit.

Answers of brokers, and requests of people and services. Decides whether a request can be read; not
whether its arguments suit its kind (`wire.commands`). A request that can be read is refused to its
sender, not to a table. Fields that mirror Pulsar bear Pulsar's names. Those of commands and audit,
which are ours, bear the names of the tables' columns.
"""

import json
from collections.abc import Mapping
from typing import Any

from lbcore.wire import fields
from lbcore.wire.envelope import Context, check_key, read_envelope
from lbcore.wire.fields import FieldRefusal, check_bundles, shown
from lbcore.wire.messages import Ack, AckOutcome, Acks, AuditEntry, Command, RejectReason
from lbcore.wire.rules import Limits

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


def read_ack(item: Any, limits: Limits) -> Ack:
    """One item of acks; whether it names a bundle is not looked at."""
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

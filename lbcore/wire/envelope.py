"""Header of every message: schema, cluster, and for reports the envelope.

Decides whether the envelope is whole and agrees with the message's key; not what follows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.wire import fields
from lbcore.wire.fields import FieldRefusal, shown
from lbcore.wire.messages import Envelope, RejectReason
from lbcore.wire.rules import OLDEST_SCHEMA, SCHEMA, Limits, ParseRules


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Context of a reader besides the message's fields: its key, cluster and limits."""

    key: str
    cluster: str
    limits: Limits


def read_schema(message: Mapping[str, Any]) -> None:
    """Refuse a message of a schema that is neither SCHEMA nor the one before it."""
    schema = fields.integer(message, "schema")
    if not OLDEST_SCHEMA <= schema <= SCHEMA:
        detail = (
            f"schema {shown(schema)} can't be read, only {OLDEST_SCHEMA} to {SCHEMA} can;"
            " upgrade the job before its agents"
        )
        raise FieldRefusal(RejectReason.UNKNOWN_SCHEMA, detail)


def read_cluster(message: Mapping[str, Any], rules: ParseRules) -> str:
    """The message's cluster, one of those that this job serves."""
    cluster = fields.name(message, "cluster", rules.limits.max_name_chars)
    if cluster not in rules.clusters:
        detail = (
            f"cluster {shown(cluster)} is not served here, {sorted(rules.clusters)} are;"
            " add it to pipeline.clusters, or correct the sender"
        )
        raise FieldRefusal(RejectReason.UNKNOWN_CLUSTER, detail)
    return cluster


def read_envelope(message: Mapping[str, Any], context: Context) -> Envelope:
    """The envelope of a report."""
    limits = context.limits
    return Envelope(
        cluster=context.cluster,
        broker=fields.name(message, "broker", limits.max_name_chars),
        incarnation=fields.nonempty(message, "incarnation", limits.max_name_chars),
        seq=fields.integer(message, "seq"),
        reported_at_ms=fields.integer(message, "reportedAt"),
    )


def check_key(context: Context, *parts: str) -> None:
    """Refuse a message whose key is not the cluster and parts, joined by slashes."""
    expected = "/".join((context.cluster, *parts))
    if context.key != expected:
        detail = f"the key must be {shown(expected)} as the value says, got {shown(context.key)}"
        raise FieldRefusal(RejectReason.KEY_MISMATCH, detail)

"""The one parser of the wire: bytes become a message, or Rejected with a reason.

Decides what is a message of this wire and names what is wrong with anything else; not whether it is
late, repeated or of a superseded incarnation, which needs state (`scorer`). Runs in the streaming
job for every input row, in agents and in tests; never raises on any bytes. Field names are Pulsar's
LocalBrokerData and NamespaceBundleStats (4.0.8).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.wire import fields
from lbcore.wire.broker_load import read_broker_load
from lbcore.wire.bundle_load import read_bundle_load, read_topic_load
from lbcore.wire.envelope import Context, read_cluster, read_schema
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.messages import (
    Acks,
    BundleLoad,
    Message,
    Rejected,
    RejectReason,
    Topic,
    TopicLoad,
)
from lbcore.wire.requests import read_acks, read_audit, read_command
from lbcore.wire.rows import refused_rows, sift
from lbcore.wire.rules import ParseRules

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
    """The message in one Kafka record of an input topic, or why it is none.

    topic: any but OWNERSHIP, which has a reader of its own. Rejected.cluster is the key's when it
    is one of rules.clusters. O(bytes); about 60 µs for 100 bundles, JSON decoding not counted.
    """
    try:
        return _read(topic, key, _decode(value, rules), rules)
    except FieldRefusal as refusal:
        return Rejected(
            reason=refusal.reason,
            detail=refusal.detail,
            raw=value or b"",
            cluster=_cluster_of(key, rules),
        )


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
    try:
        message = _decode(value, rules)
        sifted = sift(topic, message, rules.limits)
        found = None if sifted is None else _read(topic, key, sifted.message, rules)
    except FieldRefusal:
        return strictly
    if sifted is None or not isinstance(found, Acks | BundleLoad | TopicLoad):
        return strictly
    return replace(found, refused=refused_rows(sifted, strictly.cluster))


def refused_by_source(
    refusal: str, key: bytes | None, value: bytes | None, rules: ParseRules
) -> Rejected:
    """Return the refusal of a record that was not read whole.

    refusal: "REASON sentence".
    """
    reason, _, detail = refusal.partition(" ")
    return Rejected(
        reason=RejectReason(reason),
        detail=detail,
        raw=value or b"",
        cluster=_cluster_of(key, rules),
    )


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
        detail = (
            f"the value has {len(value)} bytes and the limit is {rules.limits.max_message_bytes};"
            " send more parts"
        )
        raise FieldRefusal(RejectReason.TOO_LARGE, detail)
    try:
        decoded = rules.loads(value.decode())
    except (ValueError, RecursionError) as error:
        detail = f"the value is not JSON in UTF-8: {fields.shown(str(error))}"
        raise FieldRefusal(RejectReason.NOT_JSON, detail) from None
    if type(decoded) is not dict:
        detail = f"the value must be a JSON object, got {fields.shown(decoded)}"
        raise FieldRefusal(RejectReason.NOT_AN_OBJECT, detail)
    return decoded


def _decode_key(key: bytes | None, rules: ParseRules) -> str:
    if not key:
        raise FieldRefusal(
            RejectReason.KEY_MISMATCH, "the message has no key; its partition needs one"
        )
    if len(key) > 8 * rules.limits.max_name_chars:
        detail = f"the key has {len(key)} bytes; it must be made of two names at most"
        raise FieldRefusal(RejectReason.TOO_LARGE, detail)
    try:
        return key.decode()
    except UnicodeDecodeError:
        detail = f"the key is not UTF-8: {fields.shown(key)}"
        raise FieldRefusal(RejectReason.KEY_MISMATCH, detail) from None


def _cluster_of(key: bytes | None, rules: ParseRules) -> str:
    cluster = (key or b"").partition(b"/")[0].decode(errors="replace")
    return cluster if cluster in rules.clusters else ""

"""Messages of bundle-load and topic-load, as tables.

Tables of a broker's bundles, and of a bundle's topics. Decides whether the columns make a table;
not whether all parts of a report are in. Source: Pulsar's NamespaceBundleStats (4.0.8), as columns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lbcore.wire import fields
from lbcore.wire.envelope import Context, check_key, read_envelope
from lbcore.wire.fields import FieldRefusal, check_bundle, check_bundles, first_double, shown
from lbcore.wire.messages import (
    BUNDLE_COLUMNS,
    TRAFFIC,
    BundleLoad,
    Floats,
    RejectReason,
    TopicLoad,
)


def read_bundle_load(message: Mapping[str, Any], context: Context) -> BundleLoad:
    """A message of bundle-load: parts are numbered from 0."""
    envelope = read_envelope(message, context)
    check_key(context, envelope.broker)
    part, parts = _parts(message, context.limits.max_parts)
    columns = fields.mapping(message, "bundles")
    names, stats = _read_table(
        columns, BUNDLE_COLUMNS, context.limits.max_bundles_per_message, context
    )
    check_bundles(names)
    return BundleLoad(envelope=envelope, part=part, parts=parts, names=names, stats=stats)


def read_topic_load(message: Mapping[str, Any], context: Context) -> TopicLoad:
    """A message of topic-load: the whole set of the bundle's topics."""
    envelope = read_envelope(message, context)
    bundle = fields.nonempty(message, "bundle", context.limits.max_name_chars)
    check_bundle(bundle)
    check_key(context, bundle)
    columns = fields.mapping(message, "topics")
    topics, traffic = _read_table(columns, TRAFFIC, context.limits.max_topics_per_message, context)
    if len(set(topics)) < len(topics):
        raise FieldRefusal(
            RejectReason.DUPLICATE_TOPIC, f"{shown(first_double(topics))} comes twice"
        )
    return TopicLoad(envelope=envelope, bundle=bundle, topics=topics, traffic=traffic)


def _parts(message: Mapping[str, Any], max_parts: int) -> tuple[int, int]:
    part, parts = fields.integer(message, "part"), fields.integer(message, "parts")
    if not part < parts <= max_parts:
        detail = f"part must be below parts, and parts at most {max_parts}, got {part} of {parts}"
        raise FieldRefusal(RejectReason.BAD_PART, detail)
    return part, parts


def _read_table(
    columns: Mapping[str, Any], numbers: Sequence[str], max_rows: int, context: Context
) -> tuple[tuple[str, ...], Floats]:
    """The column `name`, and the numbers as float64[rows, len(numbers)]."""
    items = fields.column(columns, "name", max_rows)
    names = fields.names(items, "name", context.limits.max_name_chars)
    by_name = {field: fields.column(columns, field, max_rows) for field in numbers}
    return names, fields.table(by_name, len(names), fields.COUNT_COLUMNS)

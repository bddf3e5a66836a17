"""A message of many rows without unusable ones: one bad row costs no other.

Decides which rows of a refused message are at fault. Answers, bundles and topics stand in rows that
don't need each other, so what is wrong with one is no reason to lose the rest: it is refused by
itself, and `parse` reads the message without it. Asked only for messages that were refused, so good
ones cost nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lbcore.wire import fields
from lbcore.wire.fields import FieldRefusal, check_bundle, shown
from lbcore.wire.messages import BUNDLE_COLUMNS, TRAFFIC, Rejected, RejectReason, Topic
from lbcore.wire.requests import read_ack
from lbcore.wire.rules import Limits

_TOLD_MAX = 20
"""Most rows of a message that are told one by one; what more there are is counted."""

_RAW_CHARS = 4_096
_TWICE = {"bundles": RejectReason.DUPLICATE_BUNDLE, "topics": RejectReason.DUPLICATE_TOPIC}

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sifted:
    """A message without its bad rows, and what is wrong with those, by number."""

    message: Fields
    refusals: Mapping[int, FieldRefusal]
    raws: Mapping[int, Any]


def sift(topic: Topic, message: Fields, limits: Limits) -> Sifted | None:
    """Return the message without bad rows; None if it has none, or has no rows."""
    sifters: Mapping[Topic, Callable[[], Sifted | None]] = {
        Topic.ACKS: lambda: _sift_acks(message, limits),
        Topic.BUNDLE_LOAD: lambda: _sift_table(message, "bundles", BUNDLE_COLUMNS, limits),
        Topic.TOPIC_LOAD: lambda: _sift_table(message, "topics", TRAFFIC, limits),
    }
    found = sifters[topic]() if topic in sifters else None
    return found if found is not None and found.refusals else None


def refused_rows(sifted: Sifted, cluster: str) -> tuple[Rejected, ...]:
    """Each bad row with its reason; of more than a few the rest in one."""
    numbers = sorted(sifted.refusals)
    told = [_refused(at, sifted, cluster) for at in numbers[:_TOLD_MAX]]
    more = len(numbers) - len(told)
    if more:
        last = sifted.refusals[numbers[-1]]
        detail = f"{more} more rows of this message are refused, the last for: {last.detail}"
        told.append(Rejected(reason=last.reason, detail=detail, raw=b"", cluster=cluster))
    return tuple(told)


def _refused(at: int, sifted: Sifted, cluster: str) -> Rejected:
    refusal = sifted.refusals[at]
    detail = f"row {at}: {refusal.detail}; the other rows of the message count"
    return Rejected(
        reason=refusal.reason, detail=detail, raw=_raw(sifted.raws[at]), cluster=cluster
    )


def _raw(row: Any) -> bytes:
    """The row as JSON, cut; what is nested too deep for that, as it is shown."""
    try:
        text = json.dumps(row)
    except (ValueError, RecursionError):
        text = shown(row)
    return text[:_RAW_CHARS].encode()


def _sift_acks(message: Fields, limits: Limits) -> Sifted | None:
    items = message.get("acks")
    if type(items) is not list or len(items) > limits.max_bundles_per_message:
        return None

    def check(at: int) -> None:
        check_bundle(read_ack(items[at], limits).bundle)

    refusals = _refusals(len(items), check)
    left = [item for at, item in enumerate(items) if at not in refusals]
    return Sifted(
        message={**message, "acks": left},
        refusals=refusals,
        raws={at: items[at] for at in refusals},
    )


def _sift_table(
    message: Fields, table: str, numbers: Sequence[str], limits: Limits
) -> Sifted | None:
    columns = message.get(table)
    named = ("name", *numbers)
    if not isinstance(columns, Mapping) or any(type(columns.get(c)) is not list for c in named):
        return None
    by_name = {column: columns[column] for column in named}
    if len({len(values) for values in by_name.values()}) != 1:
        return None
    seen: set[str] = set()

    def check(at: int) -> None:
        (name,) = fields.names(by_name["name"][at : at + 1], "name", limits.max_name_chars)
        if table == "bundles":
            check_bundle(name)
        row = {column: by_name[column][at : at + 1] for column in numbers}
        fields.table(row, 1, fields.COUNT_COLUMNS)
        if name in seen:
            raise FieldRefusal(
                _TWICE[table], f"{shown(name)} comes twice; the first row of it counts"
            )
        seen.add(name)

    refusals = _refusals(len(by_name["name"]), check)
    left = {
        column: [value for at, value in enumerate(values) if at not in refusals]
        for column, values in by_name.items()
    }
    raws = {at: {column: by_name[column][at] for column in named} for at in refusals}
    return Sifted(message={**message, table: {**columns, **left}}, refusals=refusals, raws=raws)


def _refusals(rows: int, check: Callable[[int], None]) -> dict[int, FieldRefusal]:
    """The rows that `check` refuses. O(rows)."""
    found = {}
    for at in range(rows):
        refusal = _refusal(check, at)
        if refusal is not None:
            found[at] = refusal
    return found


def _refusal(check: Callable[[int], None], at: int) -> FieldRefusal | None:
    try:
        check(at)
    except FieldRefusal as refusal:
        return refusal
    return None

"""Readers of one JSON field each, a parser's rules, and the header of messages.

A reader returns a value of type and range, or raises a FieldRefusal, which `parse` catches and
returns. A whole number may be written 3 or 3.0, as in JSON Schema; true is no number. The
header (schema, cluster, envelope) must agree with the message's key.
"""

import json
import math
import re
import reprlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from lbcore.model.names import InvalidNameError, Wire, parse_bundle
from lbcore.wire.messages import BUNDLE_COLUMNS, TRAFFIC, Envelope, Floats, RejectReason

SCHEMA = 1
"""The schema that `format` writes; `parse` reads this one and, from 2 on, the one before it."""

OLDEST_SCHEMA = max(1, SCHEMA - 1)
"""The oldest schema that is read. Ownership records are written in it, because the job is upgraded
before the agents. So are ticks, because a standby of a newer version sends them to the job that it
waits for."""

MAX_INT64 = 2**63 - 1
MAX_COUNT = 2**53
MAX_NUMBER = 1e18
MIN_TRAFFIC = 1e-9
"""Traffic below it counts as 0: less than a message in 30 years, and divisions by it overflow."""
MIN_POSITIVE_LIMIT = 1e-9
"""Below it, usage / limit could overflow single precision, in which Pulsar computes percentages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseRules:
    """Rules of `parse`: served clusters, limits, JSON decoder.

    loads: turns text into JSON values; its errors are ValueError (json.loads, orjson.loads).
    """

    clusters: frozenset[str]
    limits: Wire
    loads: Callable[[str], Any] = json.loads


COUNT_COLUMNS = frozenset(BUNDLE_COLUMNS) - frozenset(TRAFFIC)
"""The columns of a table that hold whole numbers."""

NAME_PATTERN = r"[^\s/~\x00-\x1f\x7f][^\s/\x00-\x1f\x7f]*"
"""Names of clusters and brokers: no blank, slash or control character, no leading tilde."""

_NAME = re.compile(NAME_PATTERN)
_REQUIRED: Any = object()

_SHORT = reprlib.Repr()  # bounded in depth too: a refused value may be nested a thousand deep
_SHORT.maxstring = _SHORT.maxlong = _SHORT.maxother = 60
_SHORT.maxlevel = 2


class FieldRefusal(Exception):  # noqa: N818 a refusal is no error of ours, and is returned
    """Reason why a message can't be used; the caller of its reader returns it."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


shown = _SHORT.repr
"""A value as an error message shows it, cut short."""


def decode_object(raw: bytes, loads: Callable[[str], Any], what: str) -> dict[str, Any]:
    """The JSON object in UTF-8; what: its name in a refusal."""
    try:
        decoded = loads(raw.decode())
    except (ValueError, RecursionError) as error:
        raise FieldRefusal(
            RejectReason.NOT_JSON, f"the {what} is not JSON in UTF-8: {shown(str(error))}"
        ) from None
    if type(decoded) is not dict:
        raise FieldRefusal(
            RejectReason.NOT_AN_OBJECT, f"the {what} must be a JSON object, got {shown(decoded)}"
        )
    return decoded


def _found(fields: Mapping[str, Any], name: str, default: Any) -> Any:
    value = fields.get(name, default)
    if value is _REQUIRED:
        raise FieldRefusal(
            RejectReason.MISSING_FIELD, f"{name} is missing; send it with every message"
        )
    return value


def _wrong_type(name: str, wanted: str, value: Any) -> FieldRefusal:
    return FieldRefusal(RejectReason.WRONG_TYPE, f"{name} must be {wanted}, got {shown(value)}")


def _typed(fields: Mapping[str, Any], name: str, default: Any, kind: type, wanted: str) -> Any:
    """Return a field's value if it is exactly of this type."""
    value = _found(fields, name, default)
    if type(value) is not kind:
        raise _wrong_type(name, wanted, value)
    return value


def text(fields: Mapping[str, Any], name: str, max_chars: int, default: Any = _REQUIRED) -> str:
    """A string of at most max_chars characters that UTF-8 can hold."""
    value: str = _typed(fields, name, default, str, "a string")
    if len(value) > max_chars:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"{name} must have at most {max_chars} characters, got {len(value)}",
        )
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise _wrong_type(name, "a string without lone surrogates", value)
    return value


def name(fields: Mapping[str, Any], field: str, max_chars: int) -> str:
    """A name of a cluster or a broker (NAME_PATTERN)."""
    value = text(fields, field, max_chars)
    if _NAME.fullmatch(value) is None:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE,
            f"{field} must be a name without blanks and slashes that doesn't start with ~,"
            f" got {shown(value)}",
        )
    return value


def nonempty(fields: Mapping[str, Any], field: str, max_chars: int) -> str:
    """A string with at least one character."""
    value = text(fields, field, max_chars)
    if not value:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, f"{field} must not be empty")
    return value


def choice(
    fields: Mapping[str, Any], field: str, choices: Iterable[str], default: Any = _REQUIRED
) -> str:
    """One of a closed set of strings."""
    allowed = sorted(choices)
    value: str = _typed(fields, field, default, str, f"one of {allowed}")
    if value not in allowed:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE, f"{field} must be one of {allowed}, got {shown(value)}"
        )
    return value


def _finite(fields: Mapping[str, Any], field: str, default: Any) -> Any:
    value = _found(fields, field, default)
    if type(value) is float and not math.isfinite(value):
        raise FieldRefusal(RejectReason.NOT_FINITE, f"{field} must be finite, got {value}")
    return value


def _check_range(field: str, value: float, minimum: float, maximum: float, shape: str) -> None:
    """Refuse a number outside of [minimum, maximum]. shape: format of these limits."""
    if value < 0 <= minimum:
        raise FieldRefusal(
            RejectReason.NEGATIVE, f"{field} must not be negative, got {shown(value)}"
        )
    if not minimum <= value <= maximum:
        wanted = f"[{minimum:{shape}}, {maximum:{shape}}]"
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE, f"{field} must be within {wanted}, got {shown(value)}"
        )


def integer(
    fields: Mapping[str, Any],
    field: str,
    *,
    minimum: int = 0,
    maximum: int = MAX_INT64,
    default: Any = _REQUIRED,
) -> int:
    """A whole number within [minimum, maximum]."""
    value = _finite(fields, field, default)
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _wrong_type(field, "a whole number", value)
    _check_range(field, value, minimum, maximum, "d")
    return value


count = partial(integer, maximum=MAX_COUNT, default=0)
"""A count, 0 where the field is absent."""


def number(
    fields: Mapping[str, Any],
    field: str,
    *,
    minimum: float = 0.0,
    maximum: float = MAX_NUMBER,
    default: Any = _REQUIRED,
) -> float:
    """A finite number within [minimum, maximum]."""
    value = _finite(fields, field, default)
    if type(value) is not float and type(value) is not int:
        raise _wrong_type(field, "a number", value)
    _check_range(field, value, minimum, maximum, "g")
    return float(value)


def flag(fields: Mapping[str, Any], field: str, default: Any = _REQUIRED) -> bool:
    """True or false."""
    value: bool = _typed(fields, field, default, bool, "true or false")
    return value


def mapping(fields: Mapping[str, Any], field: str, default: Any = _REQUIRED) -> Mapping[str, Any]:
    """A JSON object."""
    value = _found(fields, field, default)
    if not isinstance(value, Mapping):
        raise _wrong_type(field, "an object", value)
    return value


def column(fields: Mapping[str, Any], field: str, max_items: int) -> Sequence[Any]:
    """A JSON array of at most max_items items."""
    value: list[Any] = _typed(fields, field, _REQUIRED, list, "an array")
    if len(value) > max_items:
        raise FieldRefusal(
            RejectReason.TOO_LARGE,
            f"{field} must have at most {max_items} items, got {len(value)}; send more parts",
        )
    return value


def names(items: Sequence[Any], field: str, max_chars: int) -> tuple[str, ...]:
    """The items as strings that are neither empty nor longer than max_chars; O(items)."""
    if set(map(type, items)) - {str}:
        wrong = next(item for item in items if type(item) is not str)
        raise _wrong_type(f"an item of {field}", "a string", wrong)
    sizes = list(map(len, items))
    if sizes and (min(sizes) < 1 or max(sizes) > max_chars):
        wrong = next(item for item in items if not 1 <= len(item) <= max_chars)
        raise FieldRefusal(
            RejectReason.TOO_LARGE if len(wrong) else RejectReason.OUT_OF_RANGE,
            f"an item of {field} must have 1 to {max_chars} characters, got {shown(wrong)}",
        )
    if not "".join(items).isascii():
        for item in items:
            text({field: item}, field, max_chars)
    return tuple(items)


def first_duplicate(items: Sequence[str]) -> str:
    """Return the first item that comes twice; there must be one. O(items)."""
    counts = Counter(items)
    return next(item for item in items if counts[item] > 1)


def table(columns: Mapping[str, Sequence[Any]], rows: int, whole: frozenset[str]) -> Floats:
    """Columns of numbers as float64[rows, columns], each finite and within [0, 1e18].

    rows: number of items of the field `name`. whole: names of the columns of whole numbers. O(rows
    × columns), on whole arrays; only a table that is refused is searched for the value to name.
    """
    for field, values in columns.items():
        if len(values) != rows:
            raise FieldRefusal(
                RejectReason.UNEQUAL_LENGTHS,
                f"{field} has {len(values)} items and name has {rows}; send equal lengths",
            )
    if not set(map(type, chain.from_iterable(columns.values()))) <= {int, float}:
        raise _first_refusal(columns, whole)
    try:
        stats = np.array(list(columns.values()), dtype=np.float64).reshape(len(columns), rows)
    except OverflowError:
        raise _first_refusal(columns, whole) from None
    counts = stats[[field in whole for field in columns]]
    is_good = np.all((stats >= 0.0) & (stats <= MAX_NUMBER))  # NaN compares false
    if not is_good or np.any(counts != np.floor(counts)):
        raise _first_refusal(columns, whole)
    return flushed(np.ascontiguousarray(stats.T))


def flushed(traffic: Floats) -> Floats:
    """Set traffic below MIN_TRAFFIC to 0, in place; return the array."""
    traffic[traffic < MIN_TRAFFIC] = 0.0
    return traffic


def _first_refusal(columns: Mapping[str, Sequence[Any]], whole: frozenset[str]) -> FieldRefusal:
    """Return the refusal of the first wrong value, by a slow search."""
    for field, values in columns.items():
        read = partial(integer, maximum=int(MAX_NUMBER)) if field in whole else number
        for index, value in enumerate(values):
            label = f"{field}[{index}]"
            try:
                read({label: value}, label)
            except FieldRefusal as refusal:
                return refusal
    raise AssertionError("columns must hold a wrong value, got none")  # pragma: no cover


_ENTITY = r"[-=:.A-Za-z0-9_]+"
BUNDLE_PATTERN = rf"{_ENTITY}/{_ENTITY}/(?:{_ENTITY}/)?0x[0-9a-f]{{8}}_0x[0-9a-f]{{8}}"
"""tenant/namespace/range, or tenant/cluster/namespace/range; the range's order is not in it."""

_BUNDLES = re.compile(rf"(?:{BUNDLE_PATTERN}\n)*")


def check_bundles(names: Sequence[str]) -> None:
    """Refuse names that aren't bundle names, and a name that comes twice; O(names)."""
    lines = "\n".join([*names, ""])
    well_formed = _BUNDLES.fullmatch(lines) is not None and lines.count("\n") == len(names)
    # Eight lower-case hexadecimal digits order as text as they do as numbers.
    if not (well_formed and all([name[-21:-11] < name[-10:] for name in names])):  # noqa: C419 a third faster
        try:
            for name in names:
                parse_bundle(name)
        except InvalidNameError as error:
            raise FieldRefusal(RejectReason.MALFORMED_BUNDLE, str(error)) from None
    if len(set(names)) < len(names):
        raise FieldRefusal(
            RejectReason.DUPLICATE_BUNDLE, f"{shown(first_duplicate(names))} comes twice"
        )


def check_bundle(name: str) -> None:
    """Refuse a text that isn't a bundle's name."""
    check_bundles((name,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Context of a reader besides the message's fields: its key, cluster and limits."""

    key: str
    cluster: str
    limits: Wire


def read_schema(message: Mapping[str, Any]) -> None:
    """Refuse a message of a schema that is neither SCHEMA nor the one before it."""
    schema = integer(message, "schema")
    if not OLDEST_SCHEMA <= schema <= SCHEMA:
        raise FieldRefusal(
            RejectReason.UNKNOWN_SCHEMA,
            f"schema {shown(schema)} can't be read, only {OLDEST_SCHEMA} to {SCHEMA} can;"
            " upgrade the job before its agents",
        )


def read_cluster(message: Mapping[str, Any], rules: ParseRules) -> str:
    """The message's cluster, one of those that this job serves."""
    cluster = name(message, "cluster", rules.limits.max_name_chars)
    if cluster not in rules.clusters:
        raise FieldRefusal(
            RejectReason.UNKNOWN_CLUSTER,
            f"cluster {shown(cluster)} is not served here, {sorted(rules.clusters)} are;"
            " add it to pipeline.clusters, or correct the sender",
        )
    return cluster


def read_envelope(message: Mapping[str, Any], context: Context) -> Envelope:
    """The envelope of a report."""
    limits = context.limits
    return Envelope(
        cluster=context.cluster,
        broker=name(message, "broker", limits.max_name_chars),
        incarnation=nonempty(message, "incarnation", limits.max_name_chars),
        seq=integer(message, "seq"),
        reported_at_ms=integer(message, "reportedAt"),
    )


def check_key(context: Context, *parts: str) -> None:
    """Refuse a message whose key is not the cluster and parts, joined by slashes."""
    expected = "/".join((context.cluster, *parts))
    if context.key != expected:
        raise FieldRefusal(
            RejectReason.KEY_MISMATCH,
            f"the key must be {shown(expected)} as the value says, got {shown(context.key)}",
        )

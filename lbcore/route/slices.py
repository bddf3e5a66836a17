"""JSON encoding of large answers in slices, each of bounded work.

A slice is at most `WORK_MAX` values that are written or passed over. The service runs lookups
between slices (`jobs.adapters.http.fair_scheduling`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias, TypeVar

WORK_MAX = 1_024
"""Maximum values of JSON that a slice writes, or items that it passes over."""

_SCALE = 6  # a text counts as one value for each 2^6 characters

Value = TypeVar("Value")


class LeftOut(Enum):
    """Placeholder in a lazy list for an item that was filtered out."""

    LEFT_OUT = "left out"


LEFT_OUT: Final = LeftOut.LEFT_OUT
Maybe: TypeAlias = Value | Literal[LeftOut.LEFT_OUT]


@dataclass(frozen=True, slots=True)
class Fields:
    """An object whose fields are made while it is written; LEFT_OUT omits one."""

    pairs: Iterable[Maybe[tuple[str, Any]]]


def write_slices(value: Any) -> Iterator[bytes]:
    """Yield a value as JSON in steps of bounded work.

    The text is that of `json.dumps` without blanks. value: may hold iterators (lists) and `Fields`
    at any depth. A part may be empty.
    """
    texts: list[str] = []
    work = 0
    for part, weight in _write(value):
        texts.append(part)
        work += weight
        if work >= WORK_MAX:
            yield "".join(texts).encode("utf-8", "replace")
            texts, work = [], 0
    yield "".join(texts).encode("utf-8", "replace")


def _write(value: Any) -> Iterator[tuple[str, int]]:
    """Yield pieces of text with their weights."""
    weight = _weight(value, WORK_MAX)
    if weight < WORK_MAX or isinstance(value, str):  # one text can't be divided
        yield dumps(value), weight
    elif isinstance(value, Fields | Mapping):
        yield from _write_object(value.items() if isinstance(value, Mapping) else value.pairs)
    else:
        yield from _write_list(value)


def _write_object(pairs: Iterable[Maybe[tuple[str, Any]]]) -> Iterator[tuple[str, int]]:
    before = "{"
    for pair in pairs:
        if pair is LEFT_OUT:
            yield "", 1
            continue
        key, value = pair
        yield f"{before}{dumps(key)}:", 1
        yield from _write(value)
        before = ","
    yield ("{}" if before == "{" else "}"), 1


def _write_list(items: Iterable[Any]) -> Iterator[tuple[str, int]]:
    before = "["
    for item in items:
        if item is LEFT_OUT:
            yield "", 1
            continue
        weight = _weight(item, WORK_MAX)
        if weight < WORK_MAX:
            yield before + dumps(item), weight
        else:
            yield before, 1
            yield from _write(item)
        before = ","
    yield ("[]" if before == "[" else "]"), 1


def is_small(value: Any) -> bool:
    """True if one slice writes the whole value."""
    return _weight(value, WORK_MAX) < WORK_MAX


def _weight(value: Any, limit: int) -> int:
    """Return the number of values in a value, at most `limit`; a lazy one is `limit`."""
    if isinstance(value, str):
        return min(limit, 1 + (len(value) >> _SCALE))
    if value is None or isinstance(value, int | float):
        return 1
    if isinstance(value, dict):
        children: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple):
        children = value
    else:
        return limit
    if len(value) >= limit:
        return limit
    weight = 1
    for child in children:
        weight += _weight(child, limit - weight)
        if weight >= limit:
            return limit
    return weight


_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def dumps(value: Any) -> str:
    """A small value as JSON without blanks, in the order of the fields."""
    return _encoder.encode(value)

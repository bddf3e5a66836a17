"""Records as plain values, and arrays with plain values as bytes.

Equal contents give equal bytes on any machine (little-endian, sorted keys), so bytes may be
compared instead. A blob is a JSON header, which names each array's type and shape, and the arrays'
buffers. Records become objects by field names, enums their values, tuples and sets lists (sets
sorted). The conversion of a type is looked up once, so a field is declared in its record and
nowhere else.
"""

import json
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

Convert = Callable[[Any], Any]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Plain:
    """Conversion of a type to plain values and back."""

    to: Convert
    back: Convert


LEFT_OUT = "left out"
"""Marks, by Annotated, a field that isn't packed and comes back as its default."""

_AS_IT_IS = Plain(lambda value: value, lambda plain: plain)
_SCALARS = (str, int, float, bool)
_ITEMS: Mapping[Any, type[Any]] = {tuple: tuple, frozenset: frozenset, Sequence: list}


def to_plain(record: Any) -> Any:
    """Return a record as plain values."""
    kind: Any = type(record)
    return plain_of(kind).to(record)


def from_plain(kind: type[Value], plain: Any) -> Value:
    """Return the record that plain values hold; missing fields are defaults."""
    hint: Any = kind
    record: Value = plain_of(hint).back(plain)
    return record


@cache
def plain_of(hint: Any) -> Plain:
    """Return the conversion of a type. Raises TypeError for one that JSON can't hold."""
    if hint is Any or hint in _SCALARS:
        return _AS_IT_IS
    if hint is bytes:
        return Plain(lambda value: b64encode(value).decode(), b64decode)
    if isinstance(hint, type) and is_dataclass(hint):
        return _record(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        members = {one.value: one for one in hint}
        return Plain(lambda value: value.value, members.__getitem__)
    return _composed(hint, get_origin(hint), get_args(hint))


def _record(kind: type[Any]) -> Plain:
    hints = get_type_hints(kind, include_extras=True)
    of = {
        one.name: plain_of(hints[one.name])
        for one in fields(kind)
        if LEFT_OUT not in getattr(hints[one.name], "__metadata__", ())
    }
    return Plain(
        lambda record: {name: one.to(getattr(record, name)) for name, one in of.items()},
        lambda plain: kind(**{name: of[name].back(value) for name, value in plain.items()}),
    )


def _composed(hint: Any, origin: Any, arguments: tuple[Any, ...]) -> Plain:
    some = [one for one in arguments if one is not NoneType]
    if origin in {Union, UnionType} and len(some) == 1:
        of = plain_of(some[0])
        return Plain(
            lambda value: None if value is None else of.to(value),
            lambda plain: None if plain is None else of.back(plain),
        )
    if origin in _ITEMS and not {*arguments[1:]} - {..., arguments[0]}:
        of, kind = plain_of(arguments[0]), _ITEMS[origin]
        return Plain(
            lambda values: list(map(of.to, sorted(values) if kind is frozenset else values)),
            lambda plain: kind(map(of.back, plain)),
        )
    if origin not in {Mapping, dict}:
        raise TypeError(f"a packed field must be of a type that JSON has, got {hint}")
    key, of = arguments[0], plain_of(arguments[1])
    if key not in {str, int}:
        raise TypeError(f"a key of a packed mapping must be str or int, got {key}")
    if key is str and of == _AS_IT_IS:
        return Plain(dict, _AS_IT_IS.back)
    return Plain(
        lambda values: {str(name): of.to(value) for name, value in values.items()},
        lambda plain: {key(name): of.back(value) for name, value in plain.items()},
    )


_MAGIC = b"BLS1"
_PREFIX = struct.Struct("<4sI")
_ALIGNMENT = 8
_SEPARATOR = "\n"


class MalformedBlobError(ValueError):
    """The bytes were not made by `pack`, or were cut or changed since."""


def pack(plain: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """One blob of JSON-able values and numeric arrays. O(bytes)."""
    layout, buffers = [], []
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        layout.append([name, array.dtype.str, list(array.shape)])
        buffer = array.tobytes()
        buffers.append(buffer + b"\0" * (-len(buffer) % _ALIGNMENT))
    header = json.dumps(
        {"plain": plain, "arrays": layout}, sort_keys=True, separators=(",", ":")
    ).encode()
    header += b" " * (-(len(header) + _PREFIX.size) % _ALIGNMENT)
    return b"".join([_PREFIX.pack(_MAGIC, len(header)), header, *buffers])


def unpack(blob: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The inverse of `pack`; arrays are read-only views. Raises MalformedBlobError."""
    try:
        magic, size = _PREFIX.unpack_from(blob)
        header = json.loads(blob[_PREFIX.size : _PREFIX.size + size])
        plain, layout = header["plain"], header["arrays"]
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise MalformedBlobError(_DAMAGED.format(len(blob))) from error
    if magic != _MAGIC:
        raise MalformedBlobError(_DAMAGED.format(len(blob)))
    arrays = {}
    at = _PREFIX.size + size
    for name, dtype, shape in layout:
        count = int(np.prod(shape, dtype=np.int64))
        length = count * np.dtype(dtype).itemsize
        if at + length > len(blob):
            raise MalformedBlobError(_DAMAGED.format(len(blob)))
        arrays[name] = np.frombuffer(blob, dtype=dtype, count=count, offset=at).reshape(shape)
        at += length + (-length % _ALIGNMENT)
    return plain, arrays


_DAMAGED = (
    "a packed blob of {} bytes can't be read: it was cut, changed or made by other code; "
    "run `ballast state rebuild`, and the job's next start rebuilds the state from the tables"
)


def finite(value: Any) -> Any:
    """Return a plain value in which numbers that JSON has no word for are None."""
    if isinstance(value, dict):
        return {name: finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def join_names(names: Sequence[str]) -> NDArray[np.uint8]:
    """Join names as one array of bytes, cheap to pack; see `split_names`."""
    text = _SEPARATOR.join(names).encode()
    return np.frombuffer(text, dtype=np.uint8)


def split_names(joined: NDArray[np.uint8], count: int) -> list[str]:
    """The inverse of `join_names`; count tells none from one empty name."""
    return joined.tobytes().decode().split(_SEPARATOR) if count else []

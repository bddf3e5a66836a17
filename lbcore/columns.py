"""Records as columns, and back, by their fields: what one batch's operators hand to each other.

Decides how a record is laid out, from its types alone, so that a new field or a wider row is
declared once, in the record. Many records of one type are packed together: their numbers as arrays,
the rest as plain lists. Where a type says too little it is annotated: `RowOf`, `RowsOf`, `LINES`,
`plain.LEFT_OUT`. A layout is this version's of the code: what outlives a batch is packed so only
under the number of a schema, which changes with the layout (`scorer.tracks`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from itertools import accumulate, chain, pairwise
from types import NoneType, UnionType
from typing import Annotated, Any, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.plain import is_left_out, plain_of

T = TypeVar("T")
Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class RowOf:
    """Marks an array of the same length in every record."""

    width: int


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Marks an array [rows, width]; each record has as many rows as it likes."""

    width: int


_KEYS = (str, int)

LINES = "lines"
"""Marks a sequence of texts without line breaks, of which there are many."""


class ColumnCodec(Protocol):
    """The values that many records have in one field."""

    def put(self, name: str, values: Sequence[Any], into: "Packed") -> None:
        """Pack the values, of which there is at least one, under this name and longer ones."""
        ...

    def take(self, name: str, source: "Packed") -> Sequence[Any]:
        """As many values as were put."""
        ...


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed columns by name."""

    plain: dict[str, Any]
    arrays: dict[str, Array]

    def put(self, name: str, values: Sequence[Any], column: ColumnCodec) -> None:
        """Pack a column; one without values leaves nothing."""
        if values:
            column.put(name, values, self)

    def take(self, name: str, count: int, column: ColumnCodec) -> Sequence[Any]:
        """A column of as many values as were put."""
        return column.take(name, self) if count else ()


def pack_record(record: Any) -> bytes:
    """A record as one blob; equal records give equal bytes. Raises TypeError for odd types."""
    packed = columns_of(record)
    return packing.pack(packed.plain, packed.arrays)


def unpack_record(kind: type[T], blob: bytes) -> T:
    """The inverse of `pack_record`. Raises MalformedBlobError."""
    return record_of(kind, Packed(*packing.unpack(blob)))


def columns_of(record: Any) -> Packed:
    """A record's columns; the name of each begins with a dot. Raises TypeError for odd types."""
    kind: Any = type(record)
    into = Packed({}, {})
    column_of(kind).put("", [record], into)
    return into


def record_of(kind: type[T], packed: Packed) -> T:
    """The inverse of `columns_of`; what is packed beside the columns is not looked at."""
    hint: Any = kind
    found: T = column_of(hint).take("", packed)[0]
    return found


@cache
def column_of(hint: Any) -> ColumnCodec:
    """The column of a type. Raises TypeError for one that can't be packed."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _marked(*arguments)
    if origin is np.ndarray:
        return _Arrays(_dtype(hint), ())
    if origin in {tuple, Mapping} and _holds_records(arguments[-1 if origin is Mapping else 0]):
        return _of_many(hint)
    if NoneType in arguments:
        return _of_some(hint)
    if _holds_records(hint):
        return _Either(arguments) if origin in {Union, UnionType} else _Records(hint)
    return _flat(hint)


def _flat(hint: Any) -> ColumnCodec:
    if hint is float:
        return _Numbers()
    return _Bytes() if hint is bytes else _Plain(hint)


def _holds_records(hint: Any) -> bool:
    """A record, or one of several types."""
    return is_dataclass(hint) or (
        get_origin(hint) in {Union, UnionType} and all(map(is_dataclass, get_args(hint)))
    )


def _of_many(hint: Any) -> ColumnCodec:
    """The column of tuples of records, or of mappings to them."""
    first, *others = get_args(hint)
    if get_origin(hint) is tuple:
        return _Many(column_of(first))
    return _Mappings(column_of(others[0])) if first in _KEYS else _flat(hint)


def _of_some(hint: Any) -> ColumnCodec:
    """The column of what may be None: a plain value is packed as it is, others apart."""
    some: Any = Union[tuple(one for one in get_args(hint) if one is not NoneType)]  # noqa: UP007 (of a list)
    is_apart = some is bytes or _holds_records(some)
    return _Optional(column_of(some)) if is_apart else _flat(hint)


def _marked(hint: Any, mark: Any) -> ColumnCodec:
    if mark == LINES:
        return _Lines()
    if isinstance(mark, RowOf):
        return _Rows(_dtype(hint), mark.width)
    if isinstance(mark, RowsOf):
        return _Arrays(_dtype(hint), (mark.width,))
    raise TypeError(f"a packed field must be marked RowOf, RowsOf, LINES or LEFT_OUT, got {mark}")


def _dtype(hint: Any) -> Any:
    return get_args(get_args(hint)[1])[0]


class _Plain:
    """Types that JSON has."""

    def __init__(self, hint: Any) -> None:
        self._way = plain_of(hint)

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        way = self._way.to
        into.plain[name] = list(values if way is None else map(way, values))

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        found: list[Any] = source.plain[name]
        return found if self._way.back is None else list(map(self._way.back, found))


class _Numbers:
    """Floats, exactly."""

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.arrays[name] = np.array(values, dtype=np.float64)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        found: list[float] = source.arrays[name].tolist()
        return found


class _Rows:
    """Arrays of one length."""

    def __init__(self, dtype: Any, width: int) -> None:
        self._dtype, self._width = dtype, width

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        rows = np.array(values, dtype=self._dtype)
        if rows.shape[1] != self._width:
            raise ValueError(f"{name} must be {self._width} wide, got {rows.shape[1]}")
        into.arrays[name] = rows

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        return list(source.arrays[name])


class _Arrays:
    """Arrays of different lengths, behind each other."""

    def __init__(self, dtype: Any, shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[name] = list(map(len, values))
        arrays = [value.reshape(len(value), *self._shape) for value in values]
        into.arrays[name] = np.concatenate(arrays).astype(self._dtype, copy=False)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        return _cut(source.arrays[name], source.plain[name])


class _Lines:
    """Texts without line breaks."""

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[name] = list(map(len, values))
        into.arrays[name] = packing.join_names(list(chain.from_iterable(values)))

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        counts = source.plain[name]
        return _cut(packing.split_names(source.arrays[name], sum(counts)), counts)


class _Bytes:
    """Bytes, behind each other."""

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[name] = list(map(len, values))
        into.arrays[name] = np.frombuffer(b"".join(values), dtype=np.uint8)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        return _cut(source.arrays[name].tobytes(), source.plain[name])


class _Records:
    """Records of one type, field by field."""

    def __init__(self, kind: type[Any]) -> None:
        hints = get_type_hints(kind, include_extras=True)
        packed = [one.name for one in fields(kind) if not is_left_out(hints[one.name])]
        self._kind = kind
        self._columns = {name: column_of(hints[name]) for name in packed}

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        for field, column in self._columns.items():
            column.put(f"{name}.{field}", [getattr(value, field) for value in values], into)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        columns = [
            column.take(f"{name}.{field}", source) for field, column in self._columns.items()
        ]
        kind, names = self._kind, tuple(self._columns)
        return [kind(**dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


class _Many:
    """Tuples of values, behind each other."""

    def __init__(self, column: ColumnCodec) -> None:
        self._column = column

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[f"{name}#"] = list(map(len, values))
        into.put(name, list(chain.from_iterable(values)), self._column)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        counts = source.plain[f"{name}#"]
        found = source.take(name, sum(counts), self._column)
        return list(map(tuple, _cut(found, counts)))


class _Mappings:
    """Mappings to records, by sorted keys, which are texts or whole numbers."""

    def __init__(self, column: ColumnCodec) -> None:
        self._column = column

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        keys = [sorted(value) for value in values]
        into.plain[f"{name}#"] = keys
        found = [value[key] for value, some in zip(values, keys, strict=True) for key in some]
        into.put(name, found, self._column)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        keys = source.plain[f"{name}#"]
        counts = list(map(len, keys))
        found = _cut(source.take(name, sum(counts), self._column), counts)
        return [dict(zip(some, of, strict=True)) for some, of in zip(keys, found, strict=True)]


class _Optional:
    """Values of which some are None: which, and the others."""

    def __init__(self, column: ColumnCodec) -> None:
        self._column = column

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[f"{name}?"] = [value is not None for value in values]
        into.put(name, [value for value in values if value is not None], self._column)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        is_there = source.plain[f"{name}?"]
        found = iter(source.take(name, sum(is_there), self._column))
        return [next(found) if is_one else None for is_one in is_there]


class _Either:
    """Records of several types: which it is, and those of each type together."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        self._columns = {kind.__name__: column_of(kind) for kind in kinds}

    def put(self, name: str, values: Sequence[Any], into: Packed) -> None:
        into.plain[name] = [type(value).__name__ for value in values]
        for kind, column in self._columns.items():
            some = [value for value in values if type(value).__name__ == kind]
            into.put(f"{name}:{kind}", some, column)

    def take(self, name: str, source: Packed) -> Sequence[Any]:
        kinds = source.plain[name]
        found = {
            kind: iter(source.take(f"{name}:{kind}", kinds.count(kind), column))
            for kind, column in self._columns.items()
        }
        return [next(found[kind]) for kind in kinds]


def _cut(values: Any, counts: Sequence[int]) -> list[Any]:
    """The values in pieces of these lengths."""
    return [values[first:end] for first, end in pairwise(chain((0,), accumulate(counts)))]

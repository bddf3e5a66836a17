"""Codecs of the state's slices: rows in chunks by name, the book, and what planning remembers.

A slice that has not changed is not packed again: its bytes are kept beside the state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.state.book import (
    BrokerEntry,
    NamespaceEntry,
    broker_from_plain,
    namespace_from_plain,
)
from lbcore.model.resources import COUNT
from lbcore.plan.decision import PlanState

Made = TypeVar("Made")

Memo = dict[str, tuple[Any, Any]]
"""Part of a state → what it was made of, and what was made."""


def remembered(memo: Memo, name: str, parts: object, make: Callable[[], Made]) -> Made:
    """Return the memo's value if its parts are equal, else store what `make` returns.

    parts: never changed in place.
    """
    if name not in memo or memo[name][0] != parts:
        memo[name] = (parts, make())
    made: Made = memo[name][1]
    return made


ROWS_TO_SLICE = 8_192
"""Fewer rows are one slice."""

Columns = Mapping[str, NDArray[Any]]
Rows = NDArray[np.int64]

_SLICE, _CHANGES = ".slice.", ".changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChunks:
    """The columns as they were last written.

    prefix: of the chunks' names. round: counts the writes. written: of each slice, the round in
    which it was. blobs: chunk name → packed rows, of a slice or of a round's changes.
    """

    prefix: str
    round: int
    written: tuple[int, ...]
    blobs: Mapping[str, bytes]


def write_whole(
    prefix: str, columns: Columns, *, slices: int, rows_to_slice: int = ROWS_TO_SLICE
) -> RowChunks:
    """Every row of the columns, which are equally long. O(rows).

    prefix: no other chunk's name may begin with it and a dot.
    """
    slices = slices if _length(columns) >= rows_to_slice else 1
    blobs = {f"{prefix}{_SLICE}{i}": _slice(columns, i, slices, 0) for i in range(slices)}
    return RowChunks(prefix=prefix, round=0, written=(0,) * slices, blobs=blobs)


def write_changes(chunks: RowChunks, columns: Columns, rows: Rows) -> RowChunks:
    """The columns after these rows changed (each at least once). O(changed + rows / slices).

    columns: as long as those that were written before.
    """
    prefix, slices = chunks.prefix, len(chunks.written)
    changed = np.unique(rows)
    if slices == 1 or 2 * len(changed) > _length(columns):
        return write_whole(prefix, columns, slices=slices, rows_to_slice=0)
    turn = chunks.round + 1
    renewed = turn % slices
    written = (*chunks.written[:renewed], turn, *chunks.written[renewed + 1 :])
    oldest = min(written)
    kept = {
        name: blob
        for name, blob in chunks.blobs.items()
        if _SLICE in name or _number(name) > oldest  # else every slice has seen the changes
    }
    columns_changed = {name: column[changed] for name, column in columns.items()}
    blobs = {
        **kept,
        f"{prefix}{_SLICE}{renewed}": _slice(columns, renewed, slices, turn),
        f"{prefix}{_CHANGES}{turn}": packing.pack({}, {"row": changed, **columns_changed}),
    }
    return RowChunks(prefix=prefix, round=turn, written=written, blobs=blobs)


def read(prefix: str, state: Mapping[str, bytes]) -> tuple[Columns, RowChunks]:
    """Return the columns of a packed state, and the chunks to continue from.

    Other chunks are ignored. Raises MalformedBlobError. O(rows).
    """
    starts = (f"{prefix}{_SLICE}", f"{prefix}{_CHANGES}")
    blobs = {name: blob for name, blob in state.items() if name.startswith(starts)}
    names = sorted(blobs, key=_number)
    slices = [packing.unpack(blobs[name]) for name in names if _SLICE in name]
    written = tuple(plain["round"] for plain, _ in slices)
    columns = {
        name: np.concatenate([arrays[name] for _, arrays in slices]) for name in slices[0][1]
    }
    round_of_row = np.repeat(written, [_length(arrays) for _, arrays in slices])
    for name in names:
        if _CHANGES in name:
            _, changed = packing.unpack(blobs[name])
            is_newer = round_of_row[changed["row"]] < _number(name)
            rows = changed["row"][is_newer]
            for key, column in columns.items():
                column[rows] = changed[key][is_newer]
    chunks = RowChunks(prefix=prefix, round=max(written), written=written, blobs=blobs)
    return columns, chunks


def _number(name: str) -> int:
    return int(name.rpartition(".")[2])


def _slice(columns: Columns, number: int, slices: int, turn: int) -> bytes:
    length = _length(columns)
    first, end = length * number // slices, length * (number + 1) // slices
    cut = {name: column[first:end] for name, column in columns.items()}
    return packing.pack({"round": turn}, cut)


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))


_BOOK, _BROKERS, _LOADS = "book", "brokers", "brokers.loads"
_LOAD_FIELDS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "reported_ms": ("<i8", ()),
    "percent": ("<f8", (COUNT,)),
    "traffic": ("<f8", (4,)),
    "weighted_max_ema": ("<f8", ()),
    "throughput_ema": ("<f8", ()),
    "topic_count": ("<i8", ()),
    "bundle_count": ("<i8", ()),
}
_FIXED = tuple(name for name in BrokerEntry.__dataclass_fields__ if name not in _LOAD_FIELDS)
_fixed_of = attrgetter(*_FIXED)

Brokers = Mapping[str, BrokerEntry]
Namespaces = Mapping[str, NamespaceEntry]


def pack_brokers(brokers: Brokers, memo: Memo) -> Mapping[str, bytes]:
    """Their chunks by name. O(brokers)."""
    names = sorted(brokers)
    entries = [brokers[name] for name in names]
    loads = {
        field: np.array([getattr(entry, field) for entry in entries], dtype=dtype).reshape(
            len(entries), *shape
        )
        for field, (dtype, shape) in _LOAD_FIELDS.items()
    }
    fixed = dict(zip(names, map(_fixed_of, entries), strict=True))

    def made() -> bytes:
        plain = {name: dict(zip(_FIXED, values, strict=True)) for name, values in fixed.items()}
        return packing.pack(plain, {})

    return {_BROKERS: remembered(memo, _BROKERS, fixed, made), _LOADS: packing.pack({}, loads)}


def pack_book(
    namespaces: Namespaces, commands: Mapping[str, str], settings: Mapping[str, Any], memo: Memo
) -> Mapping[str, bytes]:
    """Their chunk by its name. O(namespaces + commands)."""
    latest = list(commands.items())  # their order is part of the state

    def made() -> bytes:
        entries = {name: packing.fields_of(entry) for name, entry in namespaces.items()}
        plain = {"namespaces": entries, "commands": latest, "settings": dict(settings)}
        return packing.pack(plain, {})

    return {_BOOK: remembered(memo, _BOOK, (namespaces, latest, settings), made)}


def unpack_brokers(chunks: Mapping[str, bytes]) -> dict[str, BrokerEntry]:
    """The inverse of `pack_brokers`. Raises MalformedBlobError."""
    fixed, _ = packing.unpack(chunks[_BROKERS])
    _, arrays = packing.unpack(chunks[_LOADS])
    loads = zip(*(arrays[field].tolist() for field in _LOAD_FIELDS), strict=True)
    return {
        name: broker_from_plain({**fixed[name], **dict(zip(_LOAD_FIELDS, load, strict=True))})
        for name, load in zip(sorted(fixed), loads, strict=True)
    }


def unpack_book(
    chunks: Mapping[str, bytes],
) -> tuple[dict[str, NamespaceEntry], dict[str, str], Mapping[str, Any]]:
    """Namespaces, commands and settings as packed. Raises MalformedBlobError."""
    plain, _ = packing.unpack(chunks[_BOOK])
    namespaces = {name: namespace_from_plain(p) for name, p in plain["namespaces"].items()}
    return namespaces, dict(plain["commands"]), plain["settings"]


_PLAN = "plan"
_MINUTE = "moved/"
_MINUTE_MS = 60_000


def pack_plan(plan: PlanState, memo: Memo) -> Mapping[str, bytes]:
    """Its chunks by name; those of the same plan as in the memo are not made again. O(moved)."""

    def made() -> Mapping[str, bytes]:
        rest = packing.pack(replace(plan, unloaded_ms={}).to_row(), {})
        return {_PLAN: rest, **_pack_moved(plan.unloaded_ms, memo)}

    return remembered(memo, _PLAN, plan, made)


def unpack_plan(chunks: Mapping[str, bytes]) -> PlanState:
    """The inverse of `pack_plan`; other chunks are ignored. Raises MalformedBlobError."""
    row, _ = packing.unpack(chunks[_PLAN])
    moved: dict[str, int] = {}
    for name in (name for name in chunks if name.startswith(_MINUTE)):
        _, part = packing.unpack(chunks[name])
        times = part["unloaded_ms"].tolist()
        names = packing.split_names(part["unloaded"], len(times))
        moved |= dict(zip(names, times, strict=True))
    return PlanState.from_row({**row, "unloaded_ms": dict(sorted(moved.items()))})


def _pack_moved(unloaded_ms: Mapping[str, int], memo: Memo) -> Mapping[str, bytes]:
    """A chunk a minute; of a minute with the same moves as in the memo, the very same one."""
    moved: dict[int, tuple[list[str], list[int]]] = {}
    for name, at_ms in unloaded_ms.items():
        names, times = moved.setdefault(at_ms // _MINUTE_MS, ([], []))
        names.append(name)
        times.append(at_ms)
    known, before = memo.get(_MINUTE, ({}, {}))
    chunks = {}
    for minute, moves in sorted(moved.items()):
        chunk = f"{_MINUTE}{minute}"
        chunks[chunk] = before[chunk] if known.get(minute) == moves else _pack_minute(*moves)
    memo[_MINUTE] = (moved, chunks)
    return chunks


def _pack_minute(names: list[str], times: list[int]) -> bytes:
    order = sorted(range(len(names)), key=names.__getitem__)
    arrays: dict[str, NDArray[Any]] = {
        "unloaded": packing.join_names([names[i] for i in order]),
        "unloaded_ms": np.array([times[i] for i in order], dtype=np.int64),
    }
    return packing.pack({}, arrays)

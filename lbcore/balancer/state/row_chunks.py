"""Columns of many rows as packed chunks, of which a batch with few changed rows rewrites few.

Decides what is written, not what it means; `ledger` keeps ownership and load averages so. The rows
are cut into slices. What changes is written as one chunk of the changed rows, and in turn one slice
is written anew, so that after a round of them older changes are not needed any more: a batch writes
its changes and one slice, and no batch all. Few rows are one slice, written whole.
Source: ours; the idea is that of log-structured storage (Rosenblum and Ousterhout, SOSP 1991).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing

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
    """What the chunks of a packed state hold, and those to go on from; other chunks are ignored.

    A state from before there were slices has all rows in one chunk, called as the prefix.
    Raises MalformedBlobError. O(rows).
    """
    starts = (f"{prefix}{_SLICE}", f"{prefix}{_CHANGES}")
    blobs = {name: blob for name, blob in state.items() if name.startswith(starts)}
    if not blobs:
        blobs = {f"{prefix}{_SLICE}0": state[prefix]}
    names = sorted(blobs, key=_number)
    slices = [packing.unpack(blobs[name]) for name in names if _SLICE in name]
    written = tuple(int(plain.get("round", 0)) for plain, _ in slices)
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
    return packing.pack({"round": turn} if turn else {}, cut)


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))

"""Columns of many rows as packed chunks, of which a batch with few changed rows rewrites few.

Decides what is written, not what it means; `ledger` keeps its load averages so. The rows are cut
into slices. What changes is written as one chunk of the changed rows, and in turn one slice is
written anew, so that after a round of them older changes are not needed any more: a batch writes
its changes and an eighth, and no batch all. Few rows are one slice, written whole.
Source: ours; the idea is that of log-structured storage (Rosenblum and Ousterhout, SOSP 1991).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing

SLICES = 8
ROWS_TO_SLICE = 8_192
"""Fewer rows are one slice."""

Columns = Mapping[str, NDArray[Any]]
Rows = NDArray[np.int64]

_WHOLE = "ledger.load"
"""All rows in one chunk, as they were before there were slices."""
_SLICE, _CHANGES = f"{_WHOLE}.slice.", f"{_WHOLE}.changes."


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadChunks:
    """The columns as they were last written.

    round: counts the writes. written: of each slice, the round in which it was. blobs: chunk name →
    packed rows, of a slice or of a round's changes.
    """

    round: int
    written: tuple[int, ...]
    blobs: Mapping[str, bytes]


def write_whole(columns: Columns, *, slices: int = 0) -> LoadChunks:
    """Every row of the columns, which are equally long. slices: 0 = as suits them. O(rows)."""
    slices = slices or (SLICES if _length(columns) >= ROWS_TO_SLICE else 1)
    blobs = {f"{_SLICE}{i}": _slice(columns, i, slices, 0) for i in range(slices)}
    return LoadChunks(round=0, written=(0,) * slices, blobs=blobs)


def write_changes(chunks: LoadChunks, columns: Columns, rows: Rows) -> LoadChunks:
    """The columns after these rows changed (each at least once). O(changed + rows/SLICES).

    columns: as long as those that were written before.
    """
    slices = len(chunks.written)
    changed = np.unique(rows)
    if slices == 1 or 2 * len(changed) > _length(columns):
        return write_whole(columns, slices=slices)
    turn = chunks.round + 1
    renewed = turn % slices
    written = (*chunks.written[:renewed], turn, *chunks.written[renewed + 1 :])
    name = f"{_CHANGES}{turn}"
    blobs = {
        **chunks.blobs,
        f"{_SLICE}{renewed}": _slice(columns, renewed, slices, turn),
        name: packing.pack({}, {"row": changed, **{k: v[changed] for k, v in columns.items()}}),
    }
    return LoadChunks(round=turn, written=written, blobs=_needed(blobs, min(written)))


def read(state: Mapping[str, bytes]) -> tuple[Columns, LoadChunks]:
    """What the chunks of a packed state hold, and those to go on from; other chunks are ignored.

    Raises MalformedBlobError. O(rows).
    """
    blobs = {name: blob for name, blob in state.items() if name.startswith((_SLICE, _CHANGES))}
    if not blobs:
        blobs = {f"{_SLICE}0": state[_WHOLE]}
    slices = [packing.unpack(blobs[name]) for name in sorted(blobs) if name.startswith(_SLICE)]
    written = tuple(int(plain.get("round", 0)) for plain, _ in slices)
    columns = {
        name: np.concatenate([arrays[name] for _, arrays in slices]) for name in slices[0][1]
    }
    round_of_row = np.repeat(written, [_length(arrays) for _, arrays in slices])
    for turn in sorted(_turn(name) for name in blobs if name.startswith(_CHANGES)):
        _, changed = packing.unpack(blobs[f"{_CHANGES}{turn}"])
        is_newer = round_of_row[changed["row"]] < turn
        rows = changed["row"][is_newer]
        for name, column in columns.items():
            column[rows] = changed[name][is_newer]
    return columns, LoadChunks(round=max(written), written=written, blobs=blobs)


def _needed(blobs: Mapping[str, bytes], oldest: int) -> Mapping[str, bytes]:
    """Without the changes that every slice has seen."""
    return {
        name: blob
        for name, blob in blobs.items()
        if name.startswith(_SLICE) or _turn(name) > oldest
    }


def _turn(name: str) -> int:
    return int(name.removeprefix(_CHANGES))


def _slice(columns: Columns, number: int, slices: int, turn: int) -> bytes:
    length = _length(columns)
    first, end = length * number // slices, length * (number + 1) // slices
    cut = {name: column[first:end] for name, column in columns.items()}
    return packing.pack({"round": turn} if turn else {}, cut)


def _length(columns: Columns) -> int:
    return len(next(iter(columns.values())))

"""The plan's memory as packed chunks: bundles moved lately by the minute, all else in one.

Decides what a batch packs again: nothing of a plan that is the same. In the grace period of half an
hour 1,000 brokers may have 20,000 bundles moved; a cycle adds to the newest minute and drops the
oldest, so that these two chunks are packed and written and not a megabyte. Source: ours.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.state.memo import Memo, remembered
from lbcore.plan.decision import PlanState

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
    row, arrays = packing.unpack(chunks[_PLAN])
    parts = [arrays] if "unloaded" in arrays else []  # as one chunk held both
    parts += [packing.unpack(chunks[name])[1] for name in chunks if name.startswith(_MINUTE)]
    moved = dict(row.get("unloaded_ms", {}))
    for part in parts:
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

"""Shadows: what a strategy that only thinks remembers, and what of a cycle it needs to think along.

Decides nothing; `decisions.shadows` does. A shadow has its planning memory, as the acting strategy
has its own, and its *virtual ownership*: of each bundle that it would have elsewhere, where. All
other bundles are where they are. Source: ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.balancer.state.memo import Memo, remembered
from lbcore.balancer.state.plan_chunks import pack_plan, unpack_plan
from lbcore.plan.decision import Decision, PlanState, Scope
from lbcore.plan.snapshot import Ints, Snapshot

_CHUNK = "shadow/"
_OWN = "own"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Where a bundle would be. since_ms: since when it is not where it really is.

    moved_ms: when it would last have got another owner, 0 = never.
    """

    broker: str
    since_ms: int
    moved_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shadow:
    """What one shadow remembers.

    elsewhere: bundle → where it would be, in name order. imbalance, floor_adjusted: of the cluster
    as its own moves would have left it, when it last planned; None = there was no load.
    """

    plan: PlanState
    elsewhere: Mapping[str, Elsewhere] = field(default_factory=dict)
    imbalance: float | None = None
    floor_adjusted: float | None = None

    def with_elsewhere(self, found: Mapping[str, Elsewhere]) -> "Shadow":
        """The shadow with these bundles elsewhere."""
        return replace(self, elsewhere=dict(sorted(found.items())))

    def brought_back(self, now_ms: int) -> "Shadow":
        """The shadow with every time that is after now as of now: a wrong clock told it."""
        found = {
            name: replace(
                one, since_ms=min(one.since_ms, now_ms), moved_ms=min(one.moved_ms, now_ms)
            )
            for name, one in self.elsewhere.items()
        }
        return replace(self, plan=self.plan.brought_back(now_ms), elsewhere=found)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleSeen:
    """What the acting strategy's plan was made of, for those that think along.

    rows: the ledger's row of each of the snapshot's bundles. before: the memory that it began
    with. scope: what shadows may do, also where the acting strategy waits for a person. carried:
    what of the plan is carried out.
    """

    snapshot: Snapshot
    rows: Ints
    before: PlanState
    scope: Scope
    carried: Sequence[Decision] = ()


def changed_plans(
    shadows: Mapping[str, Shadow], change: Callable[[PlanState], PlanState]
) -> dict[str, Shadow]:
    """The shadows after a change of the world that every planning memory follows."""
    return {name: replace(one, plan=change(one.plan)) for name, one in shadows.items()}


def pack_shadows(shadows: Mapping[str, Shadow], memo: Memo) -> Mapping[str, bytes]:
    """Their chunks by name; what is the same as in the memo is not made again."""
    chunks: dict[str, bytes] = {}
    for name in sorted(shadows):
        one, prefix = shadows[name], f"{_CHUNK}{name}/"
        _, inner = memo.setdefault(prefix, (name, {}))
        chunks |= {prefix + chunk: blob for chunk, blob in pack_plan(one.plan, inner).items()}
        own = (one.elsewhere, one.imbalance, one.floor_adjusted)
        chunks[prefix + _OWN] = remembered(inner, _OWN, own, partial(_packed, one))
    return chunks


def unpack_shadows(chunks: Mapping[str, bytes]) -> dict[str, Shadow]:
    """The inverse of `pack_shadows`; other chunks are ignored. Raises MalformedBlobError."""
    found: dict[str, dict[str, bytes]] = {}
    for chunk, blob in chunks.items():
        if chunk.startswith(_CHUNK):
            name, _, part = chunk.removeprefix(_CHUNK).partition("/")
            found.setdefault(name, {})[part] = blob
    return {name: _unpacked(found[name]) for name in sorted(found)}


def _packed(one: Shadow) -> bytes:
    places = one.elsewhere.values()
    plain = {
        "count": len(places),
        "imbalance": one.imbalance,
        "floor_adjusted": one.floor_adjusted,
    }
    arrays: dict[str, NDArray[Any]] = {
        "bundle": packing.join_names(list(one.elsewhere)),
        "broker": packing.join_names([place.broker for place in places]),
        "since_ms": np.array([place.since_ms for place in places], dtype=np.int64),
        "moved_ms": np.array([place.moved_ms for place in places], dtype=np.int64),
    }
    return packing.pack(plain, arrays)


def _unpacked(parts: Mapping[str, bytes]) -> Shadow:
    plain, arrays = packing.unpack(parts[_OWN])
    count = plain["count"]
    columns = (
        packing.split_names(arrays["bundle"], count),
        packing.split_names(arrays["broker"], count),
        arrays["since_ms"].tolist(),
        arrays["moved_ms"].tolist(),
    )
    return Shadow(
        plan=unpack_plan(parts),
        elsewhere={
            bundle: Elsewhere(broker=broker, since_ms=since_ms, moved_ms=moved_ms)
            for bundle, broker, since_ms, moved_ms in zip(*columns, strict=True)
        },
        imbalance=plain["imbalance"],
        floor_adjusted=plain["floor_adjusted"],
    )

"""What is known of the shards of one cluster: what each carries, and what it has given lately.

Decides nothing; messages to other shards are made here of an effect's row. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.wire.messages import TRAFFIC, ShardLoad

_CHUNK = "others"


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherShard:
    """A shard, this one itself included. load: what it said last; gave_ms: broker → when last."""

    load: ShardLoad
    gave_ms: Mapping[str, int] = field(default_factory=dict)

    def after(self, load: ShardLoad, kept_ms: int) -> "OtherShard":
        """With what it says now; what it gave longer ago than kept_ms is forgotten."""
        kept = {name: ms for name, ms in self.gave_ms.items() if ms >= load.at_ms - kept_ms}
        gave = (load.carried < load.before).any(axis=1)
        names = (load.brokers[at] for at in np.flatnonzero(gave).tolist())
        return OtherShard(load=load, gave_ms=kept | dict.fromkeys(names, load.at_ms))


def pack_others(others: Mapping[str, OtherShard]) -> Mapping[str, bytes]:
    """A chunk for each shard, whose bytes change when it speaks. O(brokers)."""
    return {f"{_CHUNK}/{name}": _packed(others[name]) for name in sorted(others)}


def unpack_others(chunks: Mapping[str, bytes]) -> dict[str, OtherShard]:
    """The inverse of `pack_others`; other chunks are ignored. Raises MalformedBlobError."""
    found = [_unpacked(chunks[name]) for name in sorted(chunks) if name.startswith(f"{_CHUNK}/")]
    return {one.load.shard: one for one in found}


def shard_loads(row: Mapping[str, Any], told: Sequence[str]) -> list[ShardLoad]:
    """The messages that a row of SHARED stands for. told: the names of the other shards."""
    shape = (-1, len(TRAFFIC))
    return [
        ShardLoad(
            cluster=name,
            shard=row["cluster"],
            at_ms=row["at_ms"],
            brokers=tuple(row["brokers"]),
            carried=np.array(row["carried"], dtype=np.float64).reshape(shape),
            before=np.array(row["before"], dtype=np.float64).reshape(shape),
        )
        for name in told
    ]


def _packed(one: OtherShard) -> bytes:
    load = one.load
    plain = {
        "cluster": load.cluster,
        "shard": load.shard,
        "at_ms": load.at_ms,
        "count": len(load.brokers),
        "gave_ms": dict(sorted(one.gave_ms.items())),
    }
    arrays: dict[str, NDArray[Any]] = {
        "brokers": packing.join_names(list(load.brokers)),
        "carried": load.carried,
        "before": load.before,
    }
    return packing.pack(plain, arrays)


def _unpacked(blob: bytes) -> OtherShard:
    plain, arrays = packing.unpack(blob)
    load = ShardLoad(
        cluster=plain["cluster"],
        shard=plain["shard"],
        at_ms=plain["at_ms"],
        brokers=tuple(packing.split_names(arrays["brokers"], plain["count"])),
        carried=arrays["carried"],
        before=arrays["before"],
    )
    return OtherShard(load=load, gave_ms=plain["gave_ms"])

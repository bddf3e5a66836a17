"""What other shards of the cluster carry, as the phases of a plan see it.

Decides how a shard counts load that is not its own: as one bundle a broker, which nobody may move.
So every strategy and every placement sees whole brokers, and gives of its own alone. Source: ours.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore.plan.snapshot import Bools, BundleTable, Floats, Ints, Snapshot

T = TypeVar("T", np.bool_, np.int64)

SPACE = "~other/shards"
"""The namespace of these bundles: no name of a tenant begins so, and no record has it."""
_NOBODY = -1


def with_others(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a bundle more for each broker that carries something of other shards.

    They stand behind all others, so rows stay what they were. O(bundles).
    """
    others = snapshot.others
    if others is None or not others.any():
        return snapshot
    owner: Ints = np.flatnonzero(others.any(axis=1)).astype(np.int64)
    bundles = _extended(snapshot.bundles, owner, others[owner])
    names = tuple(f"{SPACE}/{snapshot.brokers.names[at]}" for at in owner.tolist())
    return replace(snapshot, bundles=replace(bundles, names=(*bundles.names, *names)))


def is_own(bundles: BundleTable) -> Bools:
    """Which bundles are of this shard, bool[m]: all, but what stands for the others' load."""
    spaces = bundles.namespaces
    of_others = len(spaces) - 1 if spaces[-1:] == (SPACE,) else _NOBODY
    found: Bools = bundles.namespace != of_others
    return found


def _extended(bundles: BundleTable, owner: Ints, carried: Floats) -> BundleTable:
    """The table with rows that have an owner, carry this, and stay where they are."""
    many = len(owner)
    zeros, no = np.zeros(many, dtype=np.int64), np.zeros(many, dtype=np.bool_)
    nobody = np.full(many, _NOBODY, dtype=np.int64)
    space = np.full(many, len(bundles.namespaces), dtype=np.int64)
    return replace(
        bundles,
        namespaces=(*bundles.namespaces, SPACE),
        namespace=np.concatenate([bundles.namespace, space]),
        owner=np.concatenate([bundles.owner, owner]),
        short=np.concatenate([bundles.short, carried]),
        long=np.concatenate([bundles.long, carried]),
        topics=np.concatenate([bundles.topics, zeros]),
        sessions=np.concatenate([bundles.sessions, zeros]),
        can_move=np.concatenate([bundles.can_move, no]),
        versions=np.concatenate([bundles.versions, zeros]),
        needs_owner=_longer(bundles.needs_owner, no),
        avoid=_longer(bundles.avoid, nobody),
        is_load_known=_longer(bundles.is_load_known, no),
        is_awaited=_longer(bundles.is_awaited, no),
        pin=_longer(bundles.pin, nobody),
        is_non_persistent=_longer(bundles.is_non_persistent, no),
        is_held=_longer(bundles.is_held, no),
        moved_ms=_longer(bundles.moved_ms, zeros),
    )


def _longer(column: NDArray[T] | None, more: NDArray[T]) -> NDArray[T] | None:
    return None if column is None else np.concatenate([column, more])

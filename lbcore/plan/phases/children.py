"""The children of splits as bundles that can be placed, before anything is written.

Decides each child's part of its parent's load; where it goes, placement says. Used by the assign
phase when `auto_unload_split_bundles` is on. Pulsar unloads the children afterwards
and lets the next look-ups place them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lbcore.plan.filter.index import CandidateIndex
from lbcore.plan.pending import load_share
from lbcore.plan.snapshot import BundleTable, Floats, Ints, Snapshot
from lbcore.plan.split.algorithms import TopicLoads
from lbcore.plan.split.decision import SplitDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The snapshot with the children to be placed as its last rows, and the index to it.

    The parents have no owner in it and don't count in their brokers' usage: their load is the
    children's now. usage: float64[n]. rows: int64[children].
    """

    snapshot: Snapshot
    index: CandidateIndex
    usage: Floats
    rows: Ints


def with_children(
    snapshot: Snapshot, index: CandidateIndex, usage: Floats, splits: Sequence[SplitDecision]
) -> Family:
    """The snapshot with the children of those splits whose children are placed at once."""
    placed = [split for split in splits if split.place_children]
    if not placed:
        nothing = np.zeros(0, dtype=np.int64)
        return Family(snapshot=snapshot, index=index, usage=usage, rows=nothing)
    parents = np.repeat(
        np.array([split.bundle for split in placed], dtype=np.int64),
        [len(split.children) for split in placed],
    )
    share = np.concatenate([child_shares(snapshot, split) for split in placed])
    names = tuple(child for split in placed for child in split.children)
    bundles = _with_rows(snapshot.bundles, parents, share, names)
    before = len(snapshot.bundles.names)
    return Family(
        snapshot=replace(snapshot, bundles=bundles),
        index=replace(index, row=np.concatenate([index.row, index.row[parents]])),
        usage=_without_parents(snapshot, usage, placed),
        rows=np.arange(before, before + len(names)),
    )


def _without_parents(snapshot: Snapshot, usage: Floats, splits: Sequence[SplitDecision]) -> Floats:
    left: Floats = usage.copy()
    for split in splits:
        owner = int(snapshot.bundles.owner[split.bundle])
        if owner >= 0:
            share = load_share(
                snapshot.bundles.short[split.bundle], snapshot.brokers.traffic[owner]
            )
            left[owner] = max(0.0, float(left[owner] - usage[owner] * share))
    return left


def child_shares(snapshot: Snapshot, split: SplitDecision) -> Floats:
    """Each child's part of its parent's traffic, summing to 1: by its topics, else equal."""
    return topic_shares(snapshot.topics_of(split.name), split.boundaries)


def topic_shares(topics: TopicLoads | None, boundaries: Sequence[int]) -> Floats:
    """The part of a bundle's traffic in each part of its range, summing to 1; see `child_shares`.

    boundaries: ascending, strictly inside of the range; one part more than they are.
    """
    count = len(boundaries) + 1
    equal = np.full(count, 1.0 / count)
    if topics is None or not len(topics.hashes):
        return equal
    child = np.searchsorted(np.array(boundaries), topics.hashes, side="right")
    for weight in (topics.throughput, topics.msg_rate):
        sums = np.bincount(child, weights=weight, minlength=count)
        total = float(np.cumsum(sums)[-1])
        if total > 0:
            shares: Floats = sums / total
            return shares
    return equal


def _with_rows(
    table: BundleTable, parents: Ints, share: Floats, names: tuple[str, ...]
) -> BundleTable:
    part = share[:, np.newaxis]
    owner = table.owner.copy()
    owner[parents] = -1
    nobody = np.full(len(names), -1, dtype=np.int64)
    return replace(
        table,
        names=(*table.names, *names),
        namespace=np.concatenate([table.namespace, table.namespace[parents]]),
        owner=np.concatenate([owner, nobody]),
        short=np.concatenate([table.short, table.short[parents] * part]),
        long=np.concatenate([table.long, table.long[parents] * part]),
        topics=np.concatenate([table.topics, np.ceil(table.topics[parents] * share).astype(int)]),
        sessions=np.concatenate([table.sessions, np.zeros(len(names), dtype=np.int64)]),
        can_move=np.concatenate([table.can_move, np.zeros(len(names), dtype=np.bool_)]),
        versions=np.concatenate([table.versions, np.zeros(len(names), dtype=np.int64)]),
        needs_owner=None,
        avoid=None,
        is_load_known=None,
        is_awaited=None,
        pin=None,
        is_non_persistent=None,
        is_paused=None,
        moved_ms=None,
        left=None,
    )


def placed_children(
    family: Family, splits: Sequence[SplitDecision], found: Ints, brokers: Sequence[str]
) -> Mapping[str, str]:
    """Child → broker for the children that were placed; "" = it stays with its parent's owner."""
    names = [family.snapshot.bundles.names[row] for row in family.rows.tolist()]
    chosen = [brokers[at] if at >= 0 else "" for at in found.tolist()]
    owner = {child: split.broker for split in splits for child in split.children}
    return {
        name: "" if broker == owner[name] else broker
        for name, broker in zip(names, chosen, strict=True)
    }

"""What shadows decide under, and that they count what is really placed between cycles.

Decides which placement goes with a shadow's strategy; who gets a bundle without an owner the job
alone decides, for everybody. Used by `placing` and `shadows`. Source: ours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.virtual_ownership import virtual_snapshot
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.config.tree import Config
from lbcore.plan.draft import Moves
from lbcore.plan.planner import follow_placed
from lbcore.plan.registry import (
    find_shedding,
    placement_beside,
    placement_name,
    shedding_name,
)
from lbcore.plan.snapshot import Ints, Snapshot


def shadow_config(config: Config, strategy: str) -> Config:
    """What a shadow plans under; raises ValueError for a strategy that there isn't."""
    if strategy == shedding_name(config.shedding.strategy):
        return config
    own = replace(config, shedding=replace(config.shedding, strategy=strategy))
    found = find_shedding(own)
    if found is None:
        raise ValueError(f"shadow must be a strategy that there is, got {strategy!r}")
    placement = placement_beside(found, config.placement.strategy)
    return replace(own, placement=replace(config.placement, strategy=placement))


def tell_placed(
    work: Work, config: Config, view: tuple[Snapshot, Ints], found: Mapping[str, str]
) -> None:
    """Let each shadow count bundles that got an owner as load of its, until that reports it.

    view: the snapshot that they were placed in, and the ledger's rows. O(shadows x placed).
    """
    snapshot, rows = view
    for name, shadow in work.shadows.items():
        own = shadow_config(config, name)
        placed = _moves(snapshot, {b: to for b, to in found.items() if b not in shadow.elsewhere})
        seen = virtual_snapshot(work, shadow, snapshot, rows)
        after = follow_placed(seen, shadow.plan, own, work.now_ms, placed)
        if _places_alike(own, config):
            after = replace(after, placement=work.plan.placement)
        work.shadows[name] = replace(shadow, plan=after)


def _moves(snapshot: Snapshot, found: Mapping[str, str]) -> Moves:
    brokers = {name: at for at, name in enumerate(snapshot.brokers.names)}
    names: Sequence[str] = snapshot.bundles.names
    pairs = [(row, brokers[found[name]]) for row, name in enumerate(names) if name in found]
    bundle, destination = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    nobody: Ints = np.full(len(bundle), NOBODY, dtype=np.int64)
    return Moves(bundle=bundle, source=nobody, destination=destination, origin=nobody)


def _places_alike(one: Config, other: Config) -> bool:
    """Whether both place by the same strategy, whose memory is then of the same placements."""
    return placement_name(one.placement.strategy) == placement_name(other.placement.strategy)

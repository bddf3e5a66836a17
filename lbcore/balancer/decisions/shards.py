"""Shards: what this one tells the other shards of its cluster, and what it makes of what they tell.

Decides when: whenever a batch has decided where load goes, and in each cycle. What others have
decided counts like moves of one's own until reports show it; what they carry is theirs alone to
move. What is told is a help for planning and nothing more: a message that is lost makes a plan
worse until the next one, and ownership never depends on one. Source: ours.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.placing import make_snapshot, planning_config, usable_brokers
from lbcore.balancer.decisions.turns import siblings
from lbcore.balancer.state.effects import SHARED
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.ledger import STATE_CODE, Ledger
from lbcore.balancer.state.other_shards import OtherShard, shard_loads
from lbcore.balancer.state.work import Work
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.plan import planner
from lbcore.plan.pending import sums_of
from lbcore.plan.snapshot import Floats
from lbcore.wire.messages import ShardLoad

_DECIMALS = 3
_NOWHERE = (State.INIT, State.FREE, State.DELETED)
_KEPT_MS = 3_600_000


def take_shards(work: Work, messages: Sequence[ShardLoad]) -> None:
    """Keep what other shards carry, and count what they have decided. O(bundles) if they have."""
    known = siblings(work)
    names = usable_brokers(work)
    moved = np.zeros((len(names), 4))
    at = {name: index for index, name in enumerate(names)}
    for message in messages:
        before = work.others.get(message.shard)
        is_old = before is not None and message.at_ms <= before.load.at_ms
        if message.shard not in known or is_old:
            continue
        # of the future by a wrong clock: what comes next would not count until then
        _keep(work, replace(message, at_ms=min(message.at_ms, work.now_ms)))
        for broker, change in zip(message.brokers, message.carried - message.before, strict=True):
            if broker in at:
                moved[at[broker]] += change
    if moved.any():
        snapshot, _ = make_snapshot(work, names)
        config = planning_config(work)
        work.plan = planner.follow_others(snapshot, work.plan, config, work.now_ms, moved)


def tell_shards(work: Work) -> None:
    """Tell the other shards what this one carries, and what it has decided. O(bundles)."""
    if not siblings(work):
        return
    names = sorted(work.brokers)
    moved = _moved(work, names)
    if not moved.any() and work.times.cycle_ms != work.now_ms:
        return
    carried = np.round(_carried(work.ledger, names), _DECIMALS)
    before = np.round(np.maximum(carried - moved, 0.0), _DECIMALS)
    row = {"brokers": names, "carried": carried.tolist(), "before": before.tolist()}
    work.add_row(SHARED, row)
    _keep(work, shard_loads(work.rows[SHARED][-1], [work.cluster])[0])


def _keep(work: Work, load: ShardLoad) -> None:
    before = work.others.get(load.shard, OtherShard(load=load))
    work.others[load.shard] = before.after(load, _KEPT_MS)


def _moved(work: Work, names: Sequence[str]) -> Floats:
    """What this batch's transitions bring to each broker, float64[n, 4]; negative: take away."""
    moved = np.zeros((len(names), 4))
    at = {name: index for index, name in enumerate(names)}
    first: dict[str, OwnershipRecord | None] = {}
    last: dict[str, OwnershipRecord] = {}
    for before, after in work.transitions:
        first.setdefault(after.bundle, before)
        last[after.bundle] = after
    for bundle, after in last.items():
        row = work.ledger.index.get(bundle)
        origin, target = _target(first[bundle]), _target(after)
        if row is None or origin == target:
            continue
        for broker, sign in ((origin, -1.0), (target, 1.0)):
            if broker in at:
                moved[at[broker]] += sign * work.ledger.short[row]
    return moved


def _target(record: OwnershipRecord | None) -> str:
    """Where a bundle is to be by its record; "" = nowhere yet."""
    if record is None or record.state in _NOWHERE:
        return ""
    return record.source if record.state is State.SPLITTING else record.destination


def _carried(ledger: Ledger, names: Sequence[str]) -> Floats:
    """What the bundles carry by average, each where it is to be, float64[n, 4]. O(bundles)."""
    index = {name: i for i, name in enumerate(names)}
    brokers = [index.get(instance.broker, NOBODY) for instance in ledger.instances.rows]
    at = np.array([*brokers, NOBODY], dtype=np.int64)
    state = ledger.state
    is_active = ~np.isin(state, [STATE_CODE[one] for one in _NOWHERE])
    is_splitting = state == STATE_CODE[State.SPLITTING]
    at = at[np.where(is_active, np.where(is_splitting, ledger.source, ledger.destination), NOBODY)]
    return sums_of(at, ledger.short, len(names))

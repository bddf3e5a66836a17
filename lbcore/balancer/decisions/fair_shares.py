"""Fair shares: what the plan of a shard is told of the others.

Decides which part of a broker's excess load is this shard's to take now: its part of what those
carry there who have not taken theirs yet. So of shards that act one after another each takes its
own part, by its heaviest bundles, and together they take what one plan for all would; one that has
taken its part and finds the broker still hot takes the rest. Source: ours.

Worked: a broker carries 40 of shard A, 30 of B, 30 of C. A acts first and takes 0.4 of what is too
much, B then half of what is left, C all of that.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from lbcore.balancer.decisions.turns import siblings
from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.work import Work
from lbcore.plan.pending import sums_of
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Floats, Snapshot
from lbcore.wire.messages import TRAFFIC

_ROUNDS = 3
"""So many rounds after it gave something of a broker a shard has taken its part of that one."""


def with_shards(work: Work, snapshot: Snapshot) -> Snapshot:
    """The snapshot with what other shards carry, and this one's part. O(bundles + brokers)."""
    told = {name: work.others[name] for name in siblings(work) if name in work.others}
    if not told:
        return snapshot
    names = snapshot.brokers.names
    at = {name: index for index, name in enumerate(names)}
    since_ms = work.now_ms - _ROUNDS * work.config.pipeline.shed_interval_ms
    carried, waiting = np.zeros((len(names), len(TRAFFIC))), np.zeros(len(names))
    for other in told.values():
        rows = np.array([at.get(name, NOBODY) for name in other.load.brokers], dtype=np.int64)
        is_here = rows != NOBODY
        here = np.zeros((len(names), len(TRAFFIC)))
        here[rows[is_here]] = other.load.carried[is_here]
        carried += here
        waiting += np.where(_gave(other.gave_ms, at, since_ms), 0.0, _rate(here))
    gave = work.others[work.cluster].gave_ms if work.cluster in work.others else {}
    bundles = snapshot.bundles
    own = _rate(sums_of(bundles.owner, bundles.short, len(names)))
    total = own + np.where(_gave(gave, at, since_ms), 0.0, waiting)
    gives = np.where(total > 0.0, own / np.where(total > 0.0, total, 1.0), 1.0)
    names_of_all = work.config.cluster.shards
    before = names_of_all.index(work.cluster)
    turns = before, len(names_of_all) - 1 - before
    return replace(snapshot, others=carried, gives=gives, turns=turns)


def _rate(traffic: Floats) -> Floats:
    rate: Floats = traffic[:, RATE_IN] + traffic[:, RATE_OUT]
    return rate


def _gave(gave_ms: Mapping[str, int], at: Mapping[str, int], since_ms: int) -> Floats:
    """1.0 for each broker of which something was given since then, else 0.0."""
    found = np.zeros(len(at))
    found[[at[name] for name, ms in gave_ms.items() if name in at and ms >= since_ms]] = 1.0
    return found

"""The bulk assignment of unowned bundles."""

from dataclasses import replace

import numpy as np

from lbcore.config.placement import PlacementConfig
from lbcore.plan.place.assign import AssignRequest, Candidates, assign_bundles
from lbcore.plan.snapshot import Snapshot
from tests.clusters import broker_table, bundle_table, snapshot

USAGE = np.array([0.9, 0.9, 0.2, 0.3])


def small_pool() -> Snapshot:
    """Four brokers at 90, 90, 20 and 30 %, ten unowned bundles of 700 msg/s."""
    owned = [f"t/n/{i:02d}" for i in range(4)]
    free = [f"t/n/{i:02d}" for i in range(4, 14)]
    long = np.zeros((14, 4))
    long[:4, 0] = (9000, 9000, 2000, 3000)
    long[4:, 0] = 700
    owner = np.array([0, 1, 2, 3, *[-1] * 10])
    return snapshot(
        broker_table(["b1", "b2", "b3", "b4"]),
        bundle_table(owned + free, long=long, owner=owner),
    )


def request(cluster: Snapshot, **changes: object) -> AssignRequest:
    """All unowned bundles to any broker."""
    unowned = np.flatnonzero(cluster.bundles.owner < 0)
    everywhere = Candidates.everywhere(np.ones(4, dtype=np.bool_), len(unowned))
    made = AssignRequest(snapshot=cluster, bundles=unowned, candidates=everywhere, usage=USAGE)
    return replace(made, **changes)


def test_assign_with_counting_spreads_over_the_cool_brokers() -> None:
    chosen = assign_bundles(request(small_pool()), PlacementConfig(), 1)

    assert sorted(chosen.tolist()) == [2] * 6 + [3] * 4


def test_assign_when_no_broker_is_allowed_answers_none() -> None:
    nobody = Candidates.everywhere(np.zeros(4, dtype=np.bool_), 10)

    chosen = assign_bundles(request(small_pool(), candidates=nobody), PlacementConfig(), 1)

    assert chosen.tolist() == [-1] * 10


def test_assign_of_idle_bundles_counts_the_floor() -> None:
    cluster = small_pool()
    idle = replace(cluster.bundles, long=np.zeros((14, 4)))
    cool = np.zeros(4)

    chosen = assign_bundles(
        request(replace(cluster, bundles=idle), usage=cool), PlacementConfig(), 1
    )

    assert sorted(np.bincount(chosen, minlength=4).tolist()) == [2, 2, 3, 3]


def test_assign_when_all_are_overloaded_spreads_by_hash_over_all() -> None:
    chosen = assign_bundles(request(small_pool(), usage=np.full(4, 0.99)), PlacementConfig(), 1)

    assert len(set(chosen.tolist())) > 1
    assert chosen.min() >= 0


def test_assign_never_takes_the_excluded_broker() -> None:
    excluded = Candidates(
        masks=np.ones((1, 4), dtype=np.bool_),
        row=np.zeros(10, dtype=np.int64),
        excluded=np.full(10, 2, dtype=np.int64),
    )

    chosen = assign_bundles(request(small_pool(), candidates=excluded), PlacementConfig(), 1)

    assert 2 not in chosen.tolist()

"""What other shards carry stands in a plan as a bundle a broker that nobody may move."""

from dataclasses import replace

import numpy as np

from lbcore.plan.others import SPACE, with_others
from lbcore.plan.shed.common import is_part
from lbcore.plan.snapshot import Snapshot
from tests.support.values.planning import cluster_of


def snapshot_of() -> Snapshot:
    """Two brokers with ten bundles each."""
    return cluster_of({"a": [1_000.0] * 10, "b": [500.0] * 10})


def test_of_a_cluster_without_shards_nothing_is_added() -> None:
    snapshot = snapshot_of()
    assert with_others(snapshot) is snapshot


def test_others_stand_behind_all_bundles_and_stay_where_they_are() -> None:
    snapshot = snapshot_of()
    brokers, own = len(snapshot.brokers.names), len(snapshot.bundles.names)
    others = np.zeros((brokers, 4))
    others[1] = (1.0, 2.0, 3.0, 4.0)
    seen = with_others(replace(snapshot, others=others)).bundles
    assert seen.names[:own] == snapshot.bundles.names
    assert seen.names[own:] == (f"{SPACE}/{snapshot.brokers.names[1]}",)
    assert seen.owner[own] == 1
    assert seen.short[own].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert not seen.can_move[own]


def test_part_is_reached_with_the_first_that_suffice() -> None:
    assert is_part(np.array([5.0, 3.0, 1.0]), 6.0).tolist() == [True, True, False]
    assert is_part(np.array([5.0, 3.0, 1.0]), 0.0).tolist() == [True, False, False]

"""A rolling restart under cuts and faults at any time: never a broker that still owns something."""

import random

import pytest

from lbcore.bridge.rolling import advance
from lbcore.bridge.rollout import Complaint, RestartBounds, RestartStage
from tests.support.worlds.rolling_cluster import BROKERS, HOMES, RollingCluster, new_rollout

BOUNDS = RestartBounds()


@pytest.mark.parametrize("seed", range(60))
def test_cuts_and_faults_at_any_time_end_in_all_restarted_and_all_at_home(seed: int) -> None:
    chance = random.Random(seed)
    cluster, rollout = RollingCluster(), new_rollout()
    for _ in range(3_000):
        if chance.random() < 0.02:
            cluster.cut()
            rollout = cluster.again(rollout)
        elif chance.random() < 0.02:
            rollout = cluster.halt(rollout)
            cluster.cut()
            rollout = cluster.again(rollout)
        is_wrong = chance.random() < 0.02
        fault = Complaint(key="x", why="something", next_step="see", patience_ms=0)
        cluster.complaints = (fault,) if is_wrong else ()
        taken = advance(rollout, cluster.look(rollout), BOUNDS)
        rollout = taken.rollout
        cluster.do(rollout, taken.actions)
        if rollout.stage is not RestartStage.RESTARTING:
            cluster.command = None
        if taken.stop is not None:
            cluster.cut()
            rollout = cluster.again(rollout)
        assert len(set(BROKERS) - cluster.listed) <= 1
        if rollout.stage is RestartStage.DONE:
            break
    assert rollout.stage is RestartStage.DONE
    assert cluster.dropped_while_owning == []
    assert set(cluster.restarts) == set(BROKERS)
    assert cluster.owners == HOMES
    assert cluster.drains == {}

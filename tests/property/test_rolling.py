"""A rolling restart under cuts and faults at any time: never a broker that still owns something."""

import random
from contextlib import suppress
from pathlib import Path

import pytest

from jobs.bridge.rolling_steps import Complaint, CutOffError, Progress
from tests.support.worlds.rolling_cluster import BROKERS, HOMES, KilledError, RestartRun


@pytest.mark.parametrize("seed", range(60))
def test_cuts_and_faults_at_any_time_end_in_all_restarted_and_all_at_home(
    seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    run = RestartRun(tmp_path / "state.json")
    cluster = run.cluster
    fault = Complaint(key="x", why="something", next_step="see", patience_ms=0)

    def disturb(_: Progress) -> None:
        assert len(set(BROKERS) - cluster.listed) <= 1
        cluster.complaints = (fault,) if chance.random() < 0.02 else ()
        if chance.random() < 0.02:
            run.end.set()
        if chance.random() < 0.02:
            raise KilledError

    run.begin()
    cluster.before_look = disturb
    while run.path.exists():
        with suppress(CutOffError, KilledError):
            run.run()
    assert cluster.dropped_while_owning == []
    assert set(cluster.restarts) == set(BROKERS)
    assert cluster.owners == HOMES
    assert cluster.drains == {}

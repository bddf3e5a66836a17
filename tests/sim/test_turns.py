"""When cycles come: on a grid, however late each is, and clusters of one job in turn."""

from itertools import pairwise
from typing import Any

import pytest

from lbcore.balancer.decisions import cycle
from lbcore.balancer.decisions.turns import next_on_grid_ms, turn_of
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from tests.support.worlds.world import World

LATE = parse_assignments(
    Config(),
    [
        "pipeline.trigger_ms=1300",  # of which no interval is a multiple
        "pipeline.shed_interval_ms=30000",
        "pipeline.split_interval_ms=60000",
    ],
)


@pytest.mark.parametrize(("kind", "interval_ms"), [("", 10_000), ("sheds", 30_000)])
def test_cycles_that_come_late_are_no_fewer(
    monkeypatch: pytest.MonkeyPatch, kind: str, interval_ms: int
) -> None:
    times: list[int] = []
    plan = cycle.plan  # type: ignore[attr-defined]

    def seen(snapshot: Any, state: Any, config: Any, now_ms: int, scope: Any) -> Any:
        if not kind or getattr(scope, kind):
            times.append(now_ms)
        return plan(snapshot, state, config, now_ms, scope)

    monkeypatch.setattr(cycle, "plan", seen)
    World(LATE, brokers=2).run(20 * interval_ms, step_ms=100)
    grid = [time // interval_ms for time in times[1:]]  # the first came at once
    assert len(grid) >= 17
    assert {after - before for before, after in pairwise(grid)} == {1}
    assert max(time % interval_ms for time in times[1:]) > 1_000, "none was late"


@pytest.mark.parametrize(
    ("last_ms", "due_ms"),
    [(20_000, 30_000), (20_900, 30_000), (24_999, 30_000), (25_000, 40_000), (29_999, 40_000)],
)
def test_next_is_half_an_interval_away_at_least(last_ms: int, due_ms: int) -> None:
    assert next_on_grid_ms(last_ms, 10_000) == due_ms
    assert next_on_grid_ms(last_ms + 3_000, 10_000, 3_000) == due_ms + 3_000


def test_clusters_of_one_job_plan_in_turn_and_shards_by_their_own() -> None:
    config = parse_assignments(
        Config(), ["pipeline.clusters=a,b,c,d,e", "pipeline.decision_interval_ms=10000"]
    )
    assert [turn_of(name, config) for name in "abcde"] == [0, 2_000, 4_000, 6_000, 8_000]
    assert turn_of("else", config) == 0
    shards = parse_assignments(config, ["cluster.shards=b,d"])
    assert [turn_of(name, shards) for name in "abcde"] == [0, 0, 4_000, 5_000, 8_000]

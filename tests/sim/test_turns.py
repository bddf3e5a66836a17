"""When cycles come: on a grid, however late each is, and clusters of one job in turn."""

from itertools import pairwise
from typing import Any

import pytest

from lbcore.balancer.decisions import cycle
from lbcore.balancer.decisions.placement import next_on_grid_ms, turn_of
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from tests.support.worlds.world import World

MINUTE_MS = 60_000
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


def test_clusters_of_one_job_plan_in_turn() -> None:
    config = parse_assignments(
        Config(), ["pipeline.clusters=a,b,c,d,e", "pipeline.decision_interval_ms=10000"]
    )
    assert [turn_of(name, config) for name in "abcde"] == [0, 2_000, 4_000, 6_000, 8_000]
    assert turn_of("else", config) == 0


RARE = parse_assignments(
    Config(),
    [
        "shedding.strategy=ballast",
        "placement.strategy=ballast",
        "pipeline.shed_interval_ms=60000",
        "signals.report_max_interval_ms=10000",
        "shedding.grace_period_ms=0",
        "shedding.cool_down_ms=0",
        "splitting.enabled=false",
    ],
)


@pytest.mark.parametrize("later_ms", range(0, MINUTE_MS, 7_000))
def test_hot_broker_does_not_wait_for_a_rare_round(later_ms: int) -> None:
    world = World(RARE, brokers=3)
    world.command("create_namespace", namespace="acme/a", bundles=24)
    world.run(5 * MINUTE_MS + later_ms)
    before = len(moves(world))
    hot = "broker-0:8080"
    world.rates = {name: 900.0 for name, by in world.served().items() if hot in by}
    jump_ms = world.now_ms
    world.run(4 * MINUTE_MS)
    rounds = sorted(set(moves(world)[before:]))
    assert rounds[0] - jump_ms <= 42_000
    assert all(after - last >= 30_000 for last, after in pairwise(rounds))


def moves(world: World) -> list[int]:
    """When each was decided."""
    return [int(str(row["at_ms"])) for row in world.decisions if row["kind"] == "transfer"]

"""When the rows of load history are written: each minute, and not beside decisions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config
from tests.support.worlds.world import World

MINUTES = 5


class Watched(World):
    """A world that keeps each batch's cycle number and rows of load history."""

    def __init__(self, config: Config) -> None:
        self.batches: list[tuple[int, int]] = []
        super().__init__(config, 3)

    def take_effects(self, effects: Sequence[Effect]) -> None:
        cycle = next(effect.rows[0]["cycle"] for effect in effects if effect.kind == "report")
        rows = sum(len(effect.rows) for effect in effects if effect.kind == "load_history")
        self.batches.append((cycle, rows))
        super().take_effects(effects)


def divided(monkeypatch: pytest.MonkeyPatch) -> Watched:
    """A world whose twelve bundles are too many for one batch."""
    monkeypatch.setattr("lbcore.balancer.report._WHOLE_MAX", 11)
    world = Watched(Config())
    world.run(5_000)
    world.command("create_namespace", namespace="t/n", bundles=12)
    return world


def after_minutes(trigger_ms: int) -> Watched:
    pipeline = Config().pipeline
    world = Watched(replace(Config(), pipeline=replace(pipeline, trigger_ms=trigger_ms)))
    world.run(MINUTES * pipeline.load_history_interval_ms)
    return world


@pytest.mark.parametrize("trigger_ms", [1_000, Config().pipeline.decision_interval_ms])
def test_history_has_one_row_a_broker_and_minute(trigger_ms: int) -> None:
    rows = after_minutes(trigger_ms).other_rows["load_history"]
    by_minute = Counter(row["minute_ms"] for row in rows)
    assert MINUTES <= len(by_minute) <= MINUTES + 1
    assert set(by_minute.values()) <= {3}
    assert len({(row["minute_ms"], row["broker"]) for row in rows}) == len(rows)


def test_history_of_many_bundles_is_written_in_several_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = divided(monkeypatch)
    world.run(65_000 - world.now_ms % 60_000)
    world.batches.clear()
    world.other_rows["load_history"].clear()
    world.run(2 * Config().pipeline.load_history_interval_ms)
    rows = world.other_rows["load_history"]
    assert [written for _, written in world.batches if written] == [1] * 6
    order = [(row["minute_ms"], row["broker"]) for row in rows]
    assert order == sorted(set(order))
    assert all(len(row["bundles"]) > 0 for row in rows)


def test_restarted_job_goes_on_with_a_minute_where_it_stood(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = divided(monkeypatch)
    world.run(15_000)
    world.other_rows["load_history"].clear()
    for _ in range(120):
        world.run(1_000)
        world.restart_job()
    rows = world.other_rows["load_history"]
    by_minute = Counter(row["minute_ms"] for row in rows)
    assert set(by_minute.values()) == {3}
    assert len(by_minute) == 2


@pytest.mark.parametrize("away_ms", [100_000, 3_600_000])
def test_job_that_was_away_writes_no_minute_that_is_long_over(
    away_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = divided(monkeypatch)
    world.run(15_000)
    while not (world.state and world.state.times.history_after):
        world.run(1_000)
    world.job.is_away = True
    world.run(away_ms)
    world.job.is_away = False
    world.run(120_000)
    rows = world.other_rows["load_history"]
    assert all(row["at_ms"] < row["minute_ms"] + 2 * 60_000 for row in rows)
    assert len({(row["minute_ms"], row["broker"]) for row in rows}) == len(rows)
    newest = Counter(row["minute_ms"] for row in rows if row["at_ms"] > world.now_ms - 120_000)
    assert set(sorted(newest.items())[1:-1]) <= {(minute, 3) for minute in newest}


def test_history_is_not_written_in_a_batch_with_a_cycle() -> None:
    batches = after_minutes(1_000).batches[1:]  # the first finds the minute half gone
    cycles = [cycle for cycle, _ in batches]
    begun = [after != before for before, after in zip([1, *cycles], cycles, strict=False)]
    assert sum(begun) > MINUTES
    assert not any(rows for (_, rows), is_begun in zip(batches, begun, strict=True) if is_begun)

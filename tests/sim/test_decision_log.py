"""The decision log of a cluster in virtual time: what was considered, what became of it."""

import json
import math
from collections import Counter

import numpy as np
import pytest

from jobs.adapters.spark.batch_sink import ORDER
from lbcore.balancer.decisions.candidate_rows import (
    BROKERS_NAMED,
    LOSERS_NAMED,
)
from lbcore.balancer.state.effects import Effect, columns_of, pack_effect, unpack_columns
from tests.support.worlds.checked_world import decided, owners, running, skewed
from tests.support.worlds.world import World


@pytest.fixture(scope="module")
def world() -> World:
    """Nearly all load on one of four brokers, until bundles have moved."""
    found = running(4, 24)
    skewed(found)
    found.run(150_000)
    return found


def candidates(world: World, **wanted: object) -> list[dict[str, object]]:
    rows = [dict(row) for row in world.other_rows["decision_candidates"]]
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def test_skip_of_a_cycle_says_in_numbers_how_near_it_was(world: World) -> None:
    inputs = json.loads(str(decided(world, "skip", "HitCount")[0]["inputs"]))
    (nearest,) = inputs["nearest"]
    assert inputs["counts"]["eligible.ok"] == 24
    assert nearest["number"] > nearest["levels"][0]["threshold"]
    assert 0 < nearest["levels"][0]["hits"] < nearest["levels"][0]["needed"]


def test_broker_that_waits_for_hits_is_a_row_a_cycle(world: World) -> None:
    first = decided(world, "transfer")[0]
    waiting = [
        row
        for row in candidates(world, subject=first["source"], verdict="too_few_hits")
        if row["at_ms"] < first["at_ms"]
    ]
    skips = [row for row in decided(world, "skip", "HitCount") if row["at_ms"] < first["at_ms"]]
    assert [row["at_ms"] for row in waiting] == [row["at_ms"] for row in skips]
    assert waiting[0]["broker"] == first["destination"]
    assert json.loads(str(waiting[0]["detail"]))["levels"][1]["threshold"] == 40


def test_losers_of_a_move_are_named_and_the_rest_counted(world: World) -> None:
    first = decided(world, "transfer")[0]
    moved = [row for row in decided(world, "transfer") if row["at_ms"] == first["at_ms"]]
    rows = candidates(world, phase="shed", verdict="over_budget", at_ms=first["at_ms"])
    named = [row for row in rows if row["subject"]]
    count = sum(int(str(row["count"])) for row in rows)
    assert len(named) <= LOSERS_NAMED
    assert not {row["subject"] for row in named} & {row["bundle"] for row in moved}
    assert len(moved) + count == 6  # the bundles of the hot broker


@pytest.mark.parametrize("table", ["decision_candidates", "decision_effects"])
def test_rows_come_through_the_operators_as_they_were(world: World, table: str) -> None:
    rows = [dict(row) for row in world.other_rows[table]]
    columns = unpack_columns(table, pack_effect(Effect(kind=table, rows=rows)))
    assert rows
    for column in columns_of(table):
        wanted = [row[column.name] for row in rows]
        assert list(map(repr, map(_plain, columns[column.name]))) == list(map(repr, wanted))
    assert table in ORDER


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value


def test_cluster_at_rest_writes_no_candidates() -> None:
    world = running(4, 24)
    before = len(candidates(world))
    world.run(60_000)
    assert len(candidates(world)) == before
    assert len(decided(world, "skip")) >= 6


def test_move_has_its_effect_written_once_and_it_helped(world: World) -> None:
    effects = world.other_rows["decision_effects"]
    first = decided(world, "transfer")[0]
    mine = [row for row in effects if row["decision_id"] == first["decision_id"]]
    assert [row["outcome"] for row in mine] == ["helped"]
    (effect,) = mine
    assert (effect["source"], effect["destination"]) == (first["source"], first["destination"])
    assert effect["decided_ms"] == first["at_ms"] < effect["moved_ms"] <= effect["at_ms"]
    assert max(effect["source_after"], effect["destination_after"]) < effect["source_before"]
    ids = Counter(row["decision_id"] for row in effects)
    assert set(ids.values()) == {1}


def test_move_whose_destination_dies_is_written_as_not_seen_or_elsewhere() -> None:
    world = running(4, 24)
    skewed(world)
    while not decided(world, "transfer"):
        world.run(500)
    moves = decided(world, "transfer")
    world.kill(str(moves[0]["destination"]))
    world.run(330_000)
    mine = [
        row
        for row in world.other_rows["decision_effects"]
        if row["decision_id"] in {move["decision_id"] for move in moves}
    ]
    assert sorted(row["bundle"] for row in mine) == sorted(str(m["bundle"]) for m in moves)
    assert {row["outcome"] for row in mine} <= {"moved_elsewhere", "unobserved"}
    assert all(math.isnan(row["source_after"]) for row in mine)
    assert world.state is not None
    assert not world.state.pending_effects.keys() & {str(move["bundle"]) for move in moves}


def test_job_that_comes_back_from_its_checkpoint_still_sees_the_effect() -> None:
    world = running(4, 24)
    skewed(world)
    while not decided(world, "transfer"):
        world.run(500)
    world.restart_job()
    world.run(60_000)
    assert {row["outcome"] for row in world.other_rows["decision_effects"]} == {"helped"}


def test_pinned_bundle_that_returns_is_no_effect_of_balancing() -> None:
    world = running(4, 24)
    bundle, broker = min(owners(world).items())
    other = next(name for name in sorted(world.brokers) if name != broker)
    world.command("pin_bundle", bundle=bundle, broker=other)
    world.run(60_000)
    assert owners(world)[bundle] == other
    assert not world.other_rows["decision_effects"]
    assert len(candidates(world, phase="shed")) <= BROKERS_NAMED

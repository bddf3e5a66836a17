"""A drained broker is filled again: what its drain took away goes back as far as it suits."""

import json
from pathlib import Path

import pytest

from jobs.adapters.delta.table_reader import TableReader
from jobs.console import CommandError
from jobs.operating.proposals import undo_moves
from tests.support.worlds.checked_world import CheckedWorld, outcome, owners, running
from tests.support.worlds.explained_world import write_tables
from tests.support.worlds.world import CLUSTER, World, is_settled

BROKER = "broker-1:8080"


def drained() -> CheckedWorld:
    """A cluster whose broker-1 was emptied and takes bundles again."""
    world = running()
    world.rates = dict.fromkeys(owners(world), 500.0)
    drain(world)
    return world


def drain(world: World) -> None:
    world.command("drain_broker", broker=BROKER)
    world.run(30_000)
    assert BROKER not in owners(world).values()
    world.command("cancel_drain", broker=BROKER)
    world.run(2_000)


def found_way(world: World, root: Path, broker: str = BROKER) -> tuple[dict[str, str], list[str]]:
    write_tables(world, root)
    return undo_moves(TableReader(root, CLUSTER), drain=broker)


def fill(world: World, moves: dict[str, str]) -> list[str]:
    """Propose the moves and approve them; what became of each."""
    asked = world.command("propose_plan", moves=moves, why="fill it again")
    world.run(2_000)
    name = json.loads(str(outcome(world, asked)["result"]))["plan"]
    world.command("approve_plan", plan=name)
    world.run(60_000)
    assert is_settled(world)
    assert world.state is not None
    return [step.became for step in world.state.rules.proposals[name].steps]


def test_all_that_a_drain_took_away_goes_back(tmp_path: Path) -> None:
    world = running()
    world.rates = dict.fromkeys(owners(world), 500.0)
    before = owners(world)
    drain(world)
    moves, left = found_way(world, tmp_path)
    assert moves == {name: BROKER for name, owner in before.items() if owner == BROKER}
    assert left == []
    assert set(fill(world, moves)) == {"done"}
    assert owners(world) == before


def test_what_has_been_moved_on_since_stays_and_is_told(tmp_path: Path) -> None:
    world = drained()
    moves = found_way(world, tmp_path / "then")[0]
    bundle = min(moves)
    there = owners(world)[bundle]
    other = next(name for name in sorted(set(owners(world).values())) if name != there)
    world.command("unload_bundle", bundle=bundle, destination=other)
    world.run(20_000)
    now, left = found_way(world, tmp_path / "now")
    assert now == {name: to for name, to in moves.items() if name != bundle}
    assert left == [f"{bundle} has been moved on, to {other}"]


def test_what_is_not_allowed_any_more_is_passed_over(tmp_path: Path) -> None:
    world = drained()
    moves, _ = found_way(world, tmp_path)
    pinned = min(moves)
    world.command("pin_bundle", bundle=pinned, broker=owners(world)[pinned])
    world.run(5_000)
    assert sorted(fill(world, moves)) == [
        *["done"] * (len(moves) - 1), f"it is pinned to {owners(world)[pinned]}"
    ]  # fmt: skip
    assert owners(world)[pinned] != BROKER
    assert BROKER in owners(world).values()


def test_policies_set_since_keep_the_bundles_away(tmp_path: Path) -> None:
    world = drained()
    moves, _ = found_way(world, tmp_path)
    others = ["broker-0.*", "broker-2.*", "broker-3.*"]
    world.command("set_isolation_policy", policy="p", namespaces=["t/n"], primary=others)
    world.run(5_000)
    before = owners(world)
    assert set(fill(world, moves)) == {f"isolation policies keep it from {BROKER}"}
    assert owners(world) == before


def test_only_the_last_drain_is_taken_back(tmp_path: Path) -> None:
    world = drained()
    bundle = min(owners(world))
    world.command("unload_bundle", bundle=bundle, destination=BROKER)
    world.run(20_000)
    drain(world)
    assert found_way(world, tmp_path)[0] == {bundle: BROKER}


def test_broker_that_is_still_drained_is_not_filled() -> None:
    world = drained()
    world.command("drain_broker", broker=BROKER)
    moves = {min(owners(world)): BROKER}
    asked = world.command("propose_plan", moves=moves)
    world.run(2_000)
    assert "cancel the drain first" in str(outcome(world, asked)["reason"])


@pytest.mark.parametrize(
    ("broker", "said"),
    [("broker-2:8080", "no command has drained"), ("broker-2", "none of this name")],
)
def test_broker_that_nobody_drained_has_no_way_back(tmp_path: Path, broker: str, said: str) -> None:
    with pytest.raises(CommandError, match=said):
        found_way(drained(), tmp_path, broker)

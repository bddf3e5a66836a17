"""Splits by themselves, in a cluster in virtual time: decided, carried out, placed."""

from lbcore.config.tree import Config
from tests.world import World, gapless, is_settled, states


def with_a_hot_bundle() -> World:
    world = World(Config(), 4, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.rates = {"t/n/0x00000000_0x20000000": 40_000.0}
    world.run(400_000)
    return world


def test_bundle_above_the_limits_is_split_and_all_stays_served() -> None:
    world = with_a_hot_bundle()
    splits = [d for d in world.decisions if d["kind"] == "split"]
    assert {d["bundle"] for d in splits} == {"t/n/0x00000000_0x20000000"}
    assert states(world)["Deleted"] == 1
    assert states(world)["Owned"] >= 9
    live = [row for row in world.newest() if row["state"] != "Deleted"]
    served = world.served()
    assert all(list(served[str(row["bundle"])]) == [row["destination"]] for row in live)


def test_children_of_a_split_begin_above_their_parents_version() -> None:
    world = with_a_hot_bundle()
    parent = [r for r in world.events if r["bundle"] == "t/n/0x00000000_0x20000000"]
    children = [r for r in world.events if "t/n/0x0" in str(r["bundle"]) and r not in parent]
    assert children
    deleted = max(int(str(row["version_id"])) for row in parent)
    assert min(int(str(row["version_id"])) for row in children) >= deleted


def test_cold_bundles_are_never_split() -> None:
    world = World(Config(), 4, seed=6)
    world.run(3_000)
    world.command("create_namespace", namespace="t/n", bundles=8)
    world.run(90_000)
    assert not [d for d in world.decisions if d["kind"] == "split"]
    assert is_settled(world)
    assert gapless(world)

"""No more moves in any hour than may be, of all and of a tenant; after a rebuild, too."""

import json
from collections import Counter

import pytest

from lbcore.explain.cluster import explain_cluster
from lbcore.model.names import namespace_of_bundle, tenant_of
from lbcore.model.times import HOUR_MS
from tests.support.worlds.checked_world import MINUTE_MS, decided, foreseen, hot_world, owners
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.world import World, gapless


def moved(world: World) -> list[tuple[int, str]]:
    """When balancing moved a bundle of which tenant, oldest first."""
    moves = (d for d in world.decisions if d["kind"] in ("transfer", "unload"))
    return sorted(
        (int(str(d["at_ms"])), tenant_of(namespace_of_bundle(str(d["bundle"])))) for d in moves
    )


def most_in_an_hour(moves: list[tuple[int, str]]) -> int:
    """The most moves of any hour."""
    times = [at_ms for at_ms, _ in moves]
    return max(sum(at_ms - HOUR_MS < other <= at_ms for other in times) for at_ms in times)


def keep_hot(world: World) -> None:
    """One broker carries most, again and again: balancing would never be done."""
    for _ in range(8):
        most = Counter(owners(world).values()).most_common(1)[0][0]
        for bundle, owner in owners(world).items():
            world.rates[bundle] = 800.0 if owner == most else 50.0
        world.run(10 * MINUTE_MS, step_ms=10_000)


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_no_hour_has_more_moves_than_it_may(*, is_rebuilt: bool) -> None:
    otherwise = hot_world()
    otherwise.run(20 * MINUTE_MS, step_ms=5_000)
    assert len(moved(otherwise)) > 3, "without the limit there would be"
    world = hot_world("shedding.max_moves_per_hour=3")
    world.run(10 * MINUTE_MS, step_ms=5_000)
    assert len(moved(world)) == 3
    if is_rebuilt:
        world.rebuild_job()
    keep_hot(world)
    assert most_in_an_hour(moved(world)) == 3
    assert len(moved(world)) > 3, "it goes on when the hour is over"
    assert gapless(world)


def test_each_tenant_has_an_hour_of_its_own() -> None:
    world = hot_world("shedding.max_moves_per_hour_of_tenant=2")
    world.command("create_namespace", namespace="beta/b", bundles=24)
    world.run(5 * MINUTE_MS, step_ms=5_000)
    keep_hot(world)
    by_tenant = {
        tenant: [one for one in moved(world) if one[1] == tenant] for tenant in ("acme", "beta")
    }
    assert {tenant: most_in_an_hour(moves) for tenant, moves in by_tenant.items()} == {
        "acme": 2,
        "beta": 2,
    }


def test_drains_and_failover_are_not_held_back() -> None:
    world = hot_world("shedding.max_moves_per_hour=0")
    first, second, _ = sorted(set(owners(world).values()))
    world.command("drain_broker", broker=first)
    world.run(5 * MINUTE_MS)
    assert first not in owners(world).values()
    world.kill(second)
    world.run(5 * MINUTE_MS)
    assert second not in owners(world).values()
    assert moved(world) == []


def test_explain_names_the_limit() -> None:
    world = hot_world("shedding.max_moves_per_hour=3")
    world.run(10 * MINUTE_MS, step_ms=5_000)
    told = decided(world, "skip", "Limit")[-1]
    assert json.loads(str(told["inputs"]))["counts"]["limit.hour_limit"]
    assert "(shedding.max_moves_per_hour)" in " ".join(explain_cluster(rows_of(world)).lines())


def test_dry_run_knows_what_the_hour_has_left() -> None:
    world = hot_world("shedding.max_moves_per_hour=3")
    world.run(1_000)  # it is told to shed
    assert len(foreseen(world).decisions) + len(moved(world)) == 3
    world.run(10 * MINUTE_MS, step_ms=5_000)
    found = foreseen(world)
    assert not found.decisions
    assert {skip["reason"] for skip in found.skips} == {"Limit"}

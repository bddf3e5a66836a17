"""A checked world at rest, and what its tables say of commands, decisions and rules."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from tests.support.worlds.checked_world import CheckedWorld
from tests.support.worlds.world import World, is_settled

HOUR_MS = 3_600_000


AVG = ("shedding.strategy=avg", "placement.strategy=avg")


def running(
    brokers: int = 4, bundles: int = 24, *, seed: int = 5, **sections: Mapping[str, Any]
) -> CheckedWorld:
    """A cluster at rest under `avg`; sections: settings to change, by section."""
    config = parse_assignments(Config(), AVG)
    changes = {name: replace(getattr(config, name), **new) for name, new in sections.items()}
    world = CheckedWorld(replace(config, **changes), brokers, seed=seed)
    world.run(2_000)
    world.command("create_namespace", namespace="t/n", bundles=bundles)
    world.run(25_000)
    assert is_settled(world)
    return world


def outcome(world: World, command_id: str) -> Mapping[str, Any]:
    return [r for r in world.other_rows["commands"] if r["command_id"] == command_id][-1]


def owners(world: World) -> dict[str, str]:
    return {str(row["bundle"]): str(row["destination"]) for row in world.newest()}


def decided(world: World, kind: str, reason: str = "") -> list[Mapping[str, Any]]:
    found = [row for row in world.decisions if row["kind"] == kind]
    return [row for row in found if not reason or row["reason"] == reason]


def newest(world: World, table: str, *key: str) -> dict[tuple[str, ...], Mapping[str, Any]]:
    return {tuple(str(row[name]) for name in key): row for row in world.other_rows[table]}


def most_unserved(world: World, duration_ms: int) -> int:
    """The longest time, in steps of 500 ms, that a bundle was open nowhere."""
    missing: Counter[str] = Counter()
    longest = 0
    for _ in range(duration_ms // 500):
        world.run(500)
        served = world.served()
        for bundle in owners(world):
            missing[bundle] = 0 if served.get(bundle) else missing[bundle] + 1
        longest = max([longest, *missing.values()])
    return longest


def skewed(world: World) -> None:
    """All load on the bundles of one broker."""
    hot = owners(world)[min(owners(world))]
    world.rates = {name: 3_000.0 if b == hot else 1.0 for name, b in owners(world).items()}

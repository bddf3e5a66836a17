"""A cluster whose ownership another authority has: what it does is followed, in virtual time."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lbcore.config.tree import Config, changed
from tests.support.worlds.checked_world import CheckedWorld, decided, outcome, owners
from tests.support.worlds.world import World

NS = "t/n"
LEFT, RIGHT = f"{NS}/0x00000000_0x80000000", f"{NS}/0x80000000_0xffffffff"
BROKERS = ("broker-0:8080", "broker-1:8080", "broker-2:8080")
HALVES = [0, 0x80000000, 0xFFFFFFFF]
MINUTES = 300_000


def mirrored(**settings: Any) -> CheckedWorld:
    """Two bundles, owned by the first broker as the bridge has seen it."""
    known: dict[str, Any] = {
        "cluster.authority": "external",
        "ownership.in_flight_timeout_ms": 120_000,
        "ownership.unload_timeout_ms": 120_000,
        **{name.replace("__", "."): value for name, value in settings.items()},
    }
    world = CheckedWorld(changed(Config(), known), len(BROKERS), seed=3)
    world.run(5_000)
    observe(world, brokers=list(BROKERS), namespaces={NS: HALVES})
    world.run(5_000)
    seen(world, {LEFT: BROKERS[0], RIGHT: BROKERS[0]})
    return world


def observe(world: World, **arguments: Any) -> str:
    known: dict[str, Any] = {"namespaces": {}, "owners": {}, **arguments}
    return world.command("observe_ownership", **known)


def seen(world: World, where: Mapping[str, str], *, behind: int = 0) -> str:
    """What the bridge tells: each bundle at the version of its record (or so many behind)."""
    versions = {str(row["bundle"]): int(str(row["version_id"])) for row in world.newest()}
    owned = {
        bundle: [versions[bundle] - behind, broker, incarnation(world, broker)]
        for bundle, broker in where.items()
    }
    command = observe(world, owners=owned)
    world.run(3_000)
    return command


def incarnation(world: World, broker: str) -> str:
    return f"{broker}/{world.brokers[broker].starts}" if broker else ""


def record(world: World, bundle: str) -> Mapping[str, Any]:
    return next(row for row in world.newest() if row["bundle"] == bundle)


def result(world: World, command_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(outcome(world, command_id)["result"])
    return found


def test_namespace_that_was_seen_has_free_bundles_that_nobody_assigns() -> None:
    world = CheckedWorld(changed(Config(), {"cluster.authority": "external"}), 3, seed=3)
    world.run(5_000)
    observe(world, brokers=list(BROKERS), namespaces={NS: HALVES})
    world.run(60_000)
    assert {row["bundle"]: row["state"] for row in world.newest()} == {LEFT: "Free", RIGHT: "Free"}


def test_owner_that_was_seen_owns_at_once_by_force() -> None:
    world = mirrored()
    row = record(world, LEFT)
    assert (row["state"], row["destination"], row["cause"]) == ("Owned", BROKERS[0], "external")
    assert row["is_forced"]


def test_move_by_another_hand_is_followed() -> None:
    world = mirrored()
    seen(world, {LEFT: BROKERS[2]})
    assert owners(world) == {LEFT: BROKERS[2], RIGHT: BROKERS[0]}
    seen(world, {LEFT: ""})
    assert record(world, LEFT)["state"] == "Free"


def test_observation_of_an_older_record_changes_nothing() -> None:
    world = mirrored()
    command = seen(world, {LEFT: BROKERS[1]}, behind=1)
    assert owners(world)[LEFT] == BROKERS[0]
    assert result(world, command)["late"] == 1


def test_silence_alone_moves_nothing_and_the_list_says_who_is_gone() -> None:
    world = mirrored()
    world.kill(BROKERS[0])
    world.run(MINUTES)
    assert set(owners(world).values()) == {BROKERS[0]}
    assert all(row["state"] == "Owned" for row in world.newest())
    observe(world, brokers=list(BROKERS[1:]))
    world.run(3_000)
    assert [row["state"] for row in world.other_rows["brokers"] if row["broker"] == BROKERS[0]][
        -1
    ] == "silent"
    seen(world, {LEFT: BROKERS[1], RIGHT: BROKERS[2]})
    assert owners(world) == {LEFT: BROKERS[1], RIGHT: BROKERS[2]}


def test_split_by_another_hand_makes_children_above_the_parents_version() -> None:
    world = mirrored()
    before = int(record(world, LEFT)["version_id"])
    observe(world, namespaces={NS: [0, 0x40000000, 0x80000000, 0xFFFFFFFF]})
    world.run(3_000)
    rows = {row["bundle"]: row for row in world.newest()}
    assert rows[LEFT]["state"] == "Deleted"
    for child in (f"{NS}/0x00000000_0x40000000", f"{NS}/0x40000000_0x80000000"):
        assert rows[child]["state"] == "Free"
        assert int(rows[child]["version_id"]) > before
    assert rows[RIGHT]["destination"] == BROKERS[0]


def test_namespace_that_is_gone_is_deleted_and_may_come_again() -> None:
    world = mirrored()
    observe(world, namespaces={NS: []})
    world.run(3_000)
    assert {row["state"] for row in world.newest()} == {"Deleted"}
    observe(world, namespaces={NS: HALVES})
    world.run(3_000)
    assert {row["bundle"] for row in world.newest() if row["state"] == "Free"} == {LEFT, RIGHT}


def test_unload_that_is_never_answered_is_left_in_flight_until_something_is_seen() -> None:
    world = mirrored()
    world.kill(BROKERS[0])
    world.command("unload_bundle", bundle=LEFT, destination=BROKERS[1])
    world.run(MINUTES)
    assert record(world, LEFT)["state"] == "Releasing"
    seen(world, {LEFT: BROKERS[2]})
    assert (record(world, LEFT)["state"], owners(world)[LEFT]) == ("Owned", BROKERS[2])


def test_command_that_the_authority_overtakes_says_where_the_bundle_is_now() -> None:
    world = mirrored()
    world.kill(BROKERS[0])
    command = world.command("unload_bundle", bundle=LEFT, destination=BROKERS[1])
    world.run(2_000)
    seen(world, {LEFT: BROKERS[2]})
    found = outcome(world, command)
    assert found["status"] == "failed"
    assert f"overtaken by external and is Owned at {BROKERS[2]}: send" in found["reason"]


def test_command_that_the_bridge_answers_as_failed_ends_in_its_words() -> None:
    world = mirrored()
    world.faults = replace(world.faults, failing=1.0)
    command = world.command("unload_bundle", bundle=LEFT, destination=BROKERS[1])
    world.run(10_000)
    found = outcome(world, command)
    assert (found["status"], owners(world)[LEFT]) == ("failed", BROKERS[0])
    assert f"stayed with {BROKERS[0]}, which did not close it: " in found["reason"]
    assert "out of order" in found["reason"]


def test_ownership_that_is_another_authoritys_is_not_commanded() -> None:
    world = mirrored()
    for kind, arguments in (
        ("create_namespace", {"namespace": "t/m"}),
        ("delete_namespace", {"namespace": NS}),
        ("assign_bundle", {"bundle": LEFT}),
        ("override_bundle", {"bundle": LEFT, "destination": BROKERS[1]}),
        ("set_anti_affinity_group", {"namespace": NS, "group": "g"}),
        ("delete_isolation_policy", {"policy": "p"}),
    ):
        command = world.command(kind, **arguments)
        world.run(2_000)
        assert outcome(world, command)["status"] == "refused"
        assert "another authority" in outcome(world, command)["reason"]


def policy(*primary: str) -> dict[str, Any]:
    return {
        "namespaces": ["t/.*"],
        "primary": list(primary),
        "secondary": [],
        "min_limit": 1,
        "usage_threshold_percent": 100,
    }


def test_policies_of_the_authority_stand_instead_of_ours_and_hold() -> None:
    world = mirrored(cluster__observe_only=False)
    told = {"mine": policy("broker-1"), "broken": {**policy("("), "namespaces": ["u/.*"]}}
    command = world.command("observe_policies", isolation=told, anti_affinity={NS: "g"})
    world.rates = {LEFT: 30_000.0, RIGHT: 30_000.0}
    world.run(MINUTES)
    found = result(world, command)
    assert (found["isolation"], found["anti_affinity"], list(found["unusable"])) == (
        2,
        1,
        ["broken"],
    )
    assert BROKERS[2] not in owners(world).values()
    assert BROKERS[1] in owners(world).values()
    world.command("observe_policies", isolation={}, anti_affinity={})
    world.run(2_000)
    kept = {(row["kind"], row["name"]): row["is_set"] for row in world.other_rows["policies"]}
    assert kept == {
        ("isolation", "mine"): False,
        ("isolation", "broken"): False,
        ("anti_affinity", NS): False,
    }


def test_observation_where_ballast_is_the_authority_is_refused() -> None:
    world = CheckedWorld(Config(), 3, seed=3)
    world.run(2_000)
    command = observe(world, namespaces={NS: HALVES})
    world.run(2_000)
    policies = world.command("observe_policies", isolation={}, anti_affinity={})
    world.run(2_000)
    assert outcome(world, command)["status"] == "refused"
    assert outcome(world, policies)["status"] == "refused"
    assert list(world.newest()) == []


def test_cluster_that_is_only_observed_has_plans_and_moves_nothing() -> None:
    world = mirrored(cluster__observe_only=True, splitting__enabled=False)
    world.rates = {LEFT: 3_000.0, RIGHT: 3_000.0}
    world.run(MINUTES)
    moves = decided(world, "transfer")
    assert moves
    assert all("observe_only" in str(row["inputs"]) for row in moves)
    assert owners(world) == {LEFT: BROKERS[0], RIGHT: BROKERS[0]}
    world.command("set_config", values={"cluster.observe_only": False})
    world.run(MINUTES)
    assert len({owner for owner in owners(world).values() if owner}) > 1

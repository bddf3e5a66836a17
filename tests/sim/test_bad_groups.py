"""Broker groups from bad input: a clear message, and no move by it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from lbcore.agent.reporting import LoadRead
from lbcore.config.tree import Config
from lbcore.explain.status import StatusRows, make_status
from tests.support.worlds.checked_world import decided, owners
from tests.support.worlds.explained_world import rows_of
from tests.support.worlds.simulated_brokers import Broker
from tests.support.worlds.world import CLUSTER, World

MINUTES_MS = 120_000


class Misreporting(World):
    """A world in which broker-0 says that clients ask for less than it serves."""

    def load(self, broker: Broker) -> LoadRead:
        found = super().load(broker)
        is_wrong = broker.name.startswith("broker-0")
        return replace(found, offered_msg_rate=0.5 * found.traffic[0]) if is_wrong else found


def running(world: World) -> World:
    """Four brokers at rest, the first and the third with half as much load again."""
    world.run(2_000)
    for name in ("t/n", "t/stores"):
        world.command("create_namespace", namespace=name, bundles=12)
    world.run(40_000)
    return world


def heat(world: World) -> None:
    world.rates = {
        bundle: 600.0 if owner < "broker-1" else 200.0 for bundle, owner in owners(world).items()
    }


def alarms(world: World) -> tuple[str, ...]:
    rows = rows_of(world)
    found = StatusRows(
        writer_ms=world.now_ms,
        bundles=list(rows.records),
        brokers=[*rows.brokers],
        decisions=[*rows.decisions],
        blocked=[*rows.decisions],
        policies=[*rows.policies],
        pins=[],
        load=[*rows.load],
        rejected=world.other_rows["rejected_reports"],
    )
    return make_status(CLUSTER, found, world.config, world.now_ms).alarms


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        (
            [("t/stores", "nobody.*")],
            "isolation policy p0 admits no broker for bundles of",
        ),
        ([("t/stores", ".*")], "isolation policies reserve every broker, so none may take bundles"),
    ],
    ids=["no broker", "all brokers"],
)
def test_policy_that_leaves_bundles_no_broker_is_named_and_they_stay(
    policies: Sequence[tuple[str, str]], message: str
) -> None:
    world = running(World(Config(), 4, seed=4))
    before = owners(world)
    for at, (namespaces, brokers) in enumerate(policies):
        world.command(
            "set_isolation_policy", policy=f"p{at}", namespaces=[namespaces], primary=[brokers]
        )
    world.run(2_000)
    heat(world)
    world.run(MINUTES_MS)
    left = "t/stores" if policies[0][1] != ".*" else "t/n"
    assert {name: owner for name, owner in owners(world).items() if name.startswith(left)} == {
        name: owner for name, owner in before.items() if name.startswith(left)
    }
    assert [text for text in alarms(world) if message in text]


def test_group_whose_brokers_all_drain_and_die_waits_and_says_so() -> None:
    world = running(World(Config(), 4, seed=4))
    own = ["broker-[23].*"]
    world.command("set_isolation_policy", policy="p", namespaces=["t/stores"], primary=own)
    world.run(2_000)
    for namespace in ("t/stores", "t/n"):
        world.command("unload_namespace", namespace=namespace)
    world.run(MINUTES_MS)
    assert world.state is not None
    assert sorted(set(world.state.plan.groups.values())) == ["broker-0:8080", "broker-2:8080"]
    for name in ("broker-2:8080", "broker-3:8080"):
        world.command("drain_broker", broker=name)
    world.run(20_000)
    assert "broker-2:8080" not in world.state.plan.groups
    for name in ("broker-2:8080", "broker-3:8080"):
        world.kill(name)
    world.run(MINUTES_MS)
    assert {name[:8] for name, owner in owners(world).items() if owner > "broker-2"} == {"t/stores"}
    assert not decided(world, "failover")
    assert [text for text in alarms(world) if "isolation policy p admits no broker" in text]
    assert world.state.plan.groups == {}
    for name in ("broker-2:8080", "broker-3:8080"):
        world.command("cancel_drain", broker=name)
        world.start(name)
    world.run(MINUTES_MS)
    assert not [text for text in alarms(world) if "admits no broker" in text]
    assert sum(bool(served) for served in world.served().values()) == len(owners(world))


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("msgRateOffered", -1.0, "negative"),
        ("msgRateOffered", float("nan"), "not_finite"),
        ("labels", {"capacity": 0}, "out_of_range"),
    ],
)
def test_report_that_can_not_be_is_rejected_by_name_and_moves_nothing(
    field: str, value: object, reason: str
) -> None:
    world = running(World(Config(), 4, seed=4))
    place, raw = next(
        (place, raw)
        for place, found in sorted(world.log.items())
        for raw in found
        if place[0] == "broker-load" and b"msgRateIn" in (raw.value or b"")
    )
    plain: dict[str, Any] = json.loads(raw.value or b"")
    for count in range(30):
        text = json.dumps({**plain, "seq": plain["seq"] + 1_000 + count, field: value})
        world.put(place, raw.key, text.encode(), world.now_ms)
        world.run(4_000)
    assert decided(world, "transfer") == []
    assert [text for text in alarms(world) if f"30 messages rejected ({reason})" in text]


def test_offered_load_below_the_served_rate_counts_as_not_reported() -> None:
    worlds = [running(kind(Config(), 4, seed=4)) for kind in (World, Misreporting)]
    for world in worlds:
        heat(world)
        world.run(MINUTES_MS)
    honest, wrong = (
        [(row["bundle"], row["source"], row["destination"]) for row in decided(world, "transfer")]
        for world in worlds
    )
    assert wrong == honest != []

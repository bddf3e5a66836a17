"""Forecasts and dry runs: equal to what the balancer then does, without side effects."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from jobs.adapters.delta.table_writer import KEYS
from lbcore.balancer.rebuild import newest_rows
from lbcore.config.load import parse_assignments
from lbcore.config.tree import Config
from lbcore.config.values import ConfigError
from lbcore.foresight.forecast import CYCLES, Foresight, Impossible, WhatIf, foresee
from lbcore.foresight.rehearse import Rehearsal, RehearsalRows, rehearse
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.wire.messages import Command
from tests.support.worlds.world import CLUSTER, World, is_settled

ONE, TWO = "broker-0:8080", "broker-1:8080"
AVG = ("shedding.strategy=avg", "placement.strategy=avg")
STILL = parse_assignments(Config(), ["shedding.is_shedding=false", "splitting.enabled=false", *AVG])
ON = ("shedding.is_shedding=true", "shedding.cool_down_ms=0")
UNIFORM = ("shedding.strategy=uniform", "placement.strategy=least_long_term_message_rate")
AT_ONCE = (*ON, *UNIFORM)


@pytest.fixture(scope="module")
def world() -> World:
    """Three brokers at rest with balancing off; what the first one has is hot."""
    made = World(STILL, brokers=3)
    made.command("create_namespace", namespace="acme/a", bundles=24)
    made.run(60_000)
    assert is_settled(made)
    heat(made)
    return made


def heat(made: World) -> None:
    """Make what the first broker has hot, for so long that the averages know it."""
    for row in made.newest():
        made.rates[str(row["bundle"])] = 800.0 if row["destination"] == ONE else 50.0
    made.run(1_500_000, step_ms=10_000)


@pytest.fixture(scope="module")
def rows(world: World) -> RehearsalRows:
    return rows_of(world)


def rows_of(world: World) -> RehearsalRows:
    newest = {(r["broker"]): r for r in world.other_rows["load_history"]}
    tables = newest_rows(world.newest(), world.other_rows)
    return RehearsalRows(tables=tables, load=[dict(row) for row in newest.values()])


def ask(world: World, rows: RehearsalRows, *settings: str, **what_if: Any) -> Foresight:
    asked = WhatIf(settings=settings, **what_if)
    found = foresee(world.config, CLUSTER, rows, world.now_ms, asked)
    assert isinstance(found, Foresight), found
    return found


def usages(brokers: Iterable[Any]) -> dict[str, float]:
    return {one.broker: one.usage for one in brokers}


def test_foresight_of_a_rule_without_hits_moves_at_once_evens_out_and_loses_no_load(
    world: World, rows: RehearsalRows
) -> None:
    found = ask(world, rows, *AT_ONCE)
    assert found.strategy == "uniform"
    first = [one for one in found.decisions if one["cycle"] == 1]
    assert first
    assert {one["source"] for one in first} == {ONE}
    assert {one["more_hits"] for one in first} == {0}
    assert all(one["destination"] in (TWO, "broker-2:8080") for one in first)
    assert found.before.imbalance is not None
    assert found.after.imbalance is not None
    assert found.before.imbalance > 1.8
    assert found.after.imbalance < 1.4
    assert found.after.floor_adjusted is not None
    assert found.after.floor_adjusted <= found.after.imbalance + 1e-9

    observed = parse_assignments(world.config, ["cluster.observe_only=true"])
    assert found == foresee(observed, CLUSTER, rows, world.now_ms, WhatIf(settings=AT_ONCE))
    assert found == ask(world, rows, *AT_ONCE), "it changes nothing"
    asking = parse_assignments(world.config, ["cluster.approval=ask"])
    waits = foresee(asking, CLUSTER, rows, world.now_ms, WhatIf(settings=AT_ONCE))
    assert isinstance(waits, Foresight)
    assert waits.decisions == found.decisions
    assert "wait for approval" in waits.unknown[-1]
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["cycles"] == CYCLES
    before, after = found.before, found.after
    assert sum(one.bundles for one in after.brokers) == 24
    total = sum(one.msg_rate for one in before.brokers)
    assert sum(one.msg_rate for one in after.brokers) == pytest.approx(total)
    assert sum(usages(after.brokers).values()) == pytest.approx(
        sum(usages(before.brokers).values()), rel=0.01
    )


def test_foresight_of_a_rule_with_hits_says_how_many_are_missing(
    world: World, rows: RehearsalRows
) -> None:
    found = ask(world, rows, *ON, "shedding.avg_high_hits=4", "shedding.avg_low_hits=9")
    moves = [one for one in found.decisions if one["kind"] == "transfer"]
    assert moves
    assert min(one["cycle"] for one in moves) == 4
    assert min(one["more_hits"] for one in moves) == 3
    assert [one["reason"] for one in found.skips if one["cycle"] == 1] == ["HitCount"]
    (near,) = [one for one in found.waiting if one["subject"] == ONE]
    assert near["more_hits"] == 3
    assert {level["needed"] for level in near["levels"]} == {4, 9}


def test_foresight_of_balancing_that_is_off_says_so(world: World, rows: RehearsalRows) -> None:
    found = ask(world, rows)
    assert found.decisions == ()
    assert [one["reason"] for one in found.skips] == ["Disabled"] * CYCLES
    assert usages(found.after.brokers) == usages(found.before.brokers)


def test_foresight_of_a_full_cluster_has_moves_only() -> None:
    made = World(STILL, brokers=2)
    made.command("create_namespace", namespace="acme/a", bundles=8)
    made.run(60_000)
    made.rates = {str(row["bundle"]): 4_700.0 for row in made.newest()}
    made.run(120_000, step_ms=10_000)
    found = ask(made, rows_of(made))
    assert min(usages(found.before.brokers).values()) > 0.9
    assert found.decisions == ()


def test_foresight_with_new_brokers_gives_them_load(world: World, rows: RehearsalRows) -> None:
    found = ask(world, rows, *AT_ONCE, add_brokers=2)
    assert set(found.idle) == {"new-broker-1", "new-broker-2"}
    assert len(found.before.brokers) == 3
    after = {one.broker: one for one in found.after.brokers}
    assert after["new-broker-1"].bundles + after["new-broker-2"].bundles > 0


def test_foresight_of_a_paused_cluster_says_that_it_is_paused() -> None:
    made = World(STILL, brokers=2)
    made.command("create_namespace", namespace="acme/a", bundles=4)
    made.run(90_000)
    made.command("pause", reason="upgrade")
    made.run(5_000)
    found = ask(made, rows_of(made), *AT_ONCE)
    assert {one["reason"] for one in found.skips} == {"Paused"}
    assert found.skips[0]["inputs"]["why"] == "upgrade"


def test_foresight_without_a_broker_drains_it(world: World, rows: RehearsalRows) -> None:
    found = ask(world, rows, remove_brokers=(ONE,))
    drained = [one for one in found.decisions if one["kind"] == "drain"]
    assert {one["source"] for one in drained} == {ONE}
    (one,) = [one for one in found.after.brokers if one.broker == ONE]
    assert (one.bundles, one.is_draining) == (0, True)
    assert one.usage == pytest.approx(0.0, abs=0.03)


def test_foresight_without_an_unknown_broker_is_impossible(
    world: World, rows: RehearsalRows
) -> None:
    asked = WhatIf(remove_brokers=("nobody:8080",))
    found = foresee(world.config, CLUSTER, rows, world.now_ms, asked)
    assert isinstance(found, Impossible)
    assert "nobody:8080" in found.reason


def test_foresight_splits_what_is_too_large(world: World, rows: RehearsalRows) -> None:
    found = ask(world, rows, "splitting.enabled=true", "splitting.max_topics=5")
    split = [one for one in found.decisions if one["kind"] == "split"]
    assert split
    assert sum(one.bundles for one in found.after.brokers) > 24


def test_foresight_follows_a_broker_that_died() -> None:
    made = World(STILL, brokers=3)
    made.command("create_namespace", namespace="acme/a", bundles=9)
    made.run(90_000)
    rows = rows_of(made)
    brokers = [
        {**row, "state": "silent"} if row["broker"] == ONE else row for row in rows.tables.brokers
    ]
    tables = newest_rows(made.newest(), {**made.other_rows, "brokers": brokers})
    found = ask(made, RehearsalRows(tables=tables, load=rows.load))
    assert sum(one.bundles for one in found.after.brokers) == 9
    assert ONE not in usages(found.after.brokers)


@pytest.mark.parametrize(
    "setting",
    ["shedding.nope=1", "shedding.strategy=best", "shedding.strategy=uniform", "shedding"],
)
def test_foresight_refuses_settings_that_are_unknown_or_do_not_suit(
    world: World, rows: RehearsalRows, setting: str
) -> None:
    with pytest.raises(ConfigError):
        ask(world, rows, setting)


KEYED = {SETTINGS_IN_FORCE.name: ("at_ms", "setting")}
NOW_MS = 2_000_000_000_000
ONE_OF_REHEARSE, TWO_OF_REHEARSE, GONE = (f"broker-{number}:8080" for number in range(3))


@pytest.fixture(scope="module")
def world_rehearse() -> World:
    """A cluster of three brokers, one of them dead, whose bundles are all served."""
    made = World(Config(), brokers=3)
    made.command("create_namespace", namespace="acme/a", bundles=6)
    made.run(90_000)
    made.kill(GONE)
    made.run(60_000)
    assert is_settled(made)
    return made


@pytest.fixture(scope="module")
def rows_rehearse(world_rehearse: World) -> RehearsalRows:
    def newest(table: str) -> list[dict[str, Any]]:
        if table == "bundle_ownership":
            return [dict(row) for row in world_rehearse.newest()]
        keys = KEYS.get(table, KEYED.get(table, ("at_ms", "broker")))
        found = {
            tuple(row[key] for key in keys): dict(row) for row in world_rehearse.other_rows[table]
        }
        return list(found.values())

    return RehearsalRows.read(newest)


def ask_rehearse(
    rows_rehearse: RehearsalRows, kind: str, command_id: str = "dry", **arguments: Any
) -> Rehearsal:
    command = Command(cluster=CLUSTER, command_id=command_id, kind=kind, arguments=arguments)
    return rehearse(Config(), rows_rehearse, command, NOW_MS)


def test_rehearsal_of_a_new_namespace_shows_its_bundles_and_its_row(
    rows_rehearse: RehearsalRows,
) -> None:
    found = ask_rehearse(rows_rehearse, "create_namespace", namespace="acme/b", bundles=4)
    assert found.is_possible
    assert [one["to"] for one in found.transitions] == ["Free"] * 4
    assert [row["namespace"] for row in found.rows["namespaces"]] == ["acme/b"]
    assert "commands" not in found.rows


def test_rehearsal_of_an_id_that_was_carried_out_shows_its_outcome(
    rows_rehearse: RehearsalRows,
) -> None:
    found = ask_rehearse(
        rows_rehearse, "create_namespace", "command-1", namespace="acme/c", bundles=4
    )
    assert found.reason == "its id was carried out before"
    assert found.transitions == ()

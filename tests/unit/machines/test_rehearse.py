"""A dry run says what the balancer would do, by the balancer's own handlers, and does nothing."""

from dataclasses import fields
from typing import Any

import pytest

from jobs.adapters.delta.table_writer import KEYS
from lbcore.balancer.rebuild import TableRows
from lbcore.config.tree import Config
from lbcore.foresight.rehearse import Rehearsal, RehearsalRows, rehearse
from lbcore.model.tables import SETTINGS_IN_FORCE
from lbcore.wire.messages import Command
from tests.support.worlds.world import CLUSTER, World, is_settled

KEYED = {SETTINGS_IN_FORCE.name: ("at_ms", "setting")}
NOW_MS = 2_000_000_000_000
ONE, TWO, GONE = (f"broker-{number}:8080" for number in range(3))


@pytest.fixture(scope="module")
def world() -> World:
    """A cluster of three brokers, one of them dead, whose bundles are all served."""
    made = World(Config(), brokers=3)
    made.command("create_namespace", namespace="acme/a", bundles=6)
    made.run(90_000)
    made.kill(GONE)
    made.run(60_000)
    assert is_settled(made)
    return made


@pytest.fixture(scope="module")
def rows(world: World) -> RehearsalRows:
    def newest(table: str) -> list[dict[str, Any]]:
        if table == "bundle_ownership":
            return [dict(row) for row in world.newest()]
        keys = KEYS.get(table, KEYED.get(table, ("at_ms", "broker")))
        found = {tuple(row[key] for key in keys): dict(row) for row in world.other_rows[table]}
        return list(found.values())

    return RehearsalRows.read(newest)


def ask(rows: RehearsalRows, kind: str, command_id: str = "dry", **arguments: Any) -> Rehearsal:
    command = Command(cluster=CLUSTER, command_id=command_id, kind=kind, arguments=arguments)
    return rehearse(Config(), rows, command, NOW_MS)


def owned_by(world: World, broker: str) -> str:
    return str(next(row["bundle"] for row in world.newest() if row["destination"] == broker))


def test_rehearsal_reads_every_table_that_a_state_is_rebuilt_from(rows: RehearsalRows) -> None:
    assert len(list(rows.tables.bundle_ownership)) == 6
    assert len(list(rows.tables.brokers)) == 3
    assert rows.load
    assert {one.name for one in fields(TableRows)} >= {"brokers", "namespaces", "commands"}


def test_rehearsal_of_a_transfer_shows_its_transition(world: World, rows: RehearsalRows) -> None:
    bundle = owned_by(world, ONE)
    found = ask(rows, "unload_bundle", bundle=bundle, destination=TWO)
    assert found.is_possible
    assert found.reason == ""
    (one,) = found.transitions
    assert one["bundle"] == bundle
    assert one["from"].startswith("Owned")
    assert one["to"] == f"Releasing {ONE} → {TWO}"


def test_rehearsal_knows_which_broker_is_dead(world: World, rows: RehearsalRows) -> None:
    found = ask(rows, "unload_bundle", bundle=owned_by(world, ONE), destination=GONE)
    assert not found.is_possible
    assert "not active" in found.reason
    assert found.transitions == ()


def test_rehearsal_of_a_new_namespace_shows_its_bundles_and_its_row(rows: RehearsalRows) -> None:
    found = ask(rows, "create_namespace", namespace="acme/b", bundles=4)
    assert found.is_possible
    assert [one["to"] for one in found.transitions] == ["Free"] * 4
    assert [row["namespace"] for row in found.rows["namespaces"]] == ["acme/b"]
    assert "commands" not in found.rows


def test_rehearsal_of_a_namespace_that_exists_is_refused(rows: RehearsalRows) -> None:
    found = ask(rows, "create_namespace", namespace="acme/a", bundles=4)
    assert (found.status, found.is_possible) == ("refused", False)
    assert "exists already" in found.reason


def test_rehearsal_of_an_id_that_was_carried_out_shows_its_outcome(rows: RehearsalRows) -> None:
    found = ask(rows, "create_namespace", "command-1", namespace="acme/c", bundles=4)
    assert found.reason == "its id was carried out before"
    assert found.transitions == ()


def test_rehearsals_change_nothing(world: World, rows: RehearsalRows) -> None:
    arguments = {"bundle": owned_by(world, TWO), "destination": ONE}
    assert ask(rows, "unload_bundle", **arguments) == ask(rows, "unload_bundle", **arguments)

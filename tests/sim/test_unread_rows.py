"""A row that a rebuild can't read is put aside and told of; its neighbours come back, and it heals.

A row is spoilt as damage or a newer version of the job would, in each table that a rebuild reads.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from lbcore.balancer import rebuild
from lbcore.balancer.phases import REBUILD
from lbcore.balancer.report import FAULTS
from lbcore.balancer.state.book import DONE
from lbcore.balancer.tasks.waiting import status_of
from lbcore.fault_isolation import ALARM
from tests.support.worlds.checked_world import records_of
from tests.support.worlds.safe_world import FIRST, NEIGHBOUR, PlantedError, SafeWorld, running
from tests.support.worlds.world import is_settled, states
from tests.unit.wire.test_commands import NS

SPOILT: Mapping[str, tuple[str, str, str]] = {
    "a state that nobody knows": ("bundle_ownership", "state", "Frozen"),
    "a cause that nobody knows": ("bundle_ownership", "cause", "whim"),
    "children that are no JSON": ("bundle_ownership", "children", "{"),
    "a broker": ("brokers", "starts", "["),
    "a namespace": ("namespaces", "properties", "{"),
    "a tenant": ("records", "value", "["),
    "a policy": ("policies", "value", "{"),
    "settings": ("config_versions", "settings", "{"),
    "a command": ("commands", "arguments", "{"),
}


def lived() -> SafeWorld:
    """A world with a row and a neighbour in each of these tables."""
    world = running()
    world.command("create_namespace", **NEIGHBOUR)
    for tenant in ("acme", "other"):
        world.command(
            "create_record", record_type="tenant", name=tenant, value={"admin_roles": ["a"]}
        )
    for namespace in (NS, "acme/neighbour"):
        world.command("exclude_namespace", namespace=namespace)
    for hits in (4, 5):
        world.command("set_config", values={"shedding.avg_high_hits": hits})
    world.run(20_000)
    assert is_settled(world)
    return world


def spoil(world: SafeWorld, table: str, column: str, value: str) -> None:
    """Give one row a value that no writer of this version writes."""
    if table == "bundle_ownership":
        world.current[FIRST] = {**world.current[FIRST], column: value}
    else:
        world.other_rows[table][-1] = {**world.other_rows[table][-1], column: value}


def rebuilt_batches(world: SafeWorld) -> list[Mapping[str, Any]]:
    """The reports of what came after a rebuild."""
    before = len(world.reports)
    world.rebuild_job()
    world.run(120_000)
    return world.reports[before:]


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_row_that_cannot_be_read_is_put_aside_and_all_else_comes_back(spoilt: str) -> None:
    world = lived()
    whole = world.job.rebuilt()
    table, column, value = SPOILT[spoilt]
    spoil(world, table, column, value)
    state = world.job.rebuilt()
    (fault,) = state.unread
    assert (fault["phase"], fault["count"]) == (REBUILD, 1)
    assert fault["item"].startswith(f"{table} ")
    assert records_of(state).keys() == records_of(whole).keys()
    others = records_of(whole).keys() - {FIRST}
    assert all(records_of(state)[name] == records_of(whole)[name] for name in others)
    assert records_of(state)[FIRST].version_id == records_of(whole)[FIRST].version_id
    assert state.brokers.keys() == whole.brokers.keys()
    assert state.namespaces.keys() == whole.namespaces.keys()
    assert state.commands.keys() == whole.commands.keys()
    assert set(map(status_of, state.commands.values())) == {DONE}
    lost = dict.fromkeys(("records", "policies", "config_versions"), 1).get(table, 0)
    found = (len(state.records.by_type["tenant"]), len(state.rules.excluded), state.settings)
    expected = (len(whole.records.by_type["tenant"]), len(whole.rules.excluded), whole.settings)
    assert [one == other for one, other in zip(found, expected, strict=True)].count(False) == lost
    if table == "config_versions":
        assert state.settings == {"shedding.avg_high_hits": 4}, "those of the change before"


@pytest.mark.parametrize("spoilt", SPOILT)
def test_the_first_batch_after_the_rebuild_tells_of_it_and_the_cluster_settles(spoilt: str) -> None:
    world = lived()
    spoil(world, *SPOILT[spoilt])
    first, *later = rebuilt_batches(world)
    assert first["counts"][f"fault:{REBUILD}"] == 1
    assert ALARM in first["alarms"]
    assert [fault["phase"] for fault in first[FAULTS]] == [REBUILD]
    assert not any(FAULTS in report for report in later)
    assert is_settled(world)
    assert set(states(world)) == {"Owned"}
    assert all(len(tokens) == 1 for tokens in world.served().values())


def test_a_record_that_is_read_nowhere_heals_with_its_next_transition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = lived()
    read = rebuild.record_from_row

    def broken(row: Mapping[str, Any], writer_epoch: int = 0) -> Any:
        if row["bundle"] == FIRST:
            raise PlantedError
        return read(row, writer_epoch)

    spoil(world, "bundle_ownership", "state", "Frozen")
    before = world.served()
    with monkeypatch.context() as patch:
        patch.setattr(rebuild, "record_from_row", broken)
        (fault,) = world.job.rebuilt().unread
        assert (fault["type"], fault["item"]) == ("PlantedError", f"bundle_ownership {FIRST}")
        rebuilt_batches(world)
    assert world.served().keys() == before.keys()
    assert not world.job.rebuilt().unread
    world.command("unload_bundle", bundle=FIRST)
    world.run(20_000)
    assert is_settled(world)

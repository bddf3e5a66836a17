"""What was answered is true after a crash at any point of a batch, however the job comes back.

Every kind of command × a crash before and after every commit × (repeat from the checkpoint, rebuild
from the tables, rebuild from a backup of that moment), on real tables, against the run that nothing
disturbed. The kinds and the tables are those that the code declares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from jobs.adapters.spark.batch_sink import EVENTS, ORDER
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import TOMBSTONE, Effect
from lbcore.balancer.rebuild import TableRows
from lbcore.model.tables import TABLES
from lbcore.ownership.records import Cause
from lbcore.wire.commands import KINDS
from tests.support.tables.crashed_batches import (
    Place,
    crashes_of,
    squashed,
    steps_of,
    with_every_table,
)
from tests.support.worlds.checked_world import promised
from tests.support.worlds.command_cases import (
    BROKERS,
    BUNDLES,
    CASES,
    TOPIC,
    RecordedWorld,
    is_carried_out,
    prepared,
)
from tests.support.worlds.world import CLUSTER

REBUILT_FROM = {one.name for one in fields(TableRows)}
RESTORED_MS = 1_800_000_000_000


class Undisturbed:
    """A batch, and the tables and the topic before and after it where nothing goes wrong."""

    def __init__(self, world: RecordedWorld, number: int, folder: Path) -> None:
        self.world, self.folder, self.crashes = world, folder, 0
        self.batch = world.batches[number]
        self.before = Place(folder / "before")
        self.before.write(squashed([one.effects for one in world.batches[:number]]), 0)
        self.after = self.before.copy(folder / "after")
        assert self.after.write(self.batch.effects, 1)
        self.rows = {place.root: place.rows() for place in (self.before, self.after)}

    def crashed(self, steps: Sequence[str]) -> Place:
        """The tables and the topic as a crash leaves them."""
        self.crashes += 1
        place = self.before.copy(self.folder / f"crash-{self.crashes}")
        place.write(self.batch.effects, 1, steps=steps)
        return place

    def check(self, steps: Sequence[str]) -> None:
        """Whatever way the job comes back, all is as it would be."""
        self.check_repeated(self.crashed(steps))
        crashed = self.crashed(steps)
        backup = crashed.copy(self.folder / f"backup-{self.crashes}")
        is_true = EVENTS in steps
        self.check_rebuilt(crashed, is_true=is_true)
        self.check_restored(backup, is_true=is_true)

    def check_repeated(self, place: Place) -> None:
        """From the checkpoint: the batch comes again."""
        assert place.write(self.batch.effects, 1)
        assert place.rows() == self.rows[self.after.root]
        assert place.kafka == self.after.kafka

    def check_rebuilt(self, place: Place, *, is_true: bool) -> None:
        """From the tables: a batch that is true is whole, of another there is no trace."""
        state = place.rebuilt(self.world.config)
        there = self.after if is_true else self.before
        assert place.rows() == self.rows[there.root]
        assert place.kafka == there.kafka
        known = self.state(is_true=is_true)
        assert state is not None
        assert promised(state) == promised(known)
        if not is_true:  # its messages are read again, and what it wrote is no hindrance
            assert place.write(self.batch.effects, 0, query="rebuilt")
            assert place.rows() == self.rows[self.after.root]

    def check_restored(self, place: Place, *, is_true: bool) -> None:
        """From a backup: the same, but that every record has a version that nobody has seen."""
        state = place.rebuilt(self.world.config, RESTORED_MS)
        assert state is not None
        assert restored(state) == restored(self.state(is_true=is_true))

    def state(self, *, is_true: bool) -> BalancerState:
        packed = self.batch.after if is_true else self.batch.before
        assert packed is not None
        return self.world.job.balancer.unpack(packed)


def restored(state: BalancerState) -> Mapping[str, Any]:
    """What a rebuild promises, without what is made anew when tables were restored."""
    found: Any = promised(state)
    anew = {"version_id": 0, "timestamp_ms": 0, "is_forced": True, "cause": Cause.REPAIR}
    anew |= {"writer_epoch": 0}
    records = {name: replace(record, **anew) for name, record in found["records"].items()}
    named = {name: replace(one, highest_version=0) for name, one in found["namespaces"].items()}
    return {**found, "records": records, "namespaces": named}


def batch_with(world: RecordedWorld, command_id: str) -> int:
    before = len(world.batches)
    while command_id not in {row["command_id"] for row in world.other_rows["commands"]}:
        assert len(world.batches) < before + 3
        world.run(500)
    return len(world.batches) - 1


def of_every_kind_and_table(folder: Path) -> Undisturbed:
    """One batch with every command that needs nothing before it, and rows for every table."""
    alone = {k: c for k, c in CASES.items() if not (c.first or c.killed or c.is_mirrored)}
    world = prepared(CASES["pause"])
    ids = [world.command(kind, **case.arguments) for kind, case in sorted(alone.items())]
    number = batch_with(world, ids[-1])
    batch = world.batches[number]
    gone = Effect(
        kind=TOMBSTONE, rows=[{"cluster": CLUSTER, "bundle": "t/gone/0x00000000_0xffffffff"}]
    )
    effects = [*with_every_table(batch.effects, REBUILT_FROM), gone]
    assert {*ORDER} <= {*steps_of(effects)}
    world.batches[number] = replace(batch, effects=effects)
    return Undisturbed(world, number, folder)


def twice_each(world: RecordedWorld) -> list[str]:
    """Commands that each change what another of the same batch has changed."""
    tenant, topic = (
        {"record_type": "tenant", "name": "u"},
        {"record_type": "topic", "name": TOPIC},
    )
    asked: list[tuple[str, Mapping[str, Any]]] = [
        ("create_record", tenant),
        ("update_record", {**tenant, "value": {"admin_roles": ["ops"]}}),
        ("create_record", {**topic, "value": 2}),
        ("update_record", {**topic, "value": 4}),
        ("delete_record", topic),
        ("create_namespace", {"namespace": "u/n", "bundles": 2}),
        ("delete_namespace", {"namespace": "u/n"}),
        ("pin_bundle", {"bundle": BUNDLES[0], "broker": BROKERS[1]}),
        ("unpin_bundle", {"bundle": BUNDLES[0]}),
        ("pin_bundle", {"bundle": BUNDLES[0], "broker": BROKERS[2]}),
    ]
    return [world.command(kind, **arguments) for kind, arguments in asked]


def test_things_that_one_batch_changes_again_and_again_are_in_the_tables_once(
    tmp_path: Path,
) -> None:
    world = prepared(CASES["pause"])
    first = twice_each(world)
    world.run(8_000)
    ids = twice_each(world)  # once more, when the tables know all of it
    found = Undisturbed(world, batch_with(world, ids[-1]), tmp_path)
    done = [one for one in (*first, *ids) if is_carried_out(world, one)]
    assert len(done) >= len(first) + len(ids) - 2, "but the tenant that is there, and its namespace"
    keys = {table.name: ("cluster", *table.key) for table in TABLES if table.key}
    for name, names in keys.items():
        rows = [*found.after._rows(name)]  # noqa: SLF001 (as values, not as text)
        assert len({tuple(row[key] for key in names) for row in rows}) == len(rows), name
    found.check_rebuilt(found.crashed(steps_of(found.batch.effects)), is_true=True)


def test_every_kind_of_command_is_tried() -> None:
    assert CASES.keys() == KINDS.keys()


def test_batch_of_every_table_is_true_or_never_was_whatever_commit_a_crash_follows(
    tmp_path: Path,
) -> None:
    found = of_every_kind_and_table(tmp_path)
    steps = steps_of(found.batch.effects)
    at = steps.index(EVENTS)
    for crash in (steps[:at], steps[: at + 1]):
        found.check(crash)


@pytest.mark.long
def test_batch_of_every_table_is_true_or_never_was_wherever_a_crash_falls(tmp_path: Path) -> None:
    found = of_every_kind_and_table(tmp_path)
    for crash in crashes_of(found.batch.effects):
        found.check(crash)


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_command_is_done_or_was_never_taken_wherever_a_crash_falls(
    kind: str, tmp_path: Path
) -> None:
    world = prepared(CASES[kind])
    command_id = world.command(kind, **CASES[kind].arguments)
    number = batch_with(world, command_id)
    assert is_carried_out(world, command_id)
    found = Undisturbed(world, number, tmp_path)
    for crash in crashes_of(found.batch.effects):
        found.check(crash)

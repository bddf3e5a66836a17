"""A crash before and after each commit of an upgrade's first start, once and again and again.

The next version has a column more in every table that a batch writes before, with or after its
events, a constraint and a table more, and other code. Wherever a start is cut off, the one that
gets through leaves tables, topic, manifest and state as one that nothing disturbed, and takes the
same way: on from the checkpoint, or, where old code left a batch half written, from the tables.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer

from jobs.adapters.delta import tables as delta_tables
from jobs.adapters.delta.table_writer import EPOCH_APP, TableWriter
from jobs.adapters.spark.batch_sink import EVENTS
from jobs.adapters.spark.checkpoint import (
    LAYOUT,
    Manifest,
    Resumption,
    choose_checkpoint,
    read_manifest,
    write_manifest,
)
from jobs.adapters.spark.recovery import (
    claimed_tables,
    complete_last_batch,
    rebuilt_states,
    send_all_records,
)
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.model.tables import TABLES, Column, Table
from tests.integration.test_crash_points import Undisturbed, of_every_kind_and_table
from tests.integration.test_crashed_upkeep import RECOVERY, crash_after
from tests.support.tables.commands_table import write_checkpoint
from tests.support.tables.crashed_batches import CrashedError, Place, steps_of
from tests.support.worlds.checked_world import promised
from tests.support.worlds.world import CLUSTER

UPGRADE: tuple[tuple[Any, str], ...] = (
    (DeltaTable, "create"),
    (TableAlterer, "add_columns"),
    (TableAlterer, "add_constraint"),
    (sys.modules[__name__], "write_manifest"),
    *RECOVERY,
)
EACH = 6
"""In the short test each start gets so many commits further than the one before."""

_NOTE = Column(name="note", type="string", doc="of the next version", is_nullable=True)
LEFT: Mapping[str, set[str]] = {
    "whole": set(),
    "true": {"write"},
    "never": {"undo"},
    "unheard": set(),
}
"""How far the old version came with its last batch → what the next one has to do about it."""

GOES_ON = ("whole", "unheard")
"""After these the checkpoint is gone on from."""

_OLD, _NEXT = (
    Manifest(code_version=code, config_version="f", scorer_groups=1, layout=LAYOUT)
    for code in ("old", "next")
)


def next_tables() -> tuple[Table, ...]:
    noted = [replace(table, columns=(*table.columns, _NOTE)) for table in TABLES]
    first, *others = noted
    first = replace(first, constraints=(*first.constraints, ("noted", "cluster <> 'x'")))
    notes = Table(name="notes", doc="of the next version", columns=(*TABLES[0].columns[:1], _NOTE))
    return (first, *others, notes)


@dataclass
class Upgrade:
    """Tables and a checkpoint of the old version, and the next version's start on them.

    is_finished: Spark had committed its last batch.
    """

    found: Undisturbed
    place: Place
    is_finished: bool

    def __post_init__(self) -> None:
        self.state_dir = self.place.root.with_name(f"{self.place.root.name}-state")
        folder = self.state_dir / "checkpoints" / "epoch-0"
        write_checkpoint(folder, begun=2, ended=2 if self.is_finished else 1, query="query")
        epoch = max(
            DeltaTable(str(self.place.root / EVENTS)).transaction_version(EPOCH_APP) or 0, 0
        )
        old = replace(_OLD, epoch=epoch)
        write_manifest(self.state_dir, old, Resumption(checkpoint=folder, reason=""))

    def start(self) -> str:
        """What the job does before its first batch, in its order; why it rebuilds."""
        writer = TableWriter(self.place.root)
        present = replace(_NEXT, epoch=writer.epoch + 1, claim=f"claim-{writer.epoch + 1}")
        chosen = choose_checkpoint(self.state_dir, present, claimed_tables(writer))
        write_manifest(self.state_dir, present, chosen)
        claimed = replace(present, epoch=writer.claim(present.claim), claim="")
        write_manifest(self.state_dir, claimed, chosen)
        self.state: BalancerState | None = None
        if chosen.is_rebuilt:
            complete_last_batch(writer)
            config = self.found.world.config
            chunks = {name: blob for _, name, blob in rebuilt_states(config, writer)}
            send_all_records(writer, self.place.kafka)
            self.state = ClusterBalancer(cluster=CLUSTER, config=config).unpack(chunks)
        return chosen.reason

    def go_on(self) -> Mapping[str, object]:
        """All that a start and a batch after it leave behind, but for epochs."""
        last = read_manifest(self.state_dir)
        assert last is not None
        assert self.place.write(self.found.batch.effects, 2, query="later")
        tables = {path.name: DeltaTable(str(path)) for path in sorted(self.place.root.iterdir())}
        return {
            "columns": {name: table.schema().to_json() for name, table in tables.items()},
            "settings": {name: table.metadata().configuration for name, table in tables.items()},
            "rows": self.place.rows(),
            "kafka": self.place.kafka,
            "manifest": replace(last, epoch=0, checkpoint=""),
            "state": None if self.state is None else promised(self.state),
        }


Old: TypeAlias = dict[str, tuple[Undisturbed, Place]]
"""How far the old version came with its last batch → that batch, and what it left behind."""


class Upgrades:
    """Upgrades that all begin alike."""

    def __init__(self, old: Old, left: str, folder: Path) -> None:
        self.found, self.crashed = old[left]
        self.left = left
        self.folder, self.copies = folder, 0
        calm = self.begin()
        with crash_after(UPGRADE, 10_000) as self.calls:
            self.reason = calm.start()
        self.expected = calm.go_on()
        for table in next_tables():
            made = DeltaTable(str(calm.place.root / table.name))
            assert [field.name for field in made.schema().fields] == [c.name for c in table.columns]
            rules = {f"delta.constraints.{name}" for name, _ in table.constraints}
            assert rules <= made.metadata().configuration.keys()

    def begin(self) -> Upgrade:
        self.copies += 1
        place = self.crashed.copy(self.folder / str(self.copies))
        return Upgrade(self.found, place, self.left == "whole")

    def cut_off(self, upgrade: Upgrade, number: int) -> None:
        """A start that is killed after so many of its commits."""
        with crash_after(UPGRADE, number), pytest.raises(CrashedError):
            upgrade.start()

    def check(self, upgrade: Upgrade) -> None:
        assert (upgrade.start() == "") == (self.left in GOES_ON)
        assert upgrade.go_on() == self.expected


@pytest.fixture(autouse=True)
def next_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The next version's tables, once the old one has left its own behind."""
    with monkeypatch.context() as patch:
        patch.setattr(delta_tables, "TABLES", next_tables())
        yield


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Old:
    found = of_every_kind_and_table(tmp_path_factory.mktemp("old"))
    steps = steps_of(found.batch.effects)
    at = steps.index(EVENTS)
    taken = {"whole": steps, "true": steps[: at + 1], "never": steps[:at], "unheard": []}
    return {name: (found, found.crashed(some)) for name, some in taken.items()}


def fail_further_each_time(all_: Upgrades, each: int) -> None:
    """One start after another, each killed so many commits later, until one gets through."""
    upgrade, is_through = all_.begin(), False
    for number in range(0, len(all_.calls), each):
        with crash_after(UPGRADE, number), suppress(CrashedError):
            upgrade.start()
            is_through = True
    assert is_through, "what one start has done, the next need not do"
    all_.check(upgrade)


@pytest.mark.parametrize(
    "left",
    [pytest.param(left, marks=[pytest.mark.long] if left in GOES_ON else []) for left in LEFT],
)
def test_upgrade_that_crashes_again_and_again_gets_through(
    old: Old, left: str, tmp_path: Path
) -> None:
    all_ = Upgrades(old, left, tmp_path)
    assert (all_.reason == "") == (left in GOES_ON)
    always = {"create", "add_columns", "add_constraint", "_claim", "write_manifest"}
    assert always | LEFT[left] <= {*all_.calls}
    fail_further_each_time(all_, EACH)


@pytest.mark.long
@pytest.mark.parametrize("left", LEFT)
def test_upgrade_that_crashes_at_each_commit_is_done_by_the_next_start(
    old: Old, left: str, tmp_path: Path
) -> None:
    all_ = Upgrades(old, left, tmp_path)
    fail_further_each_time(all_, 1)
    for number in range(len(all_.calls)):
        upgrade = all_.begin()
        all_.cut_off(upgrade, number)
        all_.check(upgrade)

"""A crash at each commit of what the job does to its tables beside batches, and done again.

Rebuild, restore and upkeep with history: whatever of it a crash left undone, the next start or turn
does, and the tables, Kafka and the state are what they are where nothing went wrong.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.table import TableAlterer, TableOptimizer

from jobs.adapters.delta import table_upkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.spark.batch_sink import EVENTS
from lbcore.config.pipeline import DROPPED
from lbcore.model.tables import ARCHIVES
from lbcore.model.times import DAY_MS
from tests.integration.test_crash_points import (
    RESTORED_MS,
    Undisturbed,
    of_every_kind_and_table,
    restored,
)
from tests.support.tables.crashed_batches import CrashedError, Kafka, Place, steps_of
from tests.support.tables.small_batches import AgedHistory, day
from tests.support.worlds.checked_world import promised

pytestmark = pytest.mark.long

RECOVERY: tuple[tuple[Any, str], ...] = (
    (TableWriter, "_claim"),
    (TableWriter, "undo"),
    (TableWriter, "write"),
    (TableWriter, "write_ahead"),
    (Kafka, "publish"),
)
UPKEEP: tuple[tuple[Any, str], ...] = (
    (DeltaTable, "delete"),
    (DeltaTable, "create_checkpoint"),
    (DeltaTable, "cleanup_metadata"),
    (DeltaTable, "vacuum"),
    (TableOptimizer, "compact"),
    (TableAlterer, "set_table_properties"),
    (table_upkeep, "write_deltalake"),
)
NOW_MS = 20_000 * DAY_MS + 7_000
DAYS = 10


@contextmanager
def crash_after(points: tuple[tuple[Any, str], ...], number: int) -> Iterator[list[str]]:
    """Let so many of these calls be made and refuse all others; their names, as they are made."""
    made: list[str] = []

    def limited(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if len(made) >= number:
                raise CrashedError(name)
            made.append(name)
            return original(*args, **kwargs)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in points:
            patch.setattr(owner, name, limited(getattr(owner, name), name))
        yield made


class Recovery:
    """A batch that a crash cut off, and what a rebuild or a restore makes of its tables."""

    def __init__(self, found: Undisturbed, steps: list[str], restored_ms: int) -> None:
        self.found, self.restored_ms = found, restored_ms
        self.crashed = found.crashed(steps)
        self.copies = 0
        self.calm = self.copy()
        with crash_after(RECOVERY, 1_000) as self.calls:
            self.promised = self.come_back(self.calm)

    def copy(self) -> Place:
        self.copies += 1
        name = f"{self.crashed.root.name}-{self.restored_ms}-{self.copies}"
        return self.crashed.copy(self.crashed.root.with_name(name))

    def come_back(self, place: Place, later_ms: int = 0) -> Mapping[str, Any]:
        """What the state promises that a start comes to; later_ms: of a restore, than planned."""
        restored_ms = self.restored_ms and self.restored_ms + later_ms
        state = place.rebuilt(self.found.world.config, restored_ms)
        assert state is not None
        return restored(state) if self.restored_ms else promised(state)

    def check(self, number: int) -> None:
        """A crash after so many calls, and another start."""
        place = self.copy()
        with crash_after(RECOVERY, number), pytest.raises(CrashedError):
            self.come_back(place)
        assert self.come_back(place, later_ms=60_000) == self.promised
        if self.restored_ms:
            assert place.kafka.newest.keys() == self.calm.kafka.newest.keys()
        else:
            assert place.rows() == self.calm.rows()
            assert place.kafka == self.calm.kafka


@pytest.fixture(scope="module")
def cut_off(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return of_every_kind_and_table(tmp_path_factory.mktemp("batch"))


def recoveries(found: Undisturbed, restored_ms: int) -> Iterator[Recovery]:
    """Of a batch that is true and owes its rows, and of one that never was."""
    steps = steps_of(found.batch.effects)
    at = steps.index(EVENTS)
    for taken in (steps[: at + 1], steps[:at]):
        yield Recovery(found, taken, restored_ms)


def test_rebuild_that_a_crash_cuts_off_is_done_by_the_next_start(cut_off: Undisturbed) -> None:
    recovery_ = next(recoveries(cut_off, 0))
    writes = [at for at, name in enumerate(recovery_.calls) if name == "write"]
    for number in (writes[0], writes[len(writes) // 2]):
        recovery_.check(number)


@pytest.mark.parametrize("restored_ms", [0, RESTORED_MS], ids=["rebuild", "restore"])
def test_recovery_that_a_crash_cuts_off_anywhere_is_done_by_the_next_start(
    cut_off: Undisturbed, restored_ms: int
) -> None:
    for recovery_ in recoveries(cut_off, restored_ms):
        assert {"_claim", "publish"} <= {*recovery_.calls}
        for number in range(len(recovery_.calls)):
            recovery_.check(number)


class Upkeep:
    """Tables with a month of history, and the turns that drop what is past its days."""

    def __init__(self, root: Path) -> None:
        self.history = AgedHistory(root, days=DAYS, kind=DROPPED)
        for age in range(30, 0, -1):
            self.history.batch(day(age, now_ms=NOW_MS), gone=age <= 12)
        self.history.upkeep.files_max = 2

    def turn(self) -> None:
        """Every table that has history, as the job does it; after a crash by a job of its own."""
        self.history.look_after(NOW_MS)

    def start_again(self) -> None:
        history = self.history
        history.writer = TableWriter(history.root)
        history.writer.claim()
        history.writer.use_query("q1")
        history.upkeep.writer = history.writer
        history.upkeep.history._done.clear()  # noqa: SLF001 (another process knows nothing)

    def rows(self) -> dict[str, list[str]]:
        tables = {name: DeltaTable(str(self.history.root / name)) for name in ARCHIVES}
        return {
            name: sorted(map(repr, pa.table(table.scan().read_all()).to_pylist()))
            for name, table in tables.items()
        }


def check_upkeep(root: Path, calm: Upkeep, number: int) -> None:
    upkeep = Upkeep(root)
    with crash_after(UPKEEP, number), pytest.raises(CrashedError):
        upkeep.turn()
    upkeep.start_again()
    upkeep.history.batch(NOW_MS, gone=True)
    upkeep.turn()
    upkeep.turn()
    assert upkeep.rows() == calm.rows()


def calm_upkeep(root: Path) -> tuple[Upkeep, list[str]]:
    calm = Upkeep(root)
    with crash_after(UPKEEP, 1_000) as calls:
        calm.turn()
    assert {"write_deltalake", "vacuum", "create_checkpoint", "compact"} <= {*calls}
    calm.start_again()
    calm.history.batch(NOW_MS, gone=True)
    calm.turn()
    return calm, calls


@pytest.fixture(autouse=True)
def few_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jobs.adapters.delta.table_upkeep.REMEMBERED_COMMANDS", 12)


def test_upkeep_that_a_crash_cuts_off_is_done_by_the_next_turn(tmp_path: Path) -> None:
    calm, calls = calm_upkeep(tmp_path / "calm")
    check_upkeep(tmp_path / "crash", calm, calls.index("write_deltalake") + 1)


def test_upkeep_that_a_crash_cuts_off_anywhere_is_done_by_the_next_turn(tmp_path: Path) -> None:
    calm, calls = calm_upkeep(tmp_path / "calm")
    for number in range(len(calls)):
        check_upkeep(tmp_path / f"crash-{number}", calm, number)

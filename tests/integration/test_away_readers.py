"""Every reader that keeps something of a table, while the table goes on without it.

After whatever has happened meanwhile a reader is right with its next look, or, where nobody could
read the tables, says how old its answer is; it never shows anything in between.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.kafka.command_client import OutcomeFollower
from jobs.adapters.processes.clocks import boot_ms
from jobs.local.prober import EventsHistory
from jobs.service.changes import ChangeFeed, Place, RecordChange
from jobs.service.views import SMALL_TABLES, TableViews
from lbcore.model.tables import OWNERSHIP_EVENTS
from lbcore.sim.judge.judge import JudgedEvent
from tests.support.tables.away import HAPPENED, UNREADABLE, LivingTables
from tests.support.tables.lookup_tables import CLUSTER, content
from tests.support.values.clusters import few

_WAIT_S = 60.0


class Reader(Protocol):
    """One that looks when it is told, and shows what it holds."""

    def look(self) -> None: ...

    def shown(self) -> Any: ...

    def is_stale(self, since_ms: int) -> bool: ...


class Owners:
    """The lookup service and the Python client on tables."""

    def __init__(self, root: Path) -> None:
        self.follower = DeltaFollower(root, CLUSTER)
        self.look = self.follower.poll

    def shown(self) -> Any:
        view = self.follower.view
        assert view is not None
        return (
            content(self.follower),
            sorted(view.snapshot.brokers),
            sorted(view.snapshot.hash_indexes),
        )

    def is_stale(self, since_ms: int) -> bool:
        view = self.follower.view
        return view is not None and view.confirmed_ms < since_ms


class Views:
    """The small tables of the service: its handlers, its page and what top asks for."""

    def __init__(self, root: Path) -> None:
        self.views = TableViews(root, CLUSTER)
        self.look = self.views.refresh

    def shown(self) -> Any:
        rows = {
            table.name: sorted(map(repr, self.views.rows(table.name))) for table in SMALL_TABLES
        }
        return rows, dict(self.views.newest_load), dict(self.views.settings)

    def is_stale(self, since_ms: int) -> bool:
        return self.views.confirmed_ms < since_ms


class Judge:
    """The prober's history."""

    def __init__(self, root: Path) -> None:
        self.history = EventsHistory(root / OWNERSHIP_EVENTS.name)
        self.told: dict[str, JudgedEvent] = {}
        self.read_ms = 0

    def look(self) -> None:
        found, _ = self.history.poll()
        self.told.update({one.bundle: one for one in found})

    def shown(self) -> Any:
        return {name: (one.version_id, one.destination) for name, one in self.told.items()}


class Watcher:
    """A client of the watch stream that goes on from where it was, or begins anew when told."""

    def __init__(self, root: Path) -> None:
        self.follower = DeltaFollower(root, CLUSTER)
        self.feed = ChangeFeed(root, CLUSTER, 3)
        self.follower.on_commits(self.feed.add)
        self.place = (-1, 0)
        self.history = -1
        self.known: dict[str, int] = {}

    def look(self) -> None:
        self.follower.poll()
        while self.place < self.feed.end or self.history != self.feed.history:
            found = self._next() if self.history == self.feed.history else None
            if found is None:
                self.known = {bundle: version for bundle, version, _ in content(self.follower)}
                self.place, self.history = self.feed.end, self.feed.history
                return
            changes, self.place = found
            self.known |= {one.route.bundle: one.route.version_id for one in changes}

    def _next(self) -> tuple[Sequence[RecordChange], Place] | None:
        found = self.feed.after(self.place, 2)
        if found is None:
            return self.feed.read_log(self.place, 2)
        return found, (found[-1].place if found else self.feed.end)

    def shown(self) -> Any:
        return self.known


READERS: Mapping[str, Callable[[Path], Any]] = {
    "DeltaFollower": Owners,
    "TableViews": Views,
    "EventsHistory": Judge,
    "ChangeFeed": Watcher,
}


@pytest.mark.parametrize("happened", few(HAPPENED, 5))
def test_every_reader_is_right_with_its_next_look(tmp_path: Path, happened: str) -> None:
    root = tmp_path / "tables"
    tables = LivingTables(root)
    tables.go_on(2)
    readers = {name: make(root) for name, make in READERS.items()}
    look_at(readers)
    outcomes = OutcomeFollower(root, CLUSTER, poll_ms=600_000)
    try:
        assert outcomes.watch("c1").final.result(_WAIT_S).status == "done"
        HAPPENED[happened](tables)
        assert look_at(readers) == look_at({name: make(root) for name, make in READERS.items()})
        later = outcomes.watch(f"c{tables.step + 1}")
        tables.go_on(1)
        outcomes.watch("c2")  # wakes it, to look once
        assert later.final.result(_WAIT_S).status == "done"
        assert look_at(readers) == look_at({name: make(root) for name, make in READERS.items()})
    finally:
        outcomes.close()


def look_at(readers: Mapping[str, Any]) -> dict[str, Any]:
    for reader in readers.values():
        reader.look()
    return {name: reader.shown() for name, reader in readers.items()}


@pytest.mark.parametrize("happened", UNREADABLE)
@pytest.mark.parametrize("reader_of", [Owners, Views])
def test_reader_of_what_nobody_can_read_says_how_old_it_is(
    tmp_path: Path, reader_of: type[Owners] | type[Views], happened: str
) -> None:
    tables = LivingTables(tmp_path)
    reader = reader_of(tmp_path)
    reader.look()
    before = reader.shown()
    UNREADABLE[happened](tables)
    since_ms = boot_ms()
    reader.look()
    assert reader.shown() == before
    assert reader.is_stale(since_ms)


def test_log_that_is_cut_behind_the_reader_or_compacted_is_no_reason_to_load_again(
    tmp_path: Path,
) -> None:
    tables = LivingTables(tmp_path)
    reader = Owners(tables.root)
    reader.look()
    for happen in (tables.join_files, tables.clean_up, lambda: tables.go_on(2)):
        tables.go_on(2)
        reader.look()
        happen()
        reader.look()
    tables.go_on(1)
    reader.look()
    assert reader.follower.counts.reloads == {ReloadReason.START: 1}

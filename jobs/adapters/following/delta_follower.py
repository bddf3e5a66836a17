"""Follower of one cluster's tables: the newest sound snapshot of ownership.

A load reads the tables whole (`whole_records`); after that the follower reads the logs on, version
by version (`TableTail`). Rows that can't be used leave the last snapshot in place. `lbcore.route`
interprets the rows. Feeds the lookup service and the Python client.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.rows import (
    ROUTE_COLUMNS,
    brokers_of,
    hashes_of,
    routes_of,
)
from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_log import (
    LostError,
    ReloadReason,
    WriterCommit,
    last_writer_commit,
    log_path,
)
from jobs.adapters.delta.table_repair import check_complete
from jobs.adapters.delta.table_scan import TableTail, check_newest, read_added
from jobs.adapters.delta.tables import open_table, table_path
from jobs.adapters.following.view import (
    NEVER_FOUND,
    Changes,
    Follower,
    UnreadRows,
    View,
    read_records,
)
from jobs.adapters.processes.clocks import boot_ms
from jobs.console import in_one_line
from lbcore.model.tables import BROKERS, BUNDLE_OWNERSHIP, NAMESPACES, OWNERSHIP_EVENTS
from lbcore.route.bundles import BundleRoute, Unsound
from lbcore.route.snapshot import LookupSnapshot, TablePosition, find_regressions

logger = logging.getLogger(__name__)

_NAMES = (BUNDLE_OWNERSHIP.name, OWNERSHIP_EVENTS.name, BROKERS.name, NAMESPACES.name)
"""The tables of a load, in the order of opening; all but the first are followed."""
_UNREADABLE = (OSError, DeltaError, pa.ArrowException, ValueError)
_RELOAD_DELAY_MS = 500
_RELOAD_DELAY_MAX_MS = 10_000


@dataclass(slots=True, kw_only=True)
class _Tables:
    """Tables of one load, and their tails.

    candidate: snapshot up to the last commit read. published: candidate of the present view, None
    until the load is shown.
    """

    table_id: str
    candidate: LookupSnapshot
    writer: WriterCommit | None
    tails: Mapping[str, TableTail]
    unread: UnreadRows
    published: LookupSnapshot | None = None


class DeltaFollower(Follower):
    """Follower that keeps `view` current.

    One thread polls; any thread reads `view`, which is swapped whole. tables: folder of the tables,
    which may be empty or missing at first.
    """

    _TROUBLE = "tables_not_followed"

    def __init__(self, tables: str | TablePlace, cluster: str) -> None:
        super().__init__(cluster)
        self._root = table_place(tables)
        self._commit_listeners: list[Callable[[Changes], None]] = []
        self._unpublished: list[tuple[int, list[BundleRoute]]] = []
        self._tables: _Tables | None = None
        self._published_table_id = ""
        self._reload_reason: ReloadReason | None = ReloadReason.START
        self._reload_at_ms = 0
        self._reload_delay_ms = _RELOAD_DELAY_MS

    def on_commits(self, listener: Callable[[Changes], None]) -> None:
        """Call `listener` with each published change of records, in the polling thread."""
        self._commit_listeners.append(listener)

    def run(self, stop: threading.Event, *, poll_ms: int = 200) -> None:
        """Poll until `stop` is set; nothing but `stop` ends it."""
        while not stop.is_set():
            try:
                self.poll()
            except Exception as error:  # noqa: BLE001 the outermost loop: serve on with what we have
                self._fail(error)
            stop.wait(poll_ms / 1000)

    def poll(self) -> None:
        """Read what is new in the tables; keep the present view if they can't be read."""
        started_ms = boot_ms()
        try:
            changed = self._advance(started_ms)
        except _UNREADABLE as error:
            self._fail(error)
            return
        if changed is not None:
            self._publish(changed, started_ms)
            return
        tables = self._tables
        if self.view and tables and tables.published is tables.candidate:
            self._note(tables.unread.text)
            self.view = replace(self.view, confirmed_ms=started_ms)

    def _advance(self, started_ms: int) -> _Tables | None:
        """Bring the candidate up to the tables; return them if that changed it."""
        if self._reload_reason is not None and started_ms >= self._reload_at_ms:
            return self._load(self._reload_reason)
        tables = self._tables
        if tables is None:
            return None
        before = tables.candidate
        try:
            self._tail_events(tables)
            for name in (BROKERS.name, NAMESPACES.name):
                self._tail_small(tables, name)
        except LostError as lost:
            return self._load(lost.reason)
        return None if tables.candidate is before else tables

    # -- loading whole

    def _load(self, reason: ReloadReason) -> _Tables | None:
        """Read all tables; None if they have never existed."""
        if self.view is None and not self._exist():
            return None
        self._reload_reason = reason
        started_ms = boot_ms()
        check_complete(self._root, _NAMES)
        if self.view is not None:  # the view already has what precedes a torn commit
            for name in _NAMES:
                check_newest(table_path(self._root, name))
        opened = {name: open_table(self._root, name) for name in _NAMES}
        ownership, events, brokers, namespaces = opened.values()
        parts = read_records(ownership, events, self.cluster)
        newer = sum(len(read) for read in parts[1])
        table_id = str(events.metadata().id)
        is_same = self.view is not None and table_id == self._published_table_id
        unread = UnreadRows(self.view.snapshot if self.view is not None and is_same else None)
        routes = unread.of_bundles(
            [route for found, _ in parts for route in found],
            [row for _, bad in parts for row in bad],
            is_whole=True,
        )
        candidate = (
            LookupSnapshot(cluster=self.cluster)
            .with_brokers(unread.of_brokers(*brokers_of(brokers, self.cluster)))
            .with_namespaces(unread.of_namespaces(*hashes_of(namespaces, self.cluster)))
            .with_routes(routes)
        )
        writer = last_writer_commit(table_path(self._root, OWNERSHIP_EVENTS.name), events.version())
        self._tables = tables = _Tables(
            table_id=table_id,
            unread=unread,
            candidate=candidate.at(_position(events.version(), writer)),
            writer=writer,
            tails={
                name: TableTail(table_path(self._root, name), opened[name]) for name in _NAMES[1:]
            },
        )
        self._unpublished.clear()  # listeners are notified of a whole load instead
        self.counts.reloads[reason] += 1
        self._reload_reason = None
        loaded = tables.candidate
        _log(
            "tables_loaded",
            loaded.position,
            boot_ms() - started_ms,
            reason=reason.value,
            namespaces=len(loaded.names),
            bundles=loaded.bundle_count,
            brokers=len(loaded.brokers),
            events_added=newer,
        )
        return tables

    def _exist(self) -> bool:
        """Return True if all tables exist; note the first one missing beside others."""
        names = [table.name for table in (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP, BROKERS, NAMESPACES)]
        # one request a table: the place may be empty for long
        missing = [name for name in names if not log_path(table_path(self._root, name)).is_dir()]
        if missing and len(missing) < len(names):
            self._note(f"{table_path(self._root, missing[0])} is missing, or not made yet")
        return not missing

    # -- following the logs

    def _tail_events(self, tables: _Tables) -> None:
        """Add new events; raises LostError when they can't just be added."""
        tail = tables.tails[OWNERSHIP_EVENTS.name]
        started_ms = boot_ms()
        commits = tail.new_commits()
        if any(commit.needs_reload for commit in commits):
            raise LostError(ReloadReason.REWRITTEN)
        if not commits:
            return
        routes: list[BundleRoute] = []
        for commit in commits:
            parts = read_added(tail.path, commit, ROUTE_COLUMNS, self.cluster)
            found = [one for part in parts for one in tables.unread.of_bundles(*routes_of(part))]
            routes += found
            if found and self._commit_listeners:
                self._unpublished.append((commit.version, found))
            tables.writer = commit.writer or tables.writer
        position = _position(tail.version, tables.writer)
        tables.candidate = tables.candidate.with_routes(routes).at(position)
        self.counts.commits += len(commits)
        self.counts.rows += len(routes)
        if routes:
            _log("commits_applied", position, boot_ms() - started_ms, rows=len(routes))

    def _tail_small(self, tables: _Tables, name: str) -> None:
        """Read brokers or namespaces whole if they have a new version: they are few."""
        if not tables.tails[name].new_commits():
            return
        table = open_table(self._root, name)
        if name == BROKERS.name:
            brokers = tables.unread.of_brokers(*brokers_of(table, self.cluster))
            tables.candidate = tables.candidate.with_brokers(brokers)
        else:
            hashes = tables.unread.of_namespaces(*hashes_of(table, self.cluster))
            tables.candidate = tables.candidate.with_namespaces(hashes)
        tables.tails = {**tables.tails, name: TableTail(table_path(self._root, name), table)}

    # -- publishing

    def _publish(self, tables: _Tables, confirmed_ms: int) -> None:
        """Publish the candidate if it is sound; else keep the present view, and count."""
        shown = tables.unread.shown(tables.candidate)
        unsound = self._find_unsound(tables, shown)
        if unsound:
            self._refuse(unsound, tables)
            return
        is_whole = tables.published is None
        is_other = self.view is not None and tables.table_id != self._published_table_id
        tables.published = tables.candidate
        self._published_table_id = tables.table_id
        self._reload_reason = None
        self._reload_delay_ms = _RELOAD_DELAY_MS
        tables.unread.known = shown
        self._note(tables.unread.text)  # before the view, whose readers look for its error
        before = self.view
        if before is not None and before.writer == tables.writer:
            self.view = replace(before, snapshot=shown, confirmed_ms=confirmed_ms)
        else:
            self.view = View(
                snapshot=shown,
                confirmed_ms=confirmed_ms,
                writer=tables.writer,
                found_ms=confirmed_ms,
                is_found_live=not is_whole,
                absent_ms=NEVER_FOUND if before is None else before.confirmed_ms,
            )
        self._notify()
        changes = Changes(
            version=tables.tails[OWNERSHIP_EVENTS.name].version,
            commits=() if is_whole else tuple(self._unpublished),
            is_whole=is_whole,
            is_other_table=is_other,
            table_id=tables.table_id,
        )
        self._unpublished.clear()
        for listener in self._commit_listeners:
            listener(changes)

    def _find_unsound(self, tables: _Tables, shown: LookupSnapshot) -> dict[str, Unsound]:
        """Return what is wrong, by namespace or bundle.

        Versions never go back within one table; another table has another history. They can't go
        back while the log is followed, so they are compared only after a load.
        """
        if shown.unsound:
            return dict(shown.unsound)
        is_same_table = tables.table_id == self._published_table_id
        if self.view is None or tables.published is not None or not is_same_table:
            return {}
        gone_back = find_regressions(self.view.snapshot, shown)
        return dict.fromkeys(gone_back, Unsound.VERSION_WENT_BACK)

    def _refuse(self, unsound: dict[str, Unsound], tables: _Tables) -> None:
        self.counts.refused.update(set(unsound.values()))
        where, reason = min(unsound.items())
        text = (
            f"ownership_events version {tables.candidate.position.table_version} is refused: "
            f"{reason.value} at {where}, {len(unsound)} in all; lookups are answered from the last "
            "sound version: compare the tables with a backup, or rebuild them"
        )
        self._note(text)
        if self._reload_reason is None:
            self._schedule_reload(ReloadReason.UNSOUND)

    # -- failures

    def _fail(self, error: Exception) -> None:
        self.counts.errors += 1
        self._note(f"tables can't be read, answers get older: {in_one_line(error)}")
        self._tables = None
        self._schedule_reload(self._reload_reason or ReloadReason.UNREADABLE)

    def _schedule_reload(self, reason: ReloadReason) -> None:
        self._reload_reason = reason
        self._reload_at_ms = boot_ms() + self._reload_delay_ms
        self._reload_delay_ms = min(2 * self._reload_delay_ms, _RELOAD_DELAY_MAX_MS)


def _position(version: int, writer: WriterCommit | None) -> TablePosition:
    if writer is None:
        return TablePosition(table_version=version)
    return TablePosition(table_version=version, query_id=writer.query_id, batch_id=writer.batch_id)


def _log(event: str, position: TablePosition, duration_ms: int, **found: str | int) -> None:
    at = {"table_version": position.table_version, "batch_id": position.batch_id}
    logger.info(event, extra={"fields": {**at, **found, "duration_ms": duration_ms}})

"""Follows the tables of one cluster and keeps the newest sound snapshot of who owns what.

Decides when to add a commit's rows, when to load the tables whole, and when to keep what it has;
what the rows mean is `lbcore.route`'s. Feeds the lookup service and the Python client.

The current table and the events are two tables, so a load takes `bundle_ownership` first and then
every event that it may lack: those of a later writer's epoch, those of a later batch of the same
epoch, and those of the ten minutes before its newest row. Too many do no harm, because the highest
version of a bundle wins. Batch ids alone would not do: a job that lost its checkpoint counts from 0
again. After that the log of `ownership_events` is read on, version by version.
Source: ours.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from jobs.adapters.delta_log import (
    Commit,
    WriterCommit,
    checkpoint_version,
    has_commit,
    last_writer_commit,
    log_path,
    read_commit,
)
from jobs.adapters.delta_rows import (
    ORDER_COLUMNS,
    ROUTE_COLUMNS,
    brokers_of,
    hashes_of,
    of_cluster,
    read_file,
    routes_of,
    scan,
)
from jobs.adapters.delta_tables import open_table, table_path
from jobs.adapters.follower_view import Changes, FollowCounts, ReloadReason, View, boot_ms
from jobs.adapters.table_place import TablePlace, is_store, table_place
from lbcore.model.tables import BROKERS, BUNDLE_OWNERSHIP, NAMESPACES, OWNERSHIP_EVENTS
from lbcore.route.bundles import BundleRoute, Unsound
from lbcore.route.snapshot import Position, Snapshot, find_regressions

logger = logging.getLogger(__name__)

_UNREADABLE = (OSError, DeltaError, pa.ArrowException, ValueError)
_OVERLAP_MS = 600_000
_RELOAD_DELAY_MS = 500
_STORE_GAP_CHECK_MS = 10_000
_RELOAD_DELAY_MAX_MS = 10_000


@dataclass(slots=True, kw_only=True)
class _Tables:
    """What one load has brought, and how far the tail has come since."""

    table_id: str
    candidate: Snapshot
    writer: WriterCommit | None
    versions: dict[str, int]
    is_checked: bool = False


class DeltaFollower:
    """Keeps `view` current. One thread polls; any thread reads `view`, which is swapped whole.

    tables: folder of the tables; may be empty or missing yet.
    """

    def __init__(self, tables: str | TablePlace, cluster: str) -> None:
        self.view: View | None = None
        self.counts = FollowCounts()
        self._root = table_place(tables)
        self.cluster = cluster
        self._listeners: list[Callable[[], None]] = []
        self._commit_listeners: list[Callable[[Changes], None]] = []
        self._untold: list[tuple[int, list[BundleRoute]]] = []
        self._tables: _Tables | None = None
        self._published_table_id = ""
        self._reload_reason: ReloadReason | None = ReloadReason.START
        self._reload_at_ms = 0
        self._reload_delay_ms = _RELOAD_DELAY_MS
        self._gap_check_ms = _STORE_GAP_CHECK_MS if is_store(self._root) else 0
        self._gap_due_ms = dict.fromkeys((OWNERSHIP_EVENTS.name, BROKERS.name, NAMESPACES.name), 0)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each swap to other content, in the polling thread."""
        self._listeners.append(listener)

    def on_commits(self, listener: Callable[[Changes], None]) -> None:
        """Have `listener` told of each published change of records, in the polling thread."""
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
        """Take over what is new in the tables; keep what is there when they can't be read."""
        started_ms = boot_ms()
        try:
            is_changed = self._advance(started_ms)
        except _UNREADABLE as error:
            self._fail(error)
            return
        if is_changed:
            self._publish(started_ms)
        elif self.view is not None and self._is_published():
            view = self.view
            self.view = View(snapshot=view.snapshot, confirmed_ms=started_ms, writer=view.writer)
            self.counts.last_error = ""

    def _advance(self, started_ms: int) -> bool:
        """Bring the candidate up to the tables; whether that changed it."""
        if self._tables is None or self._reload_reason is not None:
            if started_ms >= self._reload_at_ms:
                return self._load(self._reload_reason or ReloadReason.START)
            if self._tables is None:
                return False
        before = self._tables.candidate
        reason = self._tail_events(self._tables)
        for name in (BROKERS.name, NAMESPACES.name):
            reason = reason or self._tail_small(self._tables, name)
        if reason is not None:
            return self._load(reason)
        return self._tables.candidate is not before

    # -- loading whole

    def _load(self, reason: ReloadReason) -> bool:
        """Read all tables; False while they were never there."""
        if self.view is None and not self._exist():
            return False
        self._reload_reason = reason
        started_ms = boot_ms()
        ownership = open_table(self._root, BUNDLE_OWNERSHIP.name)
        events = open_table(self._root, OWNERSHIP_EVENTS.name)
        brokers = open_table(self._root, BROKERS.name)
        namespaces = open_table(self._root, NAMESPACES.name)
        current = scan(ownership, (*ROUTE_COLUMNS, *ORDER_COLUMNS), of_cluster(self.cluster))
        newer = scan(events, ROUTE_COLUMNS, self._not_yet_in(current))
        candidate = (
            Snapshot(cluster=self.cluster)
            .with_brokers(brokers_of(brokers, self.cluster))
            .with_namespaces(hashes_of(namespaces, self.cluster))
            .with_routes([*routes_of(current), *routes_of(newer)])
        )
        writer = last_writer_commit(table_path(self._root, OWNERSHIP_EVENTS.name), events.version())
        self._tables = _Tables(
            table_id=str(events.metadata().id),
            candidate=candidate.at(_position(events.version(), writer)),
            writer=writer,
            versions={
                OWNERSHIP_EVENTS.name: events.version(),
                BROKERS.name: brokers.version(),
                NAMESPACES.name: namespaces.version(),
            },
        )
        self.counts.reloads[reason] += 1
        self._reload_reason = None
        _log_load(reason, self._tables.candidate, len(newer), boot_ms() - started_ms)
        return True

    def _exist(self) -> bool:
        tables = (OWNERSHIP_EVENTS, BUNDLE_OWNERSHIP, BROKERS, NAMESPACES)
        return all(log_path(table_path(self._root, table.name)).is_dir() for table in tables)

    def _not_yet_in(self, current: pa.Table) -> str:
        """The condition for the events that the rows of the current table may lack."""
        condition = of_cluster(self.cluster)
        if not len(current):
            return condition
        epoch = pc.max(current["writer_epoch"]).as_py()
        of_epoch = current.filter(pc.equal(current["writer_epoch"], epoch))
        batch_id = pc.max(of_epoch["batch_id"]).as_py()
        at_ms = pc.max(current["at_ms"]).as_py()
        return (
            f"{condition} AND (writer_epoch > {epoch}"
            f" OR (writer_epoch = {epoch} AND batch_id > {batch_id})"
            f" OR at_ms > {at_ms - _OVERLAP_MS})"
        )

    # -- following the logs

    def _tail_events(self, tables: _Tables) -> ReloadReason | None:
        path = table_path(self._root, OWNERSHIP_EVENTS.name)
        version = tables.versions[OWNERSHIP_EVENTS.name]
        routes: list[BundleRoute] = []
        writer, started_ms = tables.writer, boot_ms()
        while (commit := read_commit(path, version + 1)) is not None:
            if commit.needs_reload:
                return ReloadReason.REWRITTEN
            found = self._routes_in(path, commit)
            routes += found
            if found and self._commit_listeners:
                self._untold.append((commit.version, found))
            version, writer = commit.version, commit.writer or writer
            self.counts.commits += 1
        if version == tables.versions[OWNERSHIP_EVENTS.name]:
            return self._find_gap(path, version)
        tables.candidate = tables.candidate.with_routes(routes).at(_position(version, writer))
        tables.writer = writer
        tables.versions[OWNERSHIP_EVENTS.name] = version
        self.counts.rows += len(routes)
        if routes:
            _log_change(tables.candidate.position, len(routes), boot_ms() - started_ms)
        return None

    def _routes_in(self, path: TablePlace, commit: Commit) -> list[BundleRoute]:
        files = (read_file(path / name, ROUTE_COLUMNS, self.cluster) for name in commit.added)
        return [route for rows in files for route in routes_of(rows)]

    def _tail_small(self, tables: _Tables, name: str) -> ReloadReason | None:
        """Brokers and namespaces are few: any new version of theirs is read whole."""
        path = table_path(self._root, name)
        version = tables.versions[name]
        if not has_commit(path, version + 1):
            return self._find_gap(path, version)
        table = open_table(self._root, name)
        if name == BROKERS.name:
            brokers = brokers_of(table, self.cluster)
            tables.candidate = tables.candidate.with_brokers(brokers)
        else:
            hashes = hashes_of(table, self.cluster)
            tables.candidate = tables.candidate.with_namespaces(hashes)
        tables.versions[name] = table.version()
        return None

    def _find_gap(self, path: TablePlace, version: int) -> ReloadReason | None:
        """As `_find_gap`; in a store, where each look is a request, once in a while only."""
        now_ms = boot_ms()
        if now_ms < self._gap_due_ms[path.name]:
            return None
        self._gap_due_ms[path.name] = now_ms + self._gap_check_ms
        return _find_gap(path, version)

    # -- publishing

    def _publish(self, confirmed_ms: int) -> None:
        """Swap the candidate in when it is sound; else keep what is served, and count."""
        tables = self._tables
        if tables is None:
            return
        unsound = self._find_unsound(tables)
        if unsound:
            self._refuse(unsound, tables)
            return
        is_whole = not tables.is_checked
        tables.is_checked = True
        self._published_table_id = tables.table_id
        self._reload_reason = None
        self._reload_delay_ms = _RELOAD_DELAY_MS
        self.counts.last_error = ""
        self.view = View(snapshot=tables.candidate, confirmed_ms=confirmed_ms, writer=tables.writer)
        for listener in self._listeners:
            listener()
        changes = Changes(
            version=tables.versions[OWNERSHIP_EVENTS.name],
            commits=() if is_whole else tuple(self._untold),
            is_whole=is_whole,
        )
        self._untold.clear()
        for tell in self._commit_listeners:
            tell(changes)

    def _find_unsound(self, tables: _Tables) -> dict[str, Unsound]:
        """What is wrong, by namespace or bundle.

        Versions never go back within one table; another table is another history. What was
        published once can only grow, so versions are compared after a load only.
        """
        if tables.candidate.unsound:
            return dict(tables.candidate.unsound)
        is_same_table = tables.table_id == self._published_table_id
        if self.view is None or tables.is_checked or not is_same_table:
            return {}
        gone_back = find_regressions(self.view.snapshot, tables.candidate)
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

    def _is_published(self) -> bool:
        tables = self._tables
        return (
            self.view is not None
            and tables is not None
            and (self.view.snapshot is tables.candidate)
        )

    # -- failures

    def _fail(self, error: Exception) -> None:
        self.counts.errors += 1
        reason = self._reload_reason or ReloadReason.UNREADABLE
        self._note(f"tables can't be read, answers get older: {type(error).__name__}: {error}")
        self._tables = None
        self._schedule_reload(reason)

    def _note(self, text: str) -> None:
        """Keep and log the last trouble, each once while it lasts."""
        first_line = text.splitlines()[0]
        if first_line != self.counts.last_error:
            logger.warning("tables_not_followed", extra={"fields": {"error": first_line}})
        self.counts.last_error = first_line

    def _schedule_reload(self, reason: ReloadReason) -> None:
        self._reload_reason = reason
        self._reload_at_ms = boot_ms() + self._reload_delay_ms
        self._reload_delay_ms = min(2 * self._reload_delay_ms, _RELOAD_DELAY_MAX_MS)


def _position(version: int, writer: WriterCommit | None) -> Position:
    if writer is None:
        return Position(table_version=version)
    return Position(table_version=version, query_id=writer.query_id, batch_id=writer.batch_id)


def _find_gap(table: TablePlace, version: int) -> ReloadReason | None:
    """Whether the log went on without us, or isn't the log any more that `version` was in.

    Asked when there is no next commit. Commits before a checkpoint may be cleaned away, and then
    the version that was read last may be the checkpoint's own.
    """
    checkpoint = checkpoint_version(table)
    is_ahead = checkpoint > version
    is_gone = checkpoint != version and not has_commit(table, version)
    if (is_ahead or is_gone) and not has_commit(table, version + 1):
        return ReloadReason.LOG_FILE_MISSING
    return None


def _log_change(position: Position, rows: int, duration_ms: int) -> None:
    fields = {
        "table_version": position.table_version,
        "batch_id": position.batch_id,
        "rows": rows,
        "duration_ms": duration_ms,
    }
    logger.info("commits_applied", extra={"fields": fields})


def _log_load(reason: ReloadReason, snapshot: Snapshot, newer: int, duration_ms: int) -> None:
    fields = {
        "reason": reason.value,
        "table_version": snapshot.position.table_version,
        "batch_id": snapshot.position.batch_id,
        "namespaces": snapshot.namespace_count,
        "bundles": snapshot.bundle_count,
        "brokers": len(snapshot.brokers),
        "events_added": newer,
        "duration_ms": duration_ms,
    }
    logger.info("tables_loaded", extra={"fields": fields})

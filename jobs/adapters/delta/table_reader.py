"""Reader of one cluster's tables: whole, at a version or time, without a JVM.

Decides what is said when tables are missing or can't be read; what rows mean is `lbcore`'s. Used by
the verbs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from jobs.adapters.delta.rows import is_one_of, of_cluster
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_log import (
    WriterCommit,
    commit_versions,
    commits_from,
    last_writer_commit,
    newest_first,
    newest_version,
)
from jobs.adapters.delta.table_repair import check_present
from jobs.adapters.delta.table_scan import (
    is_delta,
    newest_ms,
    oldest_ms,
    open_delta,
    present_columns,
    rows_in,
    rows_not_in,
    scan,
)
from jobs.adapters.delta.tables import arrow_schema, open_table, table_path
from jobs.console import CommandError
from lbcore.model.tables import ARCHIVES, OWNERSHIP_EVENTS, REJECTED_REPORTS, Table, declared
from lbcore.ownership.records import State


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedTable:
    """A table and, where there is one, its archive. live: may be at an older version."""

    name: str
    live: DeltaTable
    archive: DeltaTable | None = None

    def read(self, columns: Sequence[str] | None, condition: str | None) -> pa.Table:
        """Return the rows of both that meet an SQL condition. O(rows that do).

        columns: None = all. Without the nullable columns that a table of an older version lacks.
        Raises OSError, DeltaError, ArrowException for a table that can't be read.
        """
        wanted = present_columns(self.live, columns)
        if self.archive is None:
            return scan(self.live, wanted, condition)
        key = ARCHIVES[self.name].key
        read = tuple(dict.fromkeys((*wanted, *key)))
        live = scan(self.live, read, condition)
        archived = scan(self.archive, present_columns(self.archive, read), condition)
        if key != ARCHIVES[self.name].identity:  # the newer of two rows may not meet the condition
            there = pc.unique(archived[key[-1]])
            named = scan(self.live, key)
            newer = named.filter(pc.is_in(named[key[-1]], there))
        else:
            newer = live
        parts = [live, rows_not_in(archived, newer, key)]
        return pa.concat_tables(parts, promote_options="default").select(wanted)


def open_combined(root: str | TablePlace, name: str) -> CombinedTable:
    """Open the newest version of a table with its archive; raises as `open_table`."""
    return CombinedTable(name=name, live=open_table(root, name), archive=open_archive(root, name))


def open_archive(root: str | TablePlace, name: str) -> DeltaTable | None:
    """The archive of a table; None where it has none, or none was made yet."""
    if name not in ARCHIVES:
        return None
    path = table_path(root, ARCHIVES[name].name)
    return open_delta(path) if is_delta(path) else None


Row: TypeAlias = dict[str, Any]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRows:
    """A table's rows at one moment.

    unknown: keys of rows that were written later. reach_ms: time since which every row is known.
    """

    rows: Sequence[Row] = ()
    unknown: Sequence[tuple[str, ...]] = ()
    reach_ms: int = 0


RECORD_COLUMNS = (
    "namespace",
    "bundle",
    "version_id",
    "state",
    "source",
    "destination",
    "cause",
    "decision_id",
    "command_id",
    "at_ms",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """Records at one moment.

    version: of ownership_events, -1 = the log no longer has it. at_ms: the requested time, or that
    of the version. table: the newest event of each existing bundle, in name order. known_from_ms:
    time since which events are kept.
    """

    version: int
    at_ms: int
    table: pa.Table
    known_from_ms: int = 0

    @property
    def rows(self) -> list[Row]:
        """One row per bundle, in name order."""
        return list(rows_in(self.table))


class TableReader:
    """The tables under `root`; raises CommandError when there are none."""

    def __init__(self, root: TablePlace, cluster: str) -> None:
        self.root = root
        self.cluster = cluster
        self._events = table_path(root, OWNERSHIP_EVENTS.name)
        check_present(root)

    def writer(self) -> WriterCommit | None:
        """The job's newest commit; None when it has made none."""
        return last_writer_commit(self._events, newest_version(self._events))

    def rows(
        self, name: str, columns: Sequence[str] | None = None, condition: str = ""
    ) -> list[Row]:
        """The cluster's rows that meet an SQL condition; none when there is no such table."""
        return list(self.table(name, columns, condition).to_pylist())

    def table(
        self, name: str, columns: Sequence[str] | None = None, condition: str = ""
    ) -> pa.Table:
        """The same as Arrow's table."""
        return self._read(
            name,
            lambda _: self._scan(open_combined(self.root, name), columns, condition),
            arrow_schema(declared(name)).empty_table(),
        )

    def rejected(self, since_ms: int) -> list[Row]:
        """Messages rejected since then: the cluster's, and those that name none."""
        name = REJECTED_REPORTS.name
        where = f"{is_one_of('cluster', (self.cluster, ''))} AND at_ms >= {since_ms}"
        return self._read(
            name,
            lambda _: list(open_combined(self.root, name).read(("reason",), where).to_pylist()),
            [],
        )

    def rows_at(self, table: Table, at_ms: int) -> PastRows:
        """Return the cluster's rows of a keyed table as they were, where known."""

        def past(path: TablePlace) -> PastRows:
            now = CombinedTable(name=table.name, live=open_delta(path))
            rows = self._scan(now, None, "").to_pylist()
            reach_ms = max((int(row["at_ms"]) for row in rows), default=0)
            if reach_ms > at_ms:
                # the commit of an undo has batch id -1
                batches = [
                    (one.version, one.writer.now_ms)
                    for one in commits_from(path, now.live.version(), step=-1)
                    if one.writer is not None and one.writer.batch_id >= 0
                ]
                then = next((version for version, now_ms in batches if now_ms <= at_ms), None)
                reach_ms = batches[-1][1] if batches else reach_ms
                if then is not None:
                    with suppress(DeltaError, OSError):  # the log may lack what it builds on
                        before = replace(now, live=open_delta(path, then))
                        rows = self._scan(before, None, "").to_pylist() or rows
            later = [row for row in rows if row["at_ms"] > at_ms]
            return PastRows(
                rows=[row for row in rows if row["at_ms"] <= at_ms],
                unknown=sorted(tuple(str(row[key]) for key in table.key) for row in later),
                reach_ms=reach_ms,
            )

        return self._read(table.name, past, PastRows())

    def oldest_ms(self, name: str, condition: str = "") -> int | None:
        """Return the time of a table's oldest row, of any cluster; None when empty.

        condition: which rows count.
        """
        return self._read(name, lambda path: oldest_ms(open_delta(path), condition), None)

    def newest(self, condition: str = "") -> AsOf:
        """Return the records of the newest version."""
        return self.at_version(newest_version(self._events), condition)

    def at_version(self, version: int, condition: str = "") -> AsOf:
        """The records as they were when ownership_events had this version."""
        newest = newest_version(self._events)
        if not 0 <= version <= newest:
            raise CommandError(
                f"ownership_events has no version {version}",
                why=f"its versions go from 0 to {newest}",
                next_step="choose one of these, or a time such as 5m",
            )
        with self._reading(OWNERSHIP_EVENTS.name):
            try:
                live = open_delta(self._events, version)
            except TableNotFoundError as error:
                oldest = min(commit_versions(self._events))
                raise CommandError(
                    f"version {version} of ownership_events can't be read any more",
                    why=f"its log reaches back to version {oldest}: it is kept for half an hour",
                    next_step="ask by time: events are kept, whatever became of the log",
                ) from error
            found = self._records(CombinedTable(name=OWNERSHIP_EVENTS.name, live=live), condition)
        commit = last_writer_commit(self._events, version)
        at_ms = commit.now_ms if commit else pc.max(found["at_ms"]).as_py() or 0
        return AsOf(version=version, at_ms=at_ms, table=found)

    def at_time(self, at_ms: int, condition: str = "") -> AsOf:
        """The records as they were at a time, in ms since 1970."""
        until = f"at_ms <= {at_ms}" + (f" AND {condition}" if condition else "")
        with self._reading(OWNERSHIP_EVENTS.name):
            events = open_combined(self.root, OWNERSHIP_EVENTS.name)
            known_from_ms = self._known_from_ms(events)
            # the table itself keeps each bundle's newest row before the archive's end
            if events.archive is not None and newest_ms(events.archive) <= at_ms:
                events = replace(events, archive=None)
            found = self._records(events, until)
        commits = newest_first(self._events)
        earlier = (one.version for one in commits if one.writer and one.writer.now_ms <= at_ms)
        version = next(earlier, -1)  # -1: its log does not reach so far back
        return AsOf(version=version, at_ms=at_ms, table=found, known_from_ms=known_from_ms)

    def known_from_ms(self) -> int:
        """Return the time since which events show owners, 0 without any.

        Nothing is known of before.
        """
        with self._reading(OWNERSHIP_EVENTS.name):
            return self._known_from_ms(open_combined(self.root, OWNERSHIP_EVENTS.name))

    def _known_from_ms(self, events: CombinedTable) -> int:
        """Return the time of the oldest event.

        Where rows were deleted without an archive: of the latest event whose predecessor was. A
        table is append-only for Delta until rows are deleted.
        """
        parts = [events.live] if events.archive is None else [events.live, events.archive]
        oldest = min(filter(None, map(oldest_ms, parts)), default=0)
        is_whole = events.live.metadata().configuration.get("delta.appendOnly") == "true"
        if is_whole or events.archive is not None:
            return oldest
        rows = self._scan(events, ("bundle", "version_id", "at_ms", "state_before"), "")
        first = rows.group_by("bundle").aggregate([("version_id", "min")])
        first = first.rename_columns({"version_id_min": "version_id"})
        kept = rows.join(first, keys=["bundle", "version_id"], join_type="inner")
        orphans = kept.filter(pc.not_equal(kept["state_before"], State.INIT.value))
        return int(pc.max(orphans["at_ms"]).as_py()) if len(orphans) else oldest

    def _records(self, events: CombinedTable, condition: str) -> pa.Table:
        """Return the newest event of each existing bundle, by version. O(events)."""
        rows = self._scan(events, RECORD_COLUMNS, condition)
        order = pc.sort_indices(rows, [("bundle", "ascending"), ("version_id", "ascending")])
        names = rows["bundle"].combine_chunks().take(order)
        end = pa.array([True] * min(1, len(order)), pa.bool_())
        newest = order.filter(pa.concat_arrays([pc.not_equal(names[:-1], names[1:]), end]))
        found = rows.take(newest)
        return found.filter(pc.invert(pc.is_in(found["state"], pa.array(("Deleted", "Init")))))

    def _scan(
        self, table: CombinedTable, columns: Sequence[str] | None, condition: str
    ) -> pa.Table:
        where = of_cluster(self.cluster) + (f" AND ({condition})" if condition else "")
        return table.read(columns, where)

    def _read(self, name: str, read: Callable[[TablePlace], Found], none: Found) -> Found:
        """Return what is read of a table; none where there is no such table."""
        path = table_path(self.root, name)
        with self._reading(name):
            return read(path) if is_delta(path) else none

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Raise CommandError, with the next step, for a table that can't be read."""
        try:
            yield
        except CommandError:  # a store's as well
            raise
        except (OSError, DeltaError, pa.ArrowException, ValueError) as error:
            raise CommandError(
                f"the table {name} in {self.root} can't be read",
                why=f"{type(error).__name__}: {error}",
                next_step="check the folder and this user's rights; an old version may have been "
                "cleaned up",
            ) from error

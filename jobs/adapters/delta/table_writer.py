"""Writer of the job's tables: each batch once, while this job holds the epoch.

A commit happens only in the writer's epoch, and once a batch: Delta's application transactions
record both. A table has one writer: each commit is made against the version just checked, and
fails if another commit came between.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import (
    CommitProperties,
    DeltaTable,
    PostCommitHookProperties,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import CommitFailedError

from jobs.adapters.delta.table_location import TablePlace, store_errors, table_place
from jobs.adapters.delta.table_log import (
    CLAIM_KEY,
    USER_METADATA,
    VERSIONS,
    Commit,
    batch_metadata,
    newest_first,
    sync_commits,
)
from jobs.adapters.delta.table_repair import repair_tables
from jobs.adapters.delta.table_scan import naming_damaged_file, rows_not_in, scan
from jobs.adapters.delta.tables import (
    ensure_tables,
    refresh,
    table_path,
    with_all_columns,
)
from jobs.atomic_file import sync_path
from jobs.console import CommandError
from lbcore.model.tables import BUNDLE_OWNERSHIP, COMMANDS, OWNERSHIP_EVENTS, TABLES
from lbcore.ownership.records import State

PENDING = "rest"
"""Metadata key of a commit of events: the file with the batch's rows of other tables."""

FOLDER = "_batches"  # Delta ignores names with an underscore
_SUFFIX = ".arrow"
_OF_TABLE = b"table"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class BatchRowsError(CommandError):
    """The rows that a batch has yet to write can't be read."""

    def __init__(self, file: TablePlace, found: str) -> None:
        super().__init__(
            "the last batch can't be completed",
            why=f"{file} has the rows that a crash kept from the tables, and {found}",
            next_step="put that file back from where the tables' folder was copied (all of it, "
            "hidden folders too); or, to go on without these rows, make an empty file in its place",
        )


def read_batch_rows(events: TablePlace, pending: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Return table → the rows of a commit's file; none if somebody emptied the file.

    Raises BatchRowsError.
    """
    file = events / FOLDER / pending["file"]
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise BatchRowsError(file, "it is not there") from None
    if data and (len(data), zlib.crc32(data)) != (pending["bytes"], pending["crc32"]):
        raise BatchRowsError(file, "it is not what the batch wrote")
    found: dict[str, pa.Table] = {}
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        rows = pa.ipc.open_stream(source).read_all()
        found[rows.schema.metadata[_OF_TABLE].decode()] = rows.replace_schema_metadata()
    return found


_MAX_CHUNKS = 8


def read_current(table: DeltaTable, schema: pa.Schema) -> pa.Table:
    """Return all rows at the handle's version, as one chunk. schema: of all columns."""
    return scan(table, schema.names).cast(schema).combine_chunks()


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in order. O(rows).

    A batch may change a key several times; its last row counts. MERGE refuses two rows that match
    one, and inserts both where none is matched.
    """
    numbered = rows.select(keys).append_column("at", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([("at", "max")])["at_max"]
    return rows if len(last) == len(rows) else rows.take(last.take(pc.sort_indices(last)))


def with_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the table's rows after a batch's records. O(rows).

    changes: at most one record a key. A record replaces one with a lower version. A record in state
    Init removes the bundle's row, whatever its version.
    """
    keys = ["cluster", "bundle"]
    is_named = pc.is_in(rows["bundle"], value_set=changes["bundle"].combine_chunks())
    named = rows.filter(is_named)
    known = named.select([*keys, "version_id"]).rename_columns([*keys, "known"])
    taken = changes.join(known, keys, join_type="left outer")
    is_newer = pc.greater(taken["version_id"], pc.fill_null(taken["known"], -1))
    is_there = pc.not_equal(taken["state"], State.INIT.value)
    taken = taken.select(rows.column_names)
    replaced = taken.filter(pc.or_(is_newer, pc.invert(is_there)))
    parts = [
        rows.filter(pc.invert(is_named)),
        rows_not_in(named, replaced, keys),
        taken.filter(pc.and_(is_newer, is_there)),
    ]
    found = pa.concat_tables([part.cast(rows.schema) for part in parts if len(part)] or parts[:1])
    return found.combine_chunks() if found["bundle"].num_chunks > _MAX_CHUNKS else found


def commit_current(table: DeltaTable, rows: pa.Table, options: Mapping[str, Any]) -> None:
    """Replace all rows of the table. Raises CommitFailedError.

    MERGE would take three times the CPU of a rewrite from memory (0.12 s, 100,000 bundles).
    """
    write_deltalake(table, rows, mode="overwrite", **options)


EPOCH_APP = "writer_epoch"
_ATTEMPTS = 8

KEYS: Mapping[str, tuple[str, ...]] = {
    table.name: ("cluster", *table.key) for table in TABLES if table.key
}
"""Table → key columns, of tables with one row per key; the others only grow."""


class FencedError(CommandError):
    """Another job has taken over the tables."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "this job has lost its tables and ends; it has stopped writing",
            why=f"{why}: another balance_cluster job was started on the same tables and took over",
            next_step="let one of the two run: stop the other, and whatever starts it again",
        )


class TableBusyError(CommandError):
    """A commit failed again and again although no other job took over."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} failed in a row",
            why="other commits came between, of somebody who is no balance_cluster job",
            next_step="stop whatever else writes to the tables and start the job again",
        )


def commit_options(metadata: Mapping[str, str], *transactions: Transaction) -> dict[str, Any]:
    """Return the options of the job's commits: no retry, no log cleanup.

    Only `table_upkeep` deletes old commits; a starting job may still need them.
    metadata: for commitInfo.
    """
    return {
        "commit_properties": CommitProperties(
            custom_metadata={**metadata},
            max_commit_retries=0,
            app_transactions=list(transactions) or None,
        ),
        "post_commithook_properties": PostCommitHookProperties(
            create_checkpoint=True, cleanup_expired_logs=False
        ),
    }


class TableWriter:
    """The tables under one root; a job writes to them once it has claimed them.

    epoch: the newest that any job has claimed, -1 for none; after `claim` this job's own.
    is_repaired: newest commits torn by a power cut were moved aside.
    """

    def __init__(self, root: str | TablePlace) -> None:
        self.is_repaired = repair_tables(table_place(root))
        self._tables = ensure_tables(root)
        self._events = table_path(root, OWNERSHIP_EVENTS.name)
        self._query_id = ""
        self._pending: Mapping[str, Any] = {}
        self._read: dict[str, tuple[int, dict[str, int]]] = {}  # version, transactions read at it
        self._current: tuple[int, pa.Table] = (-1, None)  # version of bundle_ownership, its rows
        self.epoch = max(self._transaction(name, EPOCH_APP) for name in self._tables)

    def use_query(self, query_id: str) -> None:
        """Set the query id that the next commits record with their batch ids."""
        self._query_id = query_id

    def claim(self, claim_id: str = "") -> int:
        """Commit the next epoch to every table: from then on older jobs are refused.

        Of jobs that claim at once, the first to commit to `ownership_events` wins. The others, and
        a job that finds a newer epoch in another table, raise FencedError. claim_id: stored in the
        commits.
        """
        for table in self._tables.values():
            refresh(table)
        self.epoch = 1 + max(self._transaction(name, EPOCH_APP) for name in self._tables)
        metadata = {CLAIM_KEY: claim_id, USER_METADATA: f"claim of writer epoch {self.epoch}"}
        options = commit_options(metadata, Transaction(EPOCH_APP, self.epoch))
        for name in sorted(self._tables, key=lambda name: name != OWNERSHIP_EVENTS.name):
            self._claim(name, claim_id, options)
        return self.epoch

    def claimed_by(self, name: str = OWNERSHIP_EVENTS.name) -> str:
        """The id of the newest claim; "" when the log does not reach back to it any more."""
        commits = newest_first(table_place(self._tables[name].table_uri))
        return next((str(one.info[CLAIM_KEY]) for one in commits if CLAIM_KEY in one.info), "")

    def is_ours(self) -> bool:
        """Return True if no other job has claimed the tables since."""
        refresh(self._tables[OWNERSHIP_EVENTS.name])
        return self._transaction(OWNERSHIP_EVENTS.name, EPOCH_APP) == self.epoch

    def write(
        self, name: str, rows: pa.Table, batch_id: int, metadata: Mapping[str, Any]
    ) -> DeltaTable | None:
        """Commit a batch's rows to a table; None when the table has this batch already.

        Of rows with the same key the last counts; those of `bundle_ownership` have unique keys.
        metadata: of the batch, stored as JSON under METADATA_KEY. Raises FencedError,
        TableBusyError.
        """
        app_id = f"{name}:{self._query_id}"
        options = commit_options(batch_metadata(metadata), Transaction(app_id, batch_id))
        for _ in range(_ATTEMPTS):
            table = self.refreshed(name)
            if self._transaction(name, app_id) >= batch_id:
                return None
            version, transactions = self._read[name]
            with suppress(CommitFailedError), self._committing(name):
                self._commit(name, with_all_columns(table, rows), options)
                if table.version() == version + 1:  # ours, and nothing else
                    self._read[name] = table.version(), {**transactions, app_id: batch_id}
                return table
        raise TableBusyError(f"table {name}: {_ATTEMPTS} commits of batch {batch_id}")

    def write_ahead(self, pending_rows: Mapping[str, pa.Table]) -> dict[str, Any]:
        """Save the other tables' rows in a file before the next commit of events.

        pending_rows: table, or kind of effect → rows. Returns the metadata for that commit, {} for
        none.
        """
        if not pending_rows:
            return {}
        last = self._pending or (self.last_commit() or {}).get(PENDING, {})
        first, second = (f"{self.epoch}-{number}{_SUFFIX}" for number in (0, 1))
        # never overwrites the previous batch's file
        name = second if last.get("file") == first else first
        out = pa.BufferOutputStream()
        for table, rows in pending_rows.items():
            schema = rows.schema.with_metadata({_OF_TABLE: table.encode()})
            with pa.ipc.new_stream(out, schema, options=_OPTIONS) as stream:
                stream.write_table(rows)
        data = bytes(out.getvalue())
        folder = self._events / FOLDER
        if isinstance(folder, Path):
            folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        if isinstance(folder, Path):
            sync_path(folder / name)
            sync_path(folder)
        names = sorted(table for table, rows in pending_rows.items() if len(rows))
        sums = {"bytes": len(data), "crc32": zlib.crc32(data)}
        self._pending = {"file": name, **sums, "tables": names}
        return {PENDING: self._pending}

    def versions(self) -> dict[str, Any]:
        """Return the versions of all tables, for a commit of events."""
        return {VERSIONS: {name: one.version() for name, one in sorted(self._tables.items())}}

    def write_pending_rows(self) -> None:
        """Write the last batch's rows that tables lack after a crash; repeatable."""
        last = self.last_commit() or {}
        names = last[PENDING].get("tables", self._tables) if PENDING in last else ()
        lacking = [
            name
            for name in sorted(self._tables.keys() & names)
            if not self.has_batch(name, last["batch_id"], last["query_id"])
        ]
        if lacking:
            pending = self.pending_of(last)
            self.use_query(last["query_id"])
            # `commands` last: one that is reported done is visible in every table
            for name in sorted(lacking, key=lambda name: (name == COMMANDS.name, name)):
                if name in pending:
                    self.write(name, pending[name], last["batch_id"], last)

    def sync(self, name: str, after: int) -> None:
        """Sync a table's commits after a version to disk."""
        table = self._tables[name]
        sync_commits(table_place(table.table_uri), after, table.version())

    def pending_of(self, last: Mapping[str, Any]) -> dict[str, pa.Table]:
        """Return the rows that follow a commit of events, by table or effect."""
        return read_batch_rows(self._events, last[PENDING]) if PENDING in last else {}

    def remove_old_pending_rows(self) -> int:
        """Remove the files that earlier jobs left and none needs; return their number."""
        last = self.last_commit()
        past = [
            file
            for file in (self._events / FOLDER).glob(f"[0-9]*-[01]{_SUFFIX}")
            if last
            and file.name != last.get(PENDING, {}).get("file")
            and int(file.name.partition("-")[0]) < self.epoch
        ]
        for file in past:
            file.unlink()
        return len(past)

    def has_batch(self, name: str, batch_id: int, query_id: str = "") -> bool:
        """Return True if the table has the batch, of this checkpoint or the given one.

        query_id: of the other checkpoint, "" = this one.
        """
        refresh(self._tables[name])
        return self._transaction(name, f"{name}:{query_id or self._query_id}") >= batch_id

    def undo(self, name: str, version: int) -> None:
        """Restore the table to `version`, undoing the batch that wrote version + 1."""
        table = self.refreshed(name)
        batch = {"query_id": "", "batch_id": -1, "now_ms": 0, "writer_epoch": self.epoch}
        metadata = {**batch_metadata(batch), USER_METADATA: f"undo to version {version}"}
        with self._committing(name):
            table.restore(version, **commit_options(metadata))

    def version(self, name: str) -> int:
        """The version of a table, as far as this writer has seen it."""
        return self._tables[name].version()

    def last_commit(self) -> Mapping[str, Any] | None:
        """Return the metadata of the newest batch commit to ownership_events."""
        found = newest_batch(self._tables[OWNERSHIP_EVENTS.name])
        return found.metadata if found else None

    def table(self, name: str) -> DeltaTable:
        """The handle of a table, at the version last seen."""
        return self._tables[name]

    def refreshed(self, name: str) -> DeltaTable:
        """The handle of a table at its newest version, which is still ours to write to.

        Raises FencedError when another job has claimed it.
        """
        refresh(self._tables[name])
        newest = self._transaction(name, EPOCH_APP)
        if newest != self.epoch:
            raise FencedError(_taken(name, newest, self.epoch))
        return self._tables[name]

    @contextmanager
    def _committing(self, name: str) -> Iterator[None]:
        """Name damaged files in errors; sync to disk what the `with` block commits."""
        table = self._tables[name]
        before = table.version()
        with store_errors(table.table_uri), naming_damaged_file(table):
            yield
        self.sync(name, before)

    def _transaction(self, name: str, app_id: str) -> int:
        """Return an application's newest transaction, -1 without one.

        delta-rs reads the log back to its checkpoint for it.
        """
        table = self._tables[name]
        if self._read.get(name, (-1,))[0] != table.version():
            self._read[name] = table.version(), {}
        known = self._read[name][1]
        if app_id not in known:
            version = table.transaction_version(app_id)
            known[app_id] = -1 if version is None else version
        return known[app_id]

    def _claim(self, name: str, claim_id: str, options: Mapping[str, Any]) -> None:
        table = self._tables[name]
        for _ in range(_ATTEMPTS):
            refresh(table)
            newest = self._transaction(name, EPOCH_APP)
            if newest == self.epoch and claim_id and self.claimed_by(name) == claim_id:
                return  # the store committed the claim, the answer was lost, the retry conflicted
            if newest >= self.epoch:
                raise FencedError(_taken(name, newest, self.epoch))
            with suppress(CommitFailedError), self._committing(name):
                rows = pa.schema(table.schema()).empty_table()
                write_deltalake(table, rows, mode="append", **options)
                return
        raise TableBusyError(f"table {name}: {_ATTEMPTS} claims")

    def _commit(self, name: str, rows: pa.Table, options: Mapping[str, Any]) -> None:
        table, keys = self._tables[name], KEYS.get(name)
        if keys is None or not len(rows):
            write_deltalake(table, rows, mode="append", **options)
        elif name == BUNDLE_OWNERSHIP.name:
            version, current = self._current
            if version != table.version():
                version, current = table.version(), read_current(table, rows.schema)
            current = with_changes(current, rows)
            commit_current(table, current, options)
            if table.version() == version + 1:
                self._current = table.version(), current
        else:
            same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
            rows = last_of_each(rows, keys)
            merge = table.merge(rows, same, source_alias="s", target_alias="t", **options)
            merge.when_matched_update_all().when_not_matched_insert_all().execute()


def newest_batch(table: DeltaTable) -> Commit | None:
    """The newest commit of a batch; None when no batch was committed."""
    commits = newest_first(table_place(table.table_uri))  # also those that the handle lacks yet
    return next((one for one in commits if one.metadata), None)


def _taken(name: str, newest: int, epoch: int) -> str:
    return f"table {name} belongs to writer epoch {newest} now, this job has {epoch}"

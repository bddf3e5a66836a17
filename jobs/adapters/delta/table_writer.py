"""Writer of the job's tables: each batch once, while this job holds the epoch.

A commit happens only in the writer's epoch, and once a batch: Delta's application transactions hold
both. A table has one writer: each commit is made against the version just checked, and fails if
another commit came between.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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

from jobs.adapters.delta.commits import (
    CLAIM_KEY,
    METADATA_KEY,
    USER_METADATA,
    VERSIONS,
    Commit,
    batch_metadata,
)
from jobs.adapters.delta.table_location import TablePlace, store_errors, table_place
from jobs.adapters.delta.table_log import naming_damaged_file
from jobs.adapters.delta.table_repair import repair_tables, sync_commits
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.delta.table_tail import commits_from, newest_version
from jobs.adapters.delta.tables import (
    ensure_tables,
    refresh,
    with_all_columns,
)
from jobs.atomic_file import sync_file, sync_folder
from jobs.console import CommandError
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS, TABLES
from lbcore.ownership.records import State

REST = "rest"
"""Metadata of a commit of events: the file with the batch's rows for the other tables."""

FOLDER = "_batches"  # Delta leaves alone what begins so
_SUFFIX = ".arrow"
_OF_TABLE = b"table"
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class BatchRowsError(CommandError):
    """The rows that a batch owes can't be read."""

    def __init__(self, file: TablePlace, found: str) -> None:
        super().__init__(
            "the last batch can't be completed",
            why=f"{file} has the rows that a crash kept from the tables, and {found}",
            next_step="put that file back from where the tables' folder was copied (all of it, "
            "hidden folders too); or, to go on without these rows, make an empty file in its place",
        )


def read_batch_rows(events: TablePlace, rest: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Return table → the rows of a commit's file; none if somebody emptied the file.

    Raises BatchRowsError.
    """
    file = events / FOLDER / rest["file"]
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        raise BatchRowsError(file, "it is not there") from None
    if data and (len(data), zlib.crc32(data)) != (rest["bytes"], rest["crc32"]):
        raise BatchRowsError(file, "it is not what the batch wrote")
    found: dict[str, pa.Table] = {}
    source = pa.BufferReader(data)
    while source.tell() < len(data):
        rows = pa.ipc.open_stream(source).read_all()
        found[rows.schema.metadata[_OF_TABLE].decode()] = rows.replace_schema_metadata()
    return found


_MAX_CHUNKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRows:
    """The table at one version. rows: one a (cluster, bundle), in no order."""

    version: int
    rows: pa.Table


def read_current(table: DeltaTable, schema: pa.Schema) -> CurrentRows:
    """Return the rows at the handle's version. schema: that of all its columns."""
    rows = scan(table, schema.names).cast(schema).combine_chunks()
    return CurrentRows(version=table.version(), rows=rows)


def last_of_each(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows without those whose key comes again further down. O(rows).

    A batch may change a key several times; its last row counts. MERGE refuses two rows that match
    one, and inserts both where none is matched.
    """
    numbered = rows.select(keys).append_column("at", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(list(keys)).aggregate([("at", "max")])["at_max"]
    return rows if len(last) == len(rows) else rows.take(last.take(pc.sort_indices(last)))


def with_changes(rows: pa.Table, changes: pa.Table) -> pa.Table:
    """Return the table's rows after a batch's records, at most one a key. O(rows).

    A record replaces one with a lower version. A record in state Init removes the bundle's row,
    whatever its version.
    """
    is_named = pc.is_in(rows["bundle"], value_set=changes["bundle"].combine_chunks())
    named = rows.filter(is_named)
    versions = dict(zip(_keys(named), named["version_id"].to_pylist(), strict=True))
    states, newer = changes["state"].to_pylist(), changes["version_id"].to_pylist()
    is_gone = [state == State.INIT.value for state in states]
    replaced, taken = set(), []
    for at, key in enumerate(_keys(changes)):
        if is_gone[at] or newer[at] > versions.get(key, -1):
            replaced.add(key)
            if not is_gone[at]:
                taken.append(at)
    kept = [at for at, key in enumerate(_keys(named)) if key not in replaced]
    parts = [
        rows.filter(pc.invert(is_named)),
        named.take(pa.array(kept, pa.int64())),
        changes.take(pa.array(taken, pa.int64())),
    ]
    found = pa.concat_tables([part for part in parts if len(part)] or parts[:1])
    return found.combine_chunks() if found["bundle"].num_chunks > _MAX_CHUNKS else found


def commit_current(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    """Replace all rows of the table. Raises CommitFailedError.

    MERGE would take three times the CPU of a rewrite from memory (0.12 s, 100,000 bundles).
    """
    write_deltalake(
        table,
        rows,
        mode="overwrite",
        commit_properties=properties,
        post_commithook_properties=NO_CLEANING,
    )


def _keys(rows: pa.Table) -> Iterator[tuple[str, str]]:
    return zip(rows["cluster"].to_pylist(), rows["bundle"].to_pylist(), strict=True)


EPOCH_APP = "writer_epoch"
NO_CLEANING = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""Old commits go in `table_upkeep` only: a job that starts may still need those before its end."""

_ATTEMPTS = 8

KEYS: Mapping[str, tuple[str, ...]] = {
    table.name: ("cluster", *table.key) for table in TABLES if table.key
}
"""Tables with one row a key; the others only grow."""


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


class TableWriter:
    """The tables under one root; a job writes to them once it has claimed them.

    epoch: the newest that any job has claimed, -1 for none; after `claim` this job's own.
    is_mended: a power cut had torn newest commits, which were moved aside.
    """

    def __init__(self, root: str | TablePlace) -> None:
        self.is_mended = repair_tables(table_place(root))
        self._tables = ensure_tables(root)
        self._query_id = ""
        self._rest: Mapping[str, Any] = {}
        self._read: dict[str, tuple[int, dict[str, int]]] = {}  # version, transactions read at it
        self._current: CurrentRows | None = None
        self.epoch = max(_transaction(table, EPOCH_APP) for table in self._tables.values())

    def use_query(self, query_id: str) -> None:
        """Name the checkpoint whose batch ids the next commits carry."""
        self._query_id = query_id

    def claim(self, claim_id: str = "") -> int:
        """Commit the next epoch to every table: from then on older jobs are refused.

        Of jobs that claim at once, the first to commit to `ownership_events` wins. The others, and
        a job that finds a newer epoch in another table, raise FencedError. claim_id: stored in the
        commits.
        """
        for table in self._tables.values():
            refresh(table)
        known = [_transaction(table, EPOCH_APP) for table in self._tables.values()]
        self.epoch = max(known) + 1
        for name in sorted(self._tables, key=lambda name: name != OWNERSHIP_EVENTS.name):
            self._claim(name, claim_id)
        return self.epoch

    def claimed_by(self) -> str:
        """The id of the newest claim; "" when the log does not reach back to it any more."""
        commits = _newest_first(self._tables[OWNERSHIP_EVENTS.name])
        return next((str(one.info[CLAIM_KEY]) for one in commits if CLAIM_KEY in one.info), "")

    def is_ours(self) -> bool:
        """Return True if no other job has claimed the tables since."""
        refresh(self._tables[OWNERSHIP_EVENTS.name])
        return self._transaction(OWNERSHIP_EVENTS.name, EPOCH_APP) == self.epoch

    def write(
        self, name: str, rows: pa.Table, batch_id: int, about: Mapping[str, Any]
    ) -> DeltaTable | None:
        """Commit a batch's rows to a table; None when the table has this batch already.

        Of rows with the same key the last counts. about: metadata of the batch, stored as JSON
        under METADATA_KEY. Raises FencedError, TableBusyError.
        """
        table = self._tables[name]
        app_id = f"{name}:{self._query_id}"
        for _ in range(_ATTEMPTS):
            self.refreshed(name)
            if self._transaction(name, app_id) >= batch_id:
                return None
            version, transactions = self._read[name]
            properties = CommitProperties(
                custom_metadata=batch_metadata(about),
                max_commit_retries=0,
                app_transactions=[Transaction(app_id, batch_id)],
            )
            try:
                with store_errors(table.table_uri), naming_damaged_file(table):
                    self._commit(name, table, with_all_columns(table, rows), properties)
            except CommitFailedError:
                continue
            self.sync(name, version)
            if table.version() == version + 1:  # ours, and nothing else
                self._read[name] = table.version(), {**transactions, app_id: batch_id}
            return table
        raise TableBusyError(f"table {name}: {_ATTEMPTS} commits of batch {batch_id}")

    def write_ahead(self, owed: Mapping[str, pa.Table]) -> dict[str, Any]:
        """Write the rows that follow the next commit of events; return its metadata.

        owed: table, or kind of effect → rows.
        """
        if not owed:
            return {}
        last = self._rest or (self.last_commit() or {}).get(REST, {})
        first, second = (f"{self.epoch}-{number}{_SUFFIX}" for number in (0, 1))
        name = second if last.get("file") == first else first  # the last one's file is kept
        out = pa.BufferOutputStream()
        for table, rows in owed.items():
            schema = rows.schema.with_metadata({_OF_TABLE: table.encode()})
            with pa.ipc.new_stream(out, schema, options=_OPTIONS) as stream:
                stream.write_table(rows)
        data = bytes(out.getvalue())
        folder = self._place() / FOLDER
        if isinstance(folder, Path):
            folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
        if isinstance(folder, Path):
            sync_file(folder / name)
            sync_folder(folder)
        owing = sorted(table for table, rows in owed.items() if len(rows))
        sums = {"bytes": len(data), "crc32": zlib.crc32(data)}
        self._rest = {"file": name, **sums, "tables": owing}
        return {REST: self._rest}

    def versions(self) -> dict[str, Any]:
        """Return the versions of the other tables, for a commit of events."""
        return {VERSIONS: {name: one.version() for name, one in sorted(self._tables.items())}}

    def write_pending_rows(self) -> None:
        """Write the last batch's rows that a crash kept from the tables; repeatable."""
        last = self.last_commit()
        if last is None:
            return
        self.use_query(last["query_id"])
        for name, rows in self.rest_of(last).items():
            if name in self._tables and len(rows):
                self.write(name, rows, last["batch_id"], last)

    def owes_rows(self) -> bool:
        """Return True if a table lacks rows of the last batch: its newest commit is gone."""
        last = self.last_commit() or {}
        names = self._tables.keys() & last.get(REST, {}).get("tables", ())
        return any(
            not self.has_batch(name, last["batch_id"], last["query_id"]) for name in sorted(names)
        )

    def sync(self, name: str, after: int) -> None:
        """Bring a table's commits after a version down to the disk."""
        table = self._tables[name]
        sync_commits(table_place(table.table_uri), after, table.version())

    def rest_of(self, last: Mapping[str, Any]) -> dict[str, pa.Table]:
        """Table, or kind of effect → the rows that follow a commit of events."""
        return read_batch_rows(self._place(), last[REST]) if REST in last else {}

    def remove_old_pending_rows(self) -> int:
        """Remove what earlier jobs put aside and nobody needs any more; how many files."""
        last = self.last_commit()
        past = [
            file
            for file in (self._place() / FOLDER).glob(f"[0-9]*-[01]{_SUFFIX}")
            if last
            and file.name != last.get(REST, {}).get("file")
            and int(file.stem.partition("-")[0]) < self.epoch
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
        """Restore the table's version before the batch that wrote the next one."""
        table = self.refreshed(name)
        about = {"query_id": "", "batch_id": -1, "now_ms": 0, "writer_epoch": self.epoch}
        noted = {**batch_metadata(about), USER_METADATA: f"undo to version {version}"}
        properties = CommitProperties(custom_metadata=noted, max_commit_retries=0)
        with store_errors(table.table_uri):
            before = table.version()
            table.restore(
                version, commit_properties=properties, post_commithook_properties=NO_CLEANING
            )
        self.sync(name, before)

    def version(self, name: str) -> int:
        """The version of a table, as far as this writer has seen it."""
        return self._tables[name].version()

    def last_commit(self) -> Mapping[str, Any] | None:
        """Return the metadata of the newest batch commit to ownership_events."""
        found = newest_batch(self._tables[OWNERSHIP_EVENTS.name])
        return found.about if found else None

    def table(self, name: str) -> DeltaTable:
        """The handle of a table, at the version last seen."""
        return self._tables[name]

    def refreshed(self, name: str) -> DeltaTable:
        """The handle of a table at its newest version, which is still ours to write to.

        Raises FencedError when another job has claimed it.
        """
        table = self._tables[name]
        refresh(table)
        newest = self._transaction(name, EPOCH_APP)
        if newest != self.epoch:
            raise FencedError(_taken(name, newest, self.epoch))
        return table

    def _place(self) -> TablePlace:
        return table_place(self._tables[OWNERSHIP_EVENTS.name].table_uri)

    def _transaction(self, name: str, app_id: str) -> int:
        """Return an application's newest transaction.

        delta-rs reads the log back to its checkpoint for it.
        """
        table = self._tables[name]
        if self._read.get(name, (-1,))[0] != table.version():
            self._read[name] = table.version(), {}
        known = self._read[name][1]
        if app_id not in known:
            known[app_id] = _transaction(table, app_id)
        return known[app_id]

    def _claim(self, name: str, claim_id: str) -> None:
        table = self._tables[name]
        properties = CommitProperties(
            custom_metadata={
                CLAIM_KEY: claim_id,
                USER_METADATA: f"claim of writer epoch {self.epoch}",
            },
            max_commit_retries=0,
            app_transactions=[Transaction(EPOCH_APP, self.epoch)],
        )
        for _ in range(_ATTEMPTS):
            refresh(table)
            before, newest = table.version(), self._transaction(name, EPOCH_APP)
            if newest >= self.epoch:
                raise FencedError(_taken(name, newest, self.epoch))
            try:
                with store_errors(table.table_uri):
                    _append(table, pa.schema(table.schema()).empty_table(), properties)
            except CommitFailedError:
                continue
            self.sync(name, before)
            return
        raise TableBusyError(f"table {name}: {_ATTEMPTS} claims")

    def _commit(
        self, name: str, table: DeltaTable, rows: pa.Table, properties: CommitProperties
    ) -> None:
        keys = KEYS.get(name)
        if keys is None or not len(rows):
            _append(table, rows, properties)
            return
        if name == BUNDLE_OWNERSHIP.name:
            self._rewrite(table, rows, properties)
            return
        rows = last_of_each(rows, keys)
        same = " AND ".join(f"t.{key} = s.{key}" for key in keys)
        merge = table.merge(
            rows,
            same,
            source_alias="s",
            target_alias="t",
            commit_properties=properties,
            post_commithook_properties=NO_CLEANING,
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _rewrite(self, table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
        if self._current is None or self._current.version != table.version():
            self._current = read_current(table, rows.schema)
        based_on = table.version()
        changed = with_changes(self._current.rows, rows)
        commit_current(table, changed, properties)
        if table.version() == based_on + 1:
            self._current = CurrentRows(version=table.version(), rows=changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The commit of a batch to a table. about: what it says of the batch."""

    table_version: int
    about: Mapping[str, Any]


def newest_batch(table: DeltaTable) -> CommittedBatch | None:
    """The newest commit of a batch; None when no batch was committed."""
    for commit in _newest_first(table):
        if METADATA_KEY in commit.info:
            about = json.loads(commit.info[METADATA_KEY])
            return CommittedBatch(table_version=commit.version, about=about)
    return None


def _newest_first(table: DeltaTable) -> Iterator[Commit]:
    """All commits that the log has, also those that the handle does not know yet."""
    path = table_place(table.table_uri)
    return commits_from(path, newest_version(path), step=-1)


def _transaction(table: DeltaTable, app_id: str) -> int:
    version = table.transaction_version(app_id)
    return -1 if version is None else version


def _append(table: DeltaTable, rows: pa.Table, properties: CommitProperties) -> None:
    write_deltalake(
        table,
        rows,
        mode="append",
        commit_properties=properties,
        post_commithook_properties=NO_CLEANING,
    )


def _taken(name: str, newest: int, epoch: int) -> str:
    return f"table {name} belongs to writer epoch {newest} now, this job has {epoch}"

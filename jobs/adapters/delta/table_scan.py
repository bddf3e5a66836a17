"""Handles of tables: opened past damage, scanned at a version, and followed.

Folders and stores are read alike, and other threads run meanwhile. Callers interpret the rows. Used
by every reader of tables in Python, the writer's upkeep included.
"""

import logging
import re
import sys
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from jobs.adapters.delta.table_location import (
    StorePath,
    TablePlace,
    delta_options,
    is_store,
    store_errors,
    table_place,
)
from jobs.adapters.delta.table_log import (
    LOG,
    REPAIR,
    Commit,
    DamagedTableError,
    LostError,
    ReloadReason,
    checkpoint_hint,
    checkpoint_version,
    commit_path,
    commits_from,
    damaged,
    data_file_problem,
    inspect_log,
    log_path,
    read_commit,
)
from jobs.adapters.processes.clocks import boot_ms
from jobs.console import CommandError, first_line

logger = logging.getLogger(__name__)

_FILE_ERROR_TEXT = re.compile("arquet|External error|Arrow error|Object at|IO error|[Ee][Oo][Ff]")
"""Text of delta-rs errors about a file; others are about the query itself."""
_CHUNK_ROWS = 1_000


_STORE_CHECK_MS = 10_000


# -- opening


def is_delta(place: TablePlace) -> bool:
    """Return True if there is a Delta table; raises StoreError."""
    if isinstance(place, StorePath) and log_path(place).is_dir():
        return True
    with store_errors(place):  # delta-rs distinguishes a missing bucket from an empty one
        return DeltaTable.is_deltatable(str(place), delta_options(place))


def open_delta(place: str | TablePlace, version: int | None = None) -> DeltaTable:
    """A table at a version, None = the newest that is whole.

    What is damaged in a log on a disk is left out where that loses nothing. Raises StoreError,
    DamagedTableError, TableNotFoundError.
    """
    table = table_place(place)
    if not isinstance(table, Path):
        with store_errors(place):
            return DeltaTable(str(place), version=version, storage_options=delta_options(place))
    try:
        state = inspect_log(table, version)
    except PermissionError as error:
        raise DamagedTableError(
            f"the table {table.name} can't be read",
            why=f"{error.filename}: {error.strerror}",
            next_step="let a user read it who may, as the job's does, or give this one the right",
        ) from error
    if state.torn:
        _warn_once(f"{state.torn}; version {state.version} is shown until the job has mended it")
        version = state.version
    for name, cause in state.left_out.items():
        _warn_once(f"{log_path(table) / name} {cause}; the table is read without it")
    with naming_damaged_file(table):
        if not state.left_out:
            return DeltaTable(str(table), version=version)
        # delta-rs can't leave files out, so it opens a folder of links to all others
        folder = tempfile.TemporaryDirectory(prefix="ballast-log-")
        links, place = Path(folder.name) / table.name, table.absolute()
        log_path(links).mkdir(parents=True)
        for file in (*place.iterdir(), *log_path(place).iterdir()):
            if file.name not in {LOG, *state.left_out}:
                (links / file.relative_to(place)).symlink_to(file)
        handle = DeltaTable(str(links), version=version)
        weakref.finalize(handle, folder.cleanup)
        return handle


def check_newest(table: TablePlace, *, is_written: bool = False) -> None:
    """Raise DamagedTableError if the newest commit is torn, so that readers lack it.

    is_written: nothing may be committed past a damaged checkpoint either.
    """
    if not isinstance(table, Path):
        return
    state = inspect_log(table)
    for name, cause in state.left_out.items() if is_written else ():
        raise damaged(table, log_path(table) / name, cause, "start the job, which moves it aside")
    if state.torn:
        raise DamagedTableError(
            f"the newest commit of the table {table.name} is damaged",
            why=state.torn,
            next_step=REPAIR,
        )


@lru_cache(maxsize=1_000)
def _warn_once(text: str) -> None:
    """Log a sentence once in a process."""
    logger.warning(text)


@contextmanager
def naming_damaged_file(*tables: DeltaTable | TablePlace) -> Iterator[None]:
    """Raise DamagedTableError if reading fails because of a file; others unchanged.

    tables: handles of which rows are read, or the place of one that is opened. A panic of
    delta-rs, which is no Exception, always counts as damage.
    """
    try:
        yield
    except (CommandError, FileNotFoundError, TableNotFoundError, CommitFailedError):
        raise
    except BaseException as error:
        is_panic = type(error).__name__ == "PanicException"
        if not is_panic and not isinstance(error, (DeltaError, pa.ArrowException, OSError)):
            raise
        handles = [one for one in tables if isinstance(one, DeltaTable)]
        is_of_a_file = is_panic or not handles or _FILE_ERROR_TEXT.search(str(error)) is not None
        found = next(filter(None, map(_damaged_file, handles if is_of_a_file else [])), None)
        if found is None and handles and not is_panic:
            raise
        place = next((one.table_uri if isinstance(one, DeltaTable) else one for one in tables), "")
        cause = f"can't be read: {first_line(error)}"
        raise (found or damaged(place, f"a file of {place}", cause)) from error


def _damaged_file(handle: DeltaTable) -> DamagedTableError | None:
    """The error for the first data file of a version that is not what its commit says."""
    folder = table_place(handle.table_uri)
    if not isinstance(folder, Path):
        return None
    files = pa.table(handle.get_add_actions())
    for name, size in zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True):
        file = folder / unquote(name)
        cause = data_file_problem(file, size)
        try:
            if not cause:
                pq.ParquetFile(file).read()
        except Exception as error:  # noqa: BLE001 a damaged file may raise anything
            cause = f"is damaged: {first_line(error)}"
        if cause:
            return damaged(folder, file.resolve(), cause)
    return None


# -- rows


def scan(
    table: DeltaTable, columns: Iterable[str] | None = None, condition: str | None = None
) -> pa.Table:
    """Return the rows that meet an SQL condition, None = all.

    columns: None = all. Files are skipped by their statistics. delta-rs's own read_all would block
    all threads until the store answers. Raises DamagedTableError, OSError, DeltaError,
    ArrowException.
    """
    wanted = None if columns is None else list(columns)
    with naming_damaged_file(table):
        found = table.scan(columns=wanted, predicate=condition)
        return _plain(pa.RecordBatchReader.from_stream(found).read_all())


def present_columns(table: DeltaTable, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns that a table of an older version has too; None = all it has."""
    names = tuple(field.name for field in table.schema().fields)
    return tuple(name for name in columns or names if name in names)


def read_file(file: TablePlace, columns: Iterable[str], cluster: str = "") -> pa.Table:
    """The rows of one cluster, "" = of all, in one data file, appended or merged."""
    source = file if isinstance(file, Path) else pa.BufferReader(file.read_bytes())
    rows = _plain(pq.read_table(source, columns=["cluster", *columns]))
    return rows.filter(pc.equal(rows["cluster"], cluster)) if cluster else rows


def oldest_ms(table: DeltaTable, condition: str = "") -> int | None:
    """The time of a table's oldest row, of any cluster; None when it has none.

    From the statistics of its log, as `newest_ms`; no data file is read, unless only rows count
    that meet a condition.
    """
    if condition:
        times = scan(table, ["at_ms"], condition)["at_ms"]
    else:
        files = pa.table(table.get_add_actions(flatten=True))
        times = files["min.at_ms"] if "min.at_ms" in files.column_names else pa.nulls(0)
    oldest: int | None = pc.min(times).as_py()
    return oldest


def newest_ms(table: DeltaTable) -> int:
    """The time of a table's newest row, -1 while it has none."""
    files = pa.table(table.get_add_actions(flatten=True))
    return -1 if not len(files) else int(pc.max(files["max.at_ms"]).as_py())


def file_sizes(table: DeltaTable, month: str = "") -> list[int]:
    """Return the bytes of each data file by its log, unordered.

    month: of an archive, "" = all.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    if month:
        files = files.filter(pc.equal(files["partition.month"], month))
    return list(files["size_bytes"].to_pylist())


def rows_in(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows one by one.

    Other threads run in between, which Arrow itself does not let them.
    """
    for batch in rows.to_batches(max_chunksize=_CHUNK_ROWS):
        yield from batch.to_pylist()


def rows_not_in(rows: pa.Table, others: pa.Table, identity: Sequence[str]) -> pa.Table:
    """Return the rows that `others` lacks, by the columns `identity`. O(both)."""
    if not len(rows) or not len(others):
        return rows
    return rows.join(others.select(identity), keys=list(identity), join_type="left anti")


class SqlTables:
    """Tables at their opened versions, under names for SQL (DataFusion's)."""

    def __init__(self) -> None:
        self._builder = QueryBuilder()
        self._handles: list[DeltaTable] = []

    def add(self, name: str, table: DeltaTable) -> None:
        """Give a table a name."""
        self._builder.register(name, table)
        self._handles.append(table)

    def run(self, statement: str) -> pa.Table:
        """The rows of a statement.

        Raises DamagedTableError, DeltaError, ArrowException, ValueError.
        """
        with naming_damaged_file(*self._handles):
            return pa.table(self._builder.execute(statement).read_all())


def _plain(rows: pa.Table) -> pa.Table:
    """Return the rows with strings instead of string views.

    delta-rs reads and merges string views, which pyarrow can't filter or encode yet.
    """
    if pa.string_view() not in rows.schema.types:
        return rows
    plain = {pa.string_view(): pa.string()}
    fields = [column.with_type(plain.get(column.type, column.type)) for column in rows.schema]
    return rows.cast(pa.schema(fields, rows.schema.metadata))


def block_pandas() -> None:
    """Hide pandas from pyarrow, in processes whose start and memory count.

    pyarrow imports it, where there is one, at the first value of Python's that it is given: 45 MiB
    and 0.24 s of CPU for a process that has no use for it. It looks once, so that others may import
    pandas afterwards. Call it before any thread may import something.
    """

    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    finder: Any = SimpleNamespace(find_spec=find_spec)
    sys.meta_path.insert(0, finder)
    try:
        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


# -- following


class TableTail:
    """Reader of a log after a whole load; for one thread. version: the last one read.

    Returns new commits, or raises LostError if the reader must load the table whole: commits that
    it has not read were cleaned away (the process was suspended), a file of the log is missing, or
    the table was made again or restored from a backup, even if it has the next version already.
    Compaction, checkpoints and clean-up behind the reader do no harm: Delta removes the oldest
    commits first, and none past the newest checkpoint.

    A call costs a few calls of the file system, or one request to a store. Without new commits in a
    store, a replaced or cleaned log is looked for every ten seconds.
    """

    def __init__(self, path: TablePlace, loaded: DeltaTable) -> None:
        """Start at the version of a handle that the reader has just loaded whole."""
        self.path = path
        self.version = loaded.version()
        self._table_id = str(loaded.metadata().id)
        self._checked_hint = b""
        self._check_due_ms = 0
        last = read_commit(path, self.version)
        self._digest = b"" if last is None else last.digest

    def new_commits(self) -> Sequence[Commit]:
        """Return the commits after `version`, without gaps, and advance it.

        Raises LostError; DamagedTableError, OSError, DeltaError for a log that can't be read. After
        any of them the reader starts with a new tail.
        """
        found = list(commits_from(self.path, self.version + 1))
        if not found and is_store(self.path):
            if boot_ms() < self._check_due_ms:
                return ()
            self._check_due_ms = boot_ms() + _STORE_CHECK_MS
        if not self._is_same_table():
            raise LostError(ReloadReason.REPLACED)
        version = self.version + len(found)
        # the log went on without the next commit, or ends before this one, which may be the
        # checkpoint's own; a commit that arrives during the check is no gap
        checkpoint = checkpoint_version(self.path)
        is_gone = checkpoint != version and not commit_path(self.path, version).exists()
        went_on = checkpoint > version or commit_path(self.path, version + 2).exists()
        if (went_on or is_gone) and not commit_path(self.path, version + 1).exists():
            raise LostError(ReloadReason.LOG_FILE_MISSING)
        if found:
            self.version, self._digest = version, found[-1].digest
        return found

    def _is_same_table(self) -> bool:
        """Return True if the commit read last is unchanged, or was cleaned up."""
        there = read_commit(self.path, self.version)
        if there is not None and self._digest:
            return there.digest == self._digest
        # the table is opened for its id once for each checkpoint
        hint = checkpoint_hint(self.path)
        if hint and hint == self._checked_hint:
            return True
        if not hint and not commit_path(self.path, self.version + 1).exists():
            return True  # the log has nothing to continue: `new_commits` raises
        self._checked_hint = hint
        return str(open_delta(self.path).metadata().id) == self._table_id


def read_added(
    path: TablePlace, commit: Commit, columns: Iterable[str], cluster: str = ""
) -> list[pa.Table]:
    """Return a commit's new rows of one cluster ("" = all), file by file.

    Raises LostError when compaction has removed a file, OSError or DamagedTableError for one that
    can't be read.
    """
    wanted = tuple(columns)
    try:
        return [read_file(path / name, wanted, cluster) for name in commit.added]
    except FileNotFoundError:
        raise LostError(ReloadReason.UNREADABLE) from None
    except pa.ArrowException as error:
        cause = f"names a data file that is damaged: {first_line(error)}"
        raise damaged(path, commit_path(path, commit.version), cause) from error

"""The files of a table's log and data on a disk: which of them are whole.

Each table is opened past this module. A newest commit that is torn (empty, cut, without its data)
was interrupted by a power cut before anybody was told of it: readers get the version before it. A
damaged checkpoint is left out where the log has what it stands for. Any other damage raises
DamagedTableError, which names the file and the next command. Stores commit objects whole or not at
all, so their logs are not looked through. Source: the Delta transaction protocol.
"""

import json
import logging
import os
import re
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from jobs.adapters.delta.commits import Commit, CorruptLogError, parse_commit
from jobs.adapters.delta.table_location import TablePlace, is_store, table_place
from jobs.console import CommandError, first_line

logger = logging.getLogger(__name__)

ASIDE_SUFFIX = ".damaged"
"""Behind the name of a file that was moved out of the log; Delta reads no such file."""
RESTORE = (
    "put all tables back from a backup as docs/operate.md says under Restore, then `ballast state "
    "rebuild --restored --state-dir DIR` and start the job"
)
_MEND = "start the job, which moves it aside and repeats the batch, or says what is lost"
_LOG = "_delta_log"
HINT = "_last_checkpoint"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\.[^/]+)?\.parquet")
_PARQUET_MAGIC = b"PAR1"
_OF_A_FILE = re.compile("arquet|External error|Arrow error|Object at|IO error|[Ee][Oo][Ff]")
"""In errors of delta-rs about a file; others are about the question, for which no file is read."""
_AGAIN_S = 0.05
_COPIES_FROM = 50
"""So many commits back one is looked for that an old copy may be of."""
_Mark: TypeAlias = tuple[int, int, int]
Place = TypeVar("Place", bound=TablePlace)


class DamagedTableError(CommandError, OSError):
    """A table of which a file is missing, or is not what was written."""


def damaged(
    table: str | TablePlace, file: object, cause: str, next_step: str = RESTORE
) -> DamagedTableError:
    """The error for one file. cause: what is wrong with it, as the end of a sentence."""
    name = str(table).rstrip("/").rpartition("/")[2]
    return DamagedTableError(
        f"the table {name} is damaged", why=f"{file} {cause}", next_step=next_step
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A log on a disk. version: the newest that is whole, -1 = none.

    torn: what is wrong with the commit after it, "" = there is none, or it is whole.
    left_out: damaged checkpoints by name, and the hint where it names one; what is wrong with each.
    """

    version: int
    torn: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def log_path(table: Place) -> Place:
    """The folder of a table's log."""
    return table / _LOG  # type: ignore[return-value]  # of the same kind


def commit_path(table: Place, version: int) -> Place:
    """The file of one commit."""
    return log_path(table) / f"{version:020d}.json"  # type: ignore[return-value]


def has_commit(table: TablePlace, version: int) -> bool:
    """Return True if the log has this commit's file."""
    return commit_path(table, version).exists()


def read_commit(table: TablePlace, version: int) -> Commit | None:
    """None when there is no such file. Raises DamagedTableError."""
    file = commit_path(table, version)
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return parse_commit(version, text)
    except CorruptLogError as error:
        step = RESTORE if has_commit(table, version + 1) else _MEND
        raise damaged(table, file, f"is damaged: {error}", step) from error


def file_mark(path: Path) -> _Mark:
    """By what a file is known again. Raises FileNotFoundError."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def checkpoint_hint(table: TablePlace) -> bytes:
    """Return the raw hint to the newest checkpoint; b"" if there is none."""
    try:
        return (log_path(table) / HINT).read_bytes()
    except FileNotFoundError:
        return b""


def hinted_version(hint: bytes) -> int:
    """The version that a hint names; -1 when it can't be read."""
    try:
        return int(json.loads(hint)["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


# -- which files are whole


def inspect_log(table: Path, version: int | None = None) -> LogState:
    """Look through what a version is read from, None = the newest.

    A log may be cleaned or written while it is looked through, so damage is looked at twice.
    Raises DamagedTableError.
    """
    try:
        found = _inspect(table, version)
        if not found.torn:
            return found
    except (DamagedTableError, FileNotFoundError):
        pass
    time.sleep(_AGAIN_S)
    return _inspect(table, version)


def torn_commit(table: TablePlace, version: int) -> str:
    """Return what is wrong with the newest commit, "" = nothing.

    Its data files are checked as well.
    """
    file = commit_path(table, version)
    if not isinstance(file, Path) or not isinstance(table, Path):
        return ""
    try:
        cause = _commit_problem(str(file), file_mark(file))
    except FileNotFoundError:
        return ""
    if cause:
        return f"{file} is damaged: {cause}"
    commit = read_commit(table, version)
    for name, size in () if commit is None else commit.files:
        problem = _file_problem(table / name, size)
        if problem:
            return f"{table / name}, which commit {version} names, {problem}"
    return ""


def _inspect(table: Path, wanted: int | None) -> LogState:
    log = log_path(table)
    try:
        names = [file.name for file in log.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return LogState(version=-1)
    commits = {int(found[1]) for name in names if (found := _COMMIT.fullmatch(name))}
    newest = max(commits, default=-1)
    start, left_out = _newest_checkpoint(log, names, wanted)
    limit = max(newest, start) if wanted is None else wanted
    if wanted is not None and not min(commits, default=0) <= start + 1 <= limit <= newest:
        return LogState(version=limit)  # not there, or cleaned away, which delta-rs tells
    for version in range(start + 1, limit + 1):
        file = commit_path(table, version)
        if version not in commits:
            raise _gap(table, file, min(commits, default=0), left_out)
        cause = _commit_problem(str(file), file_mark(file))
        if cause and version < newest:
            raise damaged(table, file, f"is damaged: {cause}; later commits build on it")
    torn = torn_commit(table, newest) if limit == newest > start else ""
    if torn and newest == 0:
        raise DamagedTableError(
            f"the table {table.name} was not made to the end", why=torn, next_step=_MEND
        )
    return LogState(version=limit - 1 if torn else limit, torn=torn, left_out=left_out)


def _newest_checkpoint(
    log: Path, names: list[str], wanted: int | None
) -> tuple[int, dict[str, str]]:
    """Return the newest whole checkpoint's version, -1 = none, and newer ones' faults."""
    found = sorted(
        ((int(match[1]), name) for name in names if (match := _CHECKPOINT.fullmatch(name))),
        reverse=True,
    )
    left_out: dict[str, str] = {}
    start = -1
    for version, name in found:
        if wanted is not None and version > wanted:
            continue
        cause = _checkpoint_problem(str(log / name), file_mark(log / name), version)
        if not cause:
            start = version
            break
        left_out[name] = cause
    hinted = hinted_version(checkpoint_hint(log.parent))
    is_known = any(version == hinted and name not in left_out for version, name in found)
    if hinted >= 0 and not is_known:
        left_out[HINT] = f"names version {hinted}, which has no whole checkpoint"
    return start, left_out


def _gap(table: Path, file: Path, oldest: int, left_out: Mapping[str, str]) -> DamagedTableError:
    log = file.parent
    version = int(file.stem)
    if version < oldest and left_out:
        name, cause = max(left_out.items())
        return damaged(
            table,
            log / name,
            f"{cause}, and the log has no commits before version {oldest} to read instead",
        )
    return damaged(table, file, "is missing, and later commits build on it")


@lru_cache(maxsize=10_000)
def _commit_problem(file: str, mark: _Mark) -> str:
    """Return what is wrong with a commit's file, "" = nothing.

    No two commits are identical, so a copy of another one is an error.
    """
    path = Path(file)
    text, version = path.read_bytes(), int(path.stem)
    try:
        parse_commit(version, text)
    except CorruptLogError as error:
        return str(error)
    for other in range(max(0, version - _COPIES_FROM), version):
        earlier = commit_path(path.parent.parent, other)
        with suppress(FileNotFoundError):
            if earlier.stat().st_size == mark[2] and earlier.read_bytes() == text:
                return f"commit {version} is a copy of commit {other}"
    return ""


def _file_problem(file: Path, size: int) -> str:
    """Return what a quick check finds wrong with a data file, "" = nothing."""
    try:
        with file.open("rb") as data:
            there = os.fstat(data.fileno()).st_size
            if there != size:
                return f"has {there} bytes instead of {size}"
            data.seek(-len(_PARQUET_MAGIC), os.SEEK_END)
            is_whole = data.read() == _PARQUET_MAGIC
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return "" if is_whole else "is no Parquet file"


@lru_cache(maxsize=1_000)
def _checkpoint_problem(file: str, mark: _Mark, version: int) -> str:
    """Return what is wrong with a checkpoint, "" = nothing.

    It must hold what its own commit says.
    """
    if not mark[2]:
        return "is empty"
    try:
        with pq.ParquetFile(file) as found:
            if "add" not in found.schema_arrow.names:
                return "" if found.metadata.num_rows else "is empty"  # of another kind
            rows = found.read(columns=["add.path", "txn.appId", "txn.version"])
    except Exception as error:  # noqa: BLE001 a damaged file may raise anything
        return f"is damaged: {first_line(error)}"
    try:
        commit = read_commit(Path(file).parent.parent, version)
    except DamagedTableError:
        commit = None
    if commit is None:
        return ""
    named = {unquote(one["path"]) for one in rows["add"].to_pylist() if one and one["path"]}
    known = {one["appId"]: one["version"] for one in rows["txn"].to_pylist() if one}
    is_of_it = all(name in named for name, _ in commit.files) and all(
        known.get(app) == number for app, number in commit.transactions.items()
    )
    return "" if is_of_it else f"is of another version than {version}"


# -- opening


def open_on_disk(table: Path, version: int | None) -> DeltaTable:
    """The table without what is damaged in its log, where that loses nothing.

    Raises DamagedTableError, TableNotFoundError.
    """
    try:
        state = inspect_log(table, version)
    except PermissionError as error:
        raise DamagedTableError(
            f"the table {table.name} can't be read",
            why=f"{error.filename}: {error.strerror}",
            next_step="let a user read it who may, as the job's does, or give this one the right",
        ) from error
    if state.torn:
        _say(f"{state.torn}; version {state.version} is shown until the job has mended it")
    for name, cause in state.left_out.items():
        _say(f"{log_path(table) / name} {cause}; the table is read without it")
    with naming_damaged_file(table):
        if not state.left_out:
            return DeltaTable(str(table), version=state.version if state.torn else version)
        return _opened_without(table, state, version)


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
            next_step=_MEND,
        )


def _opened_without(table: Path, state: LogState, version: int | None) -> DeltaTable:
    """Open a folder of links to all files but these.

    delta-rs can't be told to leave files out.
    """
    folder = tempfile.TemporaryDirectory(prefix="ballast-log-")
    links = Path(folder.name) / table.name
    log_path(links).mkdir(parents=True)
    for part, left_out in ((".", {_LOG: ""}), (_LOG, state.left_out)):
        for file in (table.absolute() / part).iterdir():
            if file.name not in left_out:
                (links / part / file.name).symlink_to(file)
    handle = DeltaTable(str(links), version=state.version if state.torn else version)
    weakref.finalize(handle, folder.cleanup)
    return handle


@lru_cache(maxsize=1_000)
def _say(text: str) -> None:
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
        is_of_a_file = is_panic or not handles or _OF_A_FILE.search(str(error)) is not None
        found = next(filter(None, map(_damaged_file, handles if is_of_a_file else [])), None)
        if found is None and handles and not is_panic:
            raise
        place = next((one.table_uri if isinstance(one, DeltaTable) else one for one in tables), "")
        cause = f"can't be read: {first_line(error)}"
        raise (found or damaged(place, f"a file of {place}", cause)) from error


def _damaged_file(handle: DeltaTable) -> DamagedTableError | None:
    """The error for the first data file of a version that is not what its commit says."""
    if is_store(handle.table_uri):
        return None
    folder = table_place(handle.table_uri)
    files = pa.table(handle.get_add_actions())
    for name, size in zip(files["path"].to_pylist(), files["size_bytes"].to_pylist(), strict=True):
        file = Path(str(folder / unquote(name)))
        cause = _file_problem(file, size)
        try:
            if not cause:
                with pq.ParquetFile(file) as found:
                    found.read()
        except Exception as error:  # noqa: BLE001 a damaged file may raise anything
            cause = f"is damaged: {first_line(error)}"
        if cause:
            return damaged(folder, file.resolve(), cause)
    return None

"""Files of a table's log: commits, the newest version, and damaged files.

`table_scan` opens tables without the files that this module finds damaged. A power cut can tear
the newest commit (empty, cut, without its data) before anybody relies on it: readers get the
version before it. A damaged checkpoint is left out where the log still has its commits. Any other
damage raises DamagedTableError, which names the file and the next command. Object stores write
whole files or none, so their logs are not checked. Source: the Delta transaction protocol; the
keys "ballast..." in commitInfo are ours.
"""

import hashlib
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote

import pyarrow.parquet as pq

from jobs.adapters.delta.table_location import TablePlace
from jobs.atomic_file import sync_path
from jobs.console import CommandError, first_line

METADATA_KEY = "ballast"
"""In commitInfo of the job's commits: metadata of the batch, as JSON."""
CLAIM_KEY = "ballast_claim"
"""In commitInfo of a commit by which a job claimed the table: the id of the claim."""
VERSIONS = "versions"
"""In the batch metadata of `ownership_events`: table → its version at that commit."""
HISTORY_KEY = "ballast_history"
"""In commitInfo of a commit that only deleted rows past their retention."""
USER_METADATA = "userMetadata"
"""In commitInfo: what DESCRIBE HISTORY of Spark and others show beside a commit."""
ASIDE_SUFFIX = ".damaged"
"""Suffix of a damaged file that was moved aside; Delta ignores it."""
RESTORE = (
    "put all tables back from a backup as docs/operate.md says under Restore, then `ballast state "
    "rebuild --restored --state-dir DIR` and start the job"
)
REPAIR = "start the job, which moves it aside and repeats the batch, or says what is lost"
HINT = "_last_checkpoint"
LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(\.[^/]+)?\.parquet")
_PARQUET_MAGIC = b"PAR1"
_FILES_ADDED = ("num_added_files", "numFilesAdded", "num_target_files_added")
"""Metrics of added files, as delta-rs names them: write or delete, OPTIMIZE, MERGE."""
_RECHECK_S = 0.05
_COPY_CHECK_COMMITS = 50
"""Number of earlier commits with which a commit is compared, to find copies."""
_Mark: TypeAlias = tuple[int, int, int]
Place = TypeVar("Place", bound=TablePlace)


class DamagedTableError(CommandError, OSError):
    """A table with a missing or damaged file."""


def damaged(
    table: str | TablePlace, file: object, cause: str, next_step: str = RESTORE
) -> DamagedTableError:
    """The error for one file. cause: what is wrong with it, as the end of a sentence."""
    name = str(table).rstrip("/").rpartition("/")[2]
    return DamagedTableError(
        f"the table {name} is damaged", why=f"{file} {cause}", next_step=next_step
    )


class CorruptLogError(ValueError):
    """A file of the log that is not what the Delta protocol says."""


class ReloadReason(str, Enum):
    """Reason for loading all tables whole; also the label of the reloads metric."""

    START = "start"
    LOG_FILE_MISSING = "log_file_missing"
    REPLACED = "replaced"
    REWRITTEN = "rewritten"
    UNREADABLE = "unreadable"
    UNSOUND = "unsound"


class LostError(Exception):
    """The log does not continue the reader's version: the table must be loaded whole."""

    def __init__(self, reason: ReloadReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


# -- a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterCommit:
    """Writer metadata that the job adds to each of its commits.

    now_ms: the batch's time. code_version: digest of the code that decided, "" = not known.
    committed_ms: commit time by the clock of the job's machine, 0 = not known.
    """

    query_id: str
    batch_id: int
    now_ms: int
    code_version: str = ""
    committed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of a table.

    added: files with new rows, relative to the table's folder. Files that a compaction or a
    deletion past the retention rewrote are not among them.
    needs_reload: adding rows is not enough, because other rows were deleted, or the table's schema,
    properties or protocol changed. info: commitInfo. writer: None in commits that are not the
    job's. digest: of the log's file, to recognize the same commit. files: all data files that it
    adds, with their bytes. transactions: application id → version. metadata: of the
    job's batch, empty in commits of others.
    """

    version: int
    added: tuple[str, ...]
    needs_reload: bool
    writer: WriterCommit | None
    info: Mapping[str, Any] = field(default_factory=dict)
    digest: bytes = b""
    files: tuple[tuple[str, int], ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def parse_commit(version: int, text: bytes) -> Commit:
    """Parse a file of the log as a commit.

    Raises CorruptLogError if it is no list of actions.
    """
    if not text.strip():
        raise CorruptLogError(f"commit {version} is empty")
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        found = _commit_of(version, actions, hashlib.sha256(text).digest())
        metrics = found.info.get("operationMetrics") or {}
        files = max(int(metrics.get(name) or 0) for name in _FILES_ADDED)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptLogError(f"commit {version} is no list of Delta actions: {error!r}") from error
    # delta-rs ignores that lines are missing at the end. The job's commits end with their
    # application transaction; others say how many files they add
    has_transaction = CLAIM_KEY in found.info or (
        found.writer is not None and found.writer.batch_id >= 0
    )
    if (has_transaction and not found.transactions) or len(found.files) < files:
        raise CorruptLogError(f"commit {version} lacks its last lines")
    return found


def _commit_of(version: int, actions: list[Mapping[str, Any]], digest: bytes) -> Commit:
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for action in actions:
        for kind, content in action.items():
            found[kind].append(content)
    info = next(iter(found["commitInfo"]), {})
    added, removed = (
        [one for one in found[kind] if one["dataChange"] and HISTORY_KEY not in info]
        for kind in ("add", "remove")
    )
    metadata = info.get(METADATA_KEY) or {}
    metadata = json.loads(metadata) if isinstance(metadata, str) else metadata
    writer = None
    if metadata:
        writer = WriterCommit(
            query_id=str(metadata.get("query_id", "")),
            batch_id=int(metadata.get("batch_id", -1)),
            now_ms=int(metadata.get("now_ms", 0)),
            code_version=str(metadata.get("code_version", "")),
            committed_ms=int(metadata.get("committed_at_ms", 0)),
        )
    return Commit(
        version=version,
        added=tuple(unquote(one["path"]) for one in added),
        needs_reload=bool(removed or found["metaData"] or found["protocol"])
        or any(one.get("deletionVector") for one in added),
        writer=writer,
        info=info,
        digest=digest,
        files=tuple((unquote(one["path"]), int(one["size"])) for one in found["add"]),
        transactions={str(one["appId"]): int(one["version"]) for one in found["txn"]},
        metadata=metadata,
    )


def batch_metadata(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of commitInfo for a batch, for followers and for people."""
    batch, epoch, code = (
        metadata.get(key, "") for key in ("batch_id", "writer_epoch", "code_version")
    )
    return {
        METADATA_KEY: json.dumps(metadata, sort_keys=True),
        USER_METADATA: f"batch {batch}, writer epoch {epoch}, code {code or 'unknown'}",
    }


# -- reading the files


def log_path(table: Place) -> Place:
    """The folder of a table's log."""
    return table / LOG  # type: ignore[return-value]  # of the same kind


def commit_path(table: Place, version: int) -> Place:
    """The file of one commit."""
    return log_path(table) / f"{version:020d}.json"  # type: ignore[return-value]


def read_commit(table: TablePlace, version: int) -> Commit | None:
    """Return a commit, None if it has no file. Raises DamagedTableError."""
    file = commit_path(table, version)
    try:
        text = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return parse_commit(version, text)
    except CorruptLogError as error:
        step = RESTORE if commit_path(table, version + 1).exists() else REPAIR
        raise damaged(table, file, f"is damaged: {error}", step) from error


def file_mark(path: Path) -> _Mark:
    """Return inode, time, size: a new file differs. Raises FileNotFoundError."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


def checkpoint_hint(table: TablePlace) -> bytes:
    """Return the raw hint to the newest checkpoint; b"" if there is none."""
    try:
        return (log_path(table) / HINT).read_bytes()
    except FileNotFoundError:
        return b""


def checkpoint_version(table: TablePlace) -> int:
    """Return the newest checkpoint's version, -1 without a readable hint to one."""
    try:
        return int(json.loads(checkpoint_hint(table))["version"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1


def commits_from(table: TablePlace, first: int, *, step: int = 1) -> Iterator[Commit]:
    """Yield the commits from a version on, or backwards, until one is missing.

    Backwards with step -1. Raises DamagedTableError, OSError.
    """
    for version in count(first, step):
        commit = read_commit(table, version)
        if commit is None:
            return
        yield commit


def last_writer_commit(
    table: TablePlace, version: int, *, steps: int = 1000
) -> WriterCommit | None:
    """Return the job's newest commit at or before `version`, within `steps` commits.

    None when none of them is the job's, or the log does not reach so far back.
    """
    earlier = islice(commits_from(table, version, step=-1), steps)
    return next((commit.writer for commit in earlier if commit.writer is not None), None)


# -- how far a log reaches


def newest_version(table: TablePlace) -> int:
    """Return the newest version that is not torn (0 even if torn); -1 without any."""
    version = max(commit_versions(table), default=-1)
    return version - 1 if version > 0 and torn_commit(table, version) else version


def newest_first(table: TablePlace) -> Iterator[Commit]:
    """Yield all commits that the log has, from the newest whole one back."""
    return commits_from(table, newest_version(table), step=-1)


def commit_versions(table: TablePlace, ending: str = "json") -> list[int]:
    """The versions whose commit, or file of another ending, is in the log, unordered."""
    return [int(file.name[:20]) for file in log_path(table).glob("[0-9]" * 20 + f".{ending}")]


def written_ms(table: TablePlace, version: int) -> int:
    """Return when a commit's file was written, ms since 1970.

    By the clock of its disk or store. A store gives whole seconds: then the end of that second.
    """
    file = commit_path(table, version)
    return file.stat().st_mtime_ns // 1_000_000 if isinstance(file, Path) else file.modified_ms()


# -- which files are whole


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A log on a disk. version: the newest that is whole, -1 = none.

    torn: what is wrong with the commit after it, "" = there is none, or it is whole.
    left_out: name → fault, of damaged checkpoints, and of the hint if it names one of them.
    """

    version: int
    torn: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


def inspect_log(table: Path, version: int | None = None) -> LogState:
    """Check the files that a version is read from. version: None = the newest.

    A log may be cleaned or written during the check, so a second check must confirm damage.
    Raises DamagedTableError.
    """
    with suppress(DamagedTableError, FileNotFoundError):
        found = _inspect(table, version)
        if not found.torn:
            return found
    time.sleep(_RECHECK_S)
    return _inspect(table, version)


def torn_commit(table: TablePlace, version: int) -> str:
    """Return what is wrong with the newest commit, "" = nothing.

    Its data files are checked as well.
    """
    if not isinstance(table, Path):
        return ""
    file = commit_path(table, version)
    try:
        cause = _commit_problem(str(file), file_mark(file))
    except FileNotFoundError:
        return ""
    if cause:
        return f"{file} is damaged: {cause}"
    commit = read_commit(table, version)
    for name, size in commit.files if commit else ():
        problem = data_file_problem(table / name, size)
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
    oldest, newest = min(commits, default=0), max(commits, default=-1)
    start, left_out = _newest_checkpoint(log, names, wanted)
    limit = max(newest, start) if wanted is None else wanted
    if wanted is not None and not oldest <= start + 1 <= limit <= newest:
        return LogState(version=limit)  # a checkpoint alone, or incomplete: delta-rs checks it
    for version in range(start + 1, limit + 1):
        file = commit_path(table, version)
        if version not in commits and version < oldest and left_out:
            # the hint only if no checkpoint is damaged
            name, cause = max(left_out.items(), key=lambda one: (one[0] != HINT, one))
            cause += f", and the log has no commits before version {oldest} to read instead"
            raise damaged(table, log / name, cause)
        if version not in commits:
            raise damaged(table, file, "is missing, and later commits build on it")
        cause = _commit_problem(str(file), file_mark(file))
        if cause and version < newest:
            raise damaged(table, file, f"is damaged: {cause}; later commits build on it")
    torn = torn_commit(table, newest) if limit == newest > start else ""
    if torn and newest == 0:
        raise DamagedTableError(
            f"the table {table.name} was not made to the end", why=torn, next_step=REPAIR
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
    hinted = checkpoint_version(log.parent)
    is_known = any(version == hinted and name not in left_out for version, name in found)
    if hinted >= 0 and not is_known:
        left_out[HINT] = f"names version {hinted}, which has no whole checkpoint"
    return start, left_out


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
    for other in range(max(0, version - _COPY_CHECK_COMMITS), version):
        earlier = commit_path(path.parent.parent, other)
        with suppress(FileNotFoundError):
            if earlier.stat().st_size == mark[2] and earlier.read_bytes() == text:
                return f"commit {version} is a copy of commit {other}"
    return ""


def data_file_problem(file: Path, size: int) -> str:
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

    It must have the files and transactions of its own commit.
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
    is_matching = all(name in named for name, _ in commit.files) and all(
        known.get(app) == number for app, number in commit.transactions.items()
    )
    return "" if is_matching else f"is of another version than {version}"


# -- down to the disk


def sync_commits(table: TablePlace, after: int, last: int) -> None:
    """Bring commits down to the disk: first their data, then their entries in the log.

    after: the version before the first of them. A store has them once it has answered.
    """
    if not isinstance(table, Path) or last <= after:
        return
    there = (read_commit(table, version) for version in range(after + 1, last + 1))
    commits = [one for one in there if one is not None]
    files = [table / name for commit in commits for name, _ in commit.files]
    folders = sorted({file.parent for file in files})
    logged = [commit_path(table, commit.version) for commit in commits]
    made = (table, table.parent) if after < 0 else ()
    for path in (*files, *folders, *logged, log_path(table), *made):
        sync_path(path)


def sync_checkpoint(table: TablePlace) -> None:
    """Sync the newest checkpoint before the log behind it is cleaned."""
    if not isinstance(table, Path):
        return
    log, version = log_path(table), checkpoint_version(table)
    for path in (*log.glob(f"{version:020d}.checkpoint*.parquet"), log / HINT, log):
        sync_path(path)

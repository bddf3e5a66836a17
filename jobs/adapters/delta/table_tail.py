"""Access to a table's log: following it, reading through it, and its extent.

Decides whether the log can be read on from where a reader stopped. It can't when commits between
were cleaned away (a process that was suspended, a laptop that slept), when a file of the log or a
new data file is gone, and when the table was made anew or put back from a backup, also where the
new one has the next version already: then `LostError` tells the reader to load whole, and no commit
is handed out that would leave it in between. Compaction, a checkpoint and a log cut behind the
reader are no reason. What a commit says is `commits`', what its data files hold `table_scan`'s.
Used by every reader that keeps something of a table, or looks back. Delta's log clean-up removes
from the oldest on and never what is past the newest checkpoint.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import count, islice
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.commits import Commit, WriterCommit
from jobs.adapters.delta.table_location import (
    StorePath,
    TablePlace,
    delta_options,
    is_store,
    store_errors,
)
from jobs.adapters.delta.table_log import (
    checkpoint_hint,
    commit_path,
    damaged,
    has_commit,
    hinted_version,
    log_path,
    read_commit,
    torn_commit,
)
from jobs.adapters.delta.table_scan import open_delta, read_file
from jobs.adapters.processes.clocks import boot_ms
from jobs.console import first_line

_STORE_LOOK_MS = 10_000


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


class TableTail:
    """Goes on after a whole load; for one thread. version: up to which all is known.

    A look costs a few calls of the file system; in a store it is one request, and whether the log
    was cut or replaced while nothing new turned up is asked every ten seconds.
    """

    def __init__(self, path: TablePlace, loaded: DeltaTable) -> None:
        """Stand at the version of a handle that the reader has just loaded whole."""
        self.path = path
        self.version = loaded.version()
        self._table_id = str(loaded.metadata().id)
        self._checked_hint = b""
        self._look_ms = _STORE_LOOK_MS if is_store(path) else 0
        self._look_due_ms = 0
        last = read_commit(path, self.version)
        self._digest = b"" if last is None else last.digest

    def new_commits(self) -> Sequence[Commit]:
        """Return the commits after `version`, without gaps, and advance it.

        Raises LostError; DamagedTableError, OSError, DeltaError for a log that can't be read. After
        any of them the reader starts with a new tail.
        """
        found = list(commits_from(self.path, self.version + 1))
        version = self.version + len(found)
        if not found and not self._is_due():
            return ()
        if not self._is_same_table():
            raise LostError(ReloadReason.REPLACED)
        if _is_cut(self.path, version):
            raise LostError(ReloadReason.LOG_FILE_MISSING)
        if found:
            self.version, self._digest = version, found[-1].digest
        return found

    def _is_due(self) -> bool:
        now_ms = boot_ms()
        if now_ms < self._look_due_ms:
            return False
        self._look_due_ms = now_ms + self._look_ms
        return True

    def _is_same_table(self) -> bool:
        """Return True if the commit read last is unchanged, or was cleaned up."""
        there = read_commit(self.path, self.version)
        if there is not None and self._digest:
            return there.digest == self._digest
        # the table is opened for its id once for each checkpoint
        hint = checkpoint_hint(self.path)
        if hint and hint == self._checked_hint:
            return True
        if not hint and not has_commit(self.path, self.version + 1):
            return True  # nothing is left to go on from, which `_is_cut` tells
        if str(open_delta(self.path).metadata().id) != self._table_id:
            return False
        self._checked_hint = hint
        return True


def read_added(
    path: TablePlace, commit: Commit, columns: Iterable[str], cluster: str = ""
) -> list[pa.Table]:
    """The new rows of one cluster in a commit, "" = of all, file by file.

    Raises LostError when a file is gone, which a later version has joined with others, OSError,
    DamagedTableError for one that can't be read.
    """
    wanted = tuple(columns)
    try:
        return [read_file(path / name, wanted, cluster) for name in commit.added]
    except FileNotFoundError:
        raise LostError(ReloadReason.UNREADABLE) from None
    except pa.ArrowException as error:
        cause = f"names a data file that is damaged: {first_line(error)}"
        raise damaged(path, commit_path(path, commit.version), cause) from error


# -- going through a log


def commits_from(table: TablePlace, first: int, *, step: int = 1) -> Iterator[Commit]:
    """Yield the commits from a version on, or backwards, until one is missing.

    Backwards with step -1. Raises DamagedTableError, OSError.
    """
    for version in count(first, step):
        commit = read_commit(table, version)
        if commit is None:
            return
        yield commit


def commits_between(table: TablePlace, first: int, last: int) -> Iterator[Commit]:
    """Yield each commit between two versions. Raises LostError for a gap."""
    reached = first - 1
    for commit in islice(commits_from(table, first), max(0, last - reached)):
        yield commit
        reached = commit.version
    if reached < last:
        raise LostError(ReloadReason.LOG_FILE_MISSING)


def last_writer_commit(
    table: TablePlace, version: int, *, steps: int = 1000
) -> WriterCommit | None:
    """Return the job's newest commit at or before `version`, within `steps` commits.

    None when none of them is the job's, or the log does not reach so far back.
    """
    earlier = islice(commits_from(table, version, step=-1), steps)
    return next((commit.writer for commit in earlier if commit.writer is not None), None)


# -- how far a log reaches


def is_delta(place: TablePlace) -> bool:
    """Return True if there is a Delta table; raises StoreError."""
    if isinstance(place, StorePath) and has_log(place):
        return True
    with store_errors(place):  # delta-rs tells a bucket that is not there from an empty one
        return DeltaTable.is_deltatable(str(place), delta_options(place))


def has_log(table: TablePlace) -> bool:
    """Return True if there is a log folder.

    One request, for places that may be empty for long.
    """
    return log_path(table).is_dir()


def newest_version(table: TablePlace) -> int:
    """The newest whole version in the log, -1 without any."""
    version = max(commit_versions(table), default=-1)
    return version - 1 if version > 0 and torn_commit(table, version) else version


def commit_versions(table: TablePlace) -> list[int]:
    """The versions whose commits are in the log, unordered."""
    return [int(file.stem) for file in log_path(table).glob("[0-9]" * 20 + ".json")]


def checkpoint_version(table: TablePlace) -> int:
    """Return the newest checkpoint's version, -1 without a readable one."""
    return hinted_version(checkpoint_hint(table))


def written_ms(table: TablePlace, version: int) -> int:
    """Return when a commit's file was written, ms since 1970.

    By the clock of its disk or store. A store gives whole seconds: then the end of that second.
    """
    file = commit_path(table, version)
    return file.stat().st_mtime_ns // 1_000_000 if isinstance(file, Path) else file.modified_ms()


def _is_cut(table: TablePlace, version: int) -> bool:
    """Return True if the next version's file is missing, or the log ends too early.

    The log went on without that file, or ends before this version. Commits before a checkpoint may
    be cleaned up, and then the version that was read last may be the checkpoint's own. A commit
    that arrives during the check is no gap.
    """
    checkpoint = checkpoint_version(table)
    is_gone = checkpoint != version and not has_commit(table, version)
    went_on = checkpoint > version or has_commit(table, version + 2)
    return (went_on or is_gone) and not has_commit(table, version + 1)

"""Where a reader stands in a table's log, and how it goes on there: the one way to follow a table.

Decides whether the log can be read on from where the reader stopped. It can't when commits between
were cleaned away (a process that was suspended, a laptop that slept), when a file of the log or a
new data file is gone, and when the table was made anew or put back from a backup, also where the
new one has the next version already: then `LostError` tells the reader to load whole, and no commit
is handed out that would leave it in between. Compaction, a checkpoint and a log cut behind the
reader are no reason. Used by every reader that keeps something of a table. Source: ours; Delta's
log clean-up removes from the oldest on and never what is past the newest checkpoint.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.log import (
    Commit,
    checkpoint_hint,
    checkpoint_version,
    commit_path,
    has_commit,
    read_commit,
)
from jobs.adapters.delta.rows import read_file
from jobs.adapters.delta.table_place import TablePlace, is_store, open_delta
from jobs.adapters.following.view import ReloadReason
from jobs.adapters.processes.clocks import boot_ms

_STORE_LOOK_MS = 10_000
_Mark: TypeAlias = tuple[int, int, int]
"""A file of a disk: its inode, time in ns and size."""


class LostError(Exception):
    """The log does not lead on from where the reader stands: it must load the table whole."""

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
        self._mark = _mark_of(path, self.version)

    def new_commits(self) -> Sequence[Commit]:
        """What came after `version`, which moves on to the newest; none in between is left out.

        Raises LostError; CorruptLogError, OSError, DeltaError for a log that can't be read. After
        any of them the reader begins with a new tail.
        """
        found = []
        version = self.version
        while (commit := read_commit(self.path, version + 1)) is not None:
            found.append(commit)
            version += 1
        if not found and not self._is_due():
            return ()
        if not self._is_same_table():
            raise LostError(ReloadReason.REPLACED)
        if _is_cut(self.path, version):
            raise LostError(ReloadReason.LOG_FILE_MISSING)
        if found:
            self.version, self._digest = version, found[-1].digest
            self._mark = _mark_of(self.path, version)
        return found

    def read_added(self, commit: Commit, columns: Iterable[str], cluster: str) -> list[pa.Table]:
        """As the function of this name."""
        return read_added(self.path, commit, columns, cluster)

    def _is_due(self) -> bool:
        now_ms = boot_ms()
        if now_ms < self._look_due_ms:
            return False
        self._look_due_ms = now_ms + self._look_ms
        return True

    def _is_same_table(self) -> bool:
        """Whether the commit that was read last is still what it was, or was cleaned away."""
        mark = _mark_of(self.path, self.version)
        if mark is not None and mark == self._mark:
            return True
        there = read_commit(self.path, self.version)
        if there is None or not self._digest:
            return self._has_same_id()
        self._mark = mark
        return there.digest == self._digest

    def _has_same_id(self) -> bool:
        """As the table says; asked once for each of its checkpoints, because it opens the table."""
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
    path: TablePlace, commit: Commit, columns: Iterable[str], cluster: str
) -> list[pa.Table]:
    """The new rows of one cluster in a commit, file by file.

    Raises LostError when a file is gone, which a later version has joined with others, OSError,
    ArrowException for one that can't be read.
    """
    wanted = tuple(columns)
    try:
        return [read_file(path / name, wanted, cluster) for name in commit.added]
    except FileNotFoundError:
        raise LostError(ReloadReason.UNREADABLE) from None


def _is_cut(table: TablePlace, version: int) -> bool:
    """Whether the log went on without a file for the next version, or ends before this one.

    Commits before a checkpoint may be cleaned away, and then the version that was read last may be
    the checkpoint's own. A commit that comes while this is asked is no cut.
    """
    checkpoint = checkpoint_version(table)
    is_gone = checkpoint != version and not has_commit(table, version)
    went_on = checkpoint > version or has_commit(table, version + 2)
    return (went_on or is_gone) and not has_commit(table, version + 1)


def _mark_of(table: TablePlace, version: int) -> _Mark | None:
    """None in a store, where the object is read instead, and for a file that is not there."""
    path = commit_path(table, version)
    if not isinstance(path, Path):
        return None
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size

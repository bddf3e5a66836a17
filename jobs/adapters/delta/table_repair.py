"""Commits that outlast a power cut: synced to disk, and repaired where torn.

A batch's files and its log entries reach the disk before brokers are told of it, so a newest commit
that is torn was told to nobody: the job moves it aside and repeats the batch. The tables prove
which it is: each commit of events names the versions that the other tables had reached, and those
follow its own batch. Where they contradict, nothing is moved and DamagedTableError says what to do.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.adapters.delta.commits import Commit, WriterCommit
from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_log import (
    ASIDE_SUFFIX,
    HINT,
    RESTORE,
    DamagedTableError,
    checkpoint_hint,
    commit_path,
    damaged,
    hinted_version,
    inspect_log,
    log_path,
    read_commit,
    torn_commit,
)
from jobs.adapters.delta.table_scan import open_delta
from jobs.adapters.delta.table_tail import commit_versions, commits_from, is_delta, newest_version
from jobs.atomic_file import sync_file, sync_folder
from jobs.console import note
from lbcore.model.tables import (
    BROKERS,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    TABLES,
)

FIRST = (NAMESPACES.name, BROKERS.name)
"""The tables that a batch writes before its events, on which it becomes true."""
_EVENTS = OWNERSHIP_EVENTS.name

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
    for file in files:
        sync_file(file)
    for folder in sorted({file.parent for file in files}):
        sync_folder(folder)
    for commit in commits:
        sync_file(commit_path(table, commit.version))
    sync_folder(log_path(table))
    if after < 0:  # the table was made
        sync_folder(table)
        sync_folder(table.parent)


def sync_checkpoint(table: TablePlace) -> None:
    """Sync the newest checkpoint before the log behind it is cleaned."""
    if not isinstance(table, Path):
        return
    log, version = log_path(table), hinted_version(checkpoint_hint(table))
    for file in log.glob(f"{version:020d}.checkpoint*.parquet"):
        sync_file(file)
    sync_file(log / HINT)
    sync_folder(log)


# -- what the tables prove


def check_complete(root: TablePlace, names: Iterable[str] | None = None) -> None:
    """Refuse tables that lack commits which others name, as after half a restore.

    names: of the tables that count, None = all. A newest commit that is torn counts, for whoever
    opens the table is told; so does one that was moved aside, by which a person lets go of it.
    Raises DamagedTableError; looks at folders only, for stores lose no single object.
    """
    if not isinstance(root, Path):
        return
    wanted = set(names or (table.name for table in TABLES))
    ahead = _batch_without_events(root, sorted(wanted))
    last = _last_batch(root / _EVENTS)
    aside = _quarantined_versions(root / _EVENTS)
    is_told = bool(aside) and max(aside) > (last.version if last else -1)
    if ahead is not None and not is_told and not inspect_log(root / _EVENTS).torn:
        raise damaged(
            root / _EVENTS,
            log_path(root / _EVENTS),
            f"has no commit of batch {ahead.batch_id}, which other tables have",
        )
    known = last.writer.versions if last is not None and last.writer is not None else {}
    for name, version in sorted(known.items()):
        table = root / name
        checkpoints = log_path(table).glob("[0-9]*.checkpoint*.parquet")
        # whether it is whole, was moved aside or cleaned away
        there = [*commit_versions(table), *_quarantined_versions(table)]
        there += [int(file.name[:20]) for file in checkpoints]
        if name in wanted and max(there, default=-1) < version:
            file = commit_path(root / name, version)
            raise damaged(root / name, file, f"is missing: {_EVENTS} names this version")


def repair_tables(root: TablePlace) -> bool:
    """Make the tables ready for their one writer: move aside what no reader misses.

    Damaged checkpoints beside whole commits, and newest commits that were told to nobody; whether
    there were any of these. Called with the state folder's lock held. Raises DamagedTableError
    where more is lost.
    """
    if not isinstance(root, Path):
        return False
    is_mended = False
    for name in (_EVENTS, *(one.name for one in TABLES if one.name != _EVENTS)):
        if log_path(root / name).is_dir():
            with _alone(root / name):
                is_mended |= _repair_table(root, root / name)
    check_complete(root)
    return is_mended


def _repair_table(root: Path, table: Path) -> bool:
    """Repair the log; return True if a commit was moved aside."""
    log, newest = log_path(table), max(commit_versions(table), default=-1)
    torn = torn_commit(table, newest) if newest == 0 else ""
    if not torn:
        state = inspect_log(table)
        torn = state.torn
        for name, cause in state.left_out.items():
            _quarantine_file(log / name, f"it {cause}, and the log is whole without it")
    if torn:
        _check_untold(root, table, newest, torn)
        _quarantine_file(commit_path(table, newest), f"{torn}; nobody was told of it")
    return bool(torn)


def _check_untold(root: Path, table: Path, version: int, torn: str) -> None:
    """Raise DamagedTableError if brokers were told of a torn commit.

    The tables prove it.
    """
    if table.name == _EVENTS:
        is_told = _batch_without_events(root, [one.name for one in TABLES]) is not None
        then = "`ballast state rebuild --restored --state-dir DIR` and start the job"
    else:
        last = _last_batch(root / _EVENTS)
        writer = last.writer if last is not None else None
        is_told = writer is not None and writer.versions.get(table.name, -1) >= version
        then = "start the job"
    if is_told:
        file = commit_path(table, version)
        raise DamagedTableError(
            f"the newest commit of the table {table.name} is damaged, and brokers were told of it",
            why=f"{torn}; later commits of other tables follow it",
            next_step=f"{RESTORE}; or, to go on without what it says: `mv {file} "
            f"{file}{ASIDE_SUFFIX}`, then {then}",
        )


def _batch_without_events(root: Path, names: Iterable[str]) -> WriterCommit | None:
    """Return a batch that other tables have and `ownership_events` lacks.

    Theirs follow its events. The others are looked at first: a batch that comes meanwhile has its
    events before them.
    """
    batches = [
        found.writer
        for name in names
        if name not in (_EVENTS, *FIRST)
        and (found := _last_batch(root / name)) is not None
        and found.writer is not None
    ]
    last = _last_batch(root / _EVENTS)
    known = (last.writer.query_id, last.writer.batch_id) if last and last.writer else ("", -1)
    left = [one for one in batches if one.query_id != known[0] or one.batch_id > known[1]]
    if not left:
        return None
    if not is_delta(root / _EVENTS):
        return left[0]
    events = open_delta(root / _EVENTS)
    for one in left:
        reached = events.transaction_version(f"{_EVENTS}:{one.query_id}")
        if reached is None or reached < one.batch_id:
            return one
    return None


def _last_batch(table: Path) -> Commit | None:
    """The newest commit of a batch, of those that are whole; None without any."""
    commits = commits_from(table, newest_version(table), step=-1)
    return next((one for one in commits if one.writer and one.writer.batch_id >= 0), None)


def _quarantined_versions(table: Path) -> list[int]:
    found = log_path(table).glob("[0-9]" * 20 + f".json{ASIDE_SUFFIX}*")
    return [int(file.name[:20]) for file in found]


def _quarantine_file(file: Path, why: str) -> None:
    taken = file.with_name(f"{file.name}{ASIDE_SUFFIX}")
    while taken.exists():
        taken = taken.with_name(f"{taken.name}-again")
    file.replace(taken)
    sync_folder(file.parent)
    note(f"{file} was moved aside (to {taken.name}): {why}")


@contextmanager
def _alone(table: Path) -> Iterator[None]:
    """Look and move without another job in between.

    What it commits then is never moved.
    """
    folder = os.open(log_path(table), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)

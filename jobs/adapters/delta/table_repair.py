"""Proof that tables are complete, and repair of commits that a power cut has torn.

A batch's files and its log entries reach the disk before brokers get its records, so no broker
knows of a torn newest commit: the job moves it aside and repeats the batch. The tables prove that
no broker knows it: each commit of events names the versions that the other tables had reached, and
those follow its own batch. If they contradict, nothing is moved and DamagedTableError says what to
do.
"""

import fcntl
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from jobs.adapters.delta.table_location import TablePlace, table_place
from jobs.adapters.delta.table_log import (
    ASIDE_SUFFIX,
    RESTORE,
    VERSIONS,
    Commit,
    DamagedTableError,
    commit_path,
    commit_versions,
    damaged,
    inspect_log,
    log_path,
    newest_first,
    torn_commit,
)
from jobs.adapters.delta.table_scan import is_delta, open_delta
from jobs.atomic_file import sync_path
from jobs.console import CommandError, note
from lbcore.model.tables import (
    BROKERS,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    TABLES,
)

BEFORE_EVENTS = (NAMESPACES.name, BROKERS.name)
"""The tables that a batch writes before its events; the commit of events makes it effective."""
_EVENTS = OWNERSHIP_EVENTS.name


def check_present(root: TablePlace, names: Iterable[str] | None = None) -> None:
    """Refuse a place without tables, or with some incomplete; raises CommandError."""
    if not is_delta(table_place(root) / _EVENTS):
        raise CommandError(
            f"there are no tables in {root}",
            why="balance_cluster has never run with this folder",
            next_step="start it (`ballast run-local`), or name the folder with --tables or"
            " --state-dir",
        )
    check_complete(root, names)


def check_complete(root: TablePlace, names: Iterable[str] | None = None) -> None:
    """Refuse tables that lack commits which others name, as after half a restore.

    names: of the tables to check, None = all. A torn newest commit counts as present, because
    opening the table reports it; so does one moved aside, because a person has given it up.
    Tables in an object store are not checked, because a store loses no single object. Raises
    DamagedTableError.
    """
    if not isinstance(root, Path):
        return
    wanted = set(names or (table.name for table in TABLES))
    events, ahead = root / _EVENTS, _batch_without_events(root, sorted(wanted))
    last = _last_batch(events)
    is_given_up = max(commit_versions(events, f"json{ASIDE_SUFFIX}*"), default=-1) > last.version
    if ahead is not None and not is_given_up and not inspect_log(events).torn:
        cause = f"has no commit of batch {ahead['batch_id']}, which other tables have"
        raise damaged(events, log_path(events), cause)
    for name, version in sorted(last.metadata.get(VERSIONS, {}).items()):
        # versions of whole commits, of those moved aside, and of checkpoints that replace them
        there = [
            *commit_versions(root / name, "json*"),
            *commit_versions(root / name, "checkpoint*.parquet"),
        ]
        if name in wanted and max(there, default=-1) < version:
            file = commit_path(root / name, version)
            raise damaged(root / name, file, f"is missing: {_EVENTS} names this version")


def repair_tables(root: TablePlace) -> bool:
    """Make the tables ready for their one writer: move aside what no reader misses.

    These are damaged checkpoints beside whole commits, and torn newest commits that no broker
    knows; returns True if there was such a commit. Called with the state folder's lock held. Raises
    DamagedTableError where more is lost.
    """
    if not isinstance(root, Path):
        return False
    is_repaired = False
    for name in (_EVENTS, *(one.name for one in TABLES if one.name != _EVENTS)):
        if not log_path(root / name).is_dir():
            continue
        log = os.open(log_path(root / name), os.O_RDONLY)
        try:
            fcntl.flock(log, fcntl.LOCK_EX)  # what another job commits is never moved
            is_repaired |= _repair_table(root, root / name)
        finally:
            os.close(log)
    check_complete(root)
    return is_repaired


def _repair_table(root: Path, table: Path) -> bool:
    """Repair the log; return True if a commit was moved aside."""
    newest = max(commit_versions(table), default=-1)
    torn = torn_commit(table, newest) if newest == 0 else ""
    if not torn:
        state = inspect_log(table)
        torn = state.torn
        for name, cause in state.left_out.items():
            why = f"it {cause}, and the log is whole without it"
            _quarantine_file(log_path(table) / name, why)
    if torn:
        _check_unpublished(root, table, newest, torn)
        _quarantine_file(commit_path(table, newest), f"{torn}; nobody was told of it")
    return bool(torn)


def _check_unpublished(root: Path, table: Path, version: int, torn: str) -> None:
    """Raise DamagedTableError if the tables prove that brokers know a torn commit."""
    if table.name == _EVENTS:
        is_published = _batch_without_events(root, [one.name for one in TABLES]) is not None
        then = "`ballast state rebuild --restored --state-dir DIR` and start the job"
    else:
        known = _last_batch(root / _EVENTS).metadata.get(VERSIONS, {})
        is_published, then = known.get(table.name, -1) >= version, "start the job"
    if is_published:
        file = commit_path(table, version)
        raise DamagedTableError(
            f"the newest commit of the table {table.name} is damaged, and brokers were told of it",
            why=f"{torn}; later commits of other tables follow it",
            next_step=f"{RESTORE}; or, to go on without what it says: `mv {file} "
            f"{file}{ASIDE_SUFFIX}`, then {then}",
        )


def _batch_without_events(root: Path, names: Iterable[str]) -> Mapping[str, Any] | None:
    """Return the metadata of a batch that other tables have and its events lack.

    A batch commits its events before the other tables. Those are read first, so that a batch that
    commits meanwhile does not seem to lack its events.
    """
    others = [name for name in names if name not in (_EVENTS, *BEFORE_EVENTS)]
    batches = [metadata for name in others if (metadata := _last_batch(root / name).metadata)]
    known = _last_batch(root / _EVENTS).metadata
    left = [
        one
        for one in batches
        if one["query_id"] != known.get("query_id") or one["batch_id"] > known["batch_id"]
    ]
    if not left or not is_delta(root / _EVENTS):
        return left[0] if left else None
    events = open_delta(root / _EVENTS)
    for one in left:
        reached = events.transaction_version(f"{_EVENTS}:{one['query_id']}")
        if reached is None or reached < one["batch_id"]:
            return one
    return None


def _last_batch(table: Path) -> Commit:
    """Return the newest whole commit of a batch; an empty one without any."""
    batches = (one for one in newest_first(table) if one.metadata.get("batch_id", -1) >= 0)
    return next(batches, Commit(version=-1, added=(), needs_reload=False, writer=None))


def _quarantine_file(file: Path, why: str) -> None:
    taken = file.with_name(f"{file.name}{ASIDE_SUFFIX}")
    while taken.exists():
        taken = taken.with_name(f"{taken.name}-again")
    file.replace(taken)
    sync_path(file.parent)
    note(f"{file} was moved aside (to {taken.name}): {why}")

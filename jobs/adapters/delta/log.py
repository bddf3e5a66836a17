"""Reads a Delta table's log commit by commit, without loading the table.

Decides what a commit means to a follower: rows to add, or that the table must be loaded whole.
Stands under `delta_follower`. Source: the Delta transaction protocol (actions commitInfo, metaData,
protocol, add, remove); the key "ballast" in commitInfo is ours.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import unquote

from jobs.adapters.delta.table_place import StoreError, TablePlace, is_store

_WRITER_KEY = "ballast"
HISTORY_KEY = "ballast_history"
"""In commitInfo of a commit that took rows past their time away, and nothing else."""


class CorruptLogError(ValueError):
    """A file of the log that is not what the Delta protocol says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterCommit:
    """What the job says of itself in each of its commits; now_ms is the batch's time.

    code_version: digest of the code that decided, "" = not told. committed_ms: when it was
    committed by the clock of the job's machine, 0 = not told.
    """

    query_id: str
    batch_id: int
    now_ms: int
    writer_epoch: int
    code_version: str = ""
    committed_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of a table.

    added: files with new rows, relative to the table's folder; those that a compaction wrote anew
    are left out, and those that were only written anew without what is past its time.
    needs_reload: rows were taken away, or the table's schema, properties or protocol changed:
    adding rows is not enough. writer: None in commits that are not the job's. digest: of
    the log's file, by which the same commit is known again.
    """

    version: int
    added: tuple[str, ...]
    needs_reload: bool
    writer: WriterCommit | None
    digest: bytes = b""


def log_path(table: TablePlace) -> TablePlace:
    """The folder of a table's log."""
    return table / "_delta_log"


def has_commit(table: TablePlace, version: int) -> bool:
    """Whether the log has a file for this version."""
    return commit_path(table, version).exists()


def read_commit(table: TablePlace, version: int) -> Commit | None:
    """The commit of this version, None when there is no such file.

    Raises CorruptLogError for a file that is no list of JSON actions.
    """
    try:
        text = commit_path(table, version).read_bytes()
    except FileNotFoundError:
        return None
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        return replace(_commit_of(version, actions), digest=hashlib.sha256(text).digest())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(
            f"commit {version} of {table} is no list of Delta actions: {error!r}"
        ) from error


def checkpoint_version(table: TablePlace) -> int:
    """The version of the newest checkpoint, -1 without one (or with one that can't be read)."""
    try:
        return int(json.loads(checkpoint_hint(table))["version"])
    except StoreError:
        raise
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def checkpoint_hint(table: TablePlace) -> bytes:
    """What the log says of its newest checkpoint, as it is written; b"" when it says nothing."""
    try:
        return (log_path(table) / "_last_checkpoint").read_bytes()
    except FileNotFoundError:
        return b""


def newest_version(table: TablePlace) -> int:
    """The newest version in the log, -1 without any; walks from the newest checkpoint on."""
    version = max(checkpoint_version(table), 0)
    if is_store(table) or not has_commit(table, version):  # a store lists 1,000 in one request
        listed = [int(path.stem) for path in log_path(table).glob("[0-9]" * 20 + ".json")]
        return max(listed, default=-1)
    while has_commit(table, version + 1):
        version += 1
    return version


def oldest_version(table: TablePlace) -> int:
    """The oldest version that the log has a commit of, -1 without any."""
    return min(
        (int(path.stem) for path in log_path(table).glob("[0-9]" * 20 + ".json")), default=-1
    )


def last_writer_commit(
    table: TablePlace, version: int, *, steps: int = 1000
) -> WriterCommit | None:
    """The job's newest commit at or before `version`, looked for in at most `steps` commits.

    None when none of them is the job's, or the log does not reach so far back.
    """
    for earlier in range(version, max(-1, version - steps), -1):
        commit = read_commit(table, earlier)
        if commit is None:
            return None
        if commit.writer is not None:
            return commit.writer
    return None


def commit_path(table: TablePlace, version: int) -> TablePlace:
    """The log's file of a version."""
    return log_path(table) / f"{version:020d}.json"


def _commit_of(version: int, actions: list[Mapping[str, Any]]) -> Commit:
    is_history = any(HISTORY_KEY in action.get("commitInfo", {}) for action in actions)
    changing = [
        (kind, action[kind])
        for action in actions
        for kind in ("add", "remove")
        if kind in action and action[kind]["dataChange"] and not is_history
    ]
    kinds = {kind for action in actions for kind in action}
    added = [action for kind, action in changing if kind == "add"]
    return Commit(
        version=version,
        added=tuple(unquote(action["path"]) for action in added),
        needs_reload=bool(kinds & {"metaData", "protocol"})
        or any(kind == "remove" for kind, _ in changing)
        or any(action.get("deletionVector") for action in added),
        writer=_writer_of(actions),
    )


def _writer_of(actions: list[Mapping[str, Any]]) -> WriterCommit | None:
    said = next((a["commitInfo"].get(_WRITER_KEY) for a in actions if "commitInfo" in a), None)
    if said is None:
        return None
    said = json.loads(said) if isinstance(said, str) else said
    return WriterCommit(
        query_id=str(said["query_id"]),
        batch_id=int(said["batch_id"]),
        now_ms=int(said["now_ms"]),
        writer_epoch=int(said["writer_epoch"]),
        code_version=str(said.get("code_version", "")),
        committed_ms=int(said.get("committed_at_ms", 0)),
    )

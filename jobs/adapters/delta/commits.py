"""What one commit of a Delta table says: the actions of its file of the log as a value.

Decides what a commit means to a follower: rows to add, or that the table must be loaded whole.
Reads nothing: `table_tail` does. Source: the Delta transaction protocol (actions commitInfo,
metaData, protocol, add, remove); the key "ballast" in commitInfo is ours.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

METADATA_KEY = "ballast"
"""In commitInfo of the job's commits: what each says of its batch, as JSON."""
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
    adding rows is not enough. info: what its writer says of it (commitInfo). writer: None in
    commits that are not the job's. digest: of the log's file, by which the same commit is known
    again.
    """

    version: int
    added: tuple[str, ...]
    needs_reload: bool
    writer: WriterCommit | None
    info: Mapping[str, Any] = field(default_factory=dict)
    digest: bytes = b""


def parse_commit(version: int, text: bytes) -> Commit:
    """The commit that a file of the log is. Raises CorruptLogError for no list of JSON actions."""
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        return _commit_of(version, actions, hashlib.sha256(text).digest())
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptLogError(f"commit {version} is no list of Delta actions: {error!r}") from error


def _commit_of(version: int, actions: list[Mapping[str, Any]], digest: bytes) -> Commit:
    is_history = any(HISTORY_KEY in action.get("commitInfo", {}) for action in actions)
    changing = [
        (kind, action[kind])
        for action in actions
        for kind in ("add", "remove")
        if kind in action and action[kind]["dataChange"] and not is_history
    ]
    kinds = {kind for action in actions for kind in action}
    added = [action for kind, action in changing if kind == "add"]
    infos = (action["commitInfo"] for action in actions if "commitInfo" in action)
    info: Mapping[str, Any] = next(infos, {})
    return Commit(
        version=version,
        added=tuple(unquote(action["path"]) for action in added),
        needs_reload=bool(kinds & {"metaData", "protocol"})
        or any(kind == "remove" for kind, _ in changing)
        or any(action.get("deletionVector") for action in added),
        writer=_writer_of(info),
        info=info,
        digest=digest,
    )


def _writer_of(info: Mapping[str, Any]) -> WriterCommit | None:
    said = info.get(METADATA_KEY)
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

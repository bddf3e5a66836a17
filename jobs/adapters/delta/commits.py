"""One commit of a Delta table: the actions of its log file as a value.

Decides what a commit means to a follower: rows to add, or that the table must be loaded whole.
Reads nothing: `table_tail` does. Source: the Delta transaction protocol (actions commitInfo,
metaData, protocol, add, remove). The key "ballast" in commitInfo is ours.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

METADATA_KEY = "ballast"
"""In commitInfo of the job's commits: what each says of its batch, as JSON."""
CLAIM_KEY = "ballast_claim"
"""In commitInfo of a commit by which a job claimed the table: the id of the claim."""
VERSIONS = "versions"
"""In what a commit of events says of its batch: table → the version that it had by then."""
HISTORY_KEY = "ballast_history"
"""In commitInfo of a commit that took rows past their time away, and nothing else."""
USER_METADATA = "userMetadata"
"""In commitInfo: what DESCRIBE HISTORY of Spark and others show beside a commit."""

_FILES_ADDED = ("num_added_files", "numFilesAdded", "num_target_files_added")
"""By delta-rs's names: of a write or delete, an OPTIMIZE, a MERGE."""


class CorruptLogError(ValueError):
    """A file of the log that is not what the Delta protocol says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterCommit:
    """Writer metadata that the job adds to each of its commits.

    now_ms: the batch's time. code_version: digest of the code that decided, "" = not known.
    committed_ms: commit time by the clock of the job's machine, 0 = not known. versions: those that
    other tables had reached by then, all of them durable.
    """

    query_id: str
    batch_id: int
    now_ms: int
    writer_epoch: int
    code_version: str = ""
    committed_ms: int = 0
    versions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One version of a table.

    added: files with new rows, relative to the table's folder; those that a compaction wrote anew
    are left out, and those that were only written anew without what is past its time.
    needs_reload: rows were taken away, or the table's schema, properties or protocol changed:
    adding rows is not enough. info: what its writer says of it (commitInfo). writer: None in
    commits that are not the job's. digest: of the log's file, by which the same commit is known
    again. files: all data files that it adds, with their bytes. transactions: of applications.
    """

    version: int
    added: tuple[str, ...]
    needs_reload: bool
    writer: WriterCommit | None
    info: Mapping[str, Any] = field(default_factory=dict)
    digest: bytes = b""
    files: tuple[tuple[str, int], ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)


def parse_commit(version: int, text: bytes) -> Commit:
    """Parse a file of the log as a commit.

    Raises CorruptLogError for no list of JSON actions.
    """
    if not text.strip():
        raise CorruptLogError(f"commit {version} is empty")
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
        found = _commit_of(version, actions, hashlib.sha256(text).digest())
        metrics = found.info.get("operationMetrics") or {}
        files = max((int(metrics.get(name) or 0) for name in _FILES_ADDED), default=0)
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
    is_history = any(HISTORY_KEY in action.get("commitInfo", {}) for action in actions)
    changing = [
        (kind, action[kind])
        for action in actions
        for kind in ("add", "remove")
        if kind in action and action[kind]["dataChange"] and not is_history
    ]
    kinds = {kind for action in actions for kind in action}
    added = [action for kind, action in changing if kind == "add"]
    files = (action["add"] for action in actions if "add" in action)
    transactions = (action["txn"] for action in actions if "txn" in action)
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
        files=tuple((unquote(file["path"]), int(file["size"])) for file in files),
        transactions={str(one["appId"]): int(one["version"]) for one in transactions},
    )


def batch_metadata(about: Mapping[str, Any]) -> dict[str, str]:
    """Return what commitInfo has of a batch, for followers and for people."""
    batch, epoch, code = (
        about.get(key, "") for key in ("batch_id", "writer_epoch", "code_version")
    )
    return {
        METADATA_KEY: json.dumps(about, sort_keys=True),
        USER_METADATA: f"batch {batch}, writer epoch {epoch}, code {code or 'unknown'}",
    }


def _writer_of(info: Mapping[str, Any]) -> WriterCommit | None:
    said = info.get(METADATA_KEY)
    if said is None:
        return None
    said = json.loads(said) if isinstance(said, str) else said
    return WriterCommit(
        query_id=str(said.get("query_id", "")),
        batch_id=int(said.get("batch_id", -1)),
        now_ms=int(said.get("now_ms", 0)),
        writer_epoch=int(said.get("writer_epoch", -1)),
        code_version=str(said.get("code_version", "")),
        committed_ms=int(said.get("committed_at_ms", 0)),
        versions={str(name): int(one) for name, one in said.get(VERSIONS, {}).items()},
    )

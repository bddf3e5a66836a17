"""Follows ownership_events by reading Delta's log files, for the judge of lookups.

Decides nothing; it is a second reader on purpose, which shares no code with the lookup service
that is judged. Only tables on a local disk: when a commit became readable is taken from its log
file. Source: ours, after the Delta protocol (commitInfo, add, remove).
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from time import time_ns
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lbcore.ownership.records import State
from lbcore.sim.judge import LONG_AGO, Transition

_COLUMNS = ("bundle", "version_id", "state", "source", "destination", "at_ms")


class EventsHistory:
    """The transitions in the table: commit by commit, and within one by version."""

    def __init__(self, table_path: Path) -> None:
        """Reads what is there, all at once; its commits count as long ago."""
        self._path = table_path
        table = DeltaTable(str(table_path))
        self.table_version = table.version()
        self._rest = _transitions(
            table.to_pyarrow_table(columns=list(_COLUMNS)), version=LONG_AGO, from_ms=0, to_ms=0
        )

    def poll(self) -> tuple[list[Transition], int]:
        """The new transitions, and a wall time up to which nothing more can turn up.

        Costs one look at the file system when nothing is new.
        """
        found, self._rest = self._rest, []
        while True:
            looked_at_ms = time_ns() // 1_000_000
            log = self._path / "_delta_log" / f"{self.table_version + 1:020d}.json"
            try:
                text, written_ns = log.read_text(), log.stat().st_mtime_ns
            except FileNotFoundError:
                return found, looked_at_ms
            self.table_version += 1
            found += self._commit(text, written_ns // 1_000_000)

    def _commit(self, text: str, written_ms: int) -> list[Transition]:
        actions = [json.loads(line) for line in text.splitlines() if line]
        said_ms = _commit_time(actions)
        files = [
            pq.read_table(self._path / unquote(action["add"]["path"]), columns=list(_COLUMNS))
            for action in actions
            if "add" in action and action["add"]["dataChange"]
        ]
        if not files:
            return []
        # The log file is written under another name and then linked, so it may have become
        # readable a moment after its time stamp: the judge's allowance covers that moment.
        return _transitions(
            pa.concat_tables(files),
            version=self.table_version,
            from_ms=min(said_ms, written_ms) if said_ms else written_ms,
            to_ms=written_ms,
        )


def _commit_time(actions: Iterable[Mapping[str, Any]]) -> int | None:
    times = (action["commitInfo"].get("timestamp") for action in actions if "commitInfo" in action)
    return next(times, None)


def _transitions(rows: pa.Table, *, version: int, from_ms: int, to_ms: int) -> list[Transition]:
    ordered = rows.sort_by([("version_id", "ascending"), ("at_ms", "ascending")])
    return [
        Transition(
            bundle=row["bundle"],
            version_id=row["version_id"],
            state=State(row["state"]),
            source=row["source"],
            destination=row["destination"],
            decided_at_ms=row["at_ms"],
            table_version=version,
            committed_from_ms=from_ms,
            committed_to_ms=to_ms,
        )
        for row in ordered.to_pylist()
    ]

"""Rows of a table with one row per key at an earlier time, where known.

Rows that nobody has written since are as they were then. The others are looked up in the table's
log, which reaches back half an hour. Keys that neither source covers are reported as unknown, and
never answered with a newer row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from jobs.adapters.delta.table_place import TablePlace
from jobs.adapters.delta.table_scan import open_delta
from jobs.adapters.delta.table_tail import commits_from
from lbcore.model.table import Table

Row: TypeAlias = dict[str, Any]
Scan: TypeAlias = Callable[[DeltaTable], list[Row]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRows:
    """A table's rows at one moment. unknown: the keys that are only known later.

    reach_ms: from when on every row is known.
    """

    rows: Sequence[Row] = ()
    unknown: Sequence[tuple[str, ...]] = ()
    reach_ms: int = 0


def rows_at(path: TablePlace, declared: Table, at_ms: int, scan: Scan) -> PastRows:
    """The rows as they were. scan: gives those of a version that are asked for."""
    table = open_delta(path)
    rows = scan(table)
    reach_ms = max((int(row["at_ms"]) for row in rows), default=0)
    if reach_ms > at_ms:
        batches = list(_batches(path, table.version()))
        then = next((version for version, now_ms in batches if now_ms <= at_ms), None)
        reach_ms = batches[-1][1] if batches else reach_ms
        rows = rows if then is None else _rows_of(path, then, scan) or rows
    later = [row for row in rows if row["at_ms"] > at_ms]
    return PastRows(
        rows=[row for row in rows if row["at_ms"] <= at_ms],
        unknown=sorted(tuple(str(row[key]) for key in declared.key) for row in later),
        reach_ms=reach_ms,
    )


def _rows_of(path: TablePlace, version: int, scan: Scan) -> list[Row] | None:
    try:
        return scan(open_delta(path, version))
    except (DeltaError, OSError):  # the log has the commit, but not what it builds on
        return None


def _batches(path: TablePlace, newest: int) -> Iterator[tuple[int, int]]:
    """The versions that batches made and the log has, newest first: (version, time of the batch).

    A commit that took back what a batch had written is none.
    """
    for commit in commits_from(path, newest, step=-1):
        if commit.writer is not None and commit.writer.batch_id >= 0:
            yield commit.version, commit.writer.now_ms

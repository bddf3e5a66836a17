"""Upkeep that keeps tables fast for months: one table a turn, between batches.

Decides which table is due and which rows are old enough to go. It compacts files (OPTIMIZE),
removes the log before a checkpoint, removes files that no version within the retention names
(VACUUM), and deletes rows past their retention. Runs in the job, because nobody else may write to
its tables. Deletion and compaction are given up if another commit comes between or a data file is
damaged; the next turn tries again.
"""

import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

from jobs.adapters.delta.rows import of_cluster
from jobs.adapters.delta.table_location import table_place
from jobs.adapters.delta.table_log import (
    HISTORY_KEY,
    USER_METADATA,
    DamagedTableError,
    sync_checkpoint,
)
from jobs.adapters.delta.table_reader import open_archive
from jobs.adapters.delta.table_scan import (
    file_sizes,
    naming_damaged_file,
    newest_ms,
    oldest_ms,
    rows_not_in,
    scan,
)
from jobs.adapters.delta.table_writer import TableWriter, commit_options
from jobs.adapters.delta.tables import FILE_RETENTION, interval_s
from lbcore.balancer.book import ACCEPTED
from lbcore.balancer.commands import REMEMBERED_COMMANDS
from lbcore.config.pipeline import ARCHIVED, KEPT
from lbcore.model.tables import (
    ARCHIVES,
    AUDIT,
    COMMANDS,
    CONFIG_VERSIONS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    GONE_DAYS,
    LOAD_HISTORY,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    REJECTED_REPORTS,
    SETTINGS_IN_FORCE,
    TABLES,
)
from lbcore.model.times import DAY_MS
from lbcore.route.bundles import DEAD_STATES

ROWS_MAX = 200_000
"""Rows that one turn looks at: a second's work between two batches."""

_APPEND_ONLY = "delta.appendOnly"
_OPTIONS = commit_options({USER_METADATA: "upkeep"})


@dataclass(slots=True, kw_only=True)
class HistoryUpkeep:
    """Removal of old superseded rows, once for each day and archive version.

    kind: keep, archive (only rows that the archive has) or drop. days: of history that always stay.
    """

    kind: str = KEPT
    days: int = 90
    rows_max: int = ROWS_MAX
    _rows_factor: int = 1
    _done: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, table: DeltaTable, name: str, now_ms: int) -> int:
        """Delete old rows and return their number.

        Raises CommitFailedError when another commit came between.
        """
        if self.kind == KEPT or name not in ARCHIVES:
            return 0
        limit_ms, archive = (now_ms // DAY_MS - self.days) * DAY_MS, None
        if self.kind == ARCHIVED:
            archive = open_archive(table.table_uri.rstrip("/").rpartition("/")[0], name)
            if archive is None:
                return 0
            limit_ms = min(limit_ms, newest_ms(archive) + 1)
        state = (limit_ms, -1 if archive is None else archive.version())
        if self._done.get(name) == state:
            return 0
        times = scan(table, ("at_ms",), f"at_ms < {limit_ms}")["at_ms"].combine_chunks()
        looked_at = self.rows_max * self._rows_factor  # more after a turn in which all had to stay
        is_all, until_ms = len(times) <= looked_at, limit_ms
        if not is_all:
            kept = pc.select_k_unstable(times, looked_at, [("at_ms", "ascending")])
            until_ms = int(pc.max(times.take(kept)).as_py()) + 1
        gone = _remove_superseded(table, name, until_ms, archive)
        self._rows_factor = 1 if gone or is_all else 2 * self._rows_factor
        if is_all:
            self._done[name] = state
        return gone


def _remove_superseded(
    table: DeltaTable, name: str, until_ms: int, archive: DeltaTable | None
) -> int:
    """Rewrite the rows before a time without superseded ones; return their number."""
    condition, identity = f"at_ms < {until_ms}", ARCHIVES[name].identity
    schema = pa.schema(table.schema())
    old = scan(table, schema.names, condition)
    going = _SUPERSEDED[name](old, table, until_ms)
    if archive is not None:
        missing = rows_not_in(old, scan(archive, identity, condition), identity)
        # all rows of a bundle stay then: the successor of a row must be archived as well
        going = rows_not_in(going, missing, ("cluster", ARCHIVES[name].ordered_by))
    if not len(going):
        return 0
    if table.metadata().configuration.get(_APPEND_ONLY) == "true":
        table.alter.set_table_properties({_APPEND_ONLY: "false"})
    metadata = {
        HISTORY_KEY: json.dumps({"before_ms": until_ms}),
        USER_METADATA: "upkeep: old history",
    }
    left = rows_not_in(old, going, identity).select(schema.names).cast(schema)
    write_deltalake(table, left, mode="overwrite", predicate=condition, **commit_options(metadata))
    return len(going)


def _old_events(old: pa.Table, table: DeltaTable, until_ms: int) -> pa.Table:
    """Return the events that are not the newest of their bundle before the time.

    Also the newest event of a deleted bundle, unless an older version of the bundle is dated later
    (a clock was ahead): that one would make the bundle seem to exist again.
    """
    keys = ["cluster", "bundle"]
    newest = _version_of_each(old, keys, "max")
    later = scan(table, (*keys, "version_id"), f"at_ms >= {until_ms}")
    last = old.join(newest, keys=[*keys, "version_id"], join_type="inner")
    dead = pa.array([state.value for state in DEAD_STATES])
    last = last.filter(pc.is_in(last["state"], dead))
    rest = _version_of_each(later, keys, "min").rename_columns([*keys, "later"])
    last = last.join(rest, keys=keys, join_type="left outer")
    last = last.filter(pc.less(last["version_id"], pc.fill_null(last["later"], 1 << 62)))
    others = old.join(newest, keys=[*keys, "version_id"], join_type="left anti")
    return pa.concat_tables([others, last.select(others.column_names)])


def _version_of_each(rows: pa.Table, keys: list[str], pick: str) -> pa.Table:
    """Return the lowest or highest version of each key. pick: min or max."""
    found = rows.group_by(keys).aggregate([("version_id", pick)])
    return found.select([*keys, f"version_id_{pick}"]).rename_columns([*keys, "version_id"])


def _old_commands(old: pa.Table, table: DeltaTable, until_ms: int) -> pa.Table:
    """The commands that have ended and are not among those that a balancer remembers."""
    ended = old.filter(pc.not_equal(old["status"], ACCEPTED))
    parts = [ended.slice(0, 0)]
    for cluster, since_ms in remembered_since_ms(table).items():
        is_old = pc.less(ended["at_ms"], min(until_ms, since_ms))
        parts.append(ended.filter(pc.and_(pc.equal(ended["cluster"], cluster), is_old)))
    return pa.concat_tables(parts)


def remembered_since_ms(commands: DeltaTable) -> dict[str, int]:
    """Return cluster → time of the oldest command that is remembered. O(rows)."""
    found = scan(commands, ("cluster", "at_ms"))
    since_ms: dict[str, int] = {}
    for cluster in sorted(pc.unique(found["cluster"]).to_pylist()):
        times = found.filter(pc.equal(found["cluster"], cluster))["at_ms"].combine_chunks()
        kept = pc.select_k_unstable(times, REMEMBERED_COMMANDS, [("at_ms", "descending")])
        since_ms[cluster] = pc.min(times.take(kept)).as_py()
    return since_ms


_SUPERSEDED: Mapping[str, Callable[[pa.Table, DeltaTable, int], pa.Table]] = {
    OWNERSHIP_EVENTS.name: _old_events,
    COMMANDS.name: _old_commands,
}


KEPT_DAYS: Mapping[str, int] = {
    DECISIONS.name: 90,
    DECISION_CANDIDATES.name: 90,
    DECISION_EFFECTS.name: 90,
    LOAD_HISTORY.name: 30,
    REJECTED_REPORTS.name: 30,
    AUDIT.name: 365,
    CONFIG_VERSIONS.name: 365,
    SETTINGS_IN_FORCE.name: 365,
}
"""Table → days after which its rows are deleted; settings only if replaced before then.

History goes after `pipeline.history_days`; other tables lose only rows of deleted things
(`Table.gone`).
"""

STAYS: Mapping[str, str] = {DECISIONS.name: "kind = 'plan'"}
"""Table → condition of rows that stay for ever: who proposed or decided which plan."""

_REPLACED_BY: Mapping[str, str] = {
    CONFIG_VERSIONS.name: "number",
    SETTINGS_IN_FORCE.name: "at_ms",
}

GONE: Mapping[str, str] = {table.name: table.gone for table in TABLES if table.gone}

JOINED_BYTES = (500_000, 4_000_000, 32_000_000)
"""Target sizes of compaction: the first that leaves few enough files is used. Always using the last
would rewrite all of a small table each time, and keep the old files for the retention. As soon as
there is enough for a file of the last size, it is made: half a second's work between two
batches."""
_FULL = 0.75
"""Part of the last size from which a file counts as full, and causes no compaction."""

_SEARCHES = 6
"""Number of searches for removable files within their retention time."""


@dataclass(slots=True)
class TableUpkeep:
    """Upkeep of one table per interval, called after each batch.

    interval_ms: between two turns, 0 = never; the tables take turns. files_max: files of a table
    that are not full; more are joined. history: deletes history past its days.
    """

    writer: TableWriter
    interval_ms: int
    files_max: int
    history: HistoryUpkeep = field(default_factory=HistoryUpkeep)
    _turn: int = 0
    _due_s: float = 0.0
    _removed_s: dict[str, float] = field(default_factory=dict)

    def __call__(self, now_ms: int) -> Mapping[str, Any] | None:
        """Look after one table when it is time; return what was done, None = not yet.

        now_ms: since 1970, for the age of rows.
        """
        if not self.interval_ms or time.monotonic() < self._due_s:
            return None
        self._due_s = time.monotonic() + self.interval_ms / 1_000
        name = TABLES[self._turn % len(TABLES)].name
        self._turn += 1
        return self.look_after(name, now_ms)

    def look_after(self, name: str, now_ms: int) -> Mapping[str, Any]:
        """Look after one table now. Raises FencedError when it is another job's."""
        started_s = time.monotonic()
        table = self.writer.refreshed(name)
        before = table.version()
        done: dict[str, Any] = {"event": "upkeep", "table": name}
        try:
            with naming_damaged_file(table):  # old data that is damaged does not stop the job
                expired = _expire(table, name, now_ms)
                done["rows_expired"] = expired + self.history(table, name, now_ms)
                done["files_joined"] = self._join(table)
        except (CommitFailedError, DamagedTableError) as error:
            done["given_up"] = str(error)
        table = self.writer.refreshed(name)
        self.writer.sync(name, before)
        before = table.version()
        table.create_checkpoint()
        # on disk first: the checkpoint replaces the log that is cleaned
        sync_checkpoint(table_place(table.table_uri))
        table.cleanup_metadata()
        done["files_removed"] = self._remove_files(table, name)
        if name == OWNERSHIP_EVENTS.name:
            done["files_removed"] += self.writer.remove_old_pending_rows()
        self.writer.sync(name, before)
        done["files"] = len(table.file_uris())
        done["took_ms"] = round((time.monotonic() - started_s) * 1_000)
        return done

    def _remove_files(self, table: DeltaTable, name: str) -> int:
        """Remove files that no version within the retention names; return how many.

        O(files there are). A full VACUUM, which lists the folder: by default it takes removed files
        from the log, and a checkpoint drops those whose retention is over.
        """
        kept_s = interval_s(table.metadata().configuration.get(FILE_RETENTION, ""))
        now_s = time.monotonic()
        if now_s < self._removed_s.get(name, -math.inf) + kept_s / _SEARCHES:
            return 0
        self._removed_s[name] = now_s
        return len(table.vacuum(dry_run=False, full=True, **_OPTIONS))

    def _join(self, table: DeltaTable) -> int:
        last = JOINED_BYTES[-1]
        sizes = [size for size in file_sizes(table) if size < _FULL * last]
        if sum(sizes) < last and len(sizes) <= self.files_max:
            return 0
        enough = (
            to for to in JOINED_BYTES if _count_after_joining(sizes, to) <= self.files_max // 2
        )
        to = last if sum(sizes) >= last else next(enough, last)
        return int(table.optimize.compact(target_size=to, **_OPTIONS)["numFilesRemoved"])


def _count_after_joining(sizes: Sequence[int], to: int) -> int:
    """Return the number of files after joining those smaller than `to` bytes."""
    small = [size for size in sizes if size < to]
    return len(sizes) - len(small) + -(-sum(small) // to)


def _expire(table: DeltaTable, name: str, now_ms: int) -> int:
    """Delete rows past their days, and rows of things long deleted; return the number."""
    past_ms, gone_ms = (now_ms - days * DAY_MS for days in (KEPT_DAYS.get(name, 0), GONE_DAYS))
    deleted, gone = 0, GONE.get(name)
    if name in _REPLACED_BY:
        deleted += _delete_older(table, _replaced(table, _REPLACED_BY[name], past_ms), past_ms)
    elif name in KEPT_DAYS:
        deleted += _delete_older(table, f"NOT ({STAYS[name]})" if name in STAYS else "", past_ms)
    if name == NAMESPACES.name:  # only those below the cluster's version floor, its row of ''
        floors = scan(table, ["cluster", "highest_version"], "namespace = ''").to_pylist()
        below = [
            f"({of_cluster(r['cluster'])} AND highest_version <= {r['highest_version']})"
            for r in floors
        ]
        gone = f"{gone} AND ({' OR '.join(below)})" if below else None
    return deleted + _delete_older(table, gone, gone_ms)


def _replaced(table: DeltaTable, order: str, limit_ms: int) -> str | None:
    """Return the SQL condition of settings replaced before the time; None = none.

    order: the column by which later ones replace earlier ones.
    """
    rows = scan(table, ["cluster", order], f"at_ms < {limit_ms}")
    ends = rows.group_by("cluster").aggregate([(order, "min"), (order, "max")]).to_pylist()
    replaced = (
        f"({of_cluster(row['cluster'])} AND {order} < {row[f'{order}_max']})"
        for row in ends
        if row[f"{order}_min"] < row[f"{order}_max"]
    )
    return " OR ".join(replaced) or None


def _delete_older(table: DeltaTable, condition: str | None, limit_ms: int) -> int:
    """Delete rows before a time that meet a condition; return their number.

    Does nothing until there is a day's worth. condition: "" = all, None = none.
    """
    if condition is None:
        return 0
    # without the condition, statistics mostly show that there are none
    for which in dict.fromkeys(("", condition)):
        first_ms = oldest_ms(table, which)
        if first_ms is None or first_ms >= limit_ms - DAY_MS:
            return 0
    where = " AND ".join(filter(None, (f"at_ms < {limit_ms}", condition and f"({condition})")))
    return int(table.delete(where, **_OPTIONS)["num_deleted_rows"])

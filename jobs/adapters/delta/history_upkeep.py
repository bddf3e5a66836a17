"""Lets go of the history that is past its days: the part of upkeep that takes rows away for good.

Decides which rows of `ownership_events` and `commands` may go; never one that its archive has not,
where history is archived. What stays is enough for every question about the time since: of each
bundle the newest event before it, of commands those that have not ended and as many as the balancer
remembers. One commit, which says that it took only old rows away, so that followers go on. Source:
ours.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, write_deltalake

from jobs.adapters.delta.archived_rows import open_archive, rows_not_in
from jobs.adapters.delta.commits import HISTORY_KEY
from jobs.adapters.delta.table_place import table_place
from jobs.adapters.delta.table_scan import newest_ms, scan
from jobs.adapters.delta.table_writer import NO_CLEANING
from lbcore.balancer.commands.commands import REMEMBERED_COMMANDS
from lbcore.balancer.state.book import ACCEPTED
from lbcore.config.pipeline import ARCHIVED, KEPT
from lbcore.model.archives import ARCHIVES
from lbcore.model.tables import COMMANDS, OWNERSHIP_EVENTS
from lbcore.route.bundles import DEAD_STATES

DAY_MS = 86_400_000
ROWS_MAX = 200_000
"""Rows that one turn looks at: a second's work between two batches."""

_APPEND_ONLY = "delta.appendOnly"


@dataclass(slots=True, kw_only=True)
class HistoryUpkeep:
    """Takes old rows out of a table when its archive has them, once for each state of the two.

    kind: keep, archive or drop. days: of history that stay in any case.
    """

    kind: str = KEPT
    days: int = 90
    rows_max: int = ROWS_MAX
    _times: int = 1
    _done: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __call__(self, table: DeltaTable, name: str, now_ms: int) -> int:
        """Delete old rows and return their number.

        Raises CommitFailedError when another commit came between.
        """
        if self.kind == KEPT or name not in ARCHIVES:
            return 0
        limit_ms = (now_ms // DAY_MS - self.days) * DAY_MS
        archive = None
        if self.kind == ARCHIVED:
            root = table.table_uri.rstrip("/").rpartition("/")[0]
            archive = open_archive(table_place(root), name)
            if archive is None:
                return 0
            limit_ms = min(limit_ms, newest_ms(archive) + 1)
        state = (limit_ms, -1 if archive is None else archive.version())
        if self._done.get(name) == state:
            return 0
        until_ms, is_all = self._turn(table, limit_ms)
        gone = _take_away(table, name, until_ms, archive)
        self._times = 1 if gone or is_all else 2 * self._times
        if is_all:
            self._done[name] = state
        return gone

    def _turn(self, table: DeltaTable, limit_ms: int) -> tuple[int, bool]:
        """Up to which time this turn looks, and whether that is all there is."""
        times = scan(table, ("at_ms",), f"at_ms < {limit_ms}")["at_ms"].combine_chunks()
        looked_at = self.rows_max * self._times  # more, where all of these had to stay
        if len(times) <= looked_at:
            return limit_ms, True
        kept = pc.select_k_unstable(times, looked_at, [("at_ms", "ascending")])
        return int(pc.max(times.take(kept)).as_py()) + 1, False


def _take_away(table: DeltaTable, name: str, until_ms: int, archive: DeltaTable | None) -> int:
    """Write the rows before a time anew without those that may go; how many went."""
    condition = f"at_ms < {until_ms}"
    schema = pa.schema(table.schema())
    old = scan(table, schema.names, condition)
    going = _SUPERSEDED[name](old, table, until_ms)
    if archive is not None:
        identity = ARCHIVES[name].identity
        missing = rows_not_in(old, scan(archive, identity, condition), identity)
        # all of a bundle then: what took a row's place must be in the archive as well
        going = rows_not_in(going, missing, ("cluster", ARCHIVES[name].ordered_by))
    if not len(going):
        return 0
    if table.metadata().configuration.get(_APPEND_ONLY) == "true":
        table.alter.set_table_properties({_APPEND_ONLY: "false"})
    write_deltalake(
        table,
        rows_not_in(old, going, ARCHIVES[name].identity).select(schema.names).cast(schema),
        mode="overwrite",
        predicate=condition,
        commit_properties=CommitProperties(
            custom_metadata={HISTORY_KEY: json.dumps({"before_ms": until_ms})},
            max_commit_retries=0,
        ),
        post_commithook_properties=NO_CLEANING,
    )
    return len(going)


def _old_events(old: pa.Table, table: DeltaTable, until_ms: int) -> pa.Table:
    """The events that are not the newest of their bundle before the time.

    The newest too where the bundle was gone by then, and no older version of it is dated later
    (a clock that was ahead), which would seem to live again.
    """
    keys = ["cluster", "bundle"]
    newest = _highest(old, keys, "max")
    later = scan(table, (*keys, "version_id"), f"at_ms >= {until_ms}")
    last = old.join(newest, keys=[*keys, "version_id"], join_type="inner")
    dead = pa.array([state.value for state in DEAD_STATES])
    last = last.filter(pc.is_in(last["state"], dead))
    if len(later):
        rest = _highest(later, keys, "min").rename_columns([*keys, "later"])
        last = last.join(rest, keys=keys, join_type="left outer")
        is_last = pc.less(last["version_id"], pc.fill_null(last["later"], 1 << 62))
        last = last.filter(is_last).drop_columns(["later"])
    others = old.join(newest, keys=[*keys, "version_id"], join_type="left anti")
    return pa.concat_tables([others, last.select(others.column_names)])


def _highest(rows: pa.Table, keys: list[str], which: str) -> pa.Table:
    found = rows.group_by(keys).aggregate([("version_id", which)])
    return found.select([*keys, f"version_id_{which}"]).rename_columns([*keys, "version_id"])


def _old_commands(old: pa.Table, table: DeltaTable, until_ms: int) -> pa.Table:
    """The commands that have ended and are not among those that a balancer remembers."""
    times = scan(table, ("cluster", "at_ms"))
    ended = old.filter(pc.not_equal(old["status"], ACCEPTED))
    parts = [ended.slice(0, 0)]
    for cluster in pc.unique(ended["cluster"]).to_pylist():
        mine = times.filter(pc.equal(times["cluster"], cluster))["at_ms"].combine_chunks()
        kept = pc.select_k_unstable(mine, REMEMBERED_COMMANDS, [("at_ms", "descending")])
        before_ms = min(until_ms, pc.min(mine.take(kept)).as_py())
        is_gone = pc.and_(pc.equal(ended["cluster"], cluster), pc.less(ended["at_ms"], before_ms))
        parts.append(ended.filter(is_gone))
    return pa.concat_tables(parts)


_SUPERSEDED: Mapping[str, Callable[[pa.Table, DeltaTable, int], pa.Table]] = {
    OWNERSHIP_EVENTS.name: _old_events,
    COMMANDS.name: _old_commands,
}

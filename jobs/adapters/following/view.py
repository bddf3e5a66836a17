"""View of the tables in a follower: its age, changes and past errors.

Read by the lookup service and the Python client.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from jobs.adapters.delta.rows import ORDER_COLUMNS, ROUTE_COLUMNS, BadRow, of_cluster, routes_of
from jobs.adapters.delta.table_log import ReloadReason, WriterCommit
from jobs.adapters.delta.table_scan import scan
from jobs.adapters.processes.clocks import boot_ms
from lbcore.model.bundles import HashFunction
from lbcore.model.tables import BROKERS, NAMESPACES
from lbcore.route.addresses import BrokerAddress
from lbcore.route.bundles import BundleRoute, NamespaceRoutes, Unsound
from lbcore.route.snapshot import LookupSnapshot

logger = logging.getLogger(__name__)

Records: TypeAlias = tuple[list[BundleRoute], list[BadRow]]
"""Those of some rows, and the rows that can't be read."""

_OVERLAP_MS = 600_000


def read_records(
    ownership: DeltaTable, events: DeltaTable, cluster: str
) -> tuple[Records, Records]:
    """Read the records of the current table, and of events that it may lack.

    One table after the other, so that their rows are never in memory together.
    """
    current = scan(ownership, (*ROUTE_COLUMNS, *ORDER_COLUMNS), of_cluster(cluster))
    condition = _not_yet_in(current, events, cluster)
    found = routes_of(current)
    del current
    newer = routes_of(scan(events, ROUTE_COLUMNS, condition))
    # By itself Arrow keeps what it frees: at a million bundles a quarter of the process.
    pa.default_memory_pool().release_unused()
    return found, newer


def _not_yet_in(current: pa.Table, events: DeltaTable, cluster: str) -> str:
    """Return the condition for events that the rows of the current table may lack.

    It includes all later events, by epoch and batch: if a wrong clock dated an event into the
    future, its bundle may have been deleted since.
    """
    condition = of_cluster(cluster)
    if not len(current):
        return condition
    epoch = pc.max(current["writer_epoch"]).as_py()
    of_epoch = current.filter(pc.equal(current["writer_epoch"], epoch))
    batch_id = pc.max(of_epoch["batch_id"]).as_py()
    of_batch = of_epoch.filter(pc.equal(of_epoch["batch_id"], batch_id))
    since_ms = pc.max(of_batch["at_ms"]).as_py() - _OVERLAP_MS
    recent = f"{condition} AND writer_epoch = {epoch} AND at_ms > {since_ms}"
    first = pc.min(scan(events, ("batch_id",), recent)["batch_id"]).as_py()
    oldest = batch_id if first is None else min(first, batch_id)
    return (
        f"{condition} AND (writer_epoch > {epoch}"
        f" OR (writer_epoch = {epoch} AND batch_id >= {oldest}))"
    )


_Hashes: TypeAlias = dict[str, HashFunction]


@dataclass(slots=True)
class UnreadRows:
    """Unreadable rows of the loaded tables. known: the last snapshot, None = none."""

    known: LookupSnapshot | None = None
    _rows: dict[tuple[str, str], BadRow] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """Error text with the next step; "" if there are no unread rows."""
        if not self._rows:
            return ""
        first = self._rows[min(self._rows)]
        return (
            f"{len(self._rows)} rows of the tables can't be read, what they are about is answered "
            f"as it was known before: the row of {first.name} in {first.table} is not what this "
            f"version of the job writes ({first.error}); run the version that wrote it, or compare "
            "the tables with a backup"
        )

    def of_brokers(
        self, found: Iterable[BrokerAddress], bad: Sequence[BadRow]
    ) -> list[BrokerAddress]:
        """Return the brokers, and the known ones whose row can't be read."""
        before = self.known.brokers if self.known is not None else {}
        self._note(BROKERS.name, bad)
        return [*found, *(before[row.name] for row in bad if row.name in before)]

    def of_namespaces(self, found: _Hashes, bad: Sequence[BadRow]) -> _Hashes:
        """Return the hashes, and the known ones whose row can't be read."""
        self._note(NAMESPACES.name, bad)
        kept = {row.name: self._namespace(row.name).hash_function for row in bad}
        return found | {name: known for name, known in kept.items() if known is not None}

    def of_bundles(
        self, found: Sequence[BundleRoute], bad: Sequence[BadRow], *, is_whole: bool = False
    ) -> list[BundleRoute]:
        """Return the readable records, and remember the bad rows.

        is_whole: `found` is all there is, so known records are added where a row is bad.
        """
        for route in found if self._rows else ():
            self._rows.pop(("", route.bundle), None)
        self._rows |= {("", row.name): row for row in bad}
        if not is_whole:
            return list(found)
        known = [self._namespace(row.namespace).records.get(row.name) for row in bad]
        return [*found, *(route for route in known if route is not None)]

    def shown(self, candidate: LookupSnapshot) -> LookupSnapshot:
        """Return the candidate, keeping namespaces that a missing row makes unsound."""
        spoilt = {row.namespace for row in self._rows.values()} & candidate.unsound.keys()
        held = [
            self._namespace(name).with_hash(candidate.namespaces[name].hash_function)
            for name in sorted(spoilt)
        ]
        return candidate.with_replaced(held)

    def _note(self, table: str, bad: Sequence[BadRow]) -> None:
        self._rows = {key: row for key, row in self._rows.items() if key[0] != table}
        self._rows |= {(table, str(row.name)): row for row in bad}

    def _namespace(self, name: str) -> NamespaceRoutes:
        none = NamespaceRoutes(namespace=name)
        return none if self.known is None else self.known.namespaces.get(name, none)


NEVER_FOUND = -1
_SKEW_MAX_MS = 2_000  # larger differences of clocks are errors
_FIND_MS_MAX = 60_000  # longest time from a batch's start until its commit is found
_COMMIT_MS_MAX = 2_000  # longest time of a commit


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A snapshot and its age.

    confirmed_ms, found_ms, absent_ms: by the boot clock. confirmed_ms: when it was last known to be
    the newest. writer: the job's last commit; found_ms: when it was found; absent_ms: when it was
    last known not to be there yet; NEVER_FOUND = unknown. is_found_live: it was found by following,
    not by a load.
    """

    snapshot: LookupSnapshot
    confirmed_ms: int
    writer: WriterCommit | None
    found_ms: int = NEVER_FOUND
    is_found_live: bool = False
    absent_ms: int = NEVER_FOUND

    def age_ms(self, boot_ms: int) -> int:
        """Return the time since this was last known to be the newest, ms."""
        return max(0, boot_ms - self.confirmed_ms)

    def writer_silent_ms(self, now_ms: int) -> int:
        """Time since the batch of the job's last commit, ms; -1 = no commit is known.

        now_ms: this machine's wall clock. If it and the job's clock can't both be right, the time
        since the commit was found here counts instead.
        """
        if self.writer is None:
            return -1
        by_clock_ms = max(0, now_ms - self.writer.now_ms)
        if self.found_ms == NEVER_FOUND:
            return by_clock_ms
        found_ago_ms = max(0, boot_ms() - self.found_ms)
        is_too_short = by_clock_ms < found_ago_ms - _SKEW_MAX_MS
        is_too_long = self.is_found_live and by_clock_ms > found_ago_ms + self._find_limit_ms()
        return found_ago_ms if is_too_short or is_too_long else by_clock_ms

    def _find_limit_ms(self) -> int:
        """Return the longest time from the batch's start until the commit was found."""
        if self.writer is None or not self.writer.committed_ms or self.absent_ms == NEVER_FOUND:
            return _FIND_MS_MAX
        took_ms = min(max(0, self.writer.committed_ms - self.writer.now_ms), _FIND_MS_MAX)
        return took_ms + self._find_delay_max_ms()

    def _find_delay_max_ms(self) -> int:
        """Return the longest time from the commit until it was found."""
        return self.found_ms - self.absent_ms + _COMMIT_MS_MAX + _SKEW_MAX_MS

    def clock_ahead_ms(self, now_ms: int) -> int:
        """Return by how much now_ms is ahead of the job's clock, < 0: behind; 0 = unknown.

        now_ms: this machine's wall clock. The commit was made after absent_ms and before found_ms;
        that is compared with the job's times of the commit and of its batch. Less than 5 s ahead is
        certain only if this reader looks often.
        """
        writer = self.writer
        if writer is None or not writer.committed_ms or self.found_ms == NEVER_FOUND:
            return 0
        found_at_ms = now_ms - max(0, boot_ms() - self.found_ms)
        ages_ms = (found_at_ms - writer.committed_ms, found_at_ms - writer.now_ms)
        if max(ages_ms) < -_SKEW_MAX_MS:
            return max(ages_ms)
        if not self.is_found_live or self.absent_ms == NEVER_FOUND:
            return 0
        return min(ages_ms) if min(ages_ms) > self._find_delay_max_ms() else 0


@dataclass(slots=True, kw_only=True)
class FollowCounts:
    """Counts of events so far, and the present error ("" = none)."""

    reloads: Counter[ReloadReason] = field(default_factory=Counter)
    refused: Counter[Unsound] = field(default_factory=Counter)
    errors: int = 0
    commits: int = 0
    rows: int = 0
    last_error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Changes in a new view.

    commits: version of ownership_events → its records in order. version: the last that was read;
    table_id: of that table. is_whole: everything was reloaded, and commits is empty.
    is_other_table: and earlier versions are those of another table, which this one replaced.
    """

    version: int
    commits: Sequence[tuple[int, Sequence[BundleRoute]]] = ()
    is_whole: bool = False
    is_other_table: bool = False
    table_id: str = ""


class Follower:
    """Common part of followers: the view, its listeners, and the present error.

    Any thread reads `view`, which is swapped whole.
    """

    _TROUBLE = ""

    def __init__(self, cluster: str) -> None:
        self.view: View | None = None
        self.counts = FollowCounts()
        self.cluster = cluster
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each swap, in the follower's thread."""
        self._listeners.append(listener)

    def _notify(self) -> None:
        for listener in self._listeners:
            listener()

    def _note(self, text: str) -> None:
        """Keep the first line of an error, "" = none, and log it once."""
        line = text.partition("\n")[0]
        if line and line != self.counts.last_error:
            logger.warning(self._TROUBLE, extra={"fields": {"error": line}})
        self.counts.last_error = line

"""A world that judges itself after each batch, and whose job can die at any point of one.

What must hold: every batch is computed without an exception, also into the tables' columns; its
records keep the invariants and their versions have no gaps; whoever follows the events knows what
the current table says; what the tables say, a rebuild brings back; a repeated batch comes to the
same effects. A crash before the commit of the events leaves nothing of a batch, one after it all of
it, sent to brokers or not: that the real tables keep this promise at each commit is tested on them.
A second job may take the tables over, and they may be put back from a backup.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.tables import arrow_schema
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    Effect,
    pack_effect,
    table_of,
    unpack_columns,
    unpack_report,
)
from lbcore.balancer.rebuild import raised_events, raised_namespaces, record_from_row
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.model.bundles import Bundle, HashFunction
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.route.bundles import BundleRoute
from lbcore.route.snapshot import LookupSnapshot
from lbcore.scorer.group_update import GroupUpdate
from lbcore.wire.messages import Tick
from tests.support.worlds.checked_world import RebuiltWorld
from tests.support.worlds.world import CLUSTER, PARTITIONS

CRASHES = (
    *("before, repeated", "before, rebuilt", "after, repeated", "after, rebuilt"),
    *("unsent, repeated", "unsent, rebuilt"),
)
KEPT_BACKUPS = 3

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """The tables of one moment, and up to where its job had read."""

    events: Sequence[Row]
    current: Mapping[str, Row]
    other_rows: Mapping[str, Sequence[Row]]
    read: Mapping[tuple[str, int], int]


class FuzzedWorld(RebuiltWorld):
    """A RebuiltWorld with a reader. crash: how the job dies in its next batch, of CRASHES or ""."""

    def __init__(self, config: Config, brokers: int, *, seed: int) -> None:
        self.reader = LookupSnapshot(cluster=CLUSTER)
        self.hashes: dict[str, HashFunction] = {}
        self.crash = ""
        self.backups: list[Backup] = []
        self.in_no_table: dict[str, Row] = {}
        self.restored_ms: list[int] = []
        self.undone: list[Row] = []
        self._unsent: list[OwnershipRecord | str] | None = None
        self._late: list[tuple[int, list[OwnershipRecord]]] = []
        self._fenced_until_ms = 0
        super().__init__(config, brokers, seed=seed, again_one_in=7)

    def step_job(self) -> None:
        """One micro-batch, in which the job may die."""
        crash, self.crash = self.crash, ""
        read = dict(self.read)
        self.job.is_refused = is_lost = crash.startswith("before")
        self._unsent = [] if crash.startswith("unsent") else None
        self._hear_of_the_fenced()
        super().step_job()
        unsent, self._unsent = self._unsent or [], None
        if is_lost:
            self.job.is_refused, self.job.refused = False, None  # read again from its beginning on
            self.read.clear()
            self.read.update(read)
        if crash.endswith("rebuilt"):
            self._say([one for one in unsent if isinstance(one, str)])  # it sends tombstones again
            self.rebuild_job()
        elif crash:
            self.restart_job()
            self._say(unsent)  # the batch comes again
        if not is_lost and self.state is not None:
            self._judge()

    def rebuild_job(self) -> None:
        """A job begins on the tables, and tells brokers every record once more."""
        super().rebuild_job()
        self._send_all()

    def _send_all(self) -> None:
        for _, row in sorted(self.current.items()):
            self._announce(record_from_row(row))

    def take_over(self, late_ms: int) -> None:
        """A second job claims the tables while the first has yet to send its last batch's records.

        late_ms: for so long the first one does not notice, goes on with its ticks, and then sends.
        """
        self._unsent = []
        super().step_job()
        unsent, self._unsent = self._unsent, None
        late = [one for one in unsent if not isinstance(one, str)]
        self._late.append((self.now_ms + late_ms, late))
        self._say([one for one in unsent if isinstance(one, str)])
        self._fenced_until_ms = self.now_ms + late_ms
        self.rebuild_job()
        if self.state is not None:
            self._judge()

    def _hear_of_the_fenced(self) -> None:
        """What a job that lost its tables still says."""
        if self.now_ms < self._fenced_until_ms:
            for partition in range(self.partitions):
                self.append(Tick(cluster=CLUSTER, number=0), partition)
        due = [records for at_ms, records in self._late if at_ms <= self.now_ms]
        self._late = [one for one in self._late if one[0] > self.now_ms]
        for record in (record for records in due for record in records):
            self._announce(record)

    def back_up(self) -> None:
        """Copy the tables."""
        backup = Backup(
            events=list(self.events),
            current=dict(self.current),
            other_rows={name: list(rows) for name, rows in self.other_rows.items()},
            read=dict(self.read),
        )
        self.backups = [*self.backups, backup][-KEPT_BACKUPS:]

    def restore(self, backup: Backup) -> None:
        """Put the tables back, as docs/operate.md says, beside the Kafka that has seen it all."""
        later = {row["bundle"]: row for row in self.newest()}
        kept = {id(row) for row in backup.events}
        self.undone += [row for row in self.events if id(row) not in kept]
        self.events = list(backup.events)
        committed = self.job.committed
        for held in (committed.ownership, committed.records, committed.rows):
            held.clear()
        committed.rows.update({name: list(rows) for name, rows in backup.other_rows.items()})
        for place in self.log:
            is_left = place[0] == "commands"
            self.read[place] = len(self.log[place]) if is_left else backup.read.get(place, 0)
        spaces = {row["namespace"]: row for row in self.other_rows["namespaces"]}
        spaces_now = [{**row, "cluster": CLUSTER} for row in spaces.values()]
        self.other_rows["namespaces"] += raised_namespaces(spaces_now, [CLUSTER], self.now_ms)
        rows = [row for _, row in sorted(backup.current.items())]
        lifted = raised_events(rows, self.now_ms, 0)
        self.events += lifted
        for row in lifted:
            committed.put(row)
        there = {row["bundle"] for row in self.newest()}
        self.in_no_table |= {name: row for name, row in later.items() if name not in there}
        self._late = []
        self.restored_ms.append(self.now_ms)
        self.job.rebuild()
        self._send_all()
        self._restart_reader()

    def _restart_reader(self) -> None:
        self.hashes = {}
        for row in self.other_rows["namespaces"]:
            self._follow_namespace(row)
        empty = LookupSnapshot(cluster=CLUSTER)
        self.reader = empty.with_routes(map(route_of, self.newest())).with_namespaces(self.hashes)

    def forced_versions(self, bundle: str) -> list[int]:
        """With those that restores undid, and those of restores for bundles that none has."""
        undone = (row for row in self.undone if row["bundle"] == bundle and row["is_forced"])
        told = [int(row["version_id"]) for row in undone]
        return [*super().forced_versions(bundle), *told, *self.restored_ms]

    def start(self, name: str) -> None:
        """Start a broker, which reads the records of bundles that no table knows any more, too."""
        super().start(name)
        known = {str(row["bundle"]) for row in self.newest()}
        left = [row for name, row in sorted(self.in_no_table.items()) if name not in known]
        self.brokers[name].inbox += map(record_from_row, left)

    def _say(self, unsent: Iterable[OwnershipRecord | str]) -> None:
        """Send records, and tombstones, which are bundles' names."""
        for one in unsent:
            if isinstance(one, str):
                self._forget(one)
            else:
                self._announce(one)

    def _forget(self, bundle: str) -> None:
        if self._unsent is not None:
            self._unsent.append(bundle)
            return
        super()._forget(bundle)
        self.in_no_table.pop(bundle, None)

    def _announce(self, record: OwnershipRecord) -> None:
        if self._unsent is None:
            super()._announce(record)
        else:
            self._unsent.append(record)

    def append_raw(self, topic: str, key: bytes | None, value: bytes | None) -> None:
        """Put any bytes into the log, as anybody may."""
        partition = self.random.randrange(PARTITIONS) if topic != "commands" else 0
        self.put((topic, partition), key, value, self.stamp_ms(partition))

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        """The second operator's part of a batch, and its rows as columns of the tables."""
        step = super().step_balancer(updates)
        for effect in step.effects:
            check_columns(effect)
        return step

    def take_effects(self, effects: Sequence[Effect]) -> None:
        """The reader follows them."""
        super().take_effects(effects)
        for effect in effects:
            if effect.kind == "namespaces":
                for row in effect.rows:
                    self._follow_namespace(row)
            elif effect.kind == "ownership_events":
                self.reader = self.reader.with_routes(map(route_of, effect.rows))
        self.reader = self.reader.with_namespaces(self.hashes)

    def _follow_namespace(self, row: Row) -> None:
        if row["is_deleted"]:
            self.hashes.pop(row["namespace"], None)
        else:
            self.hashes[row["namespace"]] = HashFunction(row["hash"])

    def _judge(self) -> None:
        """Who follows the events knows what the current table says, and that is sound."""
        assert not self.reader.unsound, self.reader.unsound
        followed = {
            route.bundle: (route.version_id, route.state)
            for found in self.reader.namespaces.values()
            for route in found.live
        }
        current = {
            name: (row["version_id"], State(row["state"]))
            for name, row in self.current.items()
            if row["state"] not in (State.DELETED.value, State.INIT.value)
            and Bundle.parse(name).namespace in self.hashes
        }
        assert followed == current, set(followed.items()) ^ set(current.items())


def check_columns(effect: Effect) -> None:
    """The effect's rows, packed as they travel, fit the columns of their table."""
    blob = pack_effect(effect)
    if effect.kind == REPORT:
        for report in unpack_report(blob):
            json.dumps(report, allow_nan=False).encode()
        return
    columns = unpack_columns(effect.kind, blob)
    if effect.kind in (RESEND, TOMBSTONE):
        return
    for column in arrow_schema(table_of(effect.kind)):
        if column.name in columns:
            made = pa.array(columns[column.name], type=column.type)
            assert column.nullable or not made.null_count, (effect.kind, column.name)


def route_of(row: Row) -> BundleRoute:
    """A row of events as a follower reads it."""
    bundle = Bundle.parse(row["bundle"])
    return BundleRoute(
        bundle=row["bundle"],
        namespace=row["namespace"],
        lower=bundle.range.lower,
        upper=bundle.range.upper,
        state=State(row["state"]),
        version_id=row["version_id"],
        source=row["source"],
        destination=row["destination"],
    )

"""Tables of a lookup service, and followers of them."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from jobs.adapters.delta.table_location import TablePlace
from jobs.adapters.delta.table_log import ReloadReason
from jobs.adapters.delta.tables import arrow_schema, ensure_tables
from jobs.adapters.following.delta_follower import DeltaFollower
from lbcore.model.bundles import even_boundaries
from lbcore.model.names import format_bundle
from lbcore.model.tables import (
    BROKERS,
    BUNDLE_OWNERSHIP,
    NAMESPACES,
    OWNERSHIP_EVENTS,
    POLICIES,
    RECORDS,
    Table,
)
from lbcore.route.snapshot import LookupSnapshot
from tests.support.processes.programs import until

CLUSTER = "c1"
_BLANK: Mapping[str, Any] = {
    "string": "", "long": 0, "int": 0, "double": 0.0, "boolean": False, "binary": b"",
}  # fmt: skip


def arrow_rows(table: Table, rows: Iterable[Mapping[str, Any]], **known: Any) -> pa.Table:
    """Rows of a table; known: of each. A column that neither has is blank."""
    every = [{**known, **row} for row in rows]
    values = [
        {c.name: row.get(c.name, _BLANK.get(c.type, [])) for c in table.columns} for row in every
    ]
    return pa.Table.from_pylist(values, schema=arrow_schema(table))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One version of a bundle's record; the columns that a lookup does not read get constants."""

    bundle: str
    version: int
    state: str = "Owned"
    source: str = ""
    destination: str = ""

    def columns(self, table: Table, **batch: Any) -> dict[str, Any]:
        known = {
            "cluster": CLUSTER,
            "namespace": self.bundle.rpartition("/")[0],
            "bundle": self.bundle,
            "version_id": self.version,
            "state": self.state,
            "source": self.source,
            "destination": self.destination,
            "children": "{}",
            "is_forced": False,
            "cause": "assign",
            "state_before": "Init",
            **batch,
        }
        return {column.name: known.get(column.name, "") for column in table.columns}


class TablesWriter:
    """One job's writing: a query id and an epoch; batches are numbered from `first_batch`."""

    def __init__(
        self, root: TablePlace, query_id: str = "q1", *, epoch: int = 1, first_batch: int = 0
    ) -> None:
        self.tables = ensure_tables(root)
        self.query_id = query_id
        self.epoch = epoch
        self.batch_id = first_batch - 1
        self.now_ms = 1_000_000
        self.committed_ms = 0

    def namespaces(self, hashes: Mapping[str, str], *, deleted: Iterable[str] = ()) -> None:
        """Write namespaces, name to hash; `deleted` are marked so."""
        gone = set(deleted)
        rows = [
            {"namespace": name, "hash": function, "is_deleted": name in gone, "properties": "{}"}
            for name, function in hashes.items()
        ]
        self.upsert(NAMESPACES, "namespace", rows)

    def brokers(self, *names: str, port: int = 6650, listeners: str = "{}") -> None:
        rows = [
            {
                "broker": name,
                "incarnation": "i1",
                "state": "active",
                "web_service_url": f"http://{name}:8080",
                "pulsar_service_url": f"pulsar://{name}:{port}",
                "advertised_listeners": listeners,
                "capacity": 1.0,
                "starts": "[1000]",
            }
            for name in names
        ]
        self.upsert(BROKERS, "broker", rows)

    def batch(self, rows: Sequence[Row], *, current: bool = True) -> int:
        """Commit one batch; returns the version of ownership_events.

        current: False leaves bundle_ownership as it was, as a crash between two commits does.
        """
        self.events(rows)
        if current:
            self.current(rows)
        return self.tables[OWNERSHIP_EVENTS.name].version()

    def events(self, rows: Sequence[Row]) -> None:
        """Commit the events of the next batch; without rows it is a heartbeat."""
        self.batch_id += 1
        self.now_ms += 1_000
        self._append(OWNERSHIP_EVENTS, self._record_rows(OWNERSHIP_EVENTS, rows))

    def current(self, rows: Sequence[Row]) -> None:
        """Bring the current records up to the last batch."""
        if not rows:
            return
        table = self.tables[BUNDLE_OWNERSHIP.name]
        source = self._record_rows(BUNDLE_OWNERSHIP, rows)
        table.update_incremental()
        if table.count() == 0:
            self._append(BUNDLE_OWNERSHIP, source)
            return
        merge = table.merge(
            source,
            "t.cluster = s.cluster AND t.bundle = s.bundle",
            source_alias="s",
            target_alias="t",
            commit_properties=self._properties(BUNDLE_OWNERSHIP),
        )
        newer = "s.version_id > t.version_id"
        merge.when_matched_update_all(newer).when_not_matched_insert_all().execute()

    def forget(self, bundle: str) -> None:
        """Take a deleted bundle out of the current records, as after the tombstone's delay."""
        table = self.tables[BUNDLE_OWNERSHIP.name]
        table.update_incremental()
        table.delete(f"bundle = '{bundle}'")

    def _record_rows(self, table: Table, rows: Sequence[Row]) -> pa.Table:
        batch = {"writer_epoch": self.epoch, "at_ms": self.now_ms, "batch_id": self.batch_id}
        values = [row.columns(table, **batch, seq_in_batch=at) for at, row in enumerate(rows)]
        return pa.Table.from_pylist(values, schema=arrow_schema(table))

    def topics(self, partitions: Mapping[str, int]) -> None:
        """Created topics, persistent://tenant/namespace/name → partitions, 0 = not partitioned."""
        rows = [
            {"record_type": "topic", "name": topic, "value": str(count), "is_deleted": False}
            for topic, count in partitions.items()
        ]
        self.upsert(RECORDS, "name", rows)

    def anti_affinity(self, namespaces: Iterable[str]) -> None:
        policy = {"kind": "anti_affinity", "value": '{"group": "g"}', "is_set": True}
        self.upsert(POLICIES, "name", [{**policy, "name": name} for name in namespaces])

    def upsert(self, table: Table, key: str, rows: list[dict[str, Any]]) -> None:
        fixed = {"cluster": CLUSTER, "highest_version": 1, "at_ms": self.now_ms}
        source = arrow_rows(table, rows, **fixed)
        same = f"t.cluster = s.cluster AND t.{key} = s.{key}"
        merge = self.tables[table.name].merge(source, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def _append(self, table: Table, rows: pa.Table) -> None:
        write_deltalake(
            self.tables[table.name],
            rows,
            mode="append",
            commit_properties=self._properties(table),
        )

    def _properties(self, table: Table) -> CommitProperties:
        metadata = {
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "now_ms": self.now_ms,
            "writer_epoch": self.epoch,
            **({"committed_at_ms": self.committed_ms} if self.committed_ms else {}),
        }
        return CommitProperties(
            custom_metadata={"ballast": json.dumps(metadata)},
            max_commit_retries=0,
            app_transactions=[Transaction(f"{table.name}:{self.query_id}", self.batch_id)],
        )


def bundles_of(namespace: str, count: int) -> list[str]:
    """The names of a namespace's bundles, divided evenly."""
    return [format_bundle(namespace, *ends) for ends in pairwise(even_boundaries(count))]


def owned(namespace: str, count: int, brokers: Sequence[str], version: int = 1) -> list[Row]:
    """All bundles of a namespace, owned by the brokers in turn."""
    return [
        Row(bundle=bundle, version=version, destination=brokers[at % len(brokers)])
        for at, bundle in enumerate(bundles_of(namespace, count))
    ]


NAMESPACE = "acme/orders"
BUNDLES = bundles_of(NAMESPACE, 4)
BROKER_NAMES = ("b1", "b2", "b3")
TOPIC = f"persistent://{NAMESPACE}/t1"
EVENTS = OWNERSHIP_EVENTS.name


def served(follower: DeltaFollower) -> LookupSnapshot:
    assert follower.view is not None
    return follower.view.snapshot


def content(follower: DeltaFollower) -> list[tuple[str, int, str]]:
    """Bundle, version and broker of every live bundle."""
    found = served(follower).namespaces
    return [
        (route.bundle, route.version_id, route.broker)
        for name in sorted(found)
        for route in found[name].live
    ]


def fresh(root: Path) -> DeltaFollower:
    made = DeltaFollower(root, CLUSTER)
    made.poll()
    return made


def move(bundle: str, version: int, to: str) -> Row:
    """A version of a bundle that another broker owns."""
    return Row(bundle=bundle, version=version, source="b1", destination=to)


def poll_until(follower: DeltaFollower, is_reached: Callable[[], bool]) -> None:
    """Poll, as the thread does, at most 60 s."""
    until(lambda: is_reached() or follower.poll(), 60, lambda: follower.counts)


def poll_until_reloaded(follower: DeltaFollower, reason: ReloadReason) -> None:
    """Poll until a load for this reason has been tried."""
    poll_until(follower, lambda: bool(follower.counts.reloads[reason]))

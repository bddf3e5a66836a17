"""Small batches in tables, and the history of an aged cluster."""

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.table_upkeep import HistoryUpkeep, TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.kafka.ownership_publisher import Keyed
from jobs.adapters.spark.batch_sink import BatchSink
from jobs.adapters.spark.checkpoint import Manifest
from jobs.adapters.spark.operators import EFFECT_SCHEMA
from jobs.sql.engine import SqlEngine
from lbcore.balancer.effects import REPORT, Effect, event_row, pack_effect, record_row
from lbcore.config.pipeline import ARCHIVED
from lbcore.model.tables import ARCHIVES, COMMANDS, OWNERSHIP_EVENTS, Table
from lbcore.model.times import DAY_MS
from lbcore.ownership.records import OwnershipRecord, State
from tests.support.tables.lookup_tables import CLUSTER, Row, arrow_rows, bundles_of


class EffectsFrame:
    """The effects of one cluster's batch; those without rows are left out, as the operator does."""

    def __init__(self, effects: Iterable[Effect], cluster: str) -> None:
        self.effects = wanted = [one for one in effects if one.rows or one.kind == REPORT]
        self._table = pa.table(
            {
                "cluster": [cluster] * len(wanted),
                "kind": [one.kind for one in wanted],
                "blob": [pack_effect(one) for one in wanted],
            }
        )
        assert [name for name in self._table.column_names if name not in EFFECT_SCHEMA] == []

    def toArrow(self) -> pa.Table:  # noqa: N802 (Spark's name)
        return self._table


QUERY = "query-1"
READ = {"offsets": {"acks": {"0": 9}}, "topics": {"acks": "anew"}}
BUNDLE_A, BUNDLE_B, BUNDLE_C = (f"t/n/0x{i}0000000_0x{i + 1}0000000" for i in range(3))


class Sent:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.messages: list[Keyed] = []

    def publish(self, messages: Sequence[Keyed]) -> None:
        self.messages += messages


def record(bundle: str, version: int) -> OwnershipRecord:
    return OwnershipRecord(
        cluster="local", bundle=bundle, state=State.FREE, version_id=version, timestamp_ms=5
    )


def batch(*records: OwnershipRecord, now_ms: int = 1_000) -> EffectsFrame:
    ends = {"acks": {"0": 7}}
    report = {"cluster": "local", "now_ms": now_ms, "ends": ends, "is_debugging": False}
    effects = [Effect(kind=REPORT, rows=[report])]
    if records:
        rows = [event_row(None, r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="ownership_events", rows=rows))
        rows = [record_row(r, i) for i, r in enumerate(records)]
        effects.append(Effect(kind="bundle_ownership", rows=rows))
    return EffectsFrame(effects, "local")


def sink_on(root: Path | TableWriter, sent: Sent | None = None) -> BatchSink:
    """A sink on tables that it claims, or that were claimed."""
    lines: list[Mapping[str, Any]] = []
    sink = BatchSink(
        writer=root if isinstance(root, TableWriter) else claimed(root),
        publisher=sent or Sent(),
        claimed=Manifest(code_version="c", config_version="f", scorer_groups=1),
        heartbeat_ms=10_000,
        log=lines.append,
    )
    sink.use_query(QUERY)
    return sink


def claimed(root: Path) -> TableWriter:
    writer = TableWriter(root)
    writer.claim()
    return writer


def rows(root: Path, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pa.table(
        DeltaTable(str(root / table)).scan().read_all()
    ).to_pylist()
    return found


class CrashError(Exception):
    """The job is gone at a point of a batch."""


def crash_at(point: str) -> Callable[[str], None]:
    def passed(reached: str) -> None:
        if reached == point:
            raise CrashError

    return passed


def command_row(command_id: str) -> dict[str, Any]:
    texts = ("kind", "arguments", "principal", "address", "status", "reason", "result")
    return {"cluster": "local", "command_id": command_id, "at_ms": 1, **dict.fromkeys(texts, "x")}


def namespace_row(name: str, version: int) -> dict[str, Any]:
    return {
        "cluster": "local",
        "namespace": name,
        "hash": "crc32",
        "is_deleted": False,
        "highest_version": version,
        "properties": "{}",
        "at_ms": 1,
    }


BUNDLES = bundles_of("acme/orders", 4)
GONE = bundles_of("acme/gone", 2)


class AgedHistory:
    """The job, whose batches are given their times.

    written: table → rows as they are to be read, in the order of their writing.
    """

    def __init__(self, root: Path, *, days: int, kind: str = ARCHIVED) -> None:
        self.root, self.days = root, days
        self.writer = TableWriter(root)
        self.writer.claim()
        self.writer.use_query("q1")
        history = HistoryUpkeep(kind=kind, days=days)
        self.upkeep = TableUpkeep(self.writer, interval_ms=1, files_max=1_000, history=history)
        self.batch_id = -1
        self.events: list[dict[str, Any]] = []
        self.commands: dict[str, dict[str, Any]] = {}
        self._versions: dict[str, int] = {}

    def copied_to(self, root: Path, kind: str = ARCHIVED) -> "AgedHistory":
        """The same history in another folder, with an upkeep of its own."""
        shutil.copytree(self.root, root, dirs_exist_ok=True)
        made = AgedHistory(root, days=self.days, kind=kind)
        made.batch_id, made.events = self.batch_id, [*self.events]
        made.commands, made._versions = {**self.commands}, {**self._versions}
        return made

    def batch(self, at_ms: int, *, gone: bool = False) -> None:
        """A move of a bundle, a command that ends, every fifth time one that doesn't.

        gone: the bundles of a namespace come, and with the next batch go for good.
        """
        self.batch_id += 1
        bundle = BUNDLES[self.batch_id % len(BUNDLES)]
        rows = [self._record(bundle, "Owned")]
        rows += [self._record(name, "Deleted" if gone else "Owned") for name in GONE]
        self._write(OWNERSHIP_EVENTS, [r.columns(OWNERSHIP_EVENTS) for r in rows], at_ms)
        status = "done" if self.batch_id % 5 else "accepted"
        self.command(f"c{self.batch_id}", status, at_ms)

    def command(self, command_id: str, status: str, at_ms: int) -> None:
        self._write(COMMANDS, [{"command_id": command_id, "status": status, "kind": "x"}], at_ms)

    def _record(self, bundle: str, state: str) -> Row:
        version = self._versions[bundle] = self._versions.get(bundle, 0) + 1
        to = "" if state == "Deleted" else f"b{version}"
        return Row(bundle=bundle, version=version, state=state, destination=to)

    def _write(self, table: Table, rows: Iterable[Mapping[str, Any]], at_ms: int) -> None:
        stamps = {"cluster": CLUSTER, "at_ms": at_ms, "batch_id": self.batch_id}
        stamps["writer_epoch"] = self.writer.epoch
        numbered = [{**row, **stamps, "seq_in_batch": at} for at, row in enumerate(rows)]
        arrow = arrow_rows(table, numbered)
        values = arrow.to_pylist()
        metadata = {"query_id": "q1", "batch_id": self.batch_id, "now_ms": at_ms}
        metadata["writer_epoch"] = self.writer.epoch
        self.writer.write(table.name, arrow, self._next(table), metadata)
        if table == COMMANDS:
            self.commands |= {row["command_id"]: row for row in values}
        else:
            self.events += values

    def _next(self, table: Table) -> int:
        """A number a commit, which a batch that writes two commands has twice."""
        return self.writer.version(table.name) + 1

    def look_after(self, now_ms: int) -> int:
        """A turn of both tables; how many rows went."""
        return sum(self.upkeep.look_after(name, now_ms)["rows_expired"] for name in ARCHIVES)

    def owners_at(self, at_ms: int) -> dict[str, str]:
        """Bundle → owner, of all that was written."""
        newest: dict[str, dict[str, Any]] = {}
        for row in self.events:
            if row["at_ms"] <= at_ms:
                before = newest.get(row["bundle"])
                if before is None or row["version_id"] > before["version_id"]:
                    newest[row["bundle"]] = row
        return {name: row["destination"] for name, row in newest.items() if row["state"] == "Owned"}

    def check(self) -> None:
        """SQL gives exactly what was written, each row once."""
        engine = SqlEngine(self.root)
        events = engine.query("SELECT * FROM ownership_events").to_pylist()
        assert _sorted(events) == _sorted(self.events)
        commands = engine.query("SELECT * FROM commands").to_pylist()
        assert _sorted(commands) == _sorted(self.commands.values())


def _sorted(rows: Iterable[Mapping[str, Any]]) -> list[list[tuple[str, Any]]]:
    return sorted(sorted(row.items()) for row in rows)


def day(number: int, *, now_ms: int) -> int:
    return (now_ms // DAY_MS - number) * DAY_MS + DAY_MS // 2

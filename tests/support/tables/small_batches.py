"""Batches with a few records, and the sink that writes them to tables of a test's own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.kafka.ownership_publisher import Keyed
from jobs.adapters.spark.batch_sink import BatchSink, CommitIdentity
from jobs.adapters.spark.operators import EFFECT_SCHEMA
from lbcore.balancer.state.effects import (
    REPORT,
    Effect,
    event_row,
    pack_effect,
    record_row,
)
from lbcore.ownership.records import OwnershipRecord, State


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
        identity=CommitIdentity(query_id="", code_version="c", config_version="f"),
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

"""The sink of the streaming job: a batch's effects as commits, records, log lines.

Writes, in this order, each durable before the next begins:

1. `namespaces` and `brokers`, which a reader needs to understand an event
2. a file with the rows of all that follows
3. `ownership_events`; the commit names that file, and makes the batch valid
4. all other tables, and beside them the records for Kafka: brokers act on what is durable

Repeating a batch commits nothing twice; its records are sent again, in the same versions. The job
stops if the newest commit of `ownership_events` has the same batch with other effects.
"""

import hashlib
import itertools
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from jobs.adapters.delta.table_repair import BEFORE_EVENTS
from jobs.adapters.delta.table_upkeep import TableUpkeep
from jobs.adapters.delta.table_writer import TableWriter
from jobs.adapters.delta.tables import arrow_rows, arrow_schema, without_bundles
from jobs.adapters.kafka.connection import Ends
from jobs.adapters.kafka.ownership_publisher import Keyed, OwnershipPublisher
from jobs.adapters.processes.clocks import wall_ms
from jobs.adapters.spark.checkpoint import Manifest, Resumption, note_version, query_id
from jobs.telemetry.job_metrics import WrittenBatch
from lbcore.balancer.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    table_of,
    unpack_columns,
    unpack_report,
)
from lbcore.balancer.rebuild import record_from_row
from lbcore.balancer.report import FAULTS, GAUGES
from lbcore.fault_isolation import ALARM, Fault, fault_of, summarize_faults
from lbcore.model.tables import (
    BUNDLE_OWNERSHIP,
    COMMANDS,
    DECISION_CANDIDATES,
    DECISIONS,
    OWNERSHIP_EVENTS,
    REJECTED_REPORTS,
    TABLES,
)
from lbcore.ownership.records import format_record, record_key

_UNLOGGED = frozenset({"ends", FAULTS, GAUGES})
_IDS_MAX = 20
_BROKERS_MAX = 200
_SPARSE = 10
"""With more than _BROKERS_MAX brokers, every tenth batch logs them: for 1,000 brokers a line has
0.14 MB, which would be 12 GB a day."""

_DEBUGGED = {
    OWNERSHIP_EVENTS.name: "transition",
    DECISIONS.name: "decision",
    DECISION_CANDIDATES.name: "candidate",
    REJECTED_REPORTS.name: "rejected",
}
_UNSHOWN = frozenset({"raw", "writer_epoch", "at_ms"})
_COMMAND = ("command_id", "kind", "status", "reason", "principal", "address")


def lines_of(batch: WrittenBatch, extra: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the log lines of a batch. extra: further fields of each cluster's line."""
    duration_ms = sum(batch.parts_ms.values())
    for report in batch.reports:
        shown = {key: value for key, value in report.items() if key not in _UNLOGGED}
        if batch.batch_id % _SPARSE and len(shown.get("brokers", ())) > _BROKERS_MAX:
            del shown["brokers"]
        common = {"batch_id": batch.batch_id, "duration_ms": duration_ms}
        yield {"event": "batch", **common, "parts": dict(batch.parts_ms), **extra, **shown}
        for fault in report.get(FAULTS, ()):
            named = {"batch_id": batch.batch_id, "cluster": report["cluster"]}
            yield {"event": "fault", **named, **fault}
    yield from _plans(batch)
    for row in _rows(batch, COMMANDS.name):
        shown = {name: row[name] for name in _COMMAND}
        yield {"event": "command", "batch_id": batch.batch_id, "cluster": row["cluster"], **shown}
    debugged = {report["cluster"] for report in batch.reports if report["is_debugging"]}
    for table, event in _DEBUGGED.items() if debugged else ():
        for row in _rows(batch, table):
            if row["cluster"] in debugged:
                yield {"event": event, **{k: v for k, v in row.items() if k not in _UNSHOWN}}


def _plans(batch: WrittenBatch) -> Iterator[dict[str, Any]]:
    """Yield a line for each cluster's decisions, one per cycle."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in _rows(batch, DECISIONS.name):
        found[row["cluster"], row["cycle"]].append(row)
    for (cluster, cycle), rows in sorted(found.items()):
        counts = Counter(f"{row['kind']}:{row['reason']}" for row in rows)
        yield {
            "event": "plan",
            "batch_id": batch.batch_id,
            "cluster": cluster,
            "cycle": cycle,
            "config_version": rows[-1]["config_version"],
            "decisions": dict(sorted(counts.items())),
            "decision_ids": [row["decision_id"] for row in rows[:_IDS_MAX]],
            "more": max(0, len(rows) - _IDS_MAX),
        }


def _rows(batch: WrittenBatch, table: str) -> list[dict[str, Any]]:
    found = batch.tables.get(table)
    return [] if found is None else found.to_pylist()


EVENTS = OWNERSHIP_EVENTS.name
_FIRST = (*BEFORE_EVENTS, EVENTS)
ORDER = (*_FIRST, *(table.name for table in TABLES if table.name not in _FIRST))


class JobEndingError(RuntimeError):
    """A batch begins while the job ends: the next job computes and writes it."""


class ForkedError(RuntimeError):
    """A repeated batch has other effects than the tables have of it."""


@dataclass(slots=True)
class BatchSink:
    """Writes the effects of one batch after another; `EachBatch` calls it.

    claimed: what the metadata of every commit says of code, settings and topics. ends: topic →
    partition → the offset after the last row read. heartbeat_ms: interval of empty commits to
    ownership_events when there is nothing to write. passed: called with the name of each finished
    step. log: takes the batch's lines. watch: called with each written batch. now_ms: time by which
    the last batch decided; of several clusters the earliest. query_id: of the checkpoint that batch
    ids belong to, "" = not known yet.
    """

    writer: TableWriter
    publisher: OwnershipPublisher
    claimed: Manifest
    heartbeat_ms: int
    log: Callable[[Mapping[str, Any]], None]
    passed: Callable[[str], None] = lambda _: None
    watch: Callable[[WrittenBatch], None] = lambda _: None
    ends: Ends = field(default_factory=dict)
    now_ms: int = 0
    query_id: str = ""
    _committed_ms: int = 0
    _begun: int = -1
    _last: float = math.inf

    def end_with(self, batch_id: int) -> int:
        """Allow no batch after this one; return the last that is written.

        That is a newer one if it has begun already. Any thread may call it.
        """
        self._last = batch_id
        return max(batch_id, self._begun)

    def _begin(self, batch_id: int) -> None:
        # set before `_last` is read: either `end_with` sees this batch, or this batch sees `_last`
        self._begun = batch_id
        if batch_id > self._last:
            message = f"the job ends after batch {self._last} and leaves {batch_id} to the next one"
            raise JobEndingError(message)

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Make one batch durable. Raises JobEndingError if it is after the last one."""
        started = time.monotonic()
        effects = read_effects(frame.toArrow())
        computed = time.monotonic()
        self.passed("effects_computed")
        self._begin(batch_id)
        reports = [row for _, blob in effects.pop(REPORT, []) for row in unpack_report(blob)]
        if not reports:
            return
        for report in reports:
            for topic, ends in report["ends"].items():
                known = self.ends.setdefault(topic, {})
                known |= {name: max(known.get(name, 0), end) for name, end in ends.items()}
        self.now_ms = min(report["now_ms"] for report in reports)
        batch_metadata = {
            "query_id": self.query_id,
            "batch_id": batch_id,
            "now_ms": max(report["now_ms"] for report in reports),
            "offsets": self.ends,
            "code_version": self.claimed.code_version,
            "config_version": self.claimed.config_version,
            "topics": dict(self.claimed.topics),
            "effects_sha256": effects_digest(effects),
            "writer_epoch": self.writer.epoch,
            "committed_at_ms": wall_ms(),
        }
        self._check_repeated(batch_id, batch_metadata)
        tables, faults, left_out = self._tables_of(effects, batch_id)
        tombstones = tables.pop(TOMBSTONE)

        def send() -> tuple[int, list[Fault]]:
            messages, unsent = _messages(effects, self.writer.epoch, left_out)
            if messages:
                self.publisher.publish(messages)
            return len(messages), unsent

        done, committed, (records, unsent) = self._write(tables, tombstones, batch_metadata, send)
        self.passed("kafka_sent")
        sent = time.monotonic()
        parts = {
            "operators_ms": _ms(computed - started),
            "delta_ms": _ms(committed - computed),
            "kafka_ms": _ms(sent - committed),
        }
        versions = {name: version for name, (version, _) in done.items()}
        batch = WrittenBatch(
            batch_id=batch_id, reports=reports, tables=tables, versions=versions, parts_ms=parts
        )
        written = {
            "records": records,
            "rows": {name: len(tables[name]) for name in done},
            "tables_ms": {name: took_ms for name, (_, took_ms) in done.items()},
        }
        self._report_faults(batch, [*faults, *unsent])
        self._report("sink_log", batch, lambda: list(map(self.log, lines_of(batch, written))))
        self._report("sink_metrics", batch, lambda: self.watch(batch))
        self.passed("batch_ended")

    def _report(self, phase: str, batch: WrittenBatch, show: Callable[[], object]) -> None:
        """Log or count a written batch; there only a fault of the machine ends the job."""
        try:
            show()
        except (MemoryError, OSError):
            raise  # a fault of the machine, not of the batch
        except Exception as error:  # noqa: BLE001 the batch is durable already
            self._report_faults(batch, [fault_of(error, phase)])

    def _report_faults(self, batch: WrittenBatch, faults: Sequence[Fault]) -> None:
        report = batch.reports[0]
        for fault in summarize_faults(faults):
            name = f"fault:{fault['phase']}"
            report["counts"][name] = report["counts"].get(name, 0) + fault["count"]
            report["alarms"][:] = sorted({*report["alarms"], ALARM})
            self.log({"event": "fault", "batch_id": batch.batch_id, **fault})

    def use_query(self, query_id: str) -> None:
        """Set the id of the checkpoint that batch ids belong to."""
        self.query_id = query_id
        self.writer.use_query(query_id)

    def _check_repeated(self, batch_id: int, batch_metadata: Mapping[str, Any]) -> None:
        """Compare a repeated batch with the last commit of `ownership_events`."""
        last = self.writer.last_commit() if self.writer.has_batch(EVENTS, batch_id) else None
        if last is None or last["batch_id"] != batch_id:
            return
        if last["effects_sha256"] != batch_metadata["effects_sha256"]:
            message = (
                f"batch {batch_id} was repeated and came to other effects than {EVENTS} has of it: "
                "this code is not deterministic or was changed in between; run `ballast state "
                "rebuild`, and the next start rebuilds the state from the tables"
            )
            raise ForkedError(message)

    def _write(
        self,
        tables: Mapping[str, pa.Table],
        tombstones: pa.Table,
        batch_metadata: Mapping[str, Any],
        send: Callable[[], tuple[int, list[Fault]]],
    ) -> tuple[Mapping[str, tuple[int, int]], float, tuple[int, list[Fault]]]:
        """Commit the tables, and send the records once the events are durable.

        Returns the version of each written table with the time it took, ms, the end of the last
        commit by `time.monotonic`, and what `send` returned.

        `commands` is written last: a command that is reported done is visible in every table.
        tombstones: a rebuild sends them if the job ends right after the events. send: called in a
        thread of its own; returns the number of messages, and faults of records that can't be
        formatted.
        """
        is_due = batch_metadata["now_ms"] - self._committed_ms >= self.heartbeat_ms
        is_any = any(len(table) for table in tables.values())
        wanted = {
            name: table
            for name, table in tables.items()
            if len(table) or (name == EVENTS and (is_due or is_any))
        }

        def write(name: str, metadata: Mapping[str, Any] = batch_metadata) -> tuple[int, int]:
            started = time.monotonic()
            self.writer.write(name, wanted[name], batch_metadata["batch_id"], metadata)
            return self.writer.version(name), _ms(time.monotonic() - started)

        written = {name: write(name) for name in BEFORE_EVENTS if name in wanted}
        rest = [name for name in wanted if name not in _FIRST]
        if EVENTS in wanted:
            pending_rows = {name: wanted[name] for name in rest} | (
                {TOMBSTONE: tombstones} if len(tombstones) else {}
            )
            metadata = {
                **batch_metadata,
                **self.writer.versions(),
                **self.writer.write_ahead(pending_rows),
            }
            written[EVENTS] = write(EVENTS, metadata)
            self._committed_ms = batch_metadata["now_ms"]
            self.passed("events_committed")
        others = [name for name in rest if name != COMMANDS.name]
        with ThreadPoolExecutor(1 + len(others)) as pool:
            sending = pool.submit(send)
            written |= dict(zip(others, pool.map(write, others), strict=True))
            if COMMANDS.name in wanted:
                written[COMMANDS.name] = write(COMMANDS.name)
            committed_s = time.monotonic()
            self.passed("tables_committed")
            return written, committed_s, sending.result()

    def _tables_of(
        self, effects: Mapping[str, list[tuple[str, bytes]]], batch_id: int
    ) -> tuple[dict[str, pa.Table], list[Fault], frozenset[str]]:
        """Return the rows of tables and tombstones, the faults, and the bundles left out.

        Rows that their table can't hold are left out. If one is a bundle's event, the batch has no
        record of that bundle either.
        """
        stamp = {"batch_id": batch_id, "writer_epoch": self.writer.epoch}
        found: dict[str, pa.Table] = {}
        faults: list[Fault] = []
        left_out: frozenset[str] = frozenset()
        for name in (EVENTS, *(one for one in ORDER if one != EVENTS), TOMBSTONE):
            parts = [arrow_rows(name, blob, stamp) for _, blob in effects.get(name, [])]
            faults += [fault for part in parts for fault in part.faults]
            if name == EVENTS:
                left_out = frozenset().union(*(part.bundles for part in parts))
            tables = [part.table for part in parts]
            rows = pa.concat_tables(tables or [arrow_schema(table_of(name)).empty_table()])
            is_of_events = name in (EVENTS, BUNDLE_OWNERSHIP.name)
            found[name] = without_bundles(rows, left_out) if is_of_events else rows
        return found, faults, left_out


def read_effects(table: pa.Table) -> dict[str, list[tuple[str, bytes]]]:
    """Return effect kind → (cluster, blob), sorted by cluster."""
    found: dict[str, list[tuple[str, bytes]]] = {}
    rows = zip(*(table[name].to_pylist() for name in ("kind", "cluster", "blob")), strict=True)
    for kind, cluster, blob in sorted(rows):
        found.setdefault(kind, []).append((cluster, blob))
    return found


def effects_digest(effects: Mapping[str, list[tuple[str, bytes]]]) -> str:
    """Return SHA-256 of a batch's effects, to compare two runs of it."""
    digest = hashlib.sha256()
    for kind in sorted(effects):
        for cluster, blob in effects[kind]:
            digest.update(f"{kind}/{cluster}/{len(blob)}/".encode())
            digest.update(blob)
    return digest.hexdigest()


def _messages(
    effects: Mapping[str, list[tuple[str, bytes]]], epoch: int, left_out: frozenset[str]
) -> tuple[list[Keyed], list[Fault]]:
    """Return the messages to brokers in sending order, and the faults.

    Tombstones first, then the records of events, then those sent again: so the tombstone of a
    deleted bundle precedes the record of a new one of its name. A record that can't be formatted is
    left out; the tables have it. left_out: bundles whose events the tables don't have, and are not
    sent.
    """
    found: list[Keyed] = [
        (record_key(row["cluster"], row["bundle"]), None)
        for row in _effect_rows(effects, TOMBSTONE)
    ]
    faults: list[Fault] = []
    events = (row for row in _effect_rows(effects, EVENTS) if row["bundle"] not in left_out)
    for row in itertools.chain(events, _effect_rows(effects, RESEND)):
        try:
            found.append(format_record(record_from_row(row, epoch)))
        except Exception as error:  # noqa: BLE001, PERF203 the other records are sent
            faults.append(fault_of(error, "sink_record", str(row["bundle"])))
    return found, faults


def _effect_rows(
    effects: Mapping[str, list[tuple[str, bytes]]], kind: str
) -> Iterator[dict[str, Any]]:
    for _, blob in effects.get(kind, []):
        columns = unpack_columns(kind, blob)
        for values in zip(*(list(column) for column in columns.values()), strict=True):
            yield dict(zip(columns, values, strict=True))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


@dataclass(slots=True)
class EachBatch:
    """The callable of `foreachBatch`: the sink, then a step of upkeep.

    ended: the last finished batch, -1 = none. The sink gets the query's id with its first batch,
    because the checkpoint has it only then.
    """

    sink: BatchSink
    resumption: Resumption
    upkeep: TableUpkeep
    state_dir: Path
    ended: int = -1

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Make the batch durable."""
        if not self.sink.query_id:
            self.sink.use_query(query_id(self.resumption.checkpoint))
        self.sink(frame, batch_id)
        note_version(self.state_dir, self.sink.writer.version(EVENTS))
        done = self.upkeep(self.sink.now_ms)  # the driver's clock alone may be months ahead
        if done is not None:
            self.sink.log(done)
        self.ended = batch_id

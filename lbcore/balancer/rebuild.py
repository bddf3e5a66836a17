"""Rebuild of the state from the tables, and its repair before use."""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypeVar

from lbcore.balancer.balancer import REBUILD_PHASE
from lbcore.balancer.batch_context import BalancerState, Times
from lbcore.balancer.book import (
    ACCEPTED,
    DEADLINE,
    DRAINING,
    FAILURES,
    FAULTS,
    FORGOTTEN,
    FROM,
    QUEUED,
    SILENT,
    TEXTS,
    BrokerEntry,
    NamespaceEntry,
    Waiting,
    namespace_row,
)
from lbcore.balancer.commands import REMEMBERED_COMMANDS
from lbcore.balancer.ledger import Ledger
from lbcore.balancer.namespaces import FLOOR, still_needed
from lbcore.balancer.report import remembered_plan
from lbcore.balancer.rules import rules_from_rows
from lbcore.balancer.topic_book import Catalog
from lbcore.balancer.waiting import identity_of, remember
from lbcore.config.load import newest_reported, reported_digest
from lbcore.fault_isolation import Fault, fault_of, summarize_faults
from lbcore.model.names import parse_bundle
from lbcore.model.tables import (
    BROKERS,
    BUNDLE_OWNERSHIP,
    COMMANDS,
    CONFIG_VERSIONS,
    NAMESPACES,
    PINS,
    PLANNING_MEMORY,
    POLICIES,
    RECORDS,
    TABLES,
    Table,
)
from lbcore.ownership.liveness import Liveness
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT, RESHAPING
from lbcore.wire.messages import Command

Row = Mapping[str, Any]


def raised_events(current: Iterable[Row], now_ms: int, epoch: int) -> list[dict[str, Any]]:
    """Return an event for each record of restored tables, with a higher version.

    They are batch 0 of a query of their own. now_ms, in ms since 1970, is the version: no bundle
    changes a thousand times a second, so it is above every earlier version, also after an earlier
    restore. epoch: the writer's.
    """
    why = {"cause": Cause.REPAIR.value, "writer_epoch": epoch, "at_ms": now_ms, "batch_id": 0}
    return [
        {
            **row,
            **{f"{name}_before": row[name] for name in ("state", "source", "destination")},
            **why,
            "version_id": max(row["version_id"] + 1, now_ms),
            "is_forced": True,
            "seq_in_batch": number,
        }
        for number, row in enumerate(current)
    ]


def raised_namespaces(
    namespaces: Iterable[Row], clusters: Iterable[str], now_ms: int
) -> list[dict[str, Any]]:
    """Return rows of `namespaces` for restored tables, with versions from now_ms on.

    One more row a cluster has its version floor. clusters: all that the tables know.
    """
    floor = namespace_row(FLOOR, NamespaceEntry(hash="", is_deleted=True))
    known: dict[tuple[str, str], dict[str, Any]] = {
        (cluster, FLOOR): {**floor, "cluster": cluster} for cluster in sorted({*clusters})
    }
    known |= {(row["cluster"], row["namespace"]): dict(row) for row in namespaces}
    stamp = {"at_ms": now_ms, "batch_id": 0}
    return [
        {**row, **stamp, "highest_version": max(row["highest_version"], now_ms)}
        for row in known.values()
    ]


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """One cluster's rows.

    The newest of each key, and every one of tables that only grow.
    """

    bundle_ownership: Iterable[Row]
    brokers: Iterable[Row]
    namespaces: Iterable[Row]
    commands: Iterable[Row]
    records: Iterable[Row]
    policies: Iterable[Row] = ()
    pins: Iterable[Row] = ()
    config_versions: Iterable[Row] = ()
    planning_memory: Iterable[Row] = ()
    settings_in_force: Iterable[Row] = ()


_BROKERS_OF_RECORD = ("source", "source_incarnation", "destination", "destination_incarnation")
_ENDED_BY_PHASE = frozenset({"create_namespace", "delete_namespace"})


def newest_rows(ownership: Iterable[Row], written: Mapping[str, Iterable[Row]]) -> TableRows:
    """Return the rows to rebuild from, of all written, oldest first. O(rows).

    ownership: the newest row of each bundle. written: table → its rows.
    """
    of_tables = {one.name for one in fields(TableRows)} - {BUNDLE_OWNERSHIP.name}
    found = {
        table.name: {tuple(row[name] for name in table.key): row for row in rows}.values()
        if table.key
        else rows
        for table in TABLES
        if table.name in of_tables
        for rows in [list(written.get(table.name, ()))]
    }
    return TableRows(bundle_ownership=ownership, **found)


@dataclass(slots=True)
class RowReading:
    """Reader of rows one by one, isolating those that raise.

    faults: of those. Such rows come from damage, or from a newer version of the job.
    """

    faults: list[Fault] = field(default_factory=list)

    def each(
        self,
        table: Table,
        rows: Iterable[Row],
        read: Callable[[Row], Value],
        instead: Callable[[Row], Value | None] = lambda _: None,
    ) -> list[Value]:
        """Return the values of the rows, in order.

        instead: makes the substitute for a row that can't be read, if any. A row for which that
        raises too is left out.
        """
        found: list[Value] = []
        for row in rows:
            try:
                found.append(read(row))
            except MemoryError:  # noqa: PERF203 one row's fault is no other's
                raise
            except Exception as error:  # noqa: BLE001 whatever it is, it is this row's alone
                name = " ".join(str(row.get(column)) for column in table.key or ("number",))
                self.faults.append(fault_of(error, REBUILD_PHASE, f"{table.name} {name}"))
                with suppress(KeyError, TypeError, ValueError, AttributeError):
                    substitute = instead(row)
                    found += [] if substitute is None else [substitute]
        return found

    def readable(
        self, table: Table, rows: Iterable[Row], read: Callable[[Row], object]
    ) -> list[Row]:
        """The rows that can be read."""
        return [row for row, _ in self.each(table, rows, lambda row: (row, read(row)))]

    def records(self, rows: Iterable[Row], writer_epoch: int = 0) -> list[OwnershipRecord]:
        """The records of bundles, by name."""

        def read(row: Row) -> OwnershipRecord:
            parse_bundle(row["bundle"])
            return record_from_row(row, writer_epoch)

        return self.each(
            BUNDLE_OWNERSHIP, _by(rows, "bundle"), read, lambda row: _salvaged(row, writer_epoch)
        )


def rebuild_state(cluster: str, rows: TableRows) -> BalancerState:
    """Return the state from the tables.

    The first batch reports what could not be read. O(rows log rows).
    """
    reading = RowReading()
    ledger, records = Ledger(cluster), reading.records(rows.bundle_ownership)
    ledger.add(record.bundle for record in records)
    for record in records:
        ledger.put(record, 0)
    changes = _by(rows.config_versions, "number")
    settings = reading.each(CONFIG_VERSIONS, changes, lambda row: json.loads(row["settings"]))
    rules = rules_from_rows(
        reading.readable(POLICIES, rows.policies, lambda row: rules_from_rows([row], (), 0)),
        reading.readable(PINS, rows.pins, lambda row: rules_from_rows((), [row], 0)),
        changes[-1]["number"] if changes else 0,
    )
    known = [row for row in _by(rows.brokers, "broker") if row["state"] != FORGOTTEN]
    brokers = dict(
        reading.each(
            BROKERS,
            known,
            lambda row: (row["broker"], broker_from_row(row, rules.drains)),
            lambda row: (row["broker"], BrokerEntry(incarnation=row["incarnation"])),
        )
    )
    silent = [name for name, entry in brokers.items() if entry.is_dead]
    memory = reading.readable(
        PLANNING_MEMORY, _by(rows.planning_memory, "part"), lambda row: remembered_plan([row])
    )
    commands = _by(rows.commands, "at_ms", "command_id")
    spaces, bare = _by(rows.namespaces, "namespace"), partial(_namespace, is_bare=True)
    namespaces = dict(reading.each(NAMESPACES, spaces, _namespace, bare))
    forgotten = namespaces.pop(FLOOR, None)
    floor = forgotten.highest_version if forgotten else 0
    return BalancerState(
        ledger=ledger,
        liveness=Liveness().expect(sorted(brokers), silent),
        plan=remembered_plan(memory),
        brokers=brokers,
        namespaces=still_needed(namespaces, set(ledger.namespaces()[0]), floor),
        commands=dict(
            reading.each(
                COMMANDS,
                commands[-REMEMBERED_COMMANDS:],
                lambda row: _remembered(row, json.loads(row["arguments"]), row["principal"]),
                # its arguments are unknown, but its id counts as used
                lambda row: _remembered(row, {}, "unread"),
            )
        ),
        settings=settings[-1] if settings else {},
        rules=rules,
        catalog=Catalog.from_rows(
            reading.readable(RECORDS, rows.records, lambda row: Catalog.from_rows([row]))
        ),
        waiting=_waiting(reading, commands, ledger),
        times=Times(version_floor=floor),
        unread=tuple(summarize_faults(reading.faults)),
        told=reported_digest(newest_reported(rows.settings_in_force)),
    )


def _namespace(row: Row, *, is_bare: bool = False) -> tuple[str, NamespaceEntry]:
    return row["namespace"], NamespaceEntry(
        hash=row["hash"],
        is_deleted=row["is_deleted"],
        highest_version=row["highest_version"],
        properties={} if is_bare else dict(json.loads(row["properties"])),
    )


def _remembered(row: Row, arguments: Mapping[str, Any], principal: str) -> tuple[str, str]:
    asked = identity_of(row["kind"], arguments, principal)
    return row["command_id"], remember(row["status"], asked)


def _waiting(reading: RowReading, commands: Iterable[Row], ledger: Ledger) -> Mapping[str, Waiting]:
    """Return accepted commands that have not ended.

    Their bundles are those in flight. A creation and a deletion have none: the phase that carries
    them out ends them.
    """
    moving: dict[str, dict[str, str]] = {}
    for row in ledger.rows_in(*IN_FLIGHT).tolist():
        record = ledger.record_at(row)
        moving.setdefault(record.command_id, {})[record.bundle] = record.source

    def read(row: Row) -> Waiting:
        command_id, result = row["command_id"], json.loads(row["result"])
        under_way = {} if row["kind"] in _ENDED_BY_PHASE else moving.get(command_id, {})
        former = result.pop(FROM, {})
        return Waiting(
            command=Command(
                cluster=row["cluster"],
                command_id=row["command_id"],
                kind=row["kind"],
                arguments=json.loads(row["arguments"]),
                principal=row["principal"],
                address=row["address"],
            ),
            deadline_ms=result.pop(DEADLINE),
            is_queued=result.pop(QUEUED),
            moving={bundle: former.get(bundle, source) for bundle, source in under_way.items()},
            faults=tuple(result.pop(FAULTS, ())),
            failed=result.pop(FAILURES, 0),
            result=result,
        )

    is_open = (row for row in commands if row["status"] == ACCEPTED)
    return {one.command.command_id: one for one in reading.each(COMMANDS, is_open, read)}


def broker_from_row(row: Row, drains: Collection[str]) -> BrokerEntry:
    """Return a broker from its row.

    Its load is known with its next report. drains: brokers that are drained by command; the others
    that drain said so themselves.
    """
    texts = {name: row[name] for name in TEXTS if name in row}
    starts_ms = tuple(json.loads(row["starts"]))
    return BrokerEntry(
        incarnation=row["incarnation"],
        is_dead=row["state"] == SILENT,
        silent_ms=row["at_ms"] if row["state"] == SILENT else 0,
        is_draining=row["state"] == DRAINING and row["broker"] not in drains,
        texts={**texts, "broker_version": row["version"]},
        listeners=json.loads(row["advertised_listeners"]),
        capacity=row["capacity"],
        starts_ms=starts_ms,
        restarted_ms=starts_ms[-1] if len(starts_ms) > 1 else 0,
    )


def record_from_row(row: Row, writer_epoch: int = 0) -> OwnershipRecord:
    """The record that a row of ownership_events or bundle_ownership holds."""
    return OwnershipRecord(
        cluster=row["cluster"],
        bundle=row["bundle"],
        state=State(row["state"]),
        version_id=int(row["version_id"]),
        source=row["source"],
        source_incarnation=row["source_incarnation"],
        destination=row["destination"],
        destination_incarnation=row["destination_incarnation"],
        children=json.loads(row["children"]),
        is_forced=bool(row["is_forced"]),
        timestamp_ms=int(row["at_ms"]),
        cause=Cause(row["cause"]),
        decision_id=row["decision_id"],
        command_id=row["command_id"],
        writer_epoch=writer_epoch,
    )


def _salvaged(row: Row, writer_epoch: int) -> OwnershipRecord:
    """Return a substitute for an unreadable record, so that its bundle is not closed.

    The record's own state, where that can be read and needs no children. Otherwise the bundle is
    being released by its possible owner: an owner that has it closes it, and a silent one keeps it.
    """
    parse_bundle(row["bundle"])
    state = {one.value: one for one in State}.get(row["state"], State.SPLITTING)
    brokers = [row[name] for name in _BROKERS_OF_RECORD]
    if state in RESHAPING:
        brokers = brokers if row["source"] else [*brokers[2:], "", ""]
        state = State.RELEASING if brokers[0] else State.FREE
    return OwnershipRecord(
        cluster=row["cluster"],
        bundle=row["bundle"],
        state=state,
        version_id=int(row["version_id"]),
        timestamp_ms=int(row["at_ms"]),
        cause=Cause.REPAIR,
        writer_epoch=writer_epoch,
        **dict(zip(_BROKERS_OF_RECORD, brokers, strict=True)),
    )


def _by(rows: Iterable[Row], *columns: str) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[column] for column in columns))

"""Rebuild: the balancer's state from the tables, when there is no checkpoint to go on from.

Decides nothing. Ownership, brokers, namespaces, rules and changed settings come back exactly; load
averages begin anew with the next reports, and liveness watches every broker from now on. Source:
ours.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lbcore.machines.balancer import ClusterBalancer
from lbcore.machines.balancer_state import BalancerState, Times
from lbcore.machines.book import DRAINING, FORGOTTEN, SILENT, TEXTS, BrokerEntry, NamespaceEntry
from lbcore.machines.catalogue import Catalogue
from lbcore.machines.commands import REMEMBERED_COMMANDS
from lbcore.machines.forgetting import FLOOR, still_needed
from lbcore.machines.identity import identity_of, remember
from lbcore.machines.ledger import Ledger
from lbcore.machines.outcome import ACCEPTED, DEADLINE, FROM, QUEUED, Waiting
from lbcore.machines.rules import rules_from_rows
from lbcore.model.tables import (
    BROKERS,
    COMMANDS,
    CONFIG_VERSIONS,
    NAMESPACES,
    PINS,
    POLICIES,
    TENANTS,
    TOPICS,
)
from lbcore.ownership.liveness import Liveness
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.states import IN_FLIGHT
from lbcore.wire.messages import Command

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """One cluster's rows: the newest of each key, and every one of config_versions."""

    bundle_ownership: Iterable[Row]
    brokers: Iterable[Row]
    namespaces: Iterable[Row]
    commands: Iterable[Row]
    tenants: Iterable[Row]
    topics: Iterable[Row]
    policies: Iterable[Row] = ()
    pins: Iterable[Row] = ()
    config_versions: Iterable[Row] = ()


_BY_WORD = frozenset({"create_namespace", "delete_namespace"})
_TABLES = (BROKERS, NAMESPACES, COMMANDS, TENANTS, TOPICS, POLICIES, PINS, CONFIG_VERSIONS)


def newest_rows(ownership: Iterable[Row], written: Mapping[str, Iterable[Row]]) -> TableRows:
    """The rows to rebuild from, out of all that was ever written, oldest first. O(rows).

    ownership: the newest row of each bundle. written: table → its rows.
    """
    found = {
        table.name: {tuple(row[name] for name in table.key): row for row in rows}.values()
        if table.key
        else rows
        for table in _TABLES
        for rows in [list(written.get(table.name, ()))]
    }
    return TableRows(bundle_ownership=ownership, **found)


def rebuild_state(balancer: ClusterBalancer, cluster: str, rows: TableRows) -> BalancerState:
    """The state that goes on from the tables. O(rows log rows)."""
    empty = balancer.empty()
    ledger = _ledger(cluster, rows.bundle_ownership)
    changes = _by(rows.config_versions, "number")
    rules = rules_from_rows(rows.policies, rows.pins, changes[-1]["number"] if changes else 0)
    known = [row for row in _by(rows.brokers, "broker") if row["state"] != FORGOTTEN]
    brokers = {row["broker"]: broker_from_row(row, rules.drains) for row in known}
    silent = [name for name, entry in brokers.items() if entry.is_silent]
    commands = _by(rows.commands, "at_ms", "command_id")
    latest = commands[-REMEMBERED_COMMANDS:]
    namespaces = {row["namespace"]: _namespace(row) for row in _by(rows.namespaces, "namespace")}
    forgotten = namespaces.pop(FLOOR, None)
    floor = forgotten.highest_version if forgotten else 0
    return BalancerState(
        ledger=ledger,
        liveness=Liveness().expect(sorted(brokers), silent),
        plan=empty.plan,
        brokers=brokers,
        namespaces=still_needed(namespaces, set(ledger.namespaces()[0]), floor),
        commands={
            row["command_id"]: remember(
                row["status"],
                identity_of(row["kind"], json.loads(row["arguments"]), row["principal"]),
            )
            for row in latest
        },
        settings=json.loads(changes[-1]["settings"]) if changes else {},
        rules=rules,
        catalogue=Catalogue.from_rows(rows.tenants, rows.topics),
        waiting=_waiting(commands, ledger),
        times=Times(version_floor=floor),
    )


def _namespace(row: Row) -> NamespaceEntry:
    return NamespaceEntry(
        hash=row["hash"],
        is_deleted=row["is_deleted"],
        highest_version=row["highest_version"],
        properties=json.loads(row["properties"]),
    )


def _waiting(commands: Iterable[Row], ledger: Ledger) -> Mapping[str, Waiting]:
    """The commands that were accepted and have not ended; their bundles are those in flight.

    A creation and a deletion end by the word of who carries them out, not with their bundles.
    """
    moving: dict[str, dict[str, str]] = {}
    for row in ledger.rows_in(*IN_FLIGHT).tolist():
        record = ledger.record_at(row)
        moving.setdefault(record.command_id, {})[record.bundle] = record.source
    found = {}
    for row in commands:
        if row["status"] == ACCEPTED:
            command_id, result = row["command_id"], json.loads(row["result"])
            under_way = {} if row["kind"] in _BY_WORD else moving.get(command_id, {})
            had = result.pop(FROM, {})
            found[command_id] = Waiting(
                command=_command(row),
                deadline_ms=result.pop(DEADLINE),
                is_queued=result.pop(QUEUED),
                moving={bundle: had.get(bundle, source) for bundle, source in under_way.items()},
                result=result,
            )
    return found


def _command(row: Row) -> Command:
    return Command(
        cluster=row["cluster"],
        command_id=row["command_id"],
        kind=row["kind"],
        arguments=json.loads(row["arguments"]),
        principal=row["principal"],
        address=row["address"],
    )


def broker_from_row(row: Row, drains: Collection[str] = ()) -> BrokerEntry:
    """A broker as the `brokers` table shows it; its load is known with its next report.

    drains: brokers that are drained by command; the others that drain said so themselves.
    """
    texts = {name: row[name] for name in TEXTS if name in row}
    starts_ms = tuple(json.loads(row["starts"]))
    return BrokerEntry(
        incarnation=row["incarnation"],
        is_silent=row["state"] == SILENT,
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


def _ledger(cluster: str, rows: Iterable[Row]) -> Ledger:
    ledger = Ledger(cluster)
    records = [record_from_row(row) for row in _by(rows, "bundle")]
    ledger.add(record.bundle for record in records)
    for record in records:
        ledger.put(record, 0)
    return ledger


def _by(rows: Iterable[Row], *columns: str) -> list[Row]:
    return sorted(rows, key=lambda row: tuple(row[column] for column in columns))

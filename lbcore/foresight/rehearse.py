"""Rehearsal: a command's effects by the balancer's own handlers, without acting.

A state is rebuilt from the tables, and the command is carried out on it; the answer is what would
be written. Load is from `load_history`, so a placement by load may differ from the one that the
balancer makes a moment later.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lbcore.balancer.batch_context import BalancerState, BatchContext
from lbcore.balancer.book import ACCEPTED, DONE, BrokerEntry
from lbcore.balancer.commands import carry_out_assignments, take_command
from lbcore.balancer.effects import Row
from lbcore.balancer.rebuild import TableRows, rebuild_state
from lbcore.balancer.waiting import status_of
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.model.resources import complete
from lbcore.model.tables import (
    BUNDLE_OWNERSHIP,
    COMMANDS,
    DECISIONS,
    LOAD_HISTORY,
    OWNERSHIP_EVENTS,
)
from lbcore.ownership.records import OwnershipRecord
from lbcore.plan.snapshot import THROUGHPUT_IN
from lbcore.wire.messages import Command

_ALIVE = ("active", "draining")
_TRAFFIC = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
_NOT_SHOWN = frozenset(
    {BUNDLE_OWNERSHIP.name, OWNERSHIP_EVENTS.name, COMMANDS.name, DECISIONS.name}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRows:
    """One cluster's rows: those for a rebuild, and rows of load_history.

    decisions: of the grace period.
    """

    tables: TableRows
    load: Sequence[Row]
    decisions: Sequence[Row] = ()

    @staticmethod
    def read(rows_of: Callable[[str], Sequence[Row]]) -> "RehearsalRows":
        """Read the rows of each table that is needed."""
        return RehearsalRows(
            tables=TableRows(**{of.name: rows_of(of.name) for of in fields(TableRows)}),
            load=rows_of(LOAD_HISTORY.name),
            decisions=rows_of(DECISIONS.name),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Predicted outcome of a command.

    transitions: bundle, from and to, in their order. rows: by table, the other rows that would be
    written.
    """

    status: str
    reason: str
    result: Mapping[str, Any]
    transitions: tuple[Mapping[str, str], ...]
    rows: Mapping[str, Sequence[Mapping[str, Any]]]

    @property
    def is_possible(self) -> bool:
        """True if the command would be accepted."""
        return self.status in (ACCEPTED, DONE)


def rehearse(config: Config, rows: RehearsalRows, command: Command, now_ms: int) -> Rehearsal:
    """Carry a command out on the state that the tables hold. O(rows log rows).

    config: of the command's cluster. For an id that was carried out before, that outcome is shown.
    """
    state = state_of(command.cluster, rows, now_ms)
    work = BatchContext.on(state, config, digest(config), now_ms)
    take_command(work, command, now_ms)
    carry_out_assignments(work)
    work.write_rules()
    outcome = work.outcomes.get(command.command_id)
    written = {effect.kind: effect.rows for effect in work.effects()}
    return Rehearsal(
        status=outcome["status"] if outcome else status_of(state.commands[command.command_id]),
        reason=outcome["reason"] if outcome else "its id was carried out before",
        result=json.loads(outcome["result"]) if outcome else {},
        transitions=tuple(
            {
                "bundle": after.bundle,
                "from": "nothing" if before is None else _shown(before),
                "to": _shown(after),
            }
            for before, after in work.transitions
        ),
        rows={name: written[name] for name in written if name not in _NOT_SHOWN},
    )


def state_of(cluster: str, rows: RehearsalRows, now_ms: int) -> BalancerState:
    """Return the state in the tables, with brokers alive and loaded as in their rows."""
    state = rebuild_state(cluster, rows.tables)
    states = {row["broker"]: row["state"] for row in rows.tables.brokers}
    load = {str(row["broker"]): row for row in sorted(rows.load, key=lambda row: row["minute_ms"])}
    brokers = {
        name: _broker(entry, load.get(name), now_ms, is_alive=states[name] in _ALIVE)
        for name, entry in state.brokers.items()
    }
    ledger = state.ledger.copy()
    for row in sorted(load.values(), key=lambda row: (row["minute_ms"], row["broker"])):
        columns = map(row.get, ("bundles", *_TRAFFIC, "topics"))
        for bundle, *traffic, topics in zip(*columns, strict=True):
            at = ledger.index.get(bundle)
            if at is not None:
                ledger.short[at] = ledger.long[at] = traffic
                ledger.short_count[at] = max(1, ledger.short_count[at])
                ledger.topics[at] = int(topics)
    return replace(state, brokers=brokers, ledger=ledger)


def _shown(record: OwnershipRecord) -> str:
    """Return the state and its brokers, such as `Releasing broker-1 → broker-2`."""
    names = [name for name in (record.source, record.destination) if name]
    return f"{record.state.value} {' → '.join(names)}".rstrip()


def _broker(entry: BrokerEntry, load: Row | None, now_ms: int, *, is_alive: bool) -> BrokerEntry:
    seen = replace(entry, is_dead=not is_alive, reported_ms=now_ms if is_alive else 0)
    if load is None:
        return seen
    return replace(
        seen,
        percent=complete(load["percent"]),
        traffic=tuple(load["traffic"]),
        weighted_max_ema=float(load["score"]),
        throughput_ema=float(sum(load["traffic"][THROUGHPUT_IN:])),
        bundle_count=len(load["bundles"]),
        topic_count=int(sum(load["topics"])),
    )

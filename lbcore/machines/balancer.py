"""ClusterBalancer: the one place where a cluster's ownership changes.

Decides, in this order a batch: commands, acks, reports, who is dead or stuck, who gets what is
free, and, when a cycle is due, what to shed and split. Each phase stands in a file of its own.
Second of the two operators; its effects are rows for the tables and records for the brokers.
Source: ours; the protocol is Pulsar 4.0.8's extensible load manager with one writer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lbcore import packing
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.machine import Step, UnknownStateSchemaError
from lbcore.machines.book import broker_from_plain, namespace_from_plain
from lbcore.machines.catalogue import Catalogue
from lbcore.machines.checking import check_transitions
from lbcore.machines.commands import take_command, take_queued
from lbcore.machines.cycle import run_cycle
from lbcore.machines.deletions import drive_deletions, forget_expired
from lbcore.machines.drains import drive_drains
from lbcore.machines.effects import REPORT, Effect
from lbcore.machines.group_update import GroupUpdate, Placed
from lbcore.machines.intake import take_updates
from lbcore.machines.ledger import Ledger
from lbcore.machines.observed import observe_moves
from lbcore.machines.outcome import waiting_from_plain, waiting_to_plain
from lbcore.machines.pins import end_pins, follow_pins
from lbcore.machines.reconcile import reconcile
from lbcore.machines.repairs import repair_ownership
from lbcore.machines.replies import take_acks, take_audit
from lbcore.machines.report import make_report, write_brokers, write_history
from lbcore.machines.reserving import drop_unrecorded, reserve_bundles
from lbcore.machines.rules import Rules
from lbcore.machines.topic_book import TopicBook
from lbcore.machines.topics import take_topics
from lbcore.machines.waiting import settle_commands
from lbcore.machines.watched import watched_from_plain, watched_to_plain
from lbcore.machines.watching import judge_brokers, watch_clocks
from lbcore.machines.work import BalancerState, Times, Work
from lbcore.ownership.liveness import Liveness
from lbcore.plan.decision import PlanState
from lbcore.wire.messages import Acks, AuditEntry, Command, TopicLoad

STATE_SCHEMA = 2
"""1: before there were rules. Read and upgraded: a field added later is as empty as it was then."""

Kind = TypeVar("Kind")


class ClusterBalancer:
    """The Machine of one cluster."""

    def __init__(self, *, cluster: str, config: Config) -> None:
        self._cluster = cluster
        self._config = config
        self._config_version = digest(config)

    def step(
        self, state: BalancerState | None, events: Sequence[GroupUpdate], now_ms: int
    ) -> Step[BalancerState, Effect]:
        """One micro-batch; the order of `events` doesn't matter."""
        before = state or self.empty()
        work = Work.on(before, self._config, self._config_version, now_ms)
        updates = sorted(events, key=lambda update: update.group)
        placed = sorted((p for update in updates for p in update.placed), key=_order)
        watch_clocks(work, updates)
        reserve_bundles(work, _all(Command, placed))
        end_pins(work)
        for item in placed:
            if isinstance(item.message, Command):
                take_command(work, item.message, item.position.timestamp_ms)
        take_acks(work, _all(Acks, placed))
        take_queued(work)
        take_updates(work, updates)
        take_topics(work, _all(TopicLoad, placed))
        take_audit(work, _all(AuditEntry, placed))
        drop_unrecorded(work)
        judge_brokers(work)
        repair_ownership(work)
        drive_deletions(work)
        observe_moves(work)
        run_cycle(work)
        drive_drains(work)
        follow_pins(work)
        settle_commands(work)
        forget_expired(work)
        reconcile(work, updates)
        check_transitions(work)
        work.write_rules(before.rules)
        write_brokers(work, before.brokers, before.rules.drains)
        write_history(work)
        report = Effect(kind=REPORT, rows=[make_report(work)])
        return Step(state=work.close(), effects=[*work.effects(), report])

    def empty(self) -> BalancerState:
        """The state of a cluster that nothing is known of."""
        return BalancerState(ledger=Ledger(self._cluster), liveness=Liveness(), plan=PlanState())

    def pack(self, state: BalancerState) -> Mapping[str, bytes]:
        """Chunks by how often they change."""
        plain = {"schema": STATE_SCHEMA, **asdict(state.times)}
        book = {
            "brokers": _fields(state.brokers),
            "namespaces": _fields(state.namespaces),
            "commands": list(state.commands.items()),
            "settings": dict(state.settings),
        }
        return {
            "clock": packing.pack(plain, {}),
            "book": packing.pack(book, {}),
            "liveness": packing.pack(state.liveness.to_plain(), {}),
            "plan": _packed_plan(state),
            "rules": packing.pack(state.rules.to_plain(), {}),
            "catalogue": state.catalogue.blob,
            "waiting": packing.pack(
                {"commands": list(map(waiting_to_plain, state.waiting.values()))}, {}
            ),
            "watched": packing.pack(watched_to_plain(state.watched), {}),
            **state.ledger.pack(),
            **state.topics.pack(),
        }

    def unpack(self, chunks: Mapping[str, bytes]) -> BalancerState:
        """The inverse of `pack`. Raises UnknownStateSchemaError, MalformedBlobError."""
        plain, _ = packing.unpack(chunks["clock"])
        schema = plain.pop("schema")
        if not 1 <= schema <= STATE_SCHEMA:
            raise UnknownStateSchemaError.of("ClusterBalancer", schema, STATE_SCHEMA)
        book, rules = _plain("book", chunks), _plain("rules", chunks)
        waiting = map(waiting_from_plain, _plain("waiting", chunks).get("commands", ()))
        return BalancerState(
            ledger=Ledger.unpack(chunks),
            liveness=Liveness.from_plain(packing.unpack(chunks["liveness"])[0]),
            plan=_unpacked_plan(chunks["plan"]),
            brokers={name: broker_from_plain(p) for name, p in book["brokers"].items()},
            namespaces={name: namespace_from_plain(p) for name, p in book["namespaces"].items()},
            commands=dict(book["commands"]),
            settings=book["settings"],
            rules=Rules.from_plain(rules) if rules else Rules(),
            catalogue=Catalogue.unpack(chunks.get("catalogue")),
            times=Times(**plain),
            topics=TopicBook.unpack(chunks),
            waiting={w.command.command_id: w for w in waiting},
            watched=watched_from_plain(_plain("watched", chunks)),
        )


def _packed_plan(state: BalancerState) -> bytes:
    """The plan's chunk, made again only of another plan: it names every bundle moved lately."""
    plan, chunk = state.packed.get("plan", (None, b""))
    if plan is not state.plan:
        row = state.plan.to_row()
        unloaded = row.pop("unloaded_ms")
        arrays: dict[str, NDArray[Any]] = {
            "unloaded": packing.join_names(list(unloaded)),
            "unloaded_ms": np.fromiter(unloaded.values(), dtype=np.int64, count=len(unloaded)),
        }
        chunk = packing.pack(row, arrays)
        state.packed["plan"] = (state.plan, chunk)
    return chunk


def _unpacked_plan(chunk: bytes) -> PlanState:
    row, arrays = packing.unpack(chunk)
    if "unloaded" in arrays:
        times = arrays["unloaded_ms"].tolist()
        names = packing.split_names(arrays["unloaded"], len(times))
        row["unloaded_ms"] = dict(zip(names, times, strict=True))
    return PlanState.from_row(row)


def _fields(entries: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: packing.fields_of(entry) for name, entry in entries.items()}


def _plain(chunk: str, chunks: Mapping[str, bytes]) -> dict[str, Any]:
    """The chunk's values; empty in a state from before there was such a chunk."""
    return packing.unpack(chunks[chunk])[0] if chunk in chunks else {}


def _all(kind: type[Kind], placed: Sequence[Placed]) -> list[Kind]:
    """The messages of one kind, in order."""
    return [item.message for item in placed if isinstance(item.message, kind)]


def _order(placed: Placed) -> tuple[str, int, int]:
    at = placed.position
    return (at.topic, at.partition, at.offset)

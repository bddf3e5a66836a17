"""ClusterBalancer: the one place where a cluster's ownership changes.

Decides, in this order a batch: commands, acks, reports, who is dead or stuck, who gets what is
free, and, when a cycle is due, what to shed and split. Each phase stands in a file of its own.
Second of the two operators; its effects are rows for the tables and records for the brokers.
Source: ours; the protocol is Pulsar 4.0.8's extensible load manager with one writer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from lbcore import packing
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.machine import Step, UnknownStateSchemaError
from lbcore.machines.book_chunks import pack_book, pack_brokers, unpack_book, unpack_brokers
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
from lbcore.machines.plan_chunks import pack_plan, unpack_plan
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

STATE_SCHEMA = 3
"""1: before there were rules; 2: before brokers had chunks of their own. Read and upgraded: a field
added later is as empty as it was then.
"""

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
        return {
            "clock": packing.pack(plain, {}),
            **pack_book(state.namespaces, state.commands, state.settings, state.packed),
            **pack_brokers(state.brokers, state.packed),
            "liveness": packing.pack(state.liveness.to_plain(), {}),
            **pack_plan(state.plan, state.packed),
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
        namespaces, commands, settings = unpack_book(chunks)
        rules = _plain("rules", chunks)
        waiting = map(waiting_from_plain, _plain("waiting", chunks).get("commands", ()))
        return BalancerState(
            ledger=Ledger.unpack(chunks),
            liveness=Liveness.from_plain(packing.unpack(chunks["liveness"])[0]),
            plan=unpack_plan(chunks),
            brokers=unpack_brokers(chunks),
            namespaces=namespaces,
            commands=commands,
            settings=settings,
            rules=Rules.from_plain(rules) if rules else Rules(),
            catalogue=Catalogue.unpack(chunks.get("catalogue")),
            times=Times(**plain),
            topics=TopicBook.unpack(chunks),
            waiting={w.command.command_id: w for w in waiting},
            watched=watched_from_plain(_plain("watched", chunks)),
        )


def _plain(chunk: str, chunks: Mapping[str, bytes]) -> dict[str, Any]:
    """The chunk's values; empty in a state from before there was such a chunk."""
    return packing.unpack(chunks[chunk])[0] if chunk in chunks else {}


def _all(kind: type[Kind], placed: Sequence[Placed]) -> list[Kind]:
    """The messages of one kind, in order."""
    return [item.message for item in placed if isinstance(item.message, kind)]


def _order(placed: Placed) -> tuple[str, int, int]:
    at = placed.position
    return (at.topic, at.partition, at.offset)

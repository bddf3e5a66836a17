"""ClusterBalancer: the one place where a cluster's ownership changes.

Decides what `phases` lists, in that order a batch: commands, acks, reports, who is dead or stuck,
who gets what is free, and, when a cycle is due, what to shed and split. Comes after the scorers;
its effects are rows for the tables and records for the brokers. The protocol is Pulsar 4.0.8's
extensible load manager with one writer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from lbcore import packing
from lbcore.balancer.intake.intake import count_updates
from lbcore.balancer.phases import Batch, check_transitions, report_faults, run_phases
from lbcore.balancer.report import bare_report, make_report, write_brokers
from lbcore.balancer.state.batch_context import (
    BalancerState,
    BatchContext,
    PendingEffect,
    Times,
)
from lbcore.balancer.state.book import (
    Waiting,
    pack_book,
    pack_brokers,
    pack_plan,
    remembered,
    unpack_book,
    unpack_brokers,
    unpack_plan,
)
from lbcore.balancer.state.effects import REPORT, Effect, pack_effect
from lbcore.balancer.state.ledger import Ledger
from lbcore.balancer.state.records import Records
from lbcore.balancer.state.rules import ClusterRules
from lbcore.balancer.state.topic_book import TopicBook
from lbcore.config.load import digest
from lbcore.config.tree import Config
from lbcore.fault_isolation import Guard, summarize_faults
from lbcore.machine import Step, UnknownStateSchemaError
from lbcore.ownership.liveness import Liveness
from lbcore.plain import from_plain, to_plain
from lbcore.plan.decision import PlanState
from lbcore.scorer.group_update import GroupUpdate, Placed

OLDEST_SCHEMA = 5
STATE_SCHEMA = 5
"""Rises with the layout. States from OLDEST_SCHEMA on are read; others are refused, and rebuilt."""


class ClusterBalancer:
    """The Machine of one cluster."""

    def __init__(self, *, cluster: str, config: Config) -> None:
        self._cluster = cluster
        self._config = config
        self._config_version = digest(config)

    def step(
        self,
        state: BalancerState | None,
        events: Sequence[GroupUpdate],
        now_ms: int,
        guard: Guard | None = None,
    ) -> Step[BalancerState, Effect]:
        """One micro-batch; the order of `events` doesn't matter."""
        before = state or self.empty()
        work, batch = self._open(before, events, now_ms), _batch(before, events)
        work.guard = guard = guard or Guard()
        guard.check = lambda: self._check(work, batch)
        run_phases(work, batch)
        report_faults(work, [*batch.faults, *summarize_faults(guard.faults)])
        reports: list[Mapping[str, Any]] = []
        guard.faults.clear()
        guard.run("make_report", lambda: reports.append(make_report(work)))
        report_faults(work, summarize_faults(guard.faults))
        report = Effect(kind=REPORT, rows=[dict(reports[0] if reports else bare_report(work))])
        return Step(state=work.close(), effects=[*work.effects(), report])

    def _open(
        self, before: BalancerState, events: Sequence[GroupUpdate], now_ms: int
    ) -> BatchContext:
        work = BatchContext.on(before, self._config, self._config_version, now_ms)
        work.now_ms = before.times.decided_ms + 1 if before.times.decided_ms else now_ms
        count_updates(work, events)
        return work

    def _check(self, work: BatchContext, batch: Batch) -> None:
        """Raise when what the work has come to can't be packed, or breaks an invariant."""
        check_transitions(work)
        rows = {table: list(of) for table, of in work.rows.items()}
        trial = replace(work, ledger=work.ledger.copy(), rows=rows)
        trial.write_rules(batch.before.rules)
        write_brokers(trial, batch.before.brokers, batch.before.rules.drains)
        for effect in trial.effects():
            pack_effect(effect)
        self.pack(trial.close())

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
            "liveness": packing.pack(to_plain(state.liveness), {}),
            **pack_plan(state.plan, state.packed),
            "rules": remembered(
                state.packed, "rules", state.rules, lambda: packing.pack(state.rules.to_plain(), {})
            ),
            "records": state.records.pack(),
            "waiting": packing.pack({"commands": [*map(to_plain, state.waiting.values())]}, {}),
            "pending_effects": packing.pack(
                {bundle: to_plain(one) for bundle, one in state.pending_effects.items()}, {}
            ),
            "told": packing.pack({"settings": state.told}, {}),
            "unread": packing.pack({"faults": list(state.unread)}, {}),
            **state.ledger.pack(),
            **state.topics.pack(),
        }

    def unpack(self, chunks: Mapping[str, bytes]) -> BalancerState:
        """The inverse of `pack`. Raises UnknownStateSchemaError, MalformedBlobError."""
        plain = _plain("clock", chunks)
        schema = plain.pop("schema")
        if not OLDEST_SCHEMA <= schema <= STATE_SCHEMA:
            raise UnknownStateSchemaError.of("ClusterBalancer", schema, STATE_SCHEMA)
        namespaces, commands, settings = unpack_book(chunks)
        waiting = [from_plain(Waiting, one) for one in _plain("waiting", chunks)["commands"]]
        pending_effects = _plain("pending_effects", chunks).items()
        return BalancerState(
            ledger=Ledger.unpack(chunks),
            liveness=from_plain(Liveness, _plain("liveness", chunks)),
            plan=unpack_plan(chunks),
            brokers=unpack_brokers(chunks),
            namespaces=namespaces,
            commands=commands,
            settings=settings,
            rules=ClusterRules.from_plain(_plain("rules", chunks)),
            records=Records.unpack(chunks["records"]),
            times=Times(**plain),
            topics=TopicBook.unpack(chunks),
            waiting={w.command.command_id: w for w in waiting},
            pending_effects={name: from_plain(PendingEffect, one) for name, one in pending_effects},
            unread=tuple(_plain("unread", chunks)["faults"]),
            told=_plain("told", chunks)["settings"],
        )


def _batch(before: BalancerState, events: Sequence[GroupUpdate]) -> Batch:
    updates = sorted(events, key=lambda update: update.group)
    placed = sorted((p for update in updates for p in update.placed), key=_order)
    return Batch(before=before, updates=updates, placed=placed)


def _plain(chunk: str, chunks: Mapping[str, bytes]) -> dict[str, Any]:
    return packing.unpack(chunks[chunk])[0]


def _order(placed: Placed) -> tuple[str, int, int]:
    at = placed.position
    return (at.topic, at.partition, at.offset)

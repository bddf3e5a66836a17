"""The streaming job in virtual time: production scorers and balancer by batches.

Also what a crash, a conflict or a rebuild does to a batch. A batch whose commit was refused is
repeated with the same rows and the same time, as Spark does, and must come to the same effects.
"""

import zlib
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

from lbcore.agent.state import RecordRead, RecordTombstone
from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import (
    REPORT,
    RESEND,
    TOMBSTONE,
    Effect,
    Row,
    pack_effect,
    record_row,
)
from lbcore.balancer.rebuild import TableRows, newest_rows, rebuild_state, record_from_row
from lbcore.config.tree import Config
from lbcore.machine import Step
from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.scorer.broker_states import RawMessage, ScorerState
from lbcore.scorer.group_update import GroupUpdate
from lbcore.scorer.scorer import BrokerScorer, Parse
from lbcore.sim.engine.log import with_values_of

REBUILT_FROM = frozenset(one.name for one in fields(TableRows))
"""The tables that a rebuild reads."""


class NotRepeatableError(AssertionError):
    """A repeated batch had other effects: a bug in a Machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedBatch:
    """A batch that is computed and not committed."""

    groups: Mapping[int, Sequence[RawMessage]]
    now_ms: int
    scored: dict[int, ScorerState | None]
    state: BalancerState | None
    effects: Sequence[Effect]


class RowSource(Protocol):
    """Source of a job's rows."""

    @property
    def parse(self) -> Parse:
        """Parser of its rows."""

    def tick(self) -> None:
        """Append the driver's ticks."""

    def read_rows(self) -> Sequence[RawMessage]:
        """Return the rows that have not been read yet."""


@dataclass(slots=True)
class Committed:
    """Contents of the tables.

    The newest row and record of each bundle, and all rows of the other tables kept (`tables`).
    """

    tables: Collection[str] = REBUILT_FROM
    records: dict[str, OwnershipRecord] = field(default_factory=dict)
    ownership: dict[str, Row] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def keep(self, effect: Effect) -> None:
        """Add a batch's rows of one table."""
        if effect.kind == BUNDLE_OWNERSHIP.name:
            for row in effect.rows:
                self.put(row)
        elif effect.kind in self.tables:
            self.rows[effect.kind] += effect.rows

    def put(self, row: Row) -> None:
        """Keep a bundle's newest row; INIT = it is forgotten."""
        bundle = row["bundle"]
        if row["state"] == State.INIT.value:
            self.ownership.pop(bundle, None)
            self.records.pop(bundle, None)
        else:
            self.ownership[bundle] = row
            self.records[bundle] = record_from_row(row)


class Job:
    """The job of one cluster.

    on_commit: called with the effects of each committed batch. is_refused: commits fail.
    are_ticks_away: the driver's ticks are lost.
    refused: the batch to repeat, None = none.
    """

    def __init__(
        self,
        config: Config,
        cluster: str,
        source: RowSource,
        committed: Committed,
        on_commit: Callable[[Sequence[Effect]], None],
    ) -> None:
        self.committed = committed
        self.balancer = ClusterBalancer(cluster=cluster, config=config)
        self.scorers = {
            group: BrokerScorer(config, cluster=cluster, group=group, parse=source.parse)
            for group in range(config.pipeline.scorer_groups)
        }
        self.scored: dict[int, ScorerState | None] = {}
        self.state: BalancerState | None = None
        self.is_away = False
        self.is_refused = False
        self.are_ticks_away = False
        self.batches = 0
        self.refused: UncommittedBatch | None = None
        self._cluster = cluster
        self._source = source
        self._on_commit = on_commit
        self._again: Sequence[RawMessage] = ()

    def begin(self, records: Sequence[OwnershipRecord], namespaces: Sequence[Row]) -> None:
        """Begin with existing ownership."""
        for record in records:
            self.committed.put(record_row(record, 0))
        self.committed.rows["namespaces"] += namespaces
        self.rebuild()

    def run_batch(self, now_ms: int) -> None:
        """Run one micro-batch by the driver's clock, unless the job is away."""
        if self.is_away:
            return
        if not self.are_ticks_away:
            self._source.tick()
        if self.refused is not None:
            batch = self._compute(self.refused.groups, self.refused.now_ms)
            if packed_effects(batch.effects) != packed_effects(self.refused.effects):
                raise NotRepeatableError(f"the batch of {self.refused.now_ms} ms is not repeatable")
        else:
            batch = self._compute(self._read(), now_ms)
        self.refused = batch if self.is_refused else None
        if not self.is_refused:
            self._commit(batch)

    def restart(self) -> None:
        """Restart from the checkpoint, also with what has no bytes; repeat an open batch."""
        if self.state is not None:
            self.state = self.balancer.unpack(self.balancer.pack(self.state))
        for group, state in self.scored.items():
            if state is not None:
                again = self.scorers[group].unpack(self.scorers[group].pack(state))
                self.scored[group] = with_values_of(state, again)

    def rebuild(self) -> None:
        """Rebuild from the tables, and read on from the last commit.

        A refused batch is lost with the checkpoint; its rows are read again.
        """
        if self.refused is not None:
            self._again = [row for rows in self.refused.groups.values() for row in rows]
            self.refused = None
        self.state, self.scored = self.rebuilt(), {}

    def rebuilt(self) -> BalancerState:
        """The state that the tables give."""
        rows = newest_rows(self.committed.ownership.values(), self.committed.rows)
        return rebuild_state(self._cluster, rows)

    def step_scorer(
        self, group: int, messages: Sequence[RawMessage], now_ms: int
    ) -> Step[ScorerState, GroupUpdate]:
        """Run the first operator's part of a batch."""
        return self.scorers[group].step(self.scored.get(group), messages, now_ms)

    def step_balancer(
        self, updates: Sequence[GroupUpdate], now_ms: int
    ) -> Step[BalancerState, Effect]:
        """Run the second operator's part of a batch."""
        return self.balancer.step(self.state, updates, now_ms)

    def _read(self) -> dict[int, list[RawMessage]]:
        """Read the uncommitted rows, grouped by the hash of the key, as in production."""
        again, self._again = self._again, ()
        groups: dict[int, list[RawMessage]] = defaultdict(list)
        for row in (*again, *self._source.read_rows()):
            groups[zlib.crc32(row.key or b"") % len(self.scorers)].append(row)
        return dict(sorted(groups.items()))

    def _compute(self, groups: Mapping[int, Sequence[RawMessage]], now_ms: int) -> UncommittedBatch:
        scored = dict(self.scored)
        updates: list[GroupUpdate] = []
        for group, messages in groups.items():
            step = self.step_scorer(group, messages, now_ms)
            scored[group] = step.state
            updates += step.effects
        done: Step[BalancerState, Effect] = (
            self.step_balancer(updates, now_ms) if updates else Step(state=self.state, effects=())
        )
        return UncommittedBatch(
            groups=groups, now_ms=now_ms, scored=scored, state=done.state, effects=done.effects
        )

    def _commit(self, batch: UncommittedBatch) -> None:
        self.batches += 1
        self.scored, self.state = batch.scored, batch.state
        for effect in batch.effects:
            self.committed.keep(effect)
        if batch.effects:
            self._on_commit(batch.effects)


def packed_effects(effects: Sequence[Effect]) -> list[tuple[str, bytes]]:
    """Return all effects of a batch as bytes."""
    return [(effect.kind, pack_effect(effect)) for effect in effects]


def record_events(effects: Sequence[Effect]) -> list[RecordTombstone | RecordRead]:
    """Return what brokers read after a batch: tombstones first, then records."""
    deleted = [row["bundle"] for one in effects if one.kind == TOMBSTONE for row in one.rows]
    sent = [one for one in effects if one.kind in (OWNERSHIP_EVENTS.name, RESEND)]
    return [
        *(RecordTombstone(bundle=bundle) for bundle in deleted),
        *(RecordRead(record=record_from_row(row)) for one in sent for row in one.rows),
    ]


def report_of(effects: Sequence[Effect]) -> Row:
    """Return the batch's report row; empty without one."""
    return next((row for one in effects if one.kind == REPORT for row in one.rows), {})

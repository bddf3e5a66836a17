"""The streaming job in virtual time: the production scorers and balancer, batch after batch.

Decides when a batch runs and what a crash, a conflict or a rebuild does to it; all else the
Machines do. A batch whose commit was refused is repeated with the same rows and the same time, as
Spark does, and must come to the same effects. Source: ours.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lbcore.balancer.balancer import ClusterBalancer
from lbcore.balancer.rebuild import TableRows, newest_rows, rebuild_state, record_from_row
from lbcore.balancer.state.balancer_state import BalancerState
from lbcore.balancer.state.effects import REPORT, RESEND, TOMBSTONE, Effect, pack_effect
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord
from lbcore.scorer.group_update import GroupUpdate
from lbcore.scorer.scoring import make_scorer_of
from lbcore.scorer.tracks import BrokerTrack, RawMessage, ScorerState
from lbcore.sim.engine.clock import Clock
from lbcore.sim.engine.log import Carried, Log
from lbcore.wire.messages import Message, Rejected, RejectReason

Row = Mapping[str, Any]

_REBUILT_FROM = {one.name for one in fields(TableRows)}


class NotRepeatableError(AssertionError):
    """A repeated batch came to other effects: a bug in a Machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncommittedBatch:
    """A batch that is computed and not committed."""

    groups: Mapping[int, Sequence[RawMessage]]
    now_ms: int
    scored: Mapping[int, ScorerState | None]
    state: BalancerState | None
    effects: Sequence[Effect]


@dataclass(slots=True)
class Committed:
    """What the tables hold: newest record of each bundle, all rows of the others."""

    records: dict[str, OwnershipRecord] = field(default_factory=dict)
    ownership: dict[str, Row] = field(default_factory=dict)
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def keep(self, effect: Effect) -> None:
        """Take in a batch's rows for one table."""
        if effect.kind == "ownership_events":
            for row in effect.rows:
                self.ownership[row["bundle"]] = row
                self.records[row["bundle"]] = record_from_row(row)
        elif effect.kind == TOMBSTONE:
            for row in effect.rows:
                self.ownership.pop(row["bundle"], None)
                self.records.pop(row["bundle"], None)
        elif effect.kind in _REBUILT_FROM:
            self.rows[effect.kind] += effect.rows


class Job:
    """The job of one cluster. took_effects: is told what each committed batch came to."""

    def __init__(
        self,
        config: Config,
        cluster: str,
        log: Log,
        clock: Clock,
        took_effects: Callable[[Sequence[Effect]], None],
    ) -> None:
        self.committed = Committed()
        self.is_away = False
        self.is_refused = False
        self.are_ticks_away = False
        self.batches = 0
        self.until_ms: dict[str, int] = {}
        self._cluster = cluster
        self._config = config
        self._log = log
        self._clock = clock
        self._took_effects = took_effects
        self._balancer = ClusterBalancer(cluster=cluster, config=config)
        self._scorers = {
            group: make_scorer_of(config, cluster=cluster, group=group, parse_raw=_as_carried)
            for group in range(config.pipeline.scorer_groups)
        }
        self._scored: dict[int, ScorerState | None] = {}
        self._state: BalancerState | None = None
        self._refused: UncommittedBatch | None = None
        self._again: Mapping[int, Sequence[RawMessage]] = {}

    @property
    def state(self) -> BalancerState | None:
        """What the balancer knows and believes."""
        return self._state

    def begin(self, records: Sequence[OwnershipRecord], namespaces: Sequence[Row]) -> None:
        """Go on from ownership that is there already."""
        for record in records:
            self.committed.records[record.bundle] = record
            self.committed.ownership[record.bundle] = _row_of(record)
        self.committed.rows["namespaces"] += namespaces
        self.rebuild()

    def run_batch(self) -> None:
        """One micro-batch, if the job is there."""
        if self.is_away:
            return
        if not self.are_ticks_away:
            self._log.tick()
        if self._refused is not None:
            batch = self._repeat(self._refused)
        else:
            batch = self._compute(self._read(), self._clock.now_ms)
        self._refused = batch if self.is_refused else None
        if not self.is_refused:
            self._commit(batch)

    def restart(self) -> None:
        """Come back from the checkpoint; a batch that was not committed is repeated."""
        if self._state is not None:
            self._state = self._balancer.unpack(self._balancer.pack(self._state))
        for group, scorer in self._scorers.items():
            state = self._scored.get(group)
            if state is not None:
                self._scored[group] = _with_parts(scorer.unpack(scorer.pack(state)), state)

    def rebuild(self) -> None:
        """Come back without a checkpoint: from the tables, reading where the last commit ended.

        A batch that was refused is forgotten with the checkpoint; its rows are read again.
        """
        if self._refused is not None:
            self._again, self._refused = self._refused.groups, None
        rows = newest_rows(self.committed.ownership.values(), self.committed.rows)
        self._state = rebuild_state(self._cluster, rows)
        self._scored = {}

    def _read(self) -> dict[int, list[RawMessage]]:
        """What nobody has committed yet, by group."""
        again, self._again = self._again, {}
        groups = {group: list(messages) for group, messages in again.items()}
        for group, messages in self._log.read().items():
            groups.setdefault(group, []).extend(messages)
        return dict(sorted(groups.items()))

    def _compute(self, groups: Mapping[int, Sequence[RawMessage]], now_ms: int) -> UncommittedBatch:
        scored = dict(self._scored)
        updates: list[GroupUpdate] = []
        for group, messages in groups.items():
            step = self._scorers[group].step(scored.get(group), messages, now_ms)
            scored[group] = step.state
            updates += step.effects
        if not updates:
            return UncommittedBatch(
                groups=groups, now_ms=now_ms, scored=scored, state=self._state, effects=()
            )
        done = self._balancer.step(self._state, updates, now_ms)
        return UncommittedBatch(
            groups=groups, now_ms=now_ms, scored=scored, state=done.state, effects=done.effects
        )

    def _repeat(self, refused: UncommittedBatch) -> UncommittedBatch:
        again = self._compute(refused.groups, refused.now_ms)
        if effects_digest(again.effects) != effects_digest(refused.effects):
            raise NotRepeatableError(f"the batch of {refused.now_ms} ms is not repeatable")
        return again

    def _commit(self, batch: UncommittedBatch) -> None:
        self.batches += 1
        self._scored, self._state = dict(batch.scored), batch.state
        for effect in batch.effects:
            self.committed.keep(effect)
        self._took_effects(batch.effects)


def effects_digest(effects: Sequence[Effect]) -> str:
    """A digest of all that a batch came to."""
    made = hashlib.blake2b(digest_size=16)
    for effect in effects:
        made.update(effect.kind.encode())
        made.update(pack_effect(effect))
    return made.hexdigest()


def announced(effects: Sequence[Effect]) -> list[OwnershipRecord]:
    """The records that brokers read after a batch, in their order."""
    rows = [
        row for effect in effects if effect.kind in ("ownership_events", RESEND)
        for row in effect.rows
    ]  # fmt: skip
    return [record_from_row(row) for row in rows]


def report_of(effects: Sequence[Effect]) -> Row:
    """The batch's own line; empty when there is none."""
    found = [row for effect in effects if effect.kind == REPORT for row in effect.rows]
    return found[0] if found else {}


def _as_carried(raw: RawMessage) -> Message | Rejected:
    if isinstance(raw, Carried):
        return raw.message
    detail = "the message is no value of the simulator"
    return Rejected(reason=RejectReason.NOT_JSON, detail=detail, raw=raw.value or b"")


def _with_parts(state: ScorerState, before: ScorerState) -> ScorerState:
    """The parts of unfinished reports stay values: they have no bytes to come back from."""
    tracks: dict[str, BrokerTrack] = {}
    for name, track in state.items():
        tracks[name] = replace(track, pending=before[name].pending)
    return tracks


def _row_of(record: OwnershipRecord) -> Row:
    return {
        "cluster": record.cluster,
        "bundle": record.bundle,
        "state": record.state.value,
        "version_id": record.version_id,
        "source": record.source,
        "source_incarnation": record.source_incarnation,
        "destination": record.destination,
        "destination_incarnation": record.destination_incarnation,
        "children": "{}",
        "is_forced": record.is_forced,
        "cause": record.cause.value,
        "decision_id": record.decision_id,
        "command_id": record.command_id,
        "at_ms": record.timestamp_ms,
    }

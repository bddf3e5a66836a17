"""BrokerScorer: orders, de-duplicates and smooths the reports of a scorer group.

The first of the query's two stateful operators. Each report is accepted, late, duplicate, early
(of an unknown start) or rejected with a reason; the one effect of a batch is a GroupUpdate.
Messages that are not keyed by a broker (commands, audit entries, topics of a bundle) pass through,
because this group may not know their sender. Liveness is the balancer's, which has every
partition's clock. The smoothing is Pulsar 4.0.8's BrokerLoadData.update, by `signals.usage`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lbcore import packing
from lbcore.config.tree import Config
from lbcore.fault_isolation import Fault, Guard, summarize_faults
from lbcore.machine import Step, UnknownStateSchemaError
from lbcore.packing import plain_of
from lbcore.scorer.broker_states import (
    BROKER_STATE_KEPT_MS,
    PENDING_BYTES,
    STATE_SCHEMA,
    SUPERSEDED,
    BrokerState,
    PendingParts,
    RawMessage,
    ScorerBatch,
    ScorerState,
    Smoothed,
    incarnation_verdict,
    state_after,
)
from lbcore.scorer.group_update import (
    TICK,
    Arrivals,
    BrokerReport,
    BundleReport,
    GroupUpdate,
    PositionedMessage,
    pack_update,
)
from lbcore.signals.usage import BrokerScores, observe_reports, resource_percent
from lbcore.wire.fields import ParseRules
from lbcore.wire.messages import (
    Acks,
    AuditEntry,
    BrokerLoad,
    BundleLoad,
    Command,
    Heartbeat,
    Message,
    Rejected,
    RejectReason,
    Tick,
    Topic,
    TopicLoad,
)
from lbcore.wire.parse import parse_rows, refused_by_source

Parse: TypeAlias = Callable[[RawMessage], Message | Rejected]
_STATE = plain_of(ScorerState)
_NEVER_REPORTED = Smoothed(weighted_max_ema=1.0, throughput_ema=0.0, updated_ms=0)


class BrokerScorer:
    """The Machine of one (cluster, group): its messages have keys of one hash bucket.

    parse: bytes to a message or Rejected.
    """

    def __init__(self, config: Config, *, cluster: str, group: int, parse: Parse) -> None:
        self._group = group
        self._parse = parse
        self._signals = config.for_cluster(cluster).signals

    def step(
        self,
        state: ScorerState | None,
        events: Sequence[RawMessage],
        now_ms: int,
        guard: Guard | None = None,
    ) -> Step[ScorerState, GroupUpdate]:
        """Take in one micro-batch. O(messages); the order of `events` doesn't matter."""
        batch = ScorerBatch(before=state or {})
        guard = guard or Guard()

        def check() -> None:
            self.pack(batch.close())
            pack_update(self._update(batch))

        guard.check = check  # called only when a failed step is repeated, to find the item
        self._work_on(batch, events, guard, now_ms)
        batch.faults = summarize_faults(guard.faults)
        return Step(state=batch.close(), effects=[self._update(batch)])

    def _work_on(
        self, batch: ScorerBatch, events: Sequence[RawMessage], guard: Guard, now_ms: int
    ) -> None:
        """Take the messages in the order of the log, then smooth their loads.

        now_ms: used only to forget silent brokers; reports are judged by Kafka's time and order.
        """

        def take(some: Sequence[RawMessage]) -> None:
            for event in some:
                self._take(batch, event)

        def refuse(event: RawMessage, fault: Fault) -> str:
            at = event.position
            batch.refuse(event, _internal(event, fault))
            return f"{at.topic}-{at.partition}@{at.offset}"

        def lose(broker: str, fault: Fault) -> str:
            for _, event in batch.loaded.pop(broker).loads:  # its smoothed load stays
                batch.refuse(event, _internal(event, fault))
            return broker

        for event in events:
            ends = batch.ends.setdefault(event.position.topic, {})
            known = ends.get(event.position.partition, 0)
            batch.is_full |= event.is_full  # Spark's batch is at its bound: more may wait
            ends[event.position.partition] = max(known, event.position.offset + 1)
        guard.each("take_messages", sorted(events, key=_order), take, refuse)
        guard.each("smooth_loads", sorted(batch.loaded), partial(self._smooth_loads, batch), lose)
        log_ms = max((event.position.timestamp_ms for event in events), default=0)
        guard.run("forget_silent", lambda: self._forget_silent(batch, min(now_ms, log_ms)))

    def pack(self, state: ScorerState) -> Mapping[str, bytes]:
        """One chunk, see `packing`; equal states give equal bytes."""
        plain = {"schema": STATE_SCHEMA, "brokers": _STATE.to(state)}
        return {"brokers": packing.pack(plain, {})}

    def unpack(self, chunks: Mapping[str, bytes]) -> ScorerState:
        """The inverse of `pack`. Raises UnknownStateSchemaError, MalformedBlobError."""
        plain, _ = packing.unpack(chunks["brokers"])
        if plain["schema"] != STATE_SCHEMA:
            raise UnknownStateSchemaError.of("BrokerScorer", plain["schema"], STATE_SCHEMA)
        state: ScorerState = _STATE.back(plain["brokers"])
        return state

    def _take(self, batch: ScorerBatch, event: RawMessage) -> None:
        at = event.position
        message = self._parse(event)
        if isinstance(message, Rejected):
            batch.refuse(event, message)
        elif isinstance(message, Tick):
            batch.arrivals.append((at.partition, at.offset, at.timestamp_ms, ""))
        elif isinstance(message, TopicLoad):
            batch.counts["accepted"] += 1
            self._pass_on(batch, event, message)
        elif isinstance(message, Command | AuditEntry):
            batch.counts["accepted"] += 1
            batch.messages.append(PositionedMessage(position=at, message=message))
        else:
            self._take_report(batch, event, message)

    def _take_report(
        self,
        batch: ScorerBatch,
        event: RawMessage,
        message: Heartbeat | BrokerLoad | BundleLoad | Acks,
    ) -> None:
        at, broker = event.position, message.envelope.broker
        before = state = batch.broker_state(broker)
        if isinstance(message, Heartbeat | BrokerLoad):
            state = state_after(before, message.envelope, at.timestamp_ms)
            verdict = SUPERSEDED if state is None else ""
        else:
            verdict = incarnation_verdict(state, message.envelope)
        if state is None or verdict:
            batch.counts[verdict] += 1
            return
        if before is not None and before is not state and before.pending:  # a new start
            self._reject_incomplete(batch, before.pending)
        batch.broker_states[broker] = state
        if isinstance(message, Heartbeat | BrokerLoad):
            batch.arrivals.append((at.partition, at.offset, at.timestamp_ms, broker))
        if isinstance(message, BundleLoad):
            self._take_part(batch, state, event, message)
            return
        topic = Topic.ACKS.value if isinstance(message, Acks) else Topic.BROKER_LOAD.value
        seq, last = message.envelope.seq, state.seqs.get(topic, -1)
        if seq <= last:
            batch.counts["duplicate" if seq == last else "late"] += 1
            return
        batch.counts["accepted"] += 1
        state.seqs[topic] = seq
        if isinstance(message, BrokerLoad):
            state.loads.append((message, event))
            batch.loaded[broker] = state
        elif isinstance(message, Acks):
            self._pass_on(batch, event, message)

    def _pass_on(self, batch: ScorerBatch, event: RawMessage, message: TopicLoad | Acks) -> None:
        """Pass a message on without its bad rows, which are refused one by one."""
        for refused in message.refused:
            batch.refuse(event, refused)
        good = replace(message, refused=())
        batch.messages.append(PositionedMessage(position=event.position, message=good))

    def _forget_silent(self, batch: ScorerBatch, at_ms: int) -> None:
        """Forget brokers that have long been silent, and reject parts of their reports.

        at_ms: the earlier of Kafka's and this machine's clock, so that one wrong clock forgets
        nobody.
        """
        limit_ms = at_ms - BROKER_STATE_KEPT_MS
        broker_states: Mapping[str, BrokerState] = {**batch.before, **batch.broker_states}
        batch.silent = {name for name, state in broker_states.items() if state.heard_ms < limit_ms}
        for name in sorted(batch.silent):
            pending = broker_states[name].pending
            if pending is not None:
                self._reject_incomplete(batch, pending)

    def _smooth_loads(self, batch: ScorerBatch, brokers: Sequence[str]) -> None:
        """Advance each state by its loads: all first reports, then all second ones.

        Times are Kafka's. The newest load of each broker goes into the update. The state of a new
        start has replaced that of the old one, with its loads.
        """
        reports = {}
        states = [batch.loaded[name] for name in brokers]
        for turn in range(max((len(state.loads) for state in states), default=0)):
            waiting = [state for state in states if len(state.loads) > turn]
            loads = [state.loads[turn][0] for state in waiting]
            times_ms = [state.loads[turn][1].position.timestamp_ms for state in waiting]
            percent = resource_percent(
                np.stack([load.usage for load in loads]), np.stack([load.limit for load in loads])
            )
            known = [state.smoothed or _NEVER_REPORTED for state in waiting]
            before = BrokerScores(
                weighted_max_ema=np.array([one.weighted_max_ema for one in known]),
                throughput_ema=np.array([one.throughput_ema for one in known]),
                updated_at_ms=np.array([one.updated_ms for one in known], dtype=np.int64),
            )
            traffic = np.stack([load.traffic for load in loads])
            scores = observe_reports(before, percent, traffic, np.array(times_ms), self._signals)
            emas = (scores.weighted_max_ema.tolist(), scores.throughput_ema.tolist())
            for state, load, at_ms, row, usage, volume in zip(
                waiting, loads, times_ms, percent, *emas, strict=True
            ):
                state.smoothed = Smoothed(
                    weighted_max_ema=usage, throughput_ema=volume, updated_ms=at_ms
                )
                reports[load.envelope.broker] = BrokerReport(
                    load=load,
                    percent=row,
                    weighted_max_ema=usage,
                    throughput_ema=volume,
                    reported_ms=at_ms,
                )
        batch.reports |= reports

    def _take_part(
        self, batch: ScorerBatch, state: BrokerState, event: RawMessage, message: BundleLoad
    ) -> None:
        seq = message.envelope.seq
        done = state.seqs.get(Topic.BUNDLE_LOAD.value, -1)
        pending = state.pending
        before = pending.parts if pending and seq == pending.seq else {}
        is_repeated = seq == done or message.part in before
        if is_repeated or seq < (pending.seq if pending else done):  # pending.seq is above done
            batch.counts["duplicate" if is_repeated else "late"] += 1
            return
        batch.counts["accepted"] += 1
        for refused in message.refused:
            batch.refuse(event, refused)
        if pending and seq > pending.seq:
            self._reject_incomplete(batch, pending)
        parts = {**before, message.part: event}
        if len(parts) < message.parts:
            state.pending = PendingParts(seq=seq, parts=parts)
            batch.pending_bytes += len(event.value or b"")
            if batch.pending_bytes > PENDING_BYTES:
                self._make_room(batch)
            return
        parsed = [
            message if part == message.part else self._parse(parts[part]) for part in sorted(parts)
        ]
        state.pending = None
        state.seqs[Topic.BUNDLE_LOAD.value] = seq
        loads = [load for load in parsed if isinstance(load, BundleLoad)]
        last = loads[-1].envelope
        batch.bundles[last.broker] = BundleReport(
            broker=last.broker,
            incarnation=last.incarnation,
            names=[name for load in loads for name in load.names],
            stats=np.concatenate([load.stats for load in loads]),
            reported_ms=max(event.position.timestamp_ms for event in parts.values()),
        )

    def _make_room(self, batch: ScorerBatch) -> None:
        """If too many parts wait, reject those of the broker that has most.

        Bounds memory, as any sender may invent brokers.
        """
        states: Mapping[str, BrokerState] = {**batch.before, **batch.broker_states}
        sizes = {name: states[name].pending_bytes for name in sorted(states)}
        batch.pending_bytes = sum(sizes.values())  # reports that became whole no longer wait
        if batch.pending_bytes <= PENDING_BYTES:
            return
        state = batch.broker_state(max(sizes, key=sizes.__getitem__))
        if state is not None and state.pending is not None:
            batch.pending_bytes -= state.pending_bytes
            self._reject_incomplete(batch, state.pending)
            state.pending = None

    def _reject_incomplete(self, batch: ScorerBatch, pending: PendingParts) -> None:
        first, here = self._parse(next(iter(pending.parts.values()))), len(pending.parts)
        total = first.parts if isinstance(first, BundleLoad) else here
        missing = f"{total - here} of {total} parts"
        for part, event in sorted(pending.parts.items()):
            rejected = Rejected(
                reason=RejectReason.MISSING_PART,
                detail=(
                    f"part {part} of report {pending.seq} waited for {missing} "
                    "when a newer report or start began, too many parts waited or the broker fell "
                    "silent; send all parts of a report before the next one"
                ),
                raw=event.value or b"",
                cluster=(event.key or b"").split(b"/", 1)[0].decode(),
            )
            batch.refuse(event, rejected)

    def _update(self, batch: ScorerBatch) -> GroupUpdate:
        acks = (one.message for one in batch.messages if isinstance(one.message, Acks))
        seen = {
            *(name for *_, name in batch.arrivals if name),
            *batch.loaded,
            *batch.bundles,
            *(message.envelope.broker for message in acks),
        }
        brokers = tuple(sorted(seen))
        index = {name: i for i, name in enumerate(brokers)}
        rows = [(p, o, t, index.get(name, TICK)) for p, o, t, name in batch.arrivals]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return GroupUpdate(
            group=self._group,
            brokers=brokers,
            incarnations=tuple(batch.broker_states[name].incarnation for name in brokers),
            arrivals=Arrivals(
                partition=columns[0], offset=columns[1], timestamp_ms=columns[2], broker=columns[3]
            ),
            loads=tuple(batch.reports[name] for name in sorted(batch.reports)),
            bundles=tuple(batch.bundles[name] for name in sorted(batch.bundles)),
            messages=tuple(batch.messages),
            rejected=tuple(batch.rejected),
            not_kept=dict(sorted(batch.not_kept.items())),
            is_full=batch.is_full,
            counts=dict(sorted(batch.counts.items())),
            ends=batch.ends,
            faults=tuple(batch.faults),
        )


def _internal(event: RawMessage, fault: Fault) -> Rejected:
    return Rejected(
        reason=RejectReason.INTERNAL_ERROR,
        detail=fault.sentence,
        raw=event.value or b"",
        cluster=(event.key or b"").split(b"/", 1)[0].decode(errors="replace"),
    )


def _order(event: RawMessage) -> tuple[bool, str, int, int]:
    """Sort by the log, broker-load first: it says which start of a broker counts."""
    at = event.position
    is_first = at.topic.endswith(Topic.BROKER_LOAD.value)
    return (not is_first, at.topic, at.partition, at.offset)


def parser_of(config: Config, loads: Callable[[Any], Any]) -> Parse:
    """Return the parser of messages that are the wire's JSON.

    loads: decodes JSON text, ValueError when it can't.
    """
    prefix = config.pipeline.topic_prefix
    clusters = frozenset(config.pipeline.clusters)
    rules = ParseRules(clusters=clusters, limits=config.wire, loads=loads)

    def parse_raw(raw: RawMessage) -> Message | Rejected:
        if raw.refusal:
            return refused_by_source(raw.refusal, raw.key, raw.value, rules)
        return parse_rows(Topic(raw.position.topic[len(prefix) :]), raw.key, raw.value, rules)

    return parse_raw

"""BrokerScorer: orders, de-duplicates and smooths the reports of one group of brokers.

Decides which reports count: each is accepted, late, duplicate or rejected with a reason. Does not
judge who lives (the balancer does, it sees every partition's clock) and moves nothing. What is not
keyed by a broker (commands, audit entries, reports of a bundle's topics) passes through unjudged:
its group is its key's, where nothing is known of the broker that sent it. First of the two
operators; its one effect a batch is a GroupUpdate. Source: ours; the smoothing is Pulsar 4.0.8's
BrokerLoadData.update.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from lbcore.machine import Step
from lbcore.machines.group_update import (
    TICK,
    Arrivals,
    BrokerReport,
    BundleReport,
    GroupUpdate,
    Placed,
    RejectedMessage,
)
from lbcore.machines.tracks import (
    OpenTrack,
    PendingParts,
    RawMessage,
    ScorerState,
    Smoothed,
    Start,
    follow_start,
    pack_tracks,
    start_of,
    unpack_tracks,
)
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

Parse: TypeAlias = Callable[[RawMessage], Message | Rejected]
Smooth: TypeAlias = Callable[
    [Sequence[Smoothed | None], Sequence[BrokerLoad], Sequence[int]], list[Smoothed]
]


@dataclass(slots=True)
class _Batch:
    """What one batch adds up to, while it is worked on.

    before: tracks as the batch found them; tracks: those it has touched. loads: the track with the
    newest load of each broker.
    """

    before: ScorerState
    tracks: dict[str, OpenTrack] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    arrivals: list[tuple[int, int, int, str]] = field(default_factory=list)
    loads: dict[str, OpenTrack] = field(default_factory=dict)
    bundles: dict[str, BundleReport] = field(default_factory=dict)
    placed: list[Placed] = field(default_factory=list)
    rejected: list[RejectedMessage] = field(default_factory=list)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)

    def track(self, broker: str) -> OpenTrack | None:
        """The broker's track, opened on first touch; None when it has none."""
        found = self.tracks.get(broker)
        if found is None and broker in self.before:
            found = self.tracks[broker] = OpenTrack.of(self.before[broker])
        return found


class BrokerScorer:
    """The Machine of one (cluster, broker group).

    parse: bytes to a message or Rejected; percent: resource percentages of a load, float64[5];
    smooth: the next smoothed load of each of some brokers from its last one, a report, and Kafka's
    time of it.
    """

    def __init__(
        self,
        *,
        group: int,
        parse: Parse,
        percent: Callable[[BrokerLoad], "np.ndarray[Any, np.dtype[np.float64]]"],
        smooth: Smooth,
    ) -> None:
        self._group = group
        self._parse = parse
        self._percent = percent
        self._smooth = smooth

    def step(
        self, state: ScorerState | None, events: Sequence[RawMessage], now_ms: int
    ) -> Step[ScorerState, GroupUpdate]:
        """Take in one micro-batch. O(messages); the order of `events` doesn't matter."""
        del now_ms  # reports are judged by Kafka's time and order alone
        batch = _Batch(before=state or {})
        for event in sorted(events, key=_order):
            self._take(batch, event)
        loads = self._smooth_loads(batch)
        closed = {name: track.close() for name, track in batch.tracks.items()}
        return Step(state={**batch.before, **closed}, effects=[self._update(batch, loads)])

    def pack(self, state: ScorerState) -> Mapping[str, bytes]:
        """One chunk; see `packing`."""
        return {"brokers": pack_tracks(state)}

    def unpack(self, chunks: Mapping[str, bytes]) -> ScorerState:
        """The inverse of `pack`. Raises UnknownStateSchemaError."""
        return unpack_tracks(chunks["brokers"])

    def _take(self, batch: _Batch, event: RawMessage) -> None:
        at = event.position
        ends = batch.ends.setdefault(at.topic, {})
        ends[at.partition] = max(ends.get(at.partition, 0), at.offset + 1)
        message = self._parse(event)
        if isinstance(message, Rejected):
            self._reject(batch, event, message)
        elif isinstance(message, Tick):
            batch.arrivals.append((at.partition, at.offset, at.timestamp_ms, ""))
        elif isinstance(message, Command | AuditEntry | TopicLoad):
            batch.placed.append(Placed(position=at, message=message))
            batch.counts["accepted"] += 1
        else:
            self._take_report(batch, event, message)

    def _take_report(
        self,
        batch: _Batch,
        event: RawMessage,
        message: Heartbeat | BrokerLoad | BundleLoad | Acks,
    ) -> None:
        at, broker = event.position, message.envelope.broker
        track = batch.track(broker)
        if isinstance(message, Heartbeat | BrokerLoad):
            track = follow_start(track, message.envelope, at.timestamp_ms)
            start = Start.LATE if track is None else Start.PRESENT
        else:
            start = start_of(track, message.envelope)
        if track is None or start is not Start.PRESENT:
            batch.counts[start.value] += 1
            return
        self._keep_start(batch, broker, track)
        if isinstance(message, Heartbeat | BrokerLoad):
            batch.arrivals.append((at.partition, at.offset, at.timestamp_ms, broker))
        if isinstance(message, BundleLoad):
            self._take_part(batch, track, event, message)
            return
        verdict = _judge_seq(track, message)
        batch.counts[verdict] += 1
        if verdict != "accepted":
            return
        _advance(track, message)
        if isinstance(message, BrokerLoad):
            track.loads.append((message, at.timestamp_ms))
            batch.loads[broker] = track
        elif isinstance(message, Acks):
            batch.placed.append(Placed(position=at, message=message))

    def _keep_start(self, batch: _Batch, broker: str, track: OpenTrack) -> None:
        """Keep the track; parts of a start that is over wait in vain for the others."""
        before = batch.tracks.get(broker)
        if before is not None and before is not track and before.pending:
            self._reject_incomplete(batch, before.pending)
        batch.tracks[broker] = track

    def _smooth_loads(self, batch: _Batch) -> list[BrokerReport]:
        """Advance each track by its loads: all first ones at once, then all second ones.

        The newest load of each broker, by name. What a replaced start sent is not smoothed in.
        """
        reports = {}
        waiting = [batch.loads[name] for name in sorted(batch.loads)]
        turn = 0
        while waiting:
            loads = [track.loads[turn] for track in waiting]
            lasts = [track.smoothed for track in waiting]
            smoothed = self._smooth(lasts, [load for load, _ in loads], [at for _, at in loads])
            for track, (load, at_ms), one in zip(waiting, loads, smoothed, strict=True):
                track.smoothed = one
                reports[load.envelope.broker] = (load, at_ms, one)
            turn += 1
            waiting = [track for track in waiting if len(track.loads) > turn]
        return [self._report(*reports[name]) for name in sorted(reports)]

    def _report(self, load: BrokerLoad, at_ms: int, smoothed: Smoothed) -> BrokerReport:
        return BrokerReport(
            load=load,
            percent=self._percent(load),
            weighted_max_ema=smoothed.weighted_max_ema,
            throughput_ema=smoothed.throughput_ema,
            reported_ms=at_ms,
        )

    def _take_part(
        self, batch: _Batch, track: OpenTrack, event: RawMessage, message: BundleLoad
    ) -> None:
        seq = message.envelope.seq
        done = track.seqs.get(Topic.BUNDLE_LOAD.value, -1)
        pending = track.pending
        open_seq = pending.seq if pending else done
        is_repeated = seq == done or (
            pending and seq == pending.seq and message.part in pending.parts
        )
        if is_repeated or seq < open_seq:
            batch.counts["duplicate" if is_repeated else "late"] += 1
            return
        batch.counts["accepted"] += 1
        if pending and seq > pending.seq:
            self._reject_incomplete(batch, pending)
            pending = None
        parts = {**(pending.parts if pending else {}), message.part: event}
        if len(parts) < message.parts:
            track.pending = PendingParts(seq=seq, parts=parts)
            return
        loads = [
            message if part == message.part else self._parse(parts[part]) for part in sorted(parts)
        ]
        track.pending = None
        track.seqs[Topic.BUNDLE_LOAD.value] = seq
        reported_ms = max(event.position.timestamp_ms for event in parts.values())
        self._complete(batch, [load for load in loads if isinstance(load, BundleLoad)], reported_ms)

    def _complete(self, batch: _Batch, loads: Sequence[BundleLoad], reported_ms: int) -> None:
        last = loads[-1].envelope
        batch.bundles[last.broker] = BundleReport(
            broker=last.broker,
            incarnation=last.incarnation,
            names=[name for load in loads for name in load.names],
            stats=np.concatenate([load.stats for load in loads]),
            reported_ms=reported_ms,
        )

    def _reject(self, batch: _Batch, event: RawMessage, rejected: Rejected) -> None:
        batch.counts["rejected"] += 1
        batch.rejected.append(RejectedMessage(position=event.position, rejected=rejected))

    def _reject_incomplete(self, batch: _Batch, pending: PendingParts) -> None:
        for part in sorted(pending.parts):
            event = pending.parts[part]
            detail = (
                f"part {part} of report {pending.seq} waited for {_missing(pending, self._parse)} "
                "when a newer report or start began; send all parts of a report before the next one"
            )
            rejected = Rejected(
                reason=RejectReason.MISSING_PART,
                detail=detail,
                raw=event.value or b"",
                cluster=(event.key or b"").split(b"/", 1)[0].decode(),
            )
            self._reject(batch, event, rejected)

    def _update(self, batch: _Batch, loads: Sequence[BrokerReport]) -> GroupUpdate:
        seen = {name for *_, name in batch.arrivals if name}
        seen.update(batch.loads, batch.bundles)
        seen.update(
            placed.message.envelope.broker
            for placed in batch.placed
            if isinstance(placed.message, Acks)
        )
        brokers = tuple(sorted(seen))
        index = {name: i for i, name in enumerate(brokers)}
        rows = [(p, o, t, index.get(name, TICK)) for p, o, t, name in batch.arrivals]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        return GroupUpdate(
            group=self._group,
            brokers=brokers,
            incarnations=tuple(batch.tracks[name].incarnation for name in brokers),
            arrivals=Arrivals(
                partition=columns[0],
                offset=columns[1],
                timestamp_ms=columns[2],
                broker=columns[3],
            ),
            loads=tuple(loads),
            bundles=tuple(batch.bundles[name] for name in sorted(batch.bundles)),
            placed=tuple(batch.placed),
            rejected=tuple(batch.rejected),
            counts=dict(sorted(batch.counts.items())),
            ends=batch.ends,
        )


def _order(event: RawMessage) -> tuple[bool, str, int, int]:
    """The order of the log, broker-load first: it says which start of a broker counts."""
    at = event.position
    is_first = at.topic.endswith(Topic.BROKER_LOAD.value)
    return (not is_first, at.topic, at.partition, at.offset)


def _missing(pending: PendingParts, parse: Parse) -> str:
    message = parse(next(iter(pending.parts.values())))
    total = message.parts if isinstance(message, BundleLoad) else len(pending.parts)
    return f"{total - len(pending.parts)} of {total} parts"


def _topic_of(message: Heartbeat | BrokerLoad | Acks) -> str:
    return Topic.ACKS.value if isinstance(message, Acks) else Topic.BROKER_LOAD.value


def _judge_seq(track: OpenTrack, message: Heartbeat | BrokerLoad | Acks) -> str:
    last = track.seqs.get(_topic_of(message), -1)
    if message.envelope.seq > last:
        return "accepted"
    return "duplicate" if message.envelope.seq == last else "late"


def _advance(track: OpenTrack, message: Heartbeat | BrokerLoad | Acks) -> None:
    track.seqs[_topic_of(message)] = message.envelope.seq

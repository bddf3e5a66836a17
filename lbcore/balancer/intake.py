"""Intake: what a batch's reports change in the balancer's state.

Decides whether a broker's start is new, which bundles' averages advance, and what is written down
of refused messages; nothing about ownership. Its phases in `balancer` run after commands and acks.
Averages advance once a report, as in Pulsar 4.0.8's updateBundleData.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import STARTS_KEPT, TEXTS, BrokerEntry
from lbcore.balancer.brokers import is_external
from lbcore.balancer.ledger import COUNT_MAX, NOBODY, STATE_CODE
from lbcore.balancer.topic_book import BundleTopics, partition_mark, sender_of
from lbcore.config.splitting import Splitting
from lbcore.fault_isolation import Fault
from lbcore.model.bundles import HashFunction, hash_topics
from lbcore.model.names import format_partition, parse_bundle, range_end
from lbcore.model.tables import REJECTED_REPORTS
from lbcore.model.times import DAY_MS
from lbcore.ownership.records import State
from lbcore.plan.snapshot import Ints
from lbcore.scorer.group_update import (
    BrokerReport,
    BundleReport,
    PositionedMessage,
    RejectedMessage,
)
from lbcore.signals.averages import observe_bundles, with_rows
from lbcore.wire.messages import Position, Rejected, RejectReason, TopicLoad

WARM = 0.5
"""Share of a split limit above which each report of unchanged topics counts; below it, the known
rates are near enough, and the state stays as it is."""

TAKEN_OR_NOT = ("taken", "unchanged", "late", "foreign_bundle", "unknown_bundle", "full")
"""Result of a report: it counts, or the reason why it does not."""

TOPICS_COUNTED = "topics:"
"""Prefix of a batch's counts of these results."""


HASHED_MAX = 16_384
"""Maximum topics of the catalog hashed per namespace, a sample: enough for split points."""


def take_topics(work: BatchContext, items: Sequence[PositionedMessage]) -> None:
    """Take in reports on topics in the order of the log; count them, or the reason."""
    messages: Sequence[Any] = [item.message for item in items]
    holders = work.ledger.holders()
    fresh: dict[str, BundleTopics | None] = {}
    room = work.config.pipeline.topics_kept_max - work.topics.count
    for message in messages:
        known = fresh.get(message.bundle) or work.topics.topics_of(message.bundle)
        reason = _reason_to_ignore(work, message, known, holders)
        if not reason:
            topics = _topics(work, message)
            more = len(topics.hashes) - (0 if known is None else len(known.hashes))
            if known is not None and _has_no_news(known, topics, work.config.splitting):
                reason = "unchanged"
            elif more > room:
                reason = "full"
            else:
                fresh[message.bundle], room = topics, room - more
        work.counts[f"{TOPICS_COUNTED}{reason or 'taken'}"] += 1
    work.topics = work.topics.changed(fresh)


def _has_no_news(known: BundleTopics, topics: BundleTopics, config: Splitting) -> bool:
    """True if a report has no relevant news: same topics, no load near a limit."""
    is_warm = any(
        float(found.msg_rate.sum()) > WARM * config.max_msg_rate_per_s
        or float(found.throughput.sum()) > WARM * config.max_throughput_bytes_per_s
        for found in (known, topics)
    )
    is_same = np.array_equal(known.hashes, topics.hashes) and np.array_equal(known.of, topics.of)
    return not is_warm and is_same


def created_topics(work: BatchContext, namespace: str) -> tuple[Ints, int]:
    """Return hashes of the catalog's topics, one for each partition (a sample).

    They are ascending, and brokers may not have reported these topics yet. With them comes the
    number of topics that each hash represents. O(topics of the namespace) once a batch, whatever
    the number of their partitions.
    """
    if namespace in work.created_topics:
        return work.created_topics[namespace]
    topics = work.catalog.topics_of(namespace)
    names = sorted(topics)
    ends = np.cumsum([max(topics[name], 1) for name in names], dtype=np.int64)
    total = int(ends[-1]) if names else 0
    # the partitions of all topics have running numbers, within a topic from its highest down, and
    # one in so many is taken
    stands_for = max(-(-total // HASHED_MAX), 1)
    at = np.arange(0, total, stands_for)
    of = np.searchsorted(ends, at, side="right")
    served = [
        format_partition(names[row], number) if topics[names[row]] else names[row]
        for row, number in zip(of.tolist(), (ends[of] - at - 1).tolist(), strict=True)
    ]
    function = HashFunction(work.namespaces[namespace].hash)
    hashes = np.unique(hash_topics(function, served))
    work.created_topics[namespace] = hashes, stands_for
    return work.created_topics[namespace]


def _reason_to_ignore(
    work: BatchContext, message: TopicLoad, known: BundleTopics | None, holders: Ints
) -> str:
    row = work.ledger.index.get(message.bundle)
    if row is None:
        return "unknown_bundle"
    made = message.envelope
    start = work.ledger.instances.find(made.broker, made.incarnation)
    if start == NOBODY or holders[row] != start:
        return "foreign_bundle"
    is_same = known is not None and known.sender == sender_of(made.broker, made.incarnation)
    return "late" if is_same and known is not None and made.seq <= known.seq else ""


def _topics(work: BatchContext, message: TopicLoad) -> BundleTopics:
    """Return the report's topics in the bundle's range, in order of hashes."""
    namespace, lower, upper = parse_bundle(message.bundle)
    function = HashFunction(work.namespaces[namespace].hash)
    hashes = hash_topics(function, message.topics)
    inside = (hashes >= lower) & (hashes < range_end(upper))
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(hashes[rows], kind="stable")]
    traffic = message.traffic[rows]
    return BundleTopics(
        sender=sender_of(message.envelope.broker, message.envelope.incarnation),
        seq=message.envelope.seq,
        hashes=hashes[rows].astype("<u4"),
        msg_rate=(traffic[:, 0] + traffic[:, 1]).astype("<f4"),
        throughput=(traffic[:, 2] + traffic[:, 3]).astype("<f4"),
        of=np.array([partition_mark(message.topics[row]) for row in rows.tolist()], dtype="<u4"),
    )


_RAW_CHARS = 4_096
NOT_KEPT = "not_kept:"
"""Prefix of a batch's counts by "TOPIC:REASON" of refused messages that have no row."""

_ROW_BYTES = 256
_SESSION_COLUMNS = (5, 6)
_COUNT_COLUMNS = (4, 5, 6)


def follow_starts(work: BatchContext, starts: Sequence[tuple[str, str]]) -> None:
    """Note new brokers, and new incarnations of known ones.

    The scorer decides which incarnation is the latest: it sees the log's order.
    """
    for broker, incarnation in starts:
        known = work.brokers.get(broker)
        if known is None:
            work.brokers[broker] = BrokerEntry(incarnation=incarnation, starts_ms=(work.now_ms,))
        elif known.incarnation == incarnation:
            continue
        else:  # its load is unknown; its last known addresses stay
            work.brokers[broker] = BrokerEntry(
                incarnation=incarnation,
                capacity=known.capacity,
                texts=known.texts,
                listeners=known.listeners,
                starts_ms=(*known.starts_ms, work.now_ms)[-STARTS_KEPT:],
                restarted_ms=work.now_ms,
                died_clock_ms=known.died_clock_ms,
            )
        work.set_times(newcomer_clock_ms=work.times.clock_ms)
        work.counts["restarted" if known else "joined"] += 1


def take_loads(work: BatchContext, loads: Sequence[BrokerReport]) -> None:
    """Keep brokers' newest loads."""
    for report in loads:
        load, envelope = report.load, report.load.envelope
        known = work.brokers[envelope.broker]
        if known.incarnation == envelope.incarnation:
            work.brokers[envelope.broker] = replace(
                known,
                is_draining=load.is_draining,
                reported_ms=work.bounded_arrival_ms(report.reported_ms),
                percent=tuple(report.percent.tolist()),
                traffic=tuple(load.traffic.tolist()),
                weighted_max_ema=report.weighted_max_ema,
                throughput_ema=report.throughput_ema,
                topic_count=load.topic_count,
                bundle_count=load.bundle_count,
                capacity=load.capacity,
                offered_msg_rate=load.offered_msg_rate,
                texts={name: getattr(load, name) for name in TEXTS},
                listeners=dict(load.advertised_listeners),
            )


def take_bundles(work: BatchContext, reports: Sequence[BundleReport]) -> None:
    """Advance bundle averages by brokers' reports, in the order of the groups."""
    passes: dict[int, list[BundleReport]] = {}  # in each at most one report of a broker
    counted: Counter[str] = Counter()
    for report in reports:
        passes.setdefault(counted[report.broker], []).append(report)
        counted[report.broker] += 1
    for found in passes.values():
        _observe(work, found)


def write_refused(work: BatchContext, messages: Sequence[RejectedMessage]) -> None:
    """Record what the scorers refused, within a daily budget of bytes (leaky bucket).

    An hour's worth may come at once. What is not kept is counted.
    """
    per_day = work.config.pipeline.rejected_bytes_per_day
    passed_ms = max(0, work.now_ms - work.times.refused_ms)
    kept_bytes = max(0, work.times.refused_bytes - per_day * passed_ms // DAY_MS)
    for message in messages:
        rejected = message.rejected
        size = len(rejected.raw) + len(rejected.detail) + _ROW_BYTES
        if kept_bytes + size > per_day // 24:
            work.counts[f"{NOT_KEPT}{message.position.topic}:{rejected.reason.value}"] += 1
            continue
        kept_bytes += size
        _write_rejected(work, message.position, rejected)
    work.set_times(refused_bytes=kept_bytes, refused_ms=work.now_ms)


def count_not_kept(work: BatchContext) -> None:
    """Record how many refused messages were not kept, if any."""
    for update in work.updates:
        for name, count in update.not_kept.items():
            work.counts[f"{NOT_KEPT}{name}"] += count
    found = {
        name.removeprefix(NOT_KEPT): count
        for name, count in sorted(work.counts.items())
        if name.startswith(NOT_KEPT)
    }
    if found:
        listed = ", ".join(f"{name.replace(':', ' ')} {count}" for name, count in found.items())
        rejected = Rejected(
            reason=RejectReason.NOT_KEPT,
            detail=f"{sum(found.values())} rejected messages of this batch were not kept, because"
            f" too many came for one batch or for the budget of a day: {listed}",
            raw=b"",
            cluster=work.cluster,
        )
        at = Position(topic="", partition=-1, offset=-1, timestamp_ms=work.now_ms)
        _write_rejected(work, at, rejected)


def reject(work: BatchContext, position: Position, text: str, fault: Fault) -> str:
    """Record a message or row that failed for an internal error; return its position.

    text: what is known of it. position: partition and offset are -1 where they are not known.
    """
    rejected = Rejected(
        reason=RejectReason.INTERNAL_ERROR,
        detail=fault.sentence,
        raw=text[:_RAW_CHARS].encode(errors="replace"),
        cluster=work.cluster,
    )
    _write_rejected(work, position, rejected)
    return f"{position.topic}-{position.partition}@{position.offset}"


def _write_rejected(work: BatchContext, position: Position, rejected: Rejected) -> None:
    work.add_row(
        REJECTED_REPORTS.name,
        {
            "cluster": rejected.cluster,
            "topic": position.topic,
            "partition": position.partition,
            "offset": position.offset,
            "timestamp_ms": position.timestamp_ms,
            "reason": rejected.reason.value,
            "detail": rejected.detail,
            "raw": rejected.raw,
        },
    )


def _observe(work: BatchContext, reports: Sequence[BundleReport]) -> None:
    """Advance the averages of bundles that the records give to their reporter.

    A bundle that a broker reports and does not own (any more) raises a metric and no average:
    during a move two brokers may report it, and it would be sampled twice. Pulsar's
    reports leave out bundles without topics: these have a sample of no load.
    """
    ledger = work.ledger
    sizes = [len(report.names) for report in reports]
    names = (name for report in reports for name in report.names)
    found = np.fromiter((ledger.index.get(n, NOBODY) for n in names), dtype=np.int64)
    starts = [ledger.instances.find(report.broker, report.incarnation) for report in reports]
    sender = np.repeat(np.array(starts, dtype=np.int64), sizes)
    is_known = found != NOBODY
    holder = np.append(ledger.holders(), NOBODY)[found]  # -1, an unknown bundle, finds the last
    is_own = is_known & (holder == sender) & (sender != NOBODY)
    work.counts["unknown_bundle"] += int((~is_known).sum())
    work.counts["foreign_bundle"] += int((is_known & ~is_own).sum())
    left_out = _left_out(work, starts, found[is_own]) if is_external(work) else found[:0]
    rows = np.concatenate([found[is_own], left_out])
    if not len(rows):
        return
    stats = np.concatenate([report.stats for report in reports])[is_own]
    stats = np.concatenate([stats, np.zeros((len(left_out), stats.shape[1]))])
    stats[:, _COUNT_COLUMNS] = np.minimum(stats[:, _COUNT_COLUMNS], COUNT_MAX)
    sessions = np.minimum(stats[:, _SESSION_COLUMNS].sum(axis=1), COUNT_MAX).astype(np.int64)
    averages = observe_bundles(ledger.averages(), rows, stats)
    ledger.keep_load(averages, with_rows(ledger.sessions, rows, sessions), rows)


_OPENING_MS = 120_000
"""Time within which Pulsar's statistics may not show a bundle's topics on a new owner."""


def _left_out(work: BatchContext, starts: Sequence[int], reported: Ints) -> Ints:
    """Return the rows that their owners' reports leave out.

    Pulsar's reports omit bundles without topics. Returned are only rows with samples so far.
    starts: of the reports' senders. reported: rows in the reports.
    """
    ledger = work.ledger
    is_out = np.isin(ledger.holders(), [start for start in starts if start != NOBODY])
    is_out &= (ledger.state == STATE_CODE[State.OWNED]) & (ledger.short_count > 0)
    is_out &= ledger.at_ms < work.now_ms - _OPENING_MS
    is_out[reported] = False
    return np.flatnonzero(is_out)

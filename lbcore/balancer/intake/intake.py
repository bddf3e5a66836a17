"""Intake: what a batch's reports change in the book and the ledger.

Decides whether a broker's start is new, which bundles' averages advance, and what is written down
of refused messages; nothing about ownership. Second phase of `balancer`, after the commands.
Averages advance once a report, as in Pulsar 4.0.8's updateBundleData.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from lbcore.balancer.state.book import BrokerEntry
from lbcore.balancer.state.ledger import COUNT_MAX, NOBODY
from lbcore.balancer.state.work import Work
from lbcore.fault_isolation import Fault
from lbcore.model.tables import REJECTED_REPORTS
from lbcore.scorer.group_update import BrokerReport, BundleReport, GroupUpdate, RejectedMessage
from lbcore.signals.arrays import with_rows
from lbcore.signals.averages import observe_bundles
from lbcore.wire.messages import Position, Rejected, RejectReason, Topic

_RAW_CHARS = 4_096
_NOWHERE = {
    topic: Position(topic=topic.value, partition=-1, offset=-1, timestamp_ms=0)
    for topic in (Topic.BROKER_LOAD, Topic.BUNDLE_LOAD)
}
NOT_KEPT = "not_kept:"
"""Begins the name of a count in a report: "TOPIC:REASON" of refused messages that have no row."""

DAY_MS = 86_400_000
_ROW_BYTES = 256
_SESSION_COLUMNS = (5, 6)
_COUNTED = (4, 5, 6)


def count_updates(work: Work, updates: Sequence[GroupUpdate]) -> None:
    """Note how far the batch has read, whatever becomes of what it has read."""
    for update in updates:
        work.counts.update(update.counts)
        for topic, ends in update.ends.items():
            _advance_ends(work.ends.setdefault(topic, {}), ends)


def starts_of(updates: Sequence[GroupUpdate]) -> list[tuple[str, str]]:
    """The brokers that were heard, each with its newest start, in the order of the groups."""
    return [start for one in updates for start in zip(one.brokers, one.incarnations, strict=True)]


def follow_starts(work: Work, starts: Sequence[tuple[str, str]]) -> None:
    """Notice brokers that are new, and new starts of those that are known."""
    for broker, incarnation in starts:
        _follow(work, broker, incarnation)


def take_loads(work: Work, loads: Sequence[BrokerReport]) -> None:
    """Keep brokers' newest loads."""
    for report in loads:
        known = work.brokers[report.load.envelope.broker]
        if known.incarnation == report.load.envelope.incarnation:
            reported_ms = work.dated(report.reported_ms)
            work.brokers[report.load.envelope.broker] = known.with_report(report, reported_ms)


def take_bundles(work: Work, reports: Sequence[BundleReport]) -> None:
    """Advance the averages by brokers' reports on their bundles, in the order of the groups."""
    for found in _rounds(reports):
        _observe(work, found)


def write_refused(work: Work, messages: Sequence[RejectedMessage]) -> None:
    """Write down what the scorers refused, as much as a day's budget allows.

    An hour's worth may come at once. What is not kept is counted.
    """
    if not messages:
        return
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
        work.add_row(REJECTED_REPORTS.name, rejected_row(message))
    work.note(refused_bytes=kept_bytes, refused_ms=work.now_ms)


def count_not_kept(work: Work, updates: Sequence[GroupUpdate]) -> None:
    """Write a row that says how many refused messages were not kept, where some were not."""
    for update in updates:
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
            f" too many came for the budget of a day: {listed}",
            raw=b"",
            cluster=work.cluster,
        )
        at = Position(topic="", partition=-1, offset=-1, timestamp_ms=work.now_ms)
        row = rejected_row(RejectedMessage(position=at, rejected=rejected))
        work.add_row(REJECTED_REPORTS.name, row)


def put_load_aside(work: Work, report: BrokerReport, fault: Fault) -> str:
    """The broker's load stays what it was."""
    reject(work, _NOWHERE[Topic.BROKER_LOAD], repr(report), fault)
    return report.load.envelope.broker


def put_bundles_aside(work: Work, report: BundleReport, fault: Fault) -> str:
    """The broker's bundles keep their averages."""
    reject(work, _NOWHERE[Topic.BUNDLE_LOAD], repr(report), fault)
    return report.broker


def put_refused_aside(work: Work, message: RejectedMessage, fault: Fault) -> str:
    """A refused message whose row can't be made is refused for that."""
    at = message.position
    reject(work, at, "", fault)
    return f"{at.topic}-{at.partition}@{at.offset}"


def reject(work: Work, position: Position, text: str, fault: Fault) -> None:
    """Note a message, or a row of one, as refused for a fault of ours. text: what is known of it.

    position: offset -1 where a report came in several messages.
    """
    rejected = Rejected(
        reason=RejectReason.INTERNAL_ERROR,
        detail=fault.sentence,
        raw=text[:_RAW_CHARS].encode(errors="replace"),
        cluster=work.cluster,
    )
    row = rejected_row(RejectedMessage(position=position, rejected=rejected))
    work.add_row(REJECTED_REPORTS.name, row)


def rejected_row(message: RejectedMessage) -> dict[str, object]:
    """A refused message as a row of rejected_reports."""
    at, rejected = message.position, message.rejected
    return {
        "cluster": rejected.cluster,
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "timestamp_ms": at.timestamp_ms,
        "reason": rejected.reason.value,
        "detail": rejected.detail,
        "raw": rejected.raw,
    }


def _advance_ends(known: dict[int, int], seen: Mapping[int, int]) -> None:
    for partition, end in seen.items():
        known[partition] = max(known.get(partition, 0), end)


def _follow(work: Work, broker: str, incarnation: str) -> None:
    """Notice a broker's first report, or the first of a new incarnation.

    Which incarnation is the latest is the scorer's to say: it sees the log's order.
    """
    known = work.brokers.get(broker)
    if known is not None and known.incarnation == incarnation:
        return
    fresh = BrokerEntry(incarnation=incarnation, starts_ms=(work.now_ms,))
    work.brokers[broker] = known.restarted(incarnation, work.now_ms) if known else fresh
    work.note(newcomer_clock_ms=work.clock_ms)
    work.counts["restarted" if known else "joined"] += 1


def _rounds(reports: Sequence[BundleReport]) -> list[list[BundleReport]]:
    """The reports in their order, divided so that no broker has two in a round: each counts."""
    rounds: list[list[BundleReport]] = []
    seen: Counter[str] = Counter()
    for report in reports:
        if seen[report.broker] == len(rounds):
            rounds.append([])
        rounds[seen[report.broker]].append(report)
        seen[report.broker] += 1
    return rounds


def _observe(work: Work, reports: Sequence[BundleReport]) -> None:
    """Advance the averages of the bundles that the reporting brokers own by the records.

    A bundle that a broker reports and does not own (any more) is counted, not averaged: during a
    move two brokers may report the same bundle, and one sample a bundle and report is the rule.
    """
    ledger = work.ledger
    sizes = [len(report.names) for report in reports]
    names = (name for report in reports for name in report.names)
    found = np.fromiter((ledger.index.get(n, NOBODY) for n in names), dtype=np.int64)
    starts = [ledger.instances.find(report.broker, report.incarnation) for report in reports]
    sender = np.repeat(np.array(starts, dtype=np.int64), sizes)
    is_known = found != NOBODY
    holder = np.append(ledger.holders(), NOBODY)[found]
    is_own = is_known & (holder == sender) & (sender != NOBODY)
    work.counts["unknown_bundle"] += int((~is_known).sum())
    work.counts["foreign_bundle"] += int((is_known & ~is_own).sum())
    rows = found[is_own]
    if not len(rows):
        return
    stats = np.concatenate([report.stats for report in reports])[is_own]
    stats[:, _COUNTED] = np.minimum(stats[:, _COUNTED], COUNT_MAX)
    sessions = np.minimum(stats[:, _SESSION_COLUMNS].sum(axis=1), COUNT_MAX).astype(np.int64)
    averages = observe_bundles(ledger.averages(), rows, stats)
    ledger.keep_load(averages, with_rows(ledger.sessions, rows, sessions), rows)

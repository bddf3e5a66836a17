"""Counters from the rows of a batch: what was decided, written, refused.

Source for Pulsar's names: Pulsar 4.0.8, UnloadCounter, SplitCounter, AssignCounter and
ServiceUnitStateChannelImpl.
"""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from jobs.telemetry.job_names import ASSIGNING, CHANNEL, SPLITTING, UNLOADING
from jobs.telemetry.store import BALANCER, MetricStore
from lbcore.balancer.commands import HANDLERS
from lbcore.balancer.intake import NOT_KEPT, TAKEN_OR_NOT, TOPICS_COUNTED
from lbcore.explain.reasons import SKIPS
from lbcore.model.tables import (
    COMMANDS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    OWNERSHIP_EVENTS,
    REJECTED_REPORTS,
)
from lbcore.model.times import HOUR_MS
from lbcore.ownership.changes import IntentReason
from lbcore.ownership.records import State
from lbcore.plan.split.decision import LIMIT_REASONS, SplitReason
from lbcore.wire.messages import RejectReason


class Event(NamedTuple):
    """The used columns of a row of ownership_events."""

    cluster: str
    bundle: str
    state: str
    state_before: str
    source: str
    destination: str
    destination_before: str
    at_ms: int
    cause: str
    is_forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """One part of a finished move. part: release, assign or unload."""

    part: str
    broker: str
    ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedMove:
    """A move whose new owner has opened the bundle. cause: of its first transition."""

    cause: str
    is_return: bool


@dataclass(slots=True)
class _OpenMove:
    owner: str
    cause: str
    began_ms: int
    step_ms: int
    closing: str = ""  # the broker that has yet to close


class MoveTracker:
    """Follows the moves of all clusters, event by event in the table's order.

    Remembers moves under way, and the owner of each moved bundle within the last hour; both
    expire, so memory is bounded by the moves of an hour. The latencies are Pulsar 4.0.8's
    (UnloadManager); thrash is defined in `lbcore.sim.summary`.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, str], _OpenMove] = {}
        self._left_ms: dict[tuple[str, str], dict[str, int]] = {}

    def take(self, event: Event) -> Iterator[Latency | FinishedMove]:
        """Process an event; yield the latencies and the move that it ends."""
        key = (event.cluster, event.bundle)
        move = self._under_way.get(key)
        if event.state == State.RELEASING.value:
            self._under_way[key] = _OpenMove(
                event.source, event.cause, event.at_ms, event.at_ms, event.source
            )
            return
        if move is not None and move.closing and event.state != State.OWNED.value:
            yield Latency(part="release", broker=move.closing, ms=event.at_ms - move.step_ms)
            move.closing = ""
        if event.state not in (State.ASSIGNING.value, State.FREE.value):
            self._under_way.pop(key, None)
            if move is not None and event.state == State.OWNED.value:
                yield from self._end(key, move, event)
        elif move is not None:
            move.step_ms = event.at_ms
        else:
            owner = event.destination_before if event.state_before == State.OWNED.value else ""
            self._under_way[key] = _OpenMove(owner, event.cause, event.at_ms, event.at_ms)

    def forget(self, now_ms: int) -> None:
        """Drop what is older than an hour."""
        for key in [key for key, move in self._under_way.items() if _is_old(move.step_ms, now_ms)]:
            del self._under_way[key]
        for key, left in list(self._left_ms.items()):
            kept = {broker: at for broker, at in left.items() if not _is_old(at, now_ms)}
            if kept:
                self._left_ms[key] = kept
            else:
                del self._left_ms[key]

    def _end(
        self, key: tuple[str, str], move: _OpenMove, event: Event
    ) -> Iterator[Latency | FinishedMove]:
        if event.state_before == State.ASSIGNING.value:
            yield Latency(part="assign", broker=event.destination, ms=event.at_ms - move.step_ms)
        if not move.owner or move.owner == event.destination:
            return
        yield Latency(part="unload", broker=move.owner, ms=event.at_ms - move.began_ms)
        left = self._left_ms.setdefault(key, {})
        is_return = not _is_old(left.get(event.destination, -HOUR_MS), event.at_ms)
        left[move.owner] = event.at_ms
        yield FinishedMove(cause=move.cause, is_return=is_return)


def _is_old(at_ms: int, now_ms: int) -> bool:
    return now_ms - at_ms >= HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBatch:
    """One written batch.

    reports: one per cluster; tables: name → rows written; versions: table → version after it.
    parts_ms: operators_ms, delta_ms and kafka_ms.
    """

    batch_id: int
    reports: Sequence[Mapping[str, Any]]
    tables: Mapping[str, pa.Table]
    versions: Mapping[str, int]
    parts_ms: Mapping[str, int]

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Return some columns of the rows written to a table, row by row."""
        found = self.tables.get(table)
        if found is None or not len(found):
            return []
        return list(zip(*(found[name].to_pylist() for name in columns), strict=True))


_SHEDS = frozenset({"transfer", "unload"})
_SKIPS = {
    "HitCount": "HitCount",
    "NoBundles": "NoBundles",
    "OutDatedData": "OutDatedData",
    "StaleReports": "OutDatedData",
    "NoLoadData": "NoLoadData",
    "NoBrokers": "NoBrokers",
    "NoDestination": "NoBrokers",
    "CoolDown": "CoolDown",
}
_SPLIT_REASONS = tuple(reason.value for reason in (*LIMIT_REASONS, SplitReason.UNKNOWN))
_ADMIN = "Admin"
_SHED = "pulsar_lb_unload_broker_breakdown_total"
_SPLIT = "pulsar_lb_bundles_split_breakdown_total"
_PLACED = "pulsar_lb_assign_broker_breakdown_total"
_STATUSES = ("accepted", "done", "refused", "failed", "timed_out")
_BEGINS = {
    State.ASSIGNING.value: "Assign",
    State.RELEASING.value: "Unload",
    State.SPLITTING.value: "Split",
}
_OVERRIDE = "Override"
_PUBLISHED = "pulsar_sunit_state_chn_event_publish_ops_total"
_CLEANED = "pulsar_sunit_state_chn_inactive_broker_cleanup_ops_total"
_ORPHANS = "pulsar_sunit_state_chn_orphan_su_cleanup_ops_total"
_INACTIVE = {"died": "Schedule", "returned": "Cancel", "held_by_brake": "Skip"}
_ACKS_REFUSED = "ack_refused:"
_FAULT = "fault:"
UNKNOWN_KIND = "unknown"


_COUNTED_REASONS = [reason.value for reason in RejectReason if reason is not RejectReason.NOT_KEPT]
_BALANCER_COUNTERS = (
    *((_SHED, UNLOADING, why, "Success") for why in ("Overloaded", "Underloaded", "Crowded")),
    (_SHED, UNLOADING, _ADMIN, "Success"),
    (_SHED, UNLOADING, "Unknown", "Failure"),
    *((_SHED, UNLOADING, why, "Skip") for why in sorted({*_SKIPS.values(), "Unknown"})),
    *((_SPLIT, SPLITTING, why, "Success") for why in (*_SPLIT_REASONS, _ADMIN)),
    (_SPLIT, SPLITTING, "Unknown", "Failure"),
    *((_PUBLISHED, begun, CHANNEL, "Total") for begun in (*_BEGINS.values(), _OVERRIDE)),
    (_ORPHANS, CHANNEL),
)
"""Counters, with their labels, of work that Pulsar's leader does; they begin at 0."""
_BROKER_COUNTERS = (
    ("pulsar_lb_unload_broker_total", UNLOADING),
    ("pulsar_lb_unload_bundle_total", UNLOADING),
    ("pulsar_lb_bundles_split_total", SPLITTING),
    (_PLACED, ASSIGNING, "Success"),
)
_USUAL_DECISIONS = (
    *itertools.product(["skip"], SKIPS),
    *itertools.product(sorted(_SHEDS), ["Overloaded", "Underloaded", "Crowded", _ADMIN]),
    *itertools.product(["split"], [*(reason.value for reason in LIMIT_REASONS), _ADMIN]),
    *[("assign", "Unowned"), ("drain", "Draining"), ("transfer", "Pinned")],
    *(("failover" if one.value.endswith("dead") else "repair", one.value) for one in IntentReason),
)
"""Kind and reason of usual decisions, whose counters begin at 0."""
_BEGIN_AT_ZERO = (
    *(("ballast_decisions_total", *one) for one in _USUAL_DECISIONS),
    *(
        ("ballast_commands_total", *one)
        for one in itertools.product((*sorted(HANDLERS), UNKNOWN_KIND), _STATUSES)
    ),
)


def begin_counts(store: MetricStore, cluster: str, topics: Sequence[str]) -> None:
    """Begin the counters of a cluster at 0, except those by broker.

    topics: input topics that are read.
    """
    store.begin(cluster)
    for name, *labels in (
        *_BEGIN_AT_ZERO,
        *(("ballast_rejected_total", *one) for one in itertools.product(topics, _COUNTED_REASONS)),
        *((name, BALANCER, *labels) for name, *labels in _BALANCER_COUNTERS),
    ):
        store.add(name, cluster, *labels, by=0)


def begin_broker(store: MetricStore, cluster: str, broker: str) -> None:
    """Begin the counters of a broker at 0."""
    for name, *labels in _BROKER_COUNTERS:
        store.add(name, cluster, broker, *labels, by=0)


def count_rows(store: MetricStore, written: WrittenBatch, moves: MoveTracker) -> None:
    """Count what a batch wrote."""
    _count_events(store, written, moves)
    _count_decisions(store, written)
    for cluster, outcome in written.rows(DECISION_EFFECTS.name, "cluster", "outcome"):
        store.add("ballast_decision_effects_total", cluster, outcome)
    candidates = written.rows(DECISION_CANDIDATES.name, "cluster", "phase", "verdict", "count")
    for cluster, phase, verdict, count in candidates:
        store.add("ballast_candidates_total", cluster, phase, verdict, by=count)
    for cluster, topic, reason in written.rows(REJECTED_REPORTS.name, "cluster", "topic", "reason"):
        if reason != RejectReason.NOT_KEPT.value:
            store.add("ballast_rejected_total", cluster, topic, reason)
    for cluster, kind, status in written.rows(COMMANDS.name, "cluster", "kind", "status"):
        known = kind if kind in HANDLERS else UNKNOWN_KIND  # anybody may send any word
        store.add("ballast_commands_total", cluster, known, status)
    for report in written.reports:
        _count_report(store, report["cluster"], report["counts"])


def _count_report(store: MetricStore, cluster: str, counts: Mapping[str, int]) -> None:
    refused = sum(count for key, count in counts.items() if key.startswith(_ACKS_REFUSED))
    failed = counts.get("no_destination", 0)
    found: list[tuple[tuple[str, ...], int]] = [
        *(
            (("ballast_reports_total", cluster, result), counts.get(result, 0))
            for result in ("accepted", "late", "duplicate", "rejected", "early")
        ),
        *(
            (("ballast_topic_reports_total", cluster, one), counts.get(f"{TOPICS_COUNTED}{one}", 0))
            for one in TAKEN_OR_NOT
        ),
        *(
            ((_CLEANED, cluster, BALANCER, CHANNEL, result), counts.get(key, 0))
            for key, result in _INACTIVE.items()
        ),
        (
            ("pulsar_sunit_state_chn_cleanup_ops_total", cluster, BALANCER, CHANNEL, "Failure"),
            failed,
        ),
        ((_PLACED, cluster, BALANCER, ASSIGNING, "Failure"), failed),
        (
            ("pulsar_sunit_state_chn_su_tombstone_cleanup_ops_total", cluster, BALANCER, CHANNEL),
            counts.get("forgotten", 0),
        ),
        (("pulsar_lb_ignored_ack_total", cluster, BALANCER, UNLOADING), refused),
    ]
    for key, count in sorted(counts.items()):
        if key.startswith(_FAULT):
            found.append((("ballast_faults_total", cluster, key.removeprefix(_FAULT)), count))
        elif key.startswith(NOT_KEPT):
            topic, _, reason = key.removeprefix(NOT_KEPT).partition(":")
            found.append((("ballast_rejected_total", cluster, topic, reason), count))
            found.append((("ballast_rejected_dropped_total", cluster), count))
    for labels, count in found:
        store.add(*labels, by=count)


def _count_events(store: MetricStore, written: WrittenBatch, moves: MoveTracker) -> None:
    events = [Event(*row) for row in written.rows(OWNERSHIP_EVENTS.name, *Event._fields)]
    for (cluster, cause, state, is_forced), count in sorted(
        Counter((e.cluster, e.cause, e.state, e.is_forced) for e in events).items()
    ):
        store.add("ballast_transitions_total", cluster, cause, state, by=count)
        if is_forced:
            store.add("ballast_overrides_total", cluster, cause, by=count)
        begun = _OVERRIDE if is_forced else _BEGINS.get(state)
        if begun:
            store.add(_PUBLISHED, cluster, BALANCER, begun, CHANNEL, "Total", by=count)
    for event in events:
        _count_event(store, event, moves)


def _count_event(store: MetricStore, event: Event, moves: MoveTracker) -> None:
    cluster = event.cluster
    is_placed = event.state == State.ASSIGNING.value and event.state_before == State.FREE.value
    if is_placed:
        store.add(_PLACED, cluster, event.destination, ASSIGNING, "Success")
    if event.state == State.SPLITTING.value:
        store.add("pulsar_lb_bundles_split_total", cluster, event.source, SPLITTING)
    if event.cause == "failover":
        store.add(_CLEANED, cluster, BALANCER, CHANNEL, "Success")
    if event.cause == "repair":
        store.add(_ORPHANS, cluster, BALANCER, CHANNEL)
    for found in moves.take(event):
        if isinstance(found, Latency):
            name = f"brk_lb_{found.part}_latency_ms"
            metric = ASSIGNING if found.part == "assign" else UNLOADING
            store.observe(name, found.ms, cluster, found.broker, metric)
            continue
        store.add("ballast_moves_total", cluster, found.cause)
        store.add("ballast_returns_total", cluster, by=int(found.is_return))


def _count_decisions(store: MetricStore, written: WrittenBatch) -> None:
    names = ("cluster", "kind", "reason", "source", "inputs")
    sources: set[tuple[str, str]] = set()
    for cluster, kind, reason, source, inputs in written.rows(DECISIONS.name, *names):
        store.add("ballast_decisions_total", cluster, kind, reason)
        # refused: the protocol did not take the transition
        is_refused = kind in (*_SHEDS, "split") and "refused" in json.loads(inputs)
        outcome = ("Unknown", "Failure") if is_refused else (reason, "Success")
        if kind in _SHEDS:
            store.add(_SHED, cluster, BALANCER, UNLOADING, *outcome)
            store.add("pulsar_lb_unload_bundle_total", cluster, source, UNLOADING)
            sources.add((cluster, source))
        elif kind == "skip":
            why = _SKIPS.get(reason, "Unknown")
            store.add(_SHED, cluster, BALANCER, UNLOADING, why, "Skip")
        elif kind == "split":
            store.add(_SPLIT, cluster, BALANCER, SPLITTING, *outcome)
    for cluster, source in sorted(sources):
        store.add("pulsar_lb_unload_broker_total", cluster, source, UNLOADING)

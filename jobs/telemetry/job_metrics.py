"""Metrics of the streaming job: each written batch and trigger is counted once.

A batch that is repeated after a crash is counted by the process that repeats it. Counters begin at
0 with each start, as Prometheus expects. Source of Pulsar's names: Pulsar 4.0.8, UnloadCounter,
SplitCounter, AssignCounter and ServiceUnitStateChannelImpl.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from prometheus_client import CollectorRegistry

from jobs import VERSION
from jobs.telemetry.job_names import (
    ALARMS,
    ASSIGNING,
    AT_WORK,
    CHANNEL,
    JOB_METRICS,
    JOB_PHASES,
    LOADING,
    PHASE,
    REBUILDING,
    RESUMING,
    SPLITTING,
    STANDING_BY,
    UNLOADING,
    USAGE_NAMES,
)
from jobs.telemetry.store import BALANCER, MetricStore
from lbcore.balancer.clock import DRIVER, KAFKA
from lbcore.balancer.commands import HANDLERS
from lbcore.balancer.intake import NOT_KEPT, TAKEN_OR_NOT, TOPICS_COUNTED
from lbcore.balancer.report import CLOCKS, GAUGES, HIGH, LOW
from lbcore.explain.reasons import SKIPS
from lbcore.model.tables import (
    COMMANDS,
    DECISION_CANDIDATES,
    DECISION_EFFECTS,
    DECISIONS,
    LOAD_HISTORY,
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
        oldest_ms = now_ms - HOUR_MS
        self._under_way = {
            key: move for key, move in self._under_way.items() if move.step_ms > oldest_ms
        }
        kept = {
            key: {broker: at_ms for broker, at_ms in left.items() if at_ms > oldest_ms}
            for key, left in self._left_ms.items()
        }
        self._left_ms = {key: left for key, left in kept.items() if left}

    def _end(
        self, key: tuple[str, str], move: _OpenMove, event: Event
    ) -> Iterator[Latency | FinishedMove]:
        if event.state_before == State.ASSIGNING.value:
            yield Latency(part="assign", broker=event.destination, ms=event.at_ms - move.step_ms)
        if not move.owner or move.owner == event.destination:
            return
        yield Latency(part="unload", broker=move.owner, ms=event.at_ms - move.began_ms)
        left = self._left_ms.setdefault(key, {})
        is_return = event.at_ms - left.get(event.destination, -HOUR_MS) < HOUR_MS
        left[move.owner] = event.at_ms
        yield FinishedMove(cause=move.cause, is_return=is_return)


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


_S = 1_000
_DISAGREEMENTS = {
    "reported_not_owned": "reported_not_owned",
    "owned_not_reported": "owned_not_reported",
    "disagreement_lasts": "lasting",
}
_BUNDLE_COLUMNS = (
    "msg_rate_in",
    "msg_rate_out",
    "msg_throughput_in",
    "msg_throughput_out",
    "topics",
)


Series = Mapping[tuple[str, ...], float]
"""Value by the labels after the cluster."""


def _of_cluster(report: Mapping[str, Any]) -> Mapping[str, Series]:
    gauges, rules = report[GAUGES], report["rules"]
    balance, states = gauges["balance"], gauges["states"]
    broker_states = [one["state"] for one in report["brokers"].values()]
    numbers = {
        "ballast_cycle": report["cycle"],
        "ballast_catching_up": int(gauges["is_catching_up"]),
        "ballast_debug": int(report["is_debugging"]),
        "ballast_paused": int("" in rules["paused"]),
        "ballast_quiet": int(gauges["is_quiet"]),
        "ballast_ignored_settings": len(rules["set_aside"]),
        "ballast_split_hits": gauges["split_hits"],
        "ballast_unsplittable_bundles": gauges["unsplittable"],
        "ballast_bundles_with_topics": gauges["topics"]["bundles"],
        "ballast_stuck_bundles": sum(found["stuck"] for found in states.values()),
    }
    balances: dict[str, dict[tuple[str, ...], float | None]] = {
        "ballast_imbalance": {(): balance["imbalance"]},
        "ballast_floor_adjusted_imbalance": {(): balance["floor_adjusted"]},
        "pulsar_lb_resource_usage_stats": {
            ("max_ema", UNLOADING, "avg"): balance["score_mean"],
            ("max_ema", UNLOADING, "std"): balance["score_std"],
        },
    }
    return {
        **{name: {(): value} for name, value in numbers.items()},
        **{
            name: {labels: value for labels, value in series.items() if value is not None}
            for name, series in balances.items()
        },
        "ballast_broker_blocked_seconds": {
            (name, one["reason"]): one["for_ms"] / _S for name, one in gauges["blocked"].items()
        },
        "ballast_bundles_without_candidate": _by_label(report["without_candidate"]),
        "ballast_hits_needed": _by_label(gauges["hits_needed"]),
        "ballast_drain_remaining_bundles": {
            (name,): one["left"] for name, one in rules["drains"].items()
        },
        "ballast_bundles": {
            (state.value,): report["bundles"].get(state.value, 0) for state in State
        },
        "ballast_oldest_record_seconds": {
            (state,): found["oldest_ms"] / _S for state, found in states.items()
        },
        "ballast_disagreements": {
            (kind,): report["counts"].get(key, 0) for key, kind in _DISAGREEMENTS.items()
        },
        "ballast_brokers": {
            (state,): broker_states.count(state) for state in ("active", "draining", "silent")
        },
    }


def _of_brokers(
    brokers: Mapping[str, Mapping[str, Any]], columns: Mapping[str, Sequence[Any]]
) -> Mapping[str, Series]:
    names, rows = columns["name"], brokers.values()
    live = {name for name, one in brokers.items() if one["usage"] is not None}

    def of_live(values: Iterable[Any], *labels: str) -> Series:
        """The values of brokers whose load is known."""
        found = zip(names, values, strict=True)
        return {(name, *labels): value for name, value in found if name in live}

    ages_ms = zip(names, columns["report_age_ms"], strict=True)
    return {
        **{
            usage: of_live([percent[at] for percent in columns["percent"]], LOADING)
            for at, usage in enumerate(USAGE_NAMES)
        },
        "pulsar_lb_resource_usage": {
            **of_live(columns["max_usage"], "max", LOADING),
            **of_live((one["score"] for one in rows), "max_ema", LOADING),
        },
        "pulsar_sunit_state_chn_owned_su_total": {
            (name, CHANNEL): one["bundles"] for name, one in brokers.items()
        },
        "ballast_broker_messages_per_second": of_live(one["msg_rate"] for one in rows),
        "ballast_broker_usage": of_live(one["usage"] for one in rows),
        "ballast_broker_bytes_per_second": of_live(columns["throughput"]),
        "ballast_broker_topics": of_live(columns["topics"]),
        "ballast_broker_up": _by_label(dict(zip(names, columns["is_up"], strict=True))),
        "ballast_report_age_seconds": {(name,): ms / _S for name, ms in ages_ms if ms is not None},
        "ballast_broker_hits": {
            (name, level): hits
            for level in (LOW, HIGH)
            for name, hits in zip(names, columns[level], strict=True)
        },
    }


def _by_label(values: Mapping[str, float]) -> Series:
    return {(label,): value for label, value in values.items()}


def show_bundles(store: MetricStore, written: WrittenBatch) -> None:
    """Show each bundle's load if the batch wrote load history."""
    names = ("cluster", "broker", "bundles", *_BUNDLE_COLUMNS)
    found: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for cluster, broker, bundles, *columns in written.rows(LOAD_HISTORY.name, *names):
        for column, values in zip(_BUNDLE_COLUMNS, columns, strict=True):
            name = f"pulsar_bundle_{'topics_count' if column == 'topics' else column}"
            found[cluster, name] |= {
                (broker, bundle, LOADING): value
                for bundle, value in zip(bundles, values, strict=True)
            }
    for (cluster, name), shown in sorted(found.items()):
        store.replace(name, shown, cluster)


_EXECUTORS_MAX = 50


def standing_by() -> CollectorRegistry:
    """Return the metrics of a standby: only that it is one."""
    store = MetricStore([PHASE])
    store.set(PHASE.name, 1, STANDING_BY)
    return store.registry


class JobMetrics:
    """Metrics of one process.

    bundle_metrics: also each bundle's load. topics: input topics.
    """

    def __init__(
        self, *, bundle_metrics: bool = False, epoch: int = 0, topics: Sequence[str] = ()
    ) -> None:
        self.store = MetricStore(JOB_METRICS)
        self._bundle_metrics = bundle_metrics
        self._topics = tuple(topics)
        self._moves = MoveTracker()
        self._brokers: dict[str, frozenset[str]] = {}
        self._kept: dict[str, frozenset[str]] = {}
        self._cycles: dict[str, int] = {}
        self._executors: dict[str, int] = {}
        self.store.set("ballast_job_info", 1, VERSION)
        self.store.set("ballast_writer_epoch", epoch)

    def see_start(self, *, is_rebuilt: bool, is_damaged: bool = False) -> None:
        """Show the source of the state; is_damaged: its checkpoint was unreadable."""
        self.store.add("ballast_damaged_checkpoints_total", by=int(is_damaged))
        self._show_phase(REBUILDING if is_rebuilt else RESUMING)

    def _show_phase(self, present: str) -> None:
        for phase in JOB_PHASES:
            self.store.set(PHASE.name, phase == present, phase)

    def see_batch(self, written: WrittenBatch) -> None:
        """Count a written batch."""
        self._show_phase(AT_WORK)
        for report in written.reports:
            cluster = report["cluster"]
            brokers = frozenset(report["brokers"])
            if cluster not in self._brokers:
                begin_counts(self.store, cluster, self._topics)
            for broker in sorted(brokers - self._brokers.get(cluster, frozenset())):
                for name, *labels in _BROKER_COUNTERS:
                    self.store.add(name, cluster, broker, *labels, by=0)
            self._brokers[cluster] = brokers
        for part, took_ms in written.parts_ms.items():
            took_s = took_ms / _S
            self.store.observe("ballast_batch_duration_seconds", took_s, part.removesuffix("_ms"))
        for table, version in written.versions.items():
            self.store.set("ballast_table_version", version, table)
            self.store.add("ballast_table_commits_total", table)
            self.store.add("ballast_table_rows_total", table, by=len(written.tables[table]))
        count_rows(self.store, written, self._moves)
        if self._bundle_metrics:
            show_bundles(self.store, written)
        for report in written.reports:
            self._see_cluster(written, report)

    def see_progress(self, progress: Mapping[str, Any]) -> None:
        """Take Spark's progress of a trigger: the JSON of `StreamingQueryProgress`."""
        store = self.store
        for phase, took_ms in progress["durationMs"].items():
            store.set("ballast_spark_phase_seconds", took_ms / _S, phase)
        for number, state in enumerate(progress["stateOperators"]):
            operator = _OPERATORS[number] if number < len(_OPERATORS) else str(number)
            store.set("ballast_state_bytes", state["memoryUsedBytes"], operator)
            store.set("ballast_state_rows", state["numRowsTotal"], operator)
        # behind what the trigger read
        lag = sum(
            max(0, latest - (source["endOffset"] or {}).get(topic, {}).get(partition, latest))
            for source in progress["sources"]
            for topic, partitions in (source["latestOffset"] or {}).items()
            for partition, latest in partitions.items()
        )
        store.set("ballast_kafka_lag_messages", lag)

    def see_tasks(self, counts: Mapping[str, int]) -> None:
        """Show tasks by executor; after the first 50, later ones are counted together."""
        self._executors |= counts
        for number, (executor, count) in enumerate(self._executors.items()):
            if number < _EXECUTORS_MAX:
                self.store.set("ballast_spark_tasks_total", count, executor)
        later = sum([*self._executors.values()][_EXECUTORS_MAX:])
        if later:
            self.store.set("ballast_spark_tasks_total", later, "later")

    def _see_cluster(self, written: WrittenBatch, report: Mapping[str, Any]) -> None:
        cluster, now_ms = report["cluster"], report["now_ms"]
        self.store.add("ballast_batches_total", cluster)
        for topic, ends in report["ends"].items():
            self.store.set("ballast_kafka_read_total", sum(ends.values()), topic)
        if self._cycles.get(cluster, report["cycle"]) != report["cycle"]:
            took_s = sum(written.parts_ms.values()) / _S
            self.store.observe("ballast_cycle_duration_seconds", took_s, cluster)
            self._moves.forget(now_ms)
        self._cycles[cluster] = report["cycle"]
        on = {alarm.partition(":")[0] for alarm in report["alarms"]}
        ahead_ms = {DRIVER: 0, KAFKA: 0, **report.get(CLOCKS, {})}
        shown: dict[str, Series] = {
            "ballast_alarm": {(alarm,): int(alarm in on) for alarm in ALARMS},
            "ballast_batch_timestamp_seconds": {(): now_ms / _S},
            "ballast_clock_ahead_seconds": {(clock,): ms / _S for clock, ms in ahead_ms.items()},
        }
        if GAUGES in report:  # else making them raised: they stay, and the alarm says so
            shown |= _of_cluster(report)
            shown |= _of_brokers(report["brokers"], report[GAUGES]["brokers"])
        for name, series in shown.items():
            self.store.replace(name, series, cluster)
        if self._kept.get(cluster) != self._brokers[cluster]:
            self._kept[cluster] = self._brokers[cluster]
            self.store.keep_brokers(cluster, self._brokers[cluster])


_OPERATORS = ("balancer", "scorer")
"""Spark names the operators from the sink backwards."""

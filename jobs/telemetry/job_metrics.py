"""Metrics of the streaming job: each written batch and trigger is counted once.

A batch that is repeated after a crash is counted by the process that repeats it. Counters begin at
0 with each start, as Prometheus expects.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from jobs import VERSION
from jobs.telemetry.job_counts import (
    MoveTracker,
    WrittenBatch,
    begin_broker,
    begin_counts,
    count_rows,
)
from jobs.telemetry.job_names import (
    ALARMS,
    AT_WORK,
    CHANNEL,
    JOB_METRICS,
    JOB_PHASES,
    LOADING,
    PHASE,
    REBUILDING,
    RESUMING,
    STANDING_BY,
    UNLOADING,
    USAGE_NAMES,
)
from jobs.telemetry.store import MetricStore
from lbcore.balancer.clock import DRIVER, KAFKA
from lbcore.balancer.report import CLOCKS, GAUGES, HIGH, LOW
from lbcore.model.tables import LOAD_HISTORY
from lbcore.ownership.records import State

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


def show_cluster(store: MetricStore, report: Mapping[str, Any]) -> None:
    """Show the state of one cluster after a batch."""
    cluster = report["cluster"]
    on = {alarm.partition(":")[0] for alarm in report["alarms"]}
    for alarm in ALARMS:
        store.set("ballast_alarm", int(alarm in on), cluster, alarm)
    store.set("ballast_batch_timestamp_seconds", report["now_ms"] / _S, cluster)
    ahead_ms = {DRIVER: 0, KAFKA: 0, **report.get(CLOCKS, {})}
    ahead_s = {(clock,): ms / _S for clock, ms in ahead_ms.items()}
    store.replace("ballast_clock_ahead_seconds", ahead_s, cluster)
    if GAUGES not in report:
        return  # making them raised: the metrics stay what they were, and the alarm says so
    gauges, rules = report[GAUGES], report["rules"]
    for name, value in {
        "ballast_cycle": report["cycle"],
        "ballast_catching_up": int(gauges["is_catching_up"]),
        "ballast_debug": int(report["is_debugging"]),
        "ballast_paused": int("" in rules["paused"]),
        "ballast_quiet": int(gauges["is_quiet"]),
        "ballast_ignored_settings": len(rules["set_aside"]),
        "ballast_split_hits": gauges["split_hits"],
        "ballast_unsplittable_bundles": gauges["unsplittable"],
        "ballast_bundles_with_topics": gauges["topics"]["bundles"],
    }.items():
        store.set(name, value, cluster)
    blocked = {(n, one["reason"]): one["for_ms"] / _S for n, one in gauges["blocked"].items()}
    store.replace("ballast_broker_blocked_seconds", blocked, cluster)
    for name, values in {
        "ballast_bundles_without_candidate": report["without_candidate"],
        "ballast_hits_needed": gauges["hits_needed"],
        "ballast_drain_remaining_bundles": {n: one["left"] for n, one in rules["drains"].items()},
    }.items():
        store.replace(name, {(one,): float(value) for one, value in values.items()}, cluster)
    _show_brokers(store, cluster, report["brokers"], gauges["brokers"])
    _show_ownership(store, report)
    _show_balance(store, cluster, gauges["balance"])


def show_bundles(store: MetricStore, seen: WrittenBatch) -> None:
    """Show each bundle's load if the batch wrote load history."""
    names = ("cluster", "broker", "bundles", *_BUNDLE_COLUMNS)
    found: dict[tuple[str, str], dict[tuple[str, ...], float]] = defaultdict(dict)
    for cluster, broker, bundles, *columns in seen.rows(LOAD_HISTORY.name, *names):
        for column, values in zip(_BUNDLE_COLUMNS, columns, strict=True):
            name = f"pulsar_bundle_{'topics_count' if column == 'topics' else column}"
            shown = found[cluster, name]
            for bundle, value in zip(bundles, values, strict=True):
                shown[broker, bundle, LOADING] = value
    for (cluster, name), shown in sorted(found.items()):
        store.replace(name, shown, cluster)


def _show_brokers(
    store: MetricStore, cluster: str, brokers: Mapping[str, Any], columns: Mapping[str, Any]
) -> None:
    names, is_up = columns["name"], columns["is_up"]
    for at, usage in enumerate(USAGE_NAMES):
        percent = {(n, LOADING): p[at] for n, p in zip(names, columns["percent"], strict=True)}
        store.replace(usage, _live(percent, brokers), cluster)
    highest = zip(names, columns["max_usage"], strict=True)
    scores = {(n, "max", LOADING): usage for n, usage in highest}
    scores |= {(n, "max_ema", LOADING): one["score"] for n, one in brokers.items()}
    store.replace("pulsar_lb_resource_usage", _live(scores, brokers), cluster)
    owned = {(name, CHANNEL): one["bundles"] for name, one in brokers.items()}
    store.replace("pulsar_sunit_state_chn_owned_su_total", owned, cluster)
    for metric, column in (
        ("ballast_broker_messages_per_second", [one["msg_rate"] for one in brokers.values()]),
        ("ballast_broker_usage", [one["usage"] for one in brokers.values()]),
        ("ballast_broker_bytes_per_second", columns["throughput"]),
        ("ballast_broker_topics", columns["topics"]),
    ):
        values = {(name,): v for name, v in zip(names, column, strict=True)}
        store.replace(metric, _live(values, brokers), cluster)
    ups = {(name,): float(one) for name, one in zip(names, is_up, strict=True)}
    store.replace("ballast_broker_up", ups, cluster)
    ages_ms = zip(names, columns["report_age_ms"], strict=True)
    ages = {(name,): ms / _S for name, ms in ages_ms if ms is not None}
    store.replace("ballast_report_age_seconds", ages, cluster)
    hits = {
        (n, level): h for level in (LOW, HIGH) for n, h in zip(names, columns[level], strict=True)
    }
    store.replace("ballast_broker_hits", hits, cluster)
    states = [one["state"] for one in brokers.values()]
    for state in ("active", "draining", "silent"):
        store.set("ballast_brokers", states.count(state), cluster, state)


def _live(
    values: Mapping[tuple[Any, ...], Any], brokers: Mapping[str, Any]
) -> dict[tuple[Any, ...], float]:
    """Return the values by label, without brokers of unknown load."""
    known = {name for name, one in brokers.items() if one["usage"] is not None}
    return {labels: float(v) for labels, v in values.items() if labels[0] in known}


def _show_ownership(store: MetricStore, report: Mapping[str, Any]) -> None:
    cluster, states = report["cluster"], report[GAUGES]["states"]
    for state in State:
        store.set("ballast_bundles", report["bundles"].get(state.value, 0), cluster, state.value)
    for state, found in states.items():
        store.set("ballast_oldest_record_seconds", found["oldest_ms"] / _S, cluster, state)
    stuck = sum(found["stuck"] for found in states.values())
    store.set("ballast_stuck_bundles", stuck, cluster)
    for key, kind in _DISAGREEMENTS.items():
        store.set("ballast_disagreements", report["counts"].get(key, 0), cluster, kind)


def _show_balance(store: MetricStore, cluster: str, balance: Mapping[str, float | None]) -> None:
    stats = {
        ("max_ema", UNLOADING, "avg"): balance["score_mean"],
        ("max_ema", UNLOADING, "std"): balance["score_std"],
    }
    for name, shown in (
        ("ballast_imbalance", {(): balance["imbalance"]}),
        ("ballast_floor_adjusted_imbalance", {(): balance["floor_adjusted"]}),
        ("pulsar_lb_resource_usage_stats", stats),
    ):
        known = {labels: value for labels, value in shown.items() if value is not None}
        store.replace(name, known, cluster)


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

    @property
    def registry(self) -> CollectorRegistry:
        """Registry for Prometheus."""
        return self.store.registry

    def see_start(self, *, is_rebuilt: bool, is_damaged: bool = False) -> None:
        """Show the source of the state; is_damaged: its checkpoint was unreadable."""
        self.store.add("ballast_damaged_checkpoints_total", by=int(is_damaged))
        self._show_phase(REBUILDING if is_rebuilt else RESUMING)

    def _show_phase(self, present: str) -> None:
        for phase in JOB_PHASES:
            self.store.set(PHASE.name, phase == present, phase)

    def see_batch(self, seen: WrittenBatch) -> None:
        """Count a written batch."""
        self._show_phase(AT_WORK)
        for report in seen.reports:
            self._begin(report["cluster"], frozenset(report["brokers"]))
        for part, took_ms in seen.parts_ms.items():
            name = part.removesuffix("_ms")
            self.store.observe("ballast_batch_duration_seconds", took_ms / _S, name)
        for table, version in seen.versions.items():
            self.store.set("ballast_table_version", version, table)
            self.store.add("ballast_table_commits_total", table)
            self.store.add("ballast_table_rows_total", table, by=len(seen.tables[table]))
        count_rows(self.store, seen, self._moves)
        if self._bundle_metrics:
            show_bundles(self.store, seen)
        for report in seen.reports:
            self._see_cluster(seen, report)

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

    def _see_cluster(self, seen: WrittenBatch, report: Mapping[str, Any]) -> None:
        cluster, now_ms = report["cluster"], report["now_ms"]
        self.store.add("ballast_batches_total", cluster)
        for topic, ends in report["ends"].items():
            self.store.set("ballast_kafka_read_total", sum(ends.values()), topic)
        if self._cycles.get(cluster, report["cycle"]) != report["cycle"]:
            took_s = sum(seen.parts_ms.values()) / _S
            self.store.observe("ballast_cycle_duration_seconds", took_s, cluster)
            self._moves.forget(now_ms)
        self._cycles[cluster] = report["cycle"]
        show_cluster(self.store, report)
        if self._kept.get(cluster) != self._brokers[cluster]:
            self._kept[cluster] = self._brokers[cluster]
            self.store.keep_brokers(cluster, self._brokers[cluster])

    def _begin(self, cluster: str, brokers: frozenset[str]) -> None:
        """Begin the counters of a new cluster and of new brokers."""
        if cluster not in self._brokers:
            begin_counts(self.store, cluster, self._topics)
        for broker in sorted(brokers - self._brokers.get(cluster, frozenset())):
            begin_broker(self.store, cluster, broker)
        self._brokers[cluster] = brokers


_OPERATORS = ("balancer", "scorer")
"""Spark names the operators from the sink backwards."""

"""Metrics of the streaming job: each written batch and trigger is counted once.

A batch that is repeated after a crash is counted by the process that repeats it; counters begin at
0 with each start, as Prometheus expects.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from jobs import VERSION
from jobs.telemetry.job_counts import WrittenBatch, begin_broker, begin_counts, count_rows
from jobs.telemetry.job_gauges import show_bundles, show_cluster
from jobs.telemetry.job_names import (
    AT_WORK,
    JOB_METRICS,
    JOB_PHASES,
    PHASE,
    REBUILDING,
    RESUMING,
    STANDING_BY,
)
from jobs.telemetry.moves import MoveTracker
from jobs.telemetry.store import MetricStore

_S = 1_000
_EXECUTORS_MAX = 50


def standing_by() -> CollectorRegistry:
    """Return the metrics of a standby until it holds the tables.

    They say only that it is one.
    """
    store = MetricStore([PHASE])
    store.set(PHASE.name, 1, STANDING_BY)
    return store.registry


class JobMetrics:
    """Counts of one process.

    bundle_metrics: each bundle's load, too. topics: that are read.
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
        """Show where the state comes from; is_damaged: its checkpoint could not be read."""
        self.store.add("ballast_damaged_checkpoints_total", by=int(is_damaged))
        self._show_phase(REBUILDING if is_rebuilt else RESUMING)

    def _show_phase(self, present: str) -> None:
        for phase in JOB_PHASES:
            self.store.set(PHASE.name, phase == present, phase)

    def see_batch(self, seen: WrittenBatch) -> None:
        """Count a batch that is written."""
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
        """Take what Spark says of its last trigger: the JSON of `StreamingQueryProgress`."""
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
        """Show tasks by executor; of more than 50 in a job's life the later ones together."""
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
        """Begin the counters of what is new."""
        if cluster not in self._brokers:
            begin_counts(self.store, cluster, self._topics)
        for broker in sorted(brokers - self._brokers.get(cluster, frozenset())):
            begin_broker(self.store, cluster, broker)
        self._brokers[cluster] = brokers


_OPERATORS = ("balancer", "scorer")
"""Spark names the operators from the sink backwards."""

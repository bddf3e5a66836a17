"""Metrics of the streaming job: each written batch and trigger is counted once.

A batch that is repeated after a crash is counted by the process that repeats it. Counters begin at
0 with each start, as Prometheus expects.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
                begin_broker(self.store, cluster, broker)
            self._brokers[cluster] = brokers
        for part, took_ms in written.parts_ms.items():
            name = part.removesuffix("_ms")
            self.store.observe("ballast_batch_duration_seconds", took_ms / _S, name)
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

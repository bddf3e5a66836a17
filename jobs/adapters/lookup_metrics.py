"""What the lookup service counts, and its text for Prometheus.

Decides nothing. Counting costs a fraction of a microsecond a request: plain integers of one event
loop, which become metrics only when they are read. Source: ours.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from time import time_ns
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from jobs.adapters.delta_follower import DeltaFollower, boot_ms
from jobs.admin.counts import AdminCounts, AuditCounts, GateCounts

METRICS = {
    "ballast_lookup_requests": "Lookups by what they came to.",
    "ballast_lookup_duration_seconds": "From a lookup's arrival to its answer, waiting included.",
    "ballast_lookup_waiting": "Lookups that wait for their bundle's owner.",
    "ballast_snapshot_ready": "1 when lookups are answered.",
    "ballast_snapshot_age_seconds": "Since the answers were last known to be the newest.",
    "ballast_snapshot_table_version": "Version of ownership_events that answers come from.",
    "ballast_snapshot_batch_id": "Batch of the job's last commit seen.",
    "ballast_snapshot_bundles": "Bundles that can be looked up.",
    "ballast_snapshot_namespaces": "Namespaces that exist.",
    "ballast_snapshot_brokers": "Brokers whose addresses are known.",
    "ballast_snapshot_refused": "Unsound snapshots that were not served, by what was wrong.",
    "ballast_writer_silent_seconds": "Since the job's last commit; -1 when none is known.",
    "ballast_tables_reloads": "Loads of the whole tables, by reason.",
    "ballast_tables_trouble": "1 while the newest tables are refused or unreadable: answers age.",
    "ballast_tables_errors": "Times the tables could not be read.",
    "ballast_tables_commits": "Commits of ownership_events applied.",
    "ballast_tables_rows": "Ownership records applied from commits.",
    "ballast_requests_refused": "Requests that were not let in, by reason.",
    "ballast_admin_requests": "Requests beside lookups, by the status they were answered with.",
    "ballast_admin_streams": "Answers that go on: clients that watch.",
    "ballast_audit_dropped": "Audit entries that did not get to Kafka; the service's log has them.",
    "ballast_audit_unrecorded": "Refusals left out of the audit because there were too many.",
}
"""Each metric's name (counters get `_total`) and meaning, declared once."""

_BUCKETS_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 10.0)


class LookupMetrics(Collector):
    """Counts of one service; `text` is what Prometheus reads."""

    def __init__(self, follower: DeltaFollower) -> None:
        self.waiting = 0
        self.gate: GateCounts | None = None
        self.admin: AdminCounts | None = None
        self.audit: AuditCounts | None = None
        self._results: Counter[str] = Counter()
        self._buckets = [0] * (len(_BUCKETS_S) + 1)
        self._duration_s = 0.0
        self._follower = follower
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def count(self, result: str, duration_s: float) -> None:
        """One lookup was answered."""
        self._results[result] += 1
        self._buckets[bisect_left(_BUCKETS_S, duration_s)] += 1
        self._duration_s += duration_s

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The counts as metrics; called by the registry."""
        yield _counter("ballast_lookup_requests", "result", self._results)
        yield self._histogram()
        yield _gauge("ballast_lookup_waiting", self.waiting)
        yield from self._of_view()
        counts = self._follower.counts
        yield _counter("ballast_snapshot_refused", "reason", counts.refused)
        yield _counter("ballast_tables_reloads", "reason", counts.reloads)
        yield _gauge("ballast_tables_trouble", int(counts.last_error != ""))
        yield _plain_counter("ballast_tables_errors", counts.errors)
        yield _plain_counter("ballast_tables_commits", counts.commits)
        yield _plain_counter("ballast_tables_rows", counts.rows)

        yield from self._of_admin()

    def _of_admin(self) -> Iterable[Metric]:
        if self.gate is not None:
            yield _counter("ballast_requests_refused", "reason", self.gate.refused)
        if self.admin is not None:
            statuses = {str(status): count for status, count in self.admin.statuses.items()}
            yield _counter("ballast_admin_requests", "status", statuses)
            yield _gauge("ballast_admin_streams", self.admin.streams)
            yield _plain_counter("ballast_audit_unrecorded", self.admin.unrecorded)
        if self.audit is not None:
            yield _plain_counter("ballast_audit_dropped", self.audit.dropped)

    def _histogram(self) -> Metric:
        name = "ballast_lookup_duration_seconds"
        sums, total = [], 0
        for bound, count in zip((*map(str, _BUCKETS_S), "+Inf"), self._buckets, strict=True):
            total += count
            sums.append((bound, float(total)))
        return HistogramMetricFamily(name, METRICS[name], buckets=sums, sum_value=self._duration_s)

    def _of_view(self) -> Iterable[Metric]:
        view = self._follower.view
        yield _gauge("ballast_snapshot_ready", int(view is not None))
        if view is None:
            return
        silent_ms = view.writer_silent_ms(time_ns() // 1_000_000)
        yield _gauge("ballast_snapshot_age_seconds", view.age_ms(boot_ms()) / 1000)
        yield _gauge("ballast_writer_silent_seconds", silent_ms / 1000 if silent_ms >= 0 else -1)
        snapshot = view.snapshot
        yield _gauge("ballast_snapshot_table_version", snapshot.position.table_version)
        yield _gauge("ballast_snapshot_batch_id", snapshot.position.batch_id)
        yield _gauge("ballast_snapshot_bundles", snapshot.bundle_count)
        yield _gauge("ballast_snapshot_namespaces", snapshot.namespace_count)
        yield _gauge("ballast_snapshot_brokers", len(snapshot.brokers))


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, METRICS[name], value=value)


def _plain_counter(name: str, value: int) -> Metric:
    return CounterMetricFamily(name, METRICS[name], value=value)


def _counter(name: str, label: str, counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, METRICS[name], labels=[label])
    for key, value in sorted(dict(counts).items()):  # a copy: the follower's thread counts on
        family.add_metric([key.value if isinstance(key, Enum) else key], value)
    return family

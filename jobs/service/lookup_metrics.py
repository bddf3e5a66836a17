"""What the lookup service counts, and its text for Prometheus.

Decides nothing. Counting costs a fraction of a microsecond a request: plain integers of one event
loop, which become metrics only when they are read. Source: ours.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from jobs import VERSION
from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.http.bounds import Account
from jobs.adapters.http.certificates import ends_in_file
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.service.counts import AdminCounts, AuditCounts, GateCounts
from jobs.service.lookup_names import BUCKETS_S, LOOKUP_METRICS, OWNER_LOOKUPS
from jobs.service.reader_process import ReaderCounts
from jobs.telemetry.declared import BALANCER
from jobs.telemetry.job_names import CHANNEL
from lbcore.ownership.records import State
from lbcore.route.snapshot import LookupOutcome

_DOCS = {metric.name.removesuffix("_total"): metric.doc for metric in LOOKUP_METRICS}
_CLOSED = {
    (metric.name.removesuffix("_total"), label): values
    for metric in LOOKUP_METRICS
    for label, values in (metric.values or {}).items()
}
"""What begins at 0: Prometheus can't see growth from nothing."""


class LookupMetrics(Collector):
    """Counts of one service; `text` is what Prometheus reads."""

    def __init__(self, follower: DeltaFollower) -> None:
        self.waiting = 0
        self.gate: GateCounts | None = None
        self.admin: AdminCounts | None = None
        self.audit: AuditCounts | None = None
        self.account: Account | None = None
        self.readers: ReaderCounts | None = None
        self.certificate_file = ""
        self._results: Counter[str] = Counter()
        self._states: Counter[tuple[str, bool]] = Counter()
        self._buckets = [0] * (len(BUCKETS_S) + 1)
        self._duration_s = 0.0
        self._follower = follower
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def count(self, result: str, duration_s: float, state: str = "") -> None:
        """One lookup was answered. state: of the bundle whose owner was asked for."""
        self._results[result] += 1
        if state:
            self._states[state, result == LookupOutcome.FOUND.value] += 1
        self._buckets[bisect_left(BUCKETS_S, duration_s)] += 1
        self._duration_s += duration_s

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The counts as metrics; called by the registry."""
        info = GaugeMetricFamily(
            "ballast_lookup_info", _DOCS["ballast_lookup_info"], labels=["version"]
        )
        info.add_metric([VERSION], 1)
        yield info
        yield _counter("ballast_lookup_requests", "result", self._results)
        yield _owner_lookups(self._follower.cluster, self._states)
        yield self._histogram()
        yield _gauge("ballast_lookup_waiting", self.waiting)
        ends_ms = ends_in_file(self.certificate_file)
        if ends_ms:
            yield _gauge("ballast_lookup_certificate_end_seconds", ends_ms // 1_000)
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
        if self.account is not None:
            yield _counter("ballast_connections_cut", "reason", self.account.cut)
            yield _gauge("ballast_requests_unanswered_bytes", self.account.unanswered_bytes)
            yield _gauge("ballast_answers_unread_bytes", self.account.unread_bytes)
        if self.readers is not None:
            sizes = self.readers.memory_bytes()
            yield _gauge("ballast_reader_processes", len(sizes))
            yield _gauge("ballast_reader_memory_bytes", sum(sizes))
            yield _plain_counter("ballast_reader_starts", self.readers.starts)
            yield _plain_counter("ballast_reader_failures", self.readers.failures)
        if self.audit is not None:
            yield _plain_counter("ballast_audit_dropped", self.audit.dropped)

    def _histogram(self) -> Metric:
        name = "ballast_lookup_duration_seconds"
        sums, total = [], 0
        for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), self._buckets, strict=True):
            total += count
            sums.append((bound, float(total)))
        return HistogramMetricFamily(name, _DOCS[name], buckets=sums, sum_value=self._duration_s)

    def _of_view(self) -> Iterable[Metric]:
        view = self._follower.view
        yield _gauge("ballast_snapshot_ready", int(view is not None))
        if view is None:
            return
        silent_ms = view.writer_silent_ms(wall_ms())
        yield _gauge("ballast_snapshot_age_seconds", view.age_ms(boot_ms()) / 1000)
        if silent_ms >= 0:  # absent, not a number, before the first commit: alerts ask for it
            yield _gauge("ballast_writer_silent_seconds", silent_ms / 1000)
            ahead_ms = view.clock_ahead_ms(wall_ms())
            yield _gauge("ballast_service_clock_ahead_seconds", ahead_ms / 1000)
            yield _gauge("ballast_snapshot_batch_id", view.snapshot.position.batch_id)
        snapshot = view.snapshot
        if snapshot.position.table_version >= 0:
            version = snapshot.position.table_version
            yield _gauge("ballast_snapshot_table_version", version)
        yield _gauge("ballast_snapshot_bundles", snapshot.bundle_count)
        yield _gauge("ballast_snapshot_namespaces", snapshot.namespace_count)
        yield _gauge("ballast_snapshot_brokers", len(snapshot.brokers))


def _owner_lookups(cluster: str, states: Mapping[tuple[str, bool], int]) -> Metric:
    """In Pulsar's form. states: state of the bundle, whether an owner was named → lookups."""
    doc = _DOCS[OWNER_LOOKUPS.removesuffix("_total")]
    labels = ("cluster", "broker", "metric", "result", "state")
    family = CounterMetricFamily(OWNER_LOOKUPS, doc, labels=labels)
    common = (cluster, BALANCER, CHANNEL)
    for state in (one.value for one in State):
        found, failed = states.get((state, True), 0), states.get((state, False), 0)
        family.add_metric([*common, "Total", state], found + failed)
        family.add_metric([*common, "Failure", state], failed)
    return family


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, _DOCS[name], value=value)


def _plain_counter(name: str, value: int) -> Metric:
    return CounterMetricFamily(name, _DOCS[name], value=value)


def _counter(name: str, label: str, counts: Mapping[Any, int]) -> Metric:
    family = CounterMetricFamily(name, _DOCS[name], labels=[label])
    found = dict.fromkeys(_CLOSED.get((name, label), ()), 0)
    for key, value in dict(counts).items():  # a copy: the follower's thread counts on
        found[key.value if isinstance(key, Enum) else key] = value
    for key, value in sorted(found.items()):
        family.add_metric([key], value)
    return family

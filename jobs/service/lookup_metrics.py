"""Metrics of the lookup service: declarations, counts, and all workers' in one.

Counting costs a fraction of a microsecond a request: plain integers of one event loop, which become
metrics only when they are read. Each worker writes its metrics into a folder once a second; the
one that is asked adds what the others wrote last. prometheus-client's own multi-process mode adds
gauges up that must stay apart.
"""

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.http.protocol import Account, Cut
from jobs.adapters.http.tls import ends_in_file
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.atomic_file import atomic_write
from jobs.service.access import TokenFault
from jobs.service.access_control import (
    FOREIGN,
    OTHER_REFUSALS,
    AdminCounts,
    AuditCounts,
    GateCounts,
)
from jobs.service.v1.reading import Readers
from jobs.telemetry.declared import BALANCER, DeclaredMetric, counter, gauge, histogram
from jobs.telemetry.job_names import CHANNEL
from lbcore.ownership.records import State
from lbcore.route.bundles import Unsound
from lbcore.route.snapshot import LookupOutcome

BUCKETS_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 10.0)
NOT_READY = "not_ready"
INVALID_NAME = "invalid_name"
STALE = "stale"
REFUSED = "refused"
OTHER_RESULTS = ("bundle", INVALID_NAME, NOT_READY, STALE, REFUSED)
"""What a lookup may come to beside the outcomes; labels of the lookups metric."""

OWNER_LOOKUPS = "pulsar_sunit_state_chn_owner_lookup_total"

_REFUSALS = (*OTHER_REFUSALS, *FOREIGN, *(one.value for one in TokenFault))

LOOKUP_METRICS: tuple[DeclaredMetric, ...] = (
    counter(
        "ballast_lookup_requests_total", "Lookups by what they came to.", "result",
        result=(*(one.value for one in LookupOutcome), *OTHER_RESULTS),
    ),
    counter(
        OWNER_LOOKUPS, "Lookups of owners by the state of the bundle; Failure: no owner was named.",
        "cluster", "broker", "metric", "result", "state",
        result=("Total", "Failure"), state=tuple(state.value for state in State),
    ),
    histogram(
        "ballast_lookup_duration_seconds",
        "From a lookup's arrival to its answer, waiting included.", BUCKETS_S,
    ),
    gauge("ballast_lookup_certificate_expiry_timestamp_seconds",
          "When the service's certificate ends, in seconds since 1970; without TLS there is none."),
    gauge("ballast_lookup_waiting", "Lookups that wait for their bundle's owner."),
    gauge("ballast_snapshot_ready", "1 when lookups are answered."),
    gauge("ballast_snapshot_age_seconds", "Since the answers were last known to be the newest."),
    gauge("ballast_snapshot_table_version", "Version of ownership_events that answers come from."),
    gauge("ballast_snapshot_batch_id", "Batch of the job's last commit seen."),
    gauge("ballast_snapshot_bundles", "Bundles that can be looked up."),
    gauge("ballast_snapshot_namespaces", "Namespaces that exist."),
    gauge("ballast_snapshot_brokers", "Brokers whose addresses are known."),
    counter(
        "ballast_snapshot_refused_total",
        "Unsound snapshots that were not served, by what was wrong.", "reason",
        reason=tuple(one.value for one in Unsound),
    ),
    gauge("ballast_writer_silent_seconds", "Since the job's last commit; absent before the first."),
    gauge("ballast_service_clock_ahead_seconds",
          "How far the clock of the service's machine is ahead of the job's; 0 = by no doubt;"
          " absent while no commit is known."),
    gauge("ballast_tables_unreadable",
          "1 while the newest tables are refused or unreadable: answers age."),
    counter("ballast_tables_errors_total", "Times the tables could not be read."),
    counter(
        "ballast_requests_refused_total", "Requests that were not let in, by reason.", "reason",
        reason=_REFUSALS,
    ),
    counter(
        "ballast_connections_closed_total", "Connections ended before their time, by reason.",
        "reason", reason=tuple(one.value for one in Cut),
    ),
    gauge("ballast_requests_unanswered_bytes", "Received of requests that are not answered yet."),
    gauge("ballast_answers_unread_bytes", "Of answers that clients are slow to take."),
    counter("ballast_admin_requests_total",
            "Requests beside lookups, by the status they were answered with.", "status"),
    gauge("ballast_admin_streams", "Answers that go on: clients that watch."),
    counter("ballast_reader_failures_total",
            "Processes that read tables for the service and ended while they were wanted."),
    counter("ballast_audit_dropped_total",
            "Audit entries that did not get to Kafka; the service's log has them."),
    counter("ballast_audit_unrecorded_total",
            "Refusals left out of the audit because there were too many."),
)  # fmt: skip


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
        self.readers: Readers | None = None
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
        yield _counter("ballast_lookup_requests", "result", self._results)
        yield _owner_lookups(self._follower.cluster, self._states)
        yield self._histogram()
        yield _gauge("ballast_lookup_waiting", self.waiting)
        ends_ms = ends_in_file(self.certificate_file)
        if ends_ms:
            yield _gauge("ballast_lookup_certificate_expiry_timestamp_seconds", ends_ms // 1_000)
        yield from self._of_view()
        counts = self._follower.counts
        yield _counter("ballast_snapshot_refused", "reason", counts.refused)
        yield _gauge("ballast_tables_unreadable", int(counts.last_error != ""))
        yield _plain_counter("ballast_tables_errors", counts.errors)

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
            yield _counter("ballast_connections_closed", "reason", self.account.cut)
            yield _gauge("ballast_requests_unanswered_bytes", self.account.unanswered_bytes)
            yield _gauge("ballast_answers_unread_bytes", self.account.unread_bytes)
        if self.readers is not None:
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
    """Return lookups by owner in Pulsar's form.

    states: state of the bundle, whether an owner was named → lookups.
    """
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


WORKER = "worker"
_WRITE_S = 1.0
_OLD_S = 5.0


class SharedMetrics:
    """Metrics of one service's workers.

    own: this worker's, in Prometheus's format.
    """

    def __init__(self, folder: Path, worker: int, own: Callable[[], bytes]) -> None:
        self._folder = folder
        self._worker = worker
        self._own = own

    def keep_up(self, stop: threading.Event) -> None:
        """Write this worker's metrics again and again, until `stop` is set."""
        while True:
            self.write()
            if stop.wait(_WRITE_S):
                return

    def write(self) -> None:
        """Write this worker's metrics, whole or not at all."""
        atomic_write(self._folder / f"{self._worker}.prom", self._own(), is_durable=False)

    def text(self) -> bytes:
        """The metrics of all workers, this one's of this moment."""
        texts = {self._worker: self._own().decode()}
        oldest_s = time.time() - _OLD_S
        for path in sorted(self._folder.glob("*.prom")):
            if int(path.stem) != self._worker and path.stat().st_mtime >= oldest_s:
                texts[int(path.stem)] = path.read_text(encoding="utf-8")
        registry = CollectorRegistry()
        registry.register(_Merged(texts))
        return generate_latest(registry)


class _Merged(Collector):
    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all workers."""
        merged: dict[str, Metric] = {}
        for worker, text in sorted(self._texts.items()):
            for family in text_string_to_metric_families(text):
                known = merged.setdefault(
                    family.name, Metric(family.name, family.documentation, family.type)
                )
                known.samples += [
                    Sample(one.name, {**one.labels, WORKER: str(worker)}, one.value)
                    for one in family.samples
                ]
        yield from merged.values()

"""Metrics of the lookup service: declarations, counts, and all workers' in one.

Events are counted at once, states are read at each scrape. Each worker writes its metrics into a
folder once a second; the one that is scraped adds what the others wrote last. prometheus-client's
own multi-process mode adds gauges up that must stay apart.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.adapters.http.protocol import Account, Cut
from jobs.adapters.http.tls import certificate_ends_ms
from jobs.adapters.processes.clocks import boot_ms, wall_ms
from jobs.atomic_file import atomic_write
from jobs.service.access import TokenFault
from jobs.service.access_control import FOREIGN, OTHER_REFUSALS, ServiceCounts
from jobs.service.v1.reading import Readers
from jobs.telemetry.job_names import CHANNEL
from jobs.telemetry.store import (
    BALANCER,
    DeclaredMetric,
    MetricStore,
    Type,
    counter,
    gauge,
    histogram,
)
from lbcore.ownership.records import State
from lbcore.route.bundles import Unsound
from lbcore.route.snapshot import LookupOutcome

BUCKETS_S = (0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 2.5, 10.0)
NOT_READY = "not_ready"
INVALID_NAME = "invalid_name"
INVALID_MAX_AGE = "invalid_max_age"
STALE = "stale"
REFUSED = "refused"
OTHER_RESULTS = ("bundle", INVALID_NAME, INVALID_MAX_AGE, NOT_READY, STALE, REFUSED)
"""What a lookup may come to beside the outcomes; labels of the lookups metric."""

OWNER_LOOKUPS = "pulsar_sunit_state_chn_owner_lookup_total"

_REFUSALS = (*OTHER_REFUSALS, *FOREIGN, *(one.value for one in TokenFault))

LOOKUP_METRICS: tuple[DeclaredMetric, ...] = (
    counter(
        "ballast_lookup_requests_total", "Lookups, by result.", "result",
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
    gauge("ballast_snapshot_age_seconds", "Time since the answers were last known to be current."),
    gauge("ballast_snapshot_table_version", "Version of ownership_events that answers come from."),
    gauge("ballast_snapshot_batch_id", "Batch of the job's last commit seen."),
    gauge("ballast_snapshot_bundles", "Bundles that can be looked up."),
    gauge("ballast_snapshot_namespaces", "Namespaces that exist."),
    gauge("ballast_snapshot_brokers", "Brokers whose addresses are known."),
    counter(
        "ballast_snapshot_refused_total",
        "Invalid snapshots that were not served, by fault.", "reason",
        reason=tuple(one.value for one in Unsound),
    ),
    gauge("ballast_writer_silent_seconds", "Time since the job's last commit; absent without one."),
    gauge("ballast_service_clock_ahead_seconds",
          "How far the service's clock is certainly ahead of the job's;"
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
    gauge("ballast_requests_unanswered_bytes", "Bytes received of requests not answered yet."),
    gauge("ballast_answers_unread_bytes", "Bytes of answers that clients have not taken."),
    counter("ballast_admin_requests_total",
            "Requests beside lookups, by the status they were answered with.", "status"),
    gauge("ballast_admin_streams", "Streaming answers: clients that watch."),
    counter("ballast_reader_failures_total",
            "Table reader processes of the service that ended unexpectedly."),
    counter("ballast_audit_dropped_total",
            "Audit entries that did not get to Kafka; the service's log has them."),
    counter("ballast_audit_unrecorded_total",
            "Refusals left out of the audit because there were too many."),
)  # fmt: skip


Values: TypeAlias = dict[tuple[str, ...], float]
"""Name and labels → value."""


@dataclass(slots=True)
class OtherCounts:
    """Counts of a service beside those of lookups."""

    counts: ServiceCounts = field(default_factory=ServiceCounts)
    account: Account = field(default_factory=Account)
    readers: Readers = field(default_factory=Readers)
    certificate_file: str = ""


class LookupMetrics(Collector):
    """Counts of one service; `text` is what Prometheus reads."""

    def __init__(self, follower: DeltaFollower) -> None:
        self.waiting = 0
        self.beside = OtherCounts()
        self._follower = follower
        self._store = MetricStore(LOOKUP_METRICS)
        for metric in LOOKUP_METRICS:  # Prometheus can't see growth from nothing
            if metric.type is Type.COUNTER and len(metric.labels) == len(metric.values or {}) == 1:
                for value in (metric.values or {})[metric.labels[0]]:
                    self._store.add(metric.name, value, by=0)
        for state in State:
            self._count_owner("Total", state.value, 0)
            self._count_owner("Failure", state.value, 0)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)
        GCCollector(registry=self._registry)

    def count(self, result: str, duration_s: float, state: str = "") -> None:
        """One lookup was answered. state: of the bundle whose owner was asked for."""
        self._store.add("ballast_lookup_requests_total", result)
        self._store.observe("ballast_lookup_duration_seconds", duration_s)
        if state:
            self._count_owner("Total", state, 1)
            if result != LookupOutcome.FOUND.value:
                self._count_owner("Failure", state, 1)

    def _count_owner(self, result: str, state: str, by: int) -> None:
        who = (self._follower.cluster, BALANCER, CHANNEL)
        self._store.add(OWNER_LOOKUPS, *who, result, state, by=by)

    def text(self) -> bytes:
        """All metrics in Prometheus's text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics that there are, of this moment; called by the registry."""
        for (name, *labels), value in {**self._of_tables(), **self._of_service()}.items():
            self._store.set(name, value, *labels)
        yield from (found for found in self._store.collect() if found.samples)

    def _of_service(self) -> Values:
        counts, account = self.beside.counts, self.beside.account
        # copies: the event loop counts on while a worker's thread writes its metrics
        refused, statuses, cut = dict(counts.refused), dict(counts.statuses), dict(account.cut)
        ends_ms = certificate_ends_ms(self.beside.certificate_file)
        ends_s: Values = {
            ("ballast_lookup_certificate_expiry_timestamp_seconds",): ends_ms // 1_000
        }
        return {
            **(ends_s if ends_ms else {}),
            ("ballast_lookup_waiting",): self.waiting,
            ("ballast_admin_streams",): counts.streams,
            ("ballast_audit_unrecorded_total",): counts.unrecorded,
            ("ballast_audit_dropped_total",): counts.dropped,
            ("ballast_requests_unanswered_bytes",): account.unanswered_bytes,
            ("ballast_answers_unread_bytes",): account.unread_bytes,
            ("ballast_reader_failures_total",): self.beside.readers.failures,
            **{("ballast_requests_refused_total", why): n for why, n in refused.items()},
            **{("ballast_admin_requests_total", str(s)): n for s, n in statuses.items()},
            **{("ballast_connections_closed_total", why): n for why, n in cut.items()},
        }

    def _of_tables(self) -> Values:
        view, counts = self._follower.view, self._follower.counts
        refused = dict(counts.refused)  # a copy: the follower counts on
        found: Values = {
            ("ballast_tables_unreadable",): int(counts.last_error != ""),
            ("ballast_tables_errors_total",): counts.errors,
            ("ballast_snapshot_ready",): int(view is not None),
            **{("ballast_snapshot_refused_total", why.value): n for why, n in refused.items()},
        }
        if view is None:
            return found
        silent_ms, snapshot = view.writer_silent_ms(wall_ms()), view.snapshot
        position = snapshot.position
        written: Values = {
            ("ballast_writer_silent_seconds",): silent_ms / 1000,
            ("ballast_service_clock_ahead_seconds",): view.clock_ahead_ms(wall_ms()) / 1000,
            ("ballast_snapshot_batch_id",): position.batch_id,
        }
        version: Values = {("ballast_snapshot_table_version",): position.table_version}
        return {
            **found,
            ("ballast_snapshot_age_seconds",): view.age_ms(boot_ms()) / 1000,
            # absent, not a number, before the first commit: alerts ask for it
            **(written if silent_ms >= 0 else {}),
            **(version if position.table_version >= 0 else {}),
            ("ballast_snapshot_bundles",): snapshot.bundle_count,
            ("ballast_snapshot_namespaces",): len(snapshot.names),
            ("ballast_snapshot_brokers",): len(snapshot.brokers),
        }


WORKER = "worker"
_WRITE_S = 1.0
_OLD_S = 5.0


class SharedMetrics(Collector):
    """Metrics of one service's workers.

    own: this worker's, in Prometheus's format.
    """

    def __init__(self, folder: Path, worker: int, own: Callable[[], bytes]) -> None:
        self._folder = folder
        self._worker = worker
        self._own = own

    def keep_up(self, stop: threading.Event) -> None:
        """Write this worker's metrics again and again, until `stop` is set."""
        self.write()
        while not stop.wait(_WRITE_S):
            self.write()

    def write(self) -> None:
        """Write this worker's metrics, whole or not at all; nothing on a full disk."""
        with suppress(OSError):
            atomic_write(self._folder / f"{self._worker}.prom", self._own(), is_durable=False)

    def text(self) -> bytes:
        """The metrics of all workers, this one's of this moment."""
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """Each metric once, with the samples of all workers."""
        texts = {self._worker: self._own().decode()}
        oldest_s = time.time() - _OLD_S
        for path in self._folder.glob("*.prom"):
            if int(path.stem) != self._worker and path.stat().st_mtime >= oldest_s:
                texts[int(path.stem)] = path.read_text(encoding="utf-8")
        merged: dict[str, Metric] = {}
        for worker, text in sorted(texts.items()):
            for family in text_string_to_metric_families(text):
                family.samples = [
                    one._replace(labels={**one.labels, WORKER: str(worker)})
                    for one in family.samples
                ]
                known = merged.setdefault(family.name, family)
                if known is not family:
                    known.samples += family.samples
        yield from merged.values()

"""Declared metrics, and their numbers by labels as text for Prometheus.

A metric is declared once, in `job_names` and the modules `*_metrics`. docs/metrics.md is drawn from
the declarations; dashboards and alert rules may query nothing else. A name that begins with
`pulsar_` or `brk_` is Pulsar 4.0.8's, with its labels. The store takes only what is declared, and
forgets the series of a broker that is gone. One thread writes, the scrapes' thread reads. On
prometheus-client.
"""

import itertools
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

MS_BUCKETS = (10.0, 100.0, 200.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0, 30_000.0, 60_000.0)
"""Pulsar's bounds for latencies in ms, without 1 (no batch is that fast), and longer ones."""
S_BUCKETS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

BALANCER = "balancer"
"""Label `broker` of work that in Pulsar a broker does, and here the job."""


class Type(str, Enum):
    """Prometheus's types of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredMetric:
    """One metric. name: as in queries, so a counter's ends in `_total`.

    values: label → its closed set, if it has one. buckets: upper bounds of a histogram.
    """

    name: str
    type: Type
    doc: str
    labels: tuple[str, ...] = ()
    values: Mapping[str, Sequence[str]] | None = None
    buckets: tuple[float, ...] = ()

    @property
    def series(self) -> tuple[str, ...]:
        """The names that a query may use."""
        if self.type is Type.HISTOGRAM:
            return tuple(f"{self.name}_{end}" for end in ("bucket", "sum", "count"))
        return (self.name,)


def by_name(metrics: Iterable[DeclaredMetric]) -> Mapping[str, DeclaredMetric]:
    """Return the metrics by name; raises ValueError for a duplicate."""
    found: dict[str, DeclaredMetric] = {}
    for metric in metrics:
        if metric.name in found:
            raise ValueError(f"{metric.name} must be declared once")
        found[metric.name] = metric
    return found


def gauge(name: str, doc: str, *labels: str, **values: Sequence[str]) -> DeclaredMetric:
    """A gauge. values: label → its closed set."""
    return DeclaredMetric(name=name, type=Type.GAUGE, doc=doc, labels=labels, values=values or None)


def counter(name: str, doc: str, *labels: str, **values: Sequence[str]) -> DeclaredMetric:
    """A counter. values: label → its closed set."""
    return DeclaredMetric(
        name=name, type=Type.COUNTER, doc=doc, labels=labels, values=values or None
    )


def histogram(name: str, doc: str, buckets: tuple[float, ...], *labels: str) -> DeclaredMetric:
    """A histogram with these upper bounds."""
    return DeclaredMetric(name=name, type=Type.HISTOGRAM, doc=doc, labels=labels, buckets=buckets)


Labels = tuple[str, ...]
_NO_BROKERS = ("", BALANCER)


class MetricStore(Collector):
    """Metrics of one process."""

    def __init__(self, metrics: Iterable[DeclaredMetric], *own: str) -> None:
        """own: values of the first labels of all metrics, which callers leave out."""
        self._metrics = by_name(metrics)
        self._own = own
        self._lock = threading.Lock()
        # by the first label, "" for none: a job of many clusters shows one of them at a time
        self._series: dict[str, dict[str, dict[Labels, Any]]] = {name: {} for name in self._metrics}

    def begin(self, *first: str) -> None:
        """Begin counters at 0 whose labels after these are from closed sets.

        Prometheus can't see growth from nothing.
        """
        given = (*self._own, *first)
        for metric in self._metrics.values():
            is_one = metric.labels[: len(given)] == ("cluster", "broker")[: len(given)]
            rest = metric.labels[len(given) :]
            closed = [(metric.values or {}).get(label) for label in rest]
            if metric.type is Type.COUNTER and is_one:
                for labels in itertools.product(*(one or () for one in closed)):
                    self.add(metric.name, *first, *labels, by=0)

    def add(self, name: str, *labels: str, by: float = 1) -> None:
        """Increase a counter. labels: as declared, in order."""
        with self._lock:
            values, labels = self._values_of(name, labels)
            values[labels] = values.get(labels, 0) + by

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            values, labels = self._values_of(name, labels)
            values[labels] = value

    def replace(self, name: str, values: Mapping[tuple[Any, ...], float], first: str) -> None:
        """Set all series of a gauge with this first label, and drop the others of it.

        values: by the labels after the first. O(values).
        """
        with self._lock:
            named = {(first, *labels): value for labels, value in values.items()}
            self._series[name][first] = named

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram."""
        bounds = self._metrics[name].buckets
        with self._lock:
            values, labels = self._values_of(name, labels)
            counts = values.setdefault(labels, [0] * (len(bounds) + 2))
            counts[bisect_left(bounds, value)] += 1
            counts[-1] += value

    def keep_brokers(self, cluster: str, brokers: Collection[str]) -> None:
        """Drop the series of a cluster's other brokers.

        Series with an empty label or the balancer's stay.
        """
        known = {*brokers, *_NO_BROKERS}
        with self._lock:
            for name, metric in self._metrics.items():
                if metric.labels[:2] == ("cluster", "broker"):
                    found = self._series[name].get(cluster, {})
                    for key in [key for key in found if key[1] not in known]:
                        del found[key]

    @property
    def registry(self) -> CollectorRegistry:
        """Return the registry of these metrics and of the process itself."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        return registry

    def collect(self) -> Iterator[Family]:
        """Yield all metrics; called by the registry."""
        with self._lock:
            families = [self._family(metric) for _, metric in sorted(self._metrics.items())]
        yield from families

    def _values_of(self, name: str, labels: Labels) -> tuple[dict[Labels, Any], Labels]:
        """Return the series that begin with the first label, and all labels of this one."""
        found, wanted = (*self._own, *labels), self._metrics[name].labels
        if len(found) != len(wanted):
            raise ValueError(f"labels of {name} must be {wanted}, got {found}")
        return self._series[name].setdefault(found[0] if found else "", {}), found

    def _family(self, metric: DeclaredMetric) -> Family:
        groups = self._series[metric.name].values()
        series = sorted(one for group in groups for one in group.items())
        family: Any = _FAMILIES[metric.type](
            metric.name.removesuffix("_total") if metric.type is Type.COUNTER else metric.name,
            metric.doc,
            labels=metric.labels,
        )
        for labels, value in series:
            if metric.type is Type.HISTOGRAM:
                bounds = (*map(str, metric.buckets), "+Inf")
                counts = zip(bounds, itertools.accumulate(value[:-1]), strict=True)
                family.add_metric(labels, list(counts), value[-1])
            else:
                family.add_metric(labels, value)
        return family  # type: ignore[no-any-return]


_FAMILIES = {
    Type.COUNTER: CounterMetricFamily,
    Type.GAUGE: GaugeMetricFamily,
    Type.HISTOGRAM: HistogramMetricFamily,
}

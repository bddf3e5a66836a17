"""Numbers by metric and labels, and their text for Prometheus.

Takes only what is declared, and forgets the series of a broker that is gone. Written by one thread,
read by that of the scrapes. On prometheus-client.
"""

import itertools
import threading
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

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

from jobs.telemetry.declared import BALANCER, DeclaredMetric, Type, by_name

Labels = tuple[str, ...]
T = TypeVar("T")
_NO_BROKERS = ("", BALANCER)


@dataclass(slots=True)
class _Histogram:
    counts: list[int]
    total: float = 0.0


@dataclass(slots=True)
class _Series:
    """Series by the first label, "" for none.

    A job of many clusters shows one of them at a time.
    """

    values: dict[str, dict[Labels, float]] = field(default_factory=dict)
    histograms: dict[str, dict[Labels, _Histogram]] = field(default_factory=dict)


class MetricStore(Collector):
    """Metrics of one process."""

    def __init__(self, metrics: Iterable[DeclaredMetric], *own: str) -> None:
        """own: first labels of all of them, which no caller gives."""
        self._metrics = by_name(metrics)
        self._own = own
        self._lock = threading.Lock()
        self._series = {name: _Series() for name in self._metrics}

    def begin(self, *first: str) -> None:
        """Let counters begin at 0 whose labels after these are from closed sets.

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
        """Count something. labels: as declared, in order."""
        with self._lock:
            values, labels = self._values_of(name, labels)
            values[labels] = values.get(labels, 0) + by

    def set(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            values, labels = self._values_of(name, labels)
            values[labels] = value

    def replace(self, name: str, values: Mapping[tuple[Any, ...], float], first: str) -> None:
        """Set all of a gauge's series whose first label is this: those not named are gone.

        values: by the labels after the first. O(values), however many others there are.
        """
        with self._lock:
            named = {(first, *labels): value for labels, value in values.items()}
            self._series[name].values[first] = named

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Put a value into a histogram."""
        with self._lock:
            bounds, labels = self._metrics[name].buckets, self._checked(name, labels)
            histograms = self._series[name].histograms.setdefault(_first(labels), {})
            found = histograms.setdefault(labels, _Histogram([0] * (len(bounds) + 1)))
            found.counts[bisect_left(bounds, value)] += 1
            found.total += value

    def keep_brokers(self, cluster: str, brokers: Collection[str]) -> None:
        """Drop the series of a cluster's other brokers.

        Empty labels and the balancer stay.
        """
        with self._lock:
            for name, metric in self._metrics.items():
                if metric.labels[:2] != ("cluster", "broker"):
                    continue
                known = {*brokers, *_NO_BROKERS}
                series = self._series[name]
                for found in (series.values.get(cluster, {}), series.histograms.get(cluster, {})):
                    for key in [key for key in found if key[1] not in known]:
                        del found[key]

    @property
    def registry(self) -> CollectorRegistry:
        """The numbers, with those of the process itself."""
        registry = CollectorRegistry()
        registry.register(self)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        return registry

    def collect(self) -> Iterator[Family]:
        """All of it; called by the registry."""
        with self._lock:
            families = [self._family(metric) for _, metric in sorted(self._metrics.items())]
        yield from families

    def _checked(self, name: str, labels: Labels) -> Labels:
        """Return all labels of a series."""
        found, wanted = (*self._own, *labels), self._metrics[name].labels
        if len(found) != len(wanted):
            raise ValueError(f"labels of {name} must be {wanted}, got {found}")
        return found

    def _values_of(self, name: str, labels: Labels) -> tuple[dict[Labels, float], Labels]:
        found = self._checked(name, labels)
        return self._series[name].values.setdefault(_first(found), {}), found

    def _family(self, metric: DeclaredMetric) -> Family:
        series = self._series[metric.name]
        if metric.type is Type.HISTOGRAM:
            return _histogram_family(metric, _joined(series.histograms))
        kind = CounterMetricFamily if metric.type is Type.COUNTER else GaugeMetricFamily
        family: Family = kind(
            metric.name.removesuffix("_total") if metric.type is Type.COUNTER else metric.name,
            metric.doc,
            labels=metric.labels,
        )
        for labels, value in sorted(_joined(series.values).items()):
            family.add_metric(labels, value)  # type: ignore[attr-defined]
        return family


def _first(labels: Labels) -> str:
    return labels[0] if labels else ""


def _joined(groups: Mapping[str, Mapping[Labels, T]]) -> dict[Labels, T]:
    return {labels: value for group in groups.values() for labels, value in group.items()}


def _histogram_family(metric: DeclaredMetric, histograms: Mapping[Labels, _Histogram]) -> Family:
    family = HistogramMetricFamily(metric.name, metric.doc, labels=metric.labels)
    for labels, found in sorted(histograms.items()):
        sums: list[tuple[str, float]] = []
        so_far = 0
        for bound, count in zip((*map(str, metric.buckets), "+Inf"), found.counts, strict=True):
            so_far += count
            sums.append((bound, so_far))
        family.add_metric(labels, sums, found.total)
    return family

"""Declaration of a metric: its name, type, labels and meaning.

Declared once, in `job_names` and the other modules `*_names`. docs/metrics.md is drawn from them;
dashboards and alert rules may query nothing else. A name that begins with `pulsar_` or `brk_` is
Pulsar 4.0.8's, with its labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

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

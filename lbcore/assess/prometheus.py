"""Rows of `load_history`, made of the metrics that Pulsar's brokers export.

Topics are folded into bundles by their hash; a bundle's owner is the broker that exports its
topics. Pulsar's rates are gauges, so a restart shows as a gap; a counter that falls has been reset.
Pulsar 4.0.8 has no label for a topic's broker: `instance` of the scrape is one; newer releases and
exporters may set others.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from lbcore.model.bundles import crc32
from lbcore.model.names import format_bundle, is_namespace
from lbcore.model.resources import RESOURCES

RATES = ("pulsar_rate_in", "pulsar_rate_out", "pulsar_throughput_in", "pulsar_throughput_out")
USAGES = {
    "pulsar_lb_cpu_usage": "cpu",
    "pulsar_lb_memory_usage": "memory",
    "pulsar_lb_directMemory_usage": "direct_memory",
    "pulsar_lb_bandwidth_in_usage": "bandwidth_in",
    "pulsar_lb_bandwidth_out_usage": "bandwidth_out",
}
UNLOADS = "pulsar_lb_unload_bundle_total"
_BROKER_LABELS = ("instance", "pod", "kubernetes_pod_name", "host")
_OWN_TENANT = "pulsar/"
_PERCENT_MAX = 1e6

Floats = np.ndarray[Any, np.dtype[np.float64]]

Counters = dict[frozenset[tuple[str, str]], list[tuple[int, float]]]
"""Labels of a series → (instant in ms, unloads)."""


@dataclass(slots=True)
class PrometheusFold:
    """Fold of samples into rows, series after series.

    edges_of: boundaries of a namespace whose series name no bundle, 0 to 0xffffffff. counters:
    those last counted before.
    """

    edges_of: Callable[[str], Sequence[int]]
    counters: Counters = field(default_factory=dict)
    series: int = 0
    skipped: int = 0
    _cells: dict[tuple[int, str], dict[str, Floats]] = field(default_factory=dict)
    _usages: dict[tuple[int, str], dict[str, float]] = field(default_factory=dict)
    _bundles: dict[str, str] = field(default_factory=dict)

    def take(self, labels: Mapping[str, str], samples: Iterable[tuple[int, float]]) -> None:
        """One series: its labels, and (instant in ms, value) in order."""
        self.series += 1
        name, broker = labels.get("__name__", ""), broker_of(labels)
        if not broker:
            self.skipped += 1
        elif name in RATES:
            self._take_rates(RATES.index(name), labels, broker, samples)
        elif name in USAGES:
            for at_ms, value in samples:
                if 0.0 <= value <= _PERCENT_MAX:
                    self._usages.setdefault((at_ms, broker), {})[USAGES[name]] = value
        elif name == UNLOADS:
            found = self.counters.setdefault(frozenset(labels.items()), [])
            found.extend(one for one in samples if 0.0 <= one[1] < math.inf)

    def history_rows(self, cluster: str) -> Iterator[dict[str, Any]]:
        """The rows, by time and broker. A broker that exported nothing then has none."""
        for at_ms, broker in sorted(self._cells.keys() | self._usages.keys()):
            cells = self._cells.get((at_ms, broker), {})
            names = sorted(cells)
            usage = self._usages.get((at_ms, broker), {})
            rates = np.array([cells[name] for name in names]).reshape(len(names), len(RATES) + 1)
            columns = ("msg_rate_in", "msg_rate_out", "msg_throughput_in", "msg_throughput_out")
            yield {
                "cluster": cluster,
                "broker": broker,
                "minute_ms": at_ms,
                "percent": [usage.get(one.name, 0.0) for one in RESOURCES] if usage else [],
                "bundles": names,
                **{name: rates[:, at].tolist() for at, name in enumerate(columns)},
                "topics": np.maximum(rates[:, -1], 1.0).tolist(),
            }

    def unloads(self) -> float:
        """Bundles that Pulsar's load managers unloaded, over all brokers, resets counted."""
        return math.fsum(increase(sorted(found)) for found in self.counters.values())

    def last_counted(self) -> Counters:
        """The last sample of each counter, from which the next fold goes on."""
        return {series: [max(found)] for series, found in self.counters.items() if found}

    def _take_rates(
        self,
        kind: int,
        labels: Mapping[str, str],
        broker: str,
        samples: Iterable[tuple[int, float]],
    ) -> None:
        bundle = self._bundle_of(labels)
        if not bundle:
            self.skipped += 1
            return
        for at_ms, value in samples:
            if not 0.0 <= value < math.inf:
                continue
            cells = self._cells.setdefault((at_ms, broker), {})
            found = cells.get(bundle)
            if found is None:
                found = cells[bundle] = np.zeros(len(RATES) + 1)
            found[kind] += value
            if kind == 0:
                found[-1] += 1.0

    def _bundle_of(self, labels: Mapping[str, str]) -> str:
        """The bundle of a series; "" for one that is not balanced or can't be told."""
        namespace, topic = labels.get("namespace", ""), labels.get("topic", "")
        if namespace.startswith(_OWN_TENANT) or not is_namespace(namespace):
            return ""
        if labels.get("bundle"):
            return f"{namespace}/{labels['bundle'].rpartition('/')[2]}"
        if not topic:
            return ""
        known = self._bundles.get(topic)
        if known is None:
            edges = self.edges_of(namespace)
            at = min(int(np.searchsorted(edges, crc32(topic), side="right")), len(edges) - 1)
            known = format_bundle(namespace, edges[at - 1], edges[at])
            self._bundles[topic] = known
        return known


def broker_of(labels: Mapping[str, str]) -> str:
    """The broker of a series; "" where no label names it."""
    return next((labels[name] for name in _BROKER_LABELS if labels.get(name)), "")


def increase(samples: Sequence[tuple[int, float]]) -> float:
    """Increase of a counter; one that falls was reset and began at 0."""
    steps = (
        after - before if after >= before else after
        for (_, before), (_, after) in pairwise(samples)
    )
    return math.fsum(steps)

"""One answer for the metrics of several workers: each with its own label, whoever is asked.

Decides nothing. Each worker writes its metrics into a folder of theirs once a second; who is asked
adds what the others wrote last. What a worker that is gone wrote is left out after some seconds,
and its successor counts from 0, as after any restart. Source: ours; prometheus-client's own
multi-process mode adds gauges up that must stay apart.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from jobs.whole_file import write_whole

WORKER = "worker"
_WRITE_S = 1.0
_OLD_S = 5.0


class SharedMetrics:
    """The metrics of the workers of one service. own: this worker's, in Prometheus's format."""

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
        write_whole(self._folder / f"{self._worker}.prom", self._own(), is_durable=False)

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

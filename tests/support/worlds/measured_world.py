"""A cluster in virtual time whose batches go through the production sink, in memory: its metrics.

The tables are doubles that keep nothing but versions; what the sink tells is what it tells of a
real job.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jobs.adapters.spark.batch_sink import BatchSink
from jobs.adapters.spark.checkpoint import Manifest
from jobs.telemetry.job_metrics import JobMetrics, WrittenBatch
from lbcore.balancer.effects import Effect
from lbcore.config.tree import Config
from tests.support.tables.small_batches import EffectsFrame
from tests.support.worlds.world import CLUSTER, World


class Tables:
    """Takes every commit; a table's version is how many it has had."""

    epoch = 1

    def __init__(self) -> None:
        self.commits: dict[str, int] = {}

    def write(self, name: str, rows: pa.Table, batch_id: int, metadata: Any) -> None:
        assert len(rows) or name == "ownership_events", (batch_id, metadata)
        self.commits[name] = self.commits.get(name, 0) + 1

    def versions(self) -> dict[str, Any]:
        return {}

    def write_ahead(self, owed: Any) -> dict[str, Any]:
        assert owed
        return {}

    def version(self, name: str) -> int:
        return self.commits[name]

    def has_batch(self, name: str, batch_id: int) -> bool:
        return bool(self.commits.get(name, 0) < 0 > batch_id)

    def last_commit(self) -> None:
        return None


class Kafka:
    """Takes every record."""

    def publish(self, messages: Any) -> None:
        assert messages


class MeasuredWorld(World):
    """`lines` is the job's log, `metrics` what its job gives out, `seen` what it told."""

    def __init__(
        self, config: Config, brokers: int, *, seed: int = 0, bundle_metrics: bool = False
    ) -> None:
        super().__init__(config, brokers, seed=seed)
        self.lines: list[dict[str, Any]] = []
        self.seen: list[WrittenBatch] = []
        self.metrics = JobMetrics(bundle_metrics=bundle_metrics, epoch=Tables.epoch)
        self._batch_id = -1
        self._sink = BatchSink(
            writer=Tables(),  # type: ignore[arg-type]
            publisher=Kafka(),
            claimed=Manifest(code_version="c", config_version="v", scorer_groups=1),
            query_id="q",
            heartbeat_ms=config.pipeline.heartbeat_commit_ms,
            log=lambda line: self.lines.append(dict(line)),
            watch=self._watch,
        )

    def _watch(self, seen: WrittenBatch) -> None:
        self.seen.append(seen)
        self.metrics.see_batch(seen)

    def take_effects(self, effects: Sequence[Effect]) -> None:
        super().take_effects(effects)
        self._batch_id += 1
        self._sink(EffectsFrame(effects, CLUSTER), self._batch_id)

    def lines_of(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]

    def samples(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """What Prometheus would read: name → labels, sorted → value."""
        return samples_of(generate_latest(self.metrics.store.registry).decode())

    def value(self, name: str, **labels: str) -> float:
        """The sum of a metric's series that have these labels; 0 when there is none."""
        return total(self.samples(), name, **labels)


def samples_of(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Prometheus's text format: name → labels, sorted → value."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


def total(
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]], name: str, **labels: str
) -> float:
    """The sum of a metric's series that have these labels."""
    series = samples.get(name, {}).items()
    return sum(value for key, value in series if labels.items() <= dict(key).items())

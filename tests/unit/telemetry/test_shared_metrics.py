"""Workers that share a port: one answer has the metrics of all, each with its label."""

import os
from pathlib import Path

from prometheus_client import generate_latest

from jobs.service.lookup_metrics import SharedMetrics
from jobs.telemetry.declared import counter, histogram
from jobs.telemetry.store import MetricStore
from tests.support.worlds.measured_world import samples_of, total


def worker(folder: Path, number: int, counted: int) -> SharedMetrics:
    store = MetricStore([counter("x_total", "X.", "result"), histogram("z", "Z.", (1.0,))])
    store.add("x_total", "found", by=counted)
    store.observe("z", 0.5)
    return SharedMetrics(folder, number, lambda: generate_latest(store.registry()))


def test_answer_of_one_worker_has_all_workers_metrics(tmp_path: Path) -> None:
    first, second = worker(tmp_path, 0, 3), worker(tmp_path, 1, 4)
    second.write()
    found = samples_of(first.text().decode())
    assert total(found, "x_total", worker="0") == 3
    assert total(found, "x_total", worker="1") == 4
    assert total(found, "z_bucket", le="1.0") == 2
    assert first.text().decode().count("# TYPE x_total counter") == 1


def test_worker_that_is_gone_is_left_out(tmp_path: Path) -> None:
    first, second = worker(tmp_path, 0, 3), worker(tmp_path, 1, 4)
    second.write()
    os.utime(tmp_path / "1.prom", (1, 1))
    assert total(samples_of(first.text().decode()), "x_total") == 3


def test_own_metrics_are_newer_than_those_written(tmp_path: Path) -> None:
    store = MetricStore([counter("x_total", "X.")])
    shared = SharedMetrics(tmp_path, 0, lambda: generate_latest(store.registry()))
    store.add("x_total")
    shared.write()
    store.add("x_total")
    assert total(samples_of(shared.text().decode()), "x_total") == 2

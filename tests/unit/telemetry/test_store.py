"""The metric store, its exposition, shared workers and the bridge's metrics."""

import argparse
import os
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jobs.adapters.following.delta_follower import DeltaFollower
from jobs.console import CommandError
from jobs.service.lookup_metrics import LookupMetrics, SharedMetrics
from jobs.telemetry.bridge_metrics import BRIDGE_METRICS, BridgeMetrics
from jobs.telemetry.exposition import MetricsPort, add_arguments
from jobs.telemetry.job_metrics import JobMetrics, standing_by
from jobs.telemetry.store import MetricStore, counter, gauge, histogram
from lbcore.bridge.mirror import Look
from tests.support.processes.programs import until
from tests.support.worlds.measured_world import samples_of, total


def store() -> MetricStore:
    return MetricStore(
        [
            counter("x_total", "X.", "cluster", "broker"),
            gauge("y", "Y.", "cluster", "broker"),
            histogram("z", "Z.", (1.0, 5.0), "cluster", "broker"),
        ]
    )


def read(found: MetricStore) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    return samples_of(generate_latest(found.registry).decode())


class _Counted(str):
    """A label that counts how often it is looked at."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        _Counted.looks += 1
        return super().__hash__()

    def __eq__(self, other: object) -> bool:
        _Counted.looks += 1
        return super().__eq__(other)


def test_series_of_other_clusters_cost_one_cluster_nothing() -> None:
    """Else fifty clusters cost 2,500 times what one does, in each batch."""
    made = store()
    for number in range(50):
        made.replace("y", {(_Counted("b1"),): 1.0}, _Counted(f"c{number}"))
    _Counted.looks = 0
    made.replace("y", {("b1",): 2.0}, "d")
    assert _Counted.looks == 0


def test_replaced_series_are_gone_for_their_cluster_alone() -> None:
    made = store()
    made.replace("y", {("b1",): 1.0, ("b2",): 2.0}, "c")
    made.replace("y", {("b1",): 5.0}, "other")
    made.replace("y", {("b2",): 3.0}, "c")
    assert {tuple(dict(k).values()): v for k, v in read(made)["y"].items()} == {
        ("b2", "c"): 3.0,
        ("b1", "other"): 5.0,
    }


def test_histogram_is_cumulative() -> None:
    made = store()
    for value in (0.5, 1.0, 3.0, 9.0):
        made.observe("z", value, "c", "b")
    found = read(made)
    assert [total(found, "z_bucket", le=le) for le in ("1.0", "5.0", "+Inf")] == [2, 3, 4]
    assert (total(found, "z_sum"), total(found, "z_count")) == (13.5, 4)


def test_broker_that_is_gone_loses_all_its_series() -> None:
    made = store()
    for broker in ("b1", "b2", "balancer"):
        made.add("x_total", "c", broker)
        made.observe("z", 1, "c", broker)
    made.keep_brokers("c", ["b1"])
    found = read(made)
    for name in ("x_total", "z_count"):
        assert {dict(key)["broker"] for key in found[name]} == {"b1", "balancer"}


HOST = "127.0.0.1"


def told(port: int, file: Path | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    words = [f"--metrics-port={port}", *([f"--metrics-port-file={file}"] if file else [])]
    return parser.parse_args(words)


def numbers(name: str) -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge(name, "A number.", registry=registry)
    return registry


def asked(port: int) -> str:
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
    return text


def test_port_shows_what_it_was_given_last(tmp_path: Path) -> None:
    shown = MetricsPort(HOST, told(0, tmp_path / "port"))
    shown.show(numbers("first"))
    port = int((tmp_path / "port").read_text())
    assert "first 0.0" in asked(port)
    shown.show(numbers("second"))
    assert "first" not in asked(port)
    assert "second 0.0" in asked(port)
    shown.stop()
    with pytest.raises(OSError, match="refused"):
        asked(port)


def test_port_that_another_has_is_refused_and_taken_when_that_one_has_gone(tmp_path: Path) -> None:
    worker = MetricsPort(HOST, told(0, tmp_path / "port"))
    worker.show(numbers("worker"))
    port = int((tmp_path / "port").read_text())
    spare = MetricsPort(HOST, told(port))
    with pytest.raises(CommandError, match="choose another --metrics-port"):
        spare.show(numbers("spare"))
    assert "worker 0.0" in asked(port)
    worker.stop()
    spare.show(numbers("spare"))
    assert "spare 0.0" in asked(port)
    spare.stop()


def test_standby_says_that_it_stands_by_and_nothing_of_a_job_at_work(tmp_path: Path) -> None:
    shown = MetricsPort(HOST, told(0, tmp_path / "port"))
    shown.show(standing_by())
    text = asked(int((tmp_path / "port").read_text()))
    assert 'ballast_job_phase{phase="standing by"} 1.0' in text
    assert "ballast_job_info" not in text  # its absence is what BallastJobDown goes by
    shown.show(JobMetrics().store.registry)
    assert "ballast_job_info" in asked(int((tmp_path / "port").read_text()))
    shown.stop()


def test_probe_is_answered_without_a_look_at_the_metrics(tmp_path: Path) -> None:
    class Counted(Collector):
        looks = 0

        def collect(self) -> Iterator[Metric]:
            self.looks += 1
            yield from ()

    counted, registry = Counted(), CollectorRegistry()
    registry.register(counted)
    shown = MetricsPort(HOST, told(0, tmp_path / "port"))
    shown.show(registry)
    port = int((tmp_path / "port").read_text())
    before = counted.looks
    with urllib.request.urlopen(f"http://{HOST}:{port}/ready", timeout=60) as answer:
        assert answer.read() == b"ready\n"
    assert counted.looks == before
    asked(port)
    assert counted.looks > before
    shown.stop()


def test_without_a_port_nothing_is_given_out() -> None:
    shown = MetricsPort(HOST, argparse.Namespace(metrics_port=None, metrics_port_file=None))
    shown.show(numbers("unseen"))
    shown.stop()


def worker(folder: Path, number: int, counted: int) -> SharedMetrics:
    store = MetricStore([counter("x_total", "X.", "result"), histogram("z", "Z.", (1.0,))])
    store.add("x_total", "found", by=counted)
    store.observe("z", 0.5)
    return SharedMetrics(folder, number, lambda: generate_latest(store.registry))


def test_answer_of_one_worker_has_all_workers_metrics_but_of_one_that_is_gone(
    tmp_path: Path,
) -> None:
    first, second = worker(tmp_path, 0, 3), worker(tmp_path, 1, 4)
    second.write()
    found = samples_of(first.text().decode())
    assert total(found, "x_total", worker="0") == 3
    assert total(found, "x_total", worker="1") == 4
    assert total(found, "z_bucket", le="1.0") == 2
    assert first.text().decode().count("# TYPE x_total counter") == 1
    os.utime(tmp_path / "1.prom", (1, 1))
    assert total(samples_of(first.text().decode()), "x_total") == 3


def test_worker_that_could_not_write_its_metrics_writes_them_when_it_can(tmp_path: Path) -> None:
    first, stopped = worker(tmp_path / "later", 0, 3), threading.Event()
    writing = threading.Thread(target=first.keep_up, args=(stopped,))
    writing.start()
    time.sleep(0.2)
    (tmp_path / "later").mkdir()
    until((tmp_path / "later" / "0.prom").exists, 20.0)
    stopped.set()
    writing.join()


class Growing(Counter[Any]):
    """Counts that get a new reason from the event loop while another thread reads them."""

    def items(self) -> Any:
        for pair in super().items():
            self["new"] += 1
            yield pair


@pytest.mark.parametrize("kind", ["refused", "statuses", "cut"])
def test_service_metrics_are_read_while_a_new_reason_is_counted(tmp_path: Path, kind: str) -> None:
    metrics = LookupMetrics(DeltaFollower(tmp_path, "c1"))
    owner = metrics.beside.account if kind == "cut" else metrics.beside.counts
    setattr(owner, kind, Growing(known=7))
    assert b'="known"} 7.0' in metrics.text()


def test_own_metrics_are_newer_than_those_written(tmp_path: Path) -> None:
    store = MetricStore([counter("x_total", "X.")])
    shared = SharedMetrics(tmp_path, 0, lambda: generate_latest(store.registry))
    store.add("x_total")
    shared.write()
    store.add("x_total")
    assert total(samples_of(shared.text().decode()), "x_total") == 2


LOOK = Look(
    owned={"a": frozenset({"t/n/0x00000000_0x80000000"}), "b": None}, incarnations={}, namespaces={}
)


def counted() -> BridgeMetrics:
    """A bridge that has done each thing at least once."""
    made = BridgeMetrics("local")
    made.set("ballast_bridge_acting", 1)
    made.show_look(LOOK)
    made.set("ballast_bridge_differences", 3)
    made.set("ballast_bridge_pending_actions", 2)
    made.add("ballast_bridge_load_errors_total", "a")
    made.add("ballast_bridge_load_errors_total", "b")
    made.show_unread(["not_allowed", "not_allowed", "html_page"])
    made.add("ballast_bridge_unreported_total", "cpu")
    return made


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"cluster": "local", **labels})


def test_every_metric_has_what_was_counted_and_no_broker_that_is_gone() -> None:
    made = counted()
    registry = made.registry
    assert value(registry, "ballast_bridge_acting") == 1
    assert value(registry, "ballast_bridge_brokers") == 2
    assert value(registry, "ballast_bridge_silent_brokers") == 1
    assert value(registry, "ballast_bridge_bundles") == 1
    assert value(registry, "ballast_bridge_unread", reason="not_allowed") == 2
    assert value(registry, "ballast_bridge_unread", reason="no_answer") == 0
    assert value(registry, "ballast_bridge_unreported_total", field="cpu") == 1
    assert value(registry, "ballast_bridge_polls_total", result="looked") == 1
    assert value(registry, "ballast_bridge_polls_total", result="failed") == 0
    assert value(registry, "ballast_bridge_messages_total", result="not_delivered") == 0
    assert value(registry, "ballast_bridge_failed_requests_total", result="refused") == 0
    assert value(registry, "ballast_bridge_answers_total", outcome="failed") == 0
    families = {family.name for family in registry.collect() if family.samples}
    assert {metric.name.removesuffix("_total") for metric in BRIDGE_METRICS} <= families
    made.keep_brokers("local", ["b"])
    errors = "ballast_bridge_load_errors_total"
    assert value(registry, errors, broker="a") is None
    assert value(registry, errors, broker="b") == 1

"""One port for a process's metrics: what is shown there changes, and who has it keeps it."""

import argparse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from jobs.console import CommandError
from jobs.telemetry.exposition import MetricsPort, add_arguments
from jobs.telemetry.job_metrics import JobMetrics, standing_by

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
    shown.show(JobMetrics().registry)
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

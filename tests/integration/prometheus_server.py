"""A real Prometheus that scrapes processes of a test each second, with the project's rules."""

import json
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.rules import render_rules
from jobs.adapters.preflight import free_ports
from jobs.adapters.processes import Child, ProcessSpec
from tests.integration.stack import PATIENCE_S, http_json, wait_for
from tests.prometheus_tools import tool

_GRACE_MS = 10_000
STEP_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer:
    """Where it answers."""

    url: str

    def get(self, path: str, **words: object) -> Any:
        """The data of an answer of its API."""
        query = urllib.parse.urlencode(words)
        status, body = http_json(f"{self.url}/api/v1/{path}?{query}")
        assert status == 200, (path, words, body)
        return body["data"]

    def now(self, expr: str) -> list[dict[str, Any]]:
        """The series of a query at this moment."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def value(self, expr: str) -> float | None:
        """The first series' value; None without one."""
        found = self.now(expr)
        return float(found[0]["value"][1]) if found else None

    def between(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        """The series of a query over a time."""
        words = {"query": expr, "start": start_s, "end": end_s, "step": STEP_S}
        found: list[dict[str, Any]] = self.get("query_range", **words)["result"]
        return found

    def fired(self, start_s: float, end_s: float) -> set[str]:
        """The alerts that fired within a time."""
        found = self.between('ALERTS{alertstate="firing"}', start_s, end_s)
        return {series["metric"]["alertname"] for series in found}


@contextmanager
def running_prometheus(folder: Path, ports: Mapping[str, int]) -> Iterator[PrometheusServer]:
    """Scrape what listens on the loopback. ports: job's name → port."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alerts.yml").write_text(render_rules(for_max_s=1))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for name, port in ports.items()
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    (port,) = free_ports(1)
    command = [str(tool("prometheus")), f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    child = Child(
        ProcessSpec(
            name="prometheus",
            command=tuple(command),
            log_path=folder / "prometheus.log",
            environment={},
            grace_ms=_GRACE_MS,
        )
    )
    server = PrometheusServer(url=f"http://127.0.0.1:{port}")
    try:
        wait_for("Prometheus to scrape all", lambda: _scrapes(server, len(ports)), PATIENCE_S)
        yield server
    finally:
        child.stop()


def _scrapes(server: PrometheusServer, count: int) -> bool:
    try:
        return server.value("sum(up)") == count
    except (OSError, ValueError):  # it answers with a plain text until it is ready
        return False

"""A real Prometheus that scrapes processes of a test each second, with the project's rules."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.rules import render_rules
from tests.support.processes import prometheus
from tests.support.processes.prometheus import tool

STEP_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusServer(prometheus.Prometheus):
    """One whose past is asked for, too."""

    def between(self, expr: str, start_s: float, end_s: float) -> list[dict[str, Any]]:
        words = {"query": expr, "start": start_s, "end": end_s, "step": STEP_S}
        found: list[dict[str, Any]] = self.get("query_range", **words)["result"]
        return found

    def fired(self, start_s: float, end_s: float) -> set[str]:
        found = self.between('ALERTS{alertstate="firing"}', start_s, end_s)
        return {series["metric"]["alertname"] for series in found}


@contextmanager
def running_prometheus(folder: Path, ports: Mapping[str, int]) -> Iterator[PrometheusServer]:
    """Scrape what listens on the loopback. ports: job's name → port."""
    rules = render_rules(for_max_s=1)
    with prometheus.running_prometheus(tool("prometheus"), folder, rules, ports) as server:
        yield PrometheusServer(url=server.url)

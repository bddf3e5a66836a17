"""A Prometheus of our own that watches processes of this machine, and what it says.

Decides only how often it looks: each second. Source: Prometheus's HTTP API, version 1.
"""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs.adapters.processes.preflight import free_ports
from jobs.adapters.processes.processes import Child, ProcessSpec
from jobs.console import CommandError

_GRACE_MS = 10_000
_READY_TIMEOUT_MS = 60_000
_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prometheus:
    """Where it answers."""

    url: str

    def get(self, path: str, **words: object) -> Any:
        """The data of an answer of its API; raises CommandError when it has none."""
        query = urllib.parse.urlencode(words)
        try:
            with urllib.request.urlopen(  # noqa: S310 (our own address)
                f"{self.url}/api/v1/{path}?{query}", timeout=_TIMEOUT_S
            ) as reply:
                return json.loads(reply.read())["data"]
        except (OSError, ValueError, KeyError) as error:
            said = error.read(500).decode() if isinstance(error, urllib.error.HTTPError) else ""
            raise CommandError(
                f"Prometheus does not answer {path} {words}",
                why=said or f"{type(error).__name__}: {error}",
                next_step="read its log",
            ) from None

    def now(self, expr: str) -> list[dict[str, Any]]:
        """The series of a query at this moment."""
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def value(self, expr: str) -> float | None:
        """The first series' value; None without one."""
        found = self.now(expr)
        return float(found[0]["value"][1]) if found else None

    def alerts(self) -> list[dict[str, Any]]:
        """The alerts that fire, and those that would if it lasted (state `pending`)."""
        found: list[dict[str, Any]] = self.get("alerts")["alerts"]
        return found


@contextmanager
def running_prometheus(
    program: Path, folder: Path, rules: str, ports: Mapping[str, int]
) -> Iterator[Prometheus]:
    """One that has scraped all targets once, ended with the block.

    rules: the text of a file of rules. ports: job's name → port on the loopback. Raises
    CommandError when it does not get ready.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alerts.yml").write_text(rules)
    (folder / "prometheus.yml").write_text(json.dumps(_config(ports)))  # JSON is YAML
    (port,) = free_ports(1)
    server = Prometheus(url=f"http://127.0.0.1:{port}")
    words = [str(program), f"--config.file={folder / 'prometheus.yml'}"]
    words += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    child = Child(
        ProcessSpec(
            name="prometheus",
            command=tuple(words),
            log_path=folder / "prometheus.log",
            is_ready=lambda: _scrapes(server, len(ports)),
            ready_timeout_ms=_READY_TIMEOUT_MS,
            grace_ms=_GRACE_MS,
        )
    )
    try:
        child.wait_until_ready()
        yield server
    finally:
        child.stop()


def _config(ports: Mapping[str, int]) -> dict[str, object]:
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
            for name, port in ports.items()
        ],
    }


def _scrapes(server: Prometheus, count: int) -> bool:
    try:
        return server.value("sum(up)") == count
    except CommandError:  # it answers with a plain text until it is ready
        return False

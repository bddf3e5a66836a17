"""A Prometheus of our own that watches processes of this machine, and what it says.

Decides only how often it looks: each second. Source: Prometheus's HTTP API, version 1.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

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
        found: list[dict[str, Any]] = self.get("query", query=expr)["result"]
        return found

    def value(self, expr: str) -> float | None:
        """The first series' value; None without one."""
        found = self.now(expr)
        return float(found[0]["value"][1]) if found else None


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


FOLDER = "BALLAST_PROMETHEUS"
"""Names a folder to keep the package in, or one that has the programs."""

_DEADLINE_S = 120


def tool(name: str) -> Path:
    """The path of `prometheus` or `promtool`; skips the test when it can't be had.

    Fetches some 20 MB the first time where neither the PATH nor the folder has it.
    """
    root = Path(os.environ.get(FOLDER) or Path(sys.prefix) / "ballast-prometheus")
    found = shutil.which(name) or shutil.which(name, path=str(root))
    if found:
        return Path(found)
    unpacked = root / "unpacked" / "usr" / "bin" / name
    why = "" if unpacked.exists() else _fetched(root)
    if not unpacked.exists():
        pytest.skip(
            f"no {name}: {why}; install Prometheus, or name a folder that has it in {FOLDER}"
        )
    return unpacked


@cache
def _fetched(root: Path) -> str:
    """Have the package in root/unpacked, one process at a time; why not, or ""."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return "" if (root / "unpacked").exists() else _fetch(root)


def _fetch(root: Path) -> str:
    apt_get, unpack = shutil.which("apt-get"), shutil.which("dpkg-deb")
    if not apt_get or not unpack:
        return "it is not on the PATH, and this system has no apt-get and dpkg-deb"
    until_s = time.monotonic() + _DEADLINE_S
    why = ""
    for words in _ways(root / "apt"):
        why = _called([apt_get, "-q", *words], root, until_s)
        packages = sorted(root.glob("prometheus_*.deb"))
        if packages:
            into = str(root / "unpacked")
            return _called([unpack, "-x", str(packages[-1]), into], root, until_s)
    return why


def _ways(own: Path) -> tuple[list[str], ...]:
    """apt-get's words in turn: with the system's package lists, else with lists of our own."""
    for part in ("lists/partial", "archives/partial"):
        (own / part).mkdir(parents=True, exist_ok=True)
    options = ["-o", f"Dir::State::lists={own / 'lists'}", "-o", f"Dir::Cache={own}"]
    options += ["-o", "APT::Sandbox::User="]
    get = ["download", "prometheus"]
    return get, [*options, "update"], [*options, *get]


def _called(command: list[str], folder: Path, until_s: float) -> str:
    """Run it; why it failed, or ""."""
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=max(1.0, until_s - time.monotonic()),
        )
    except subprocess.TimeoutExpired:
        return f"{Path(command[0]).name} took longer than {_DEADLINE_S} s"
    if ended.returncode:
        return f"{Path(command[0]).name} could not fetch it: {ended.stderr.strip()[-300:]}"
    return ""

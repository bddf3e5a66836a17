"""The processes of a soak: a local run with its own supervisor, agents beside it, and the kills.

A victim is ended by its id, found among the descendants of what the soak started itself.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs.adapters.processes.processes import Child, ProcessSpec, Supervisor
from jobs.local.fleet_watch import fleet_client
from jobs.local.layout import CLUSTER, Layout
from tests.soak.service import FOLDER_VARIABLE, open_in
from tests.support.processes.programs import json_lines

ROOT = Path(__file__).resolve().parents[2]
AGENTS = ("agent-1", "agent-2")
SIZE = ("--brokers", "4", "--bundles", "24")
_CHILD_PROCESS, _WATCH_S = "child_process.py", 0.1
_WORDS = {
    "driver": "-m jobs.balance_cluster",
    "kafka": " kafka.Kafka ",
    "lookup service": "-m jobs.serve_lookup",
    "fleet": "-m jobs.run_fleet",
    **{name: f"--broker {name} " for name in AGENTS},
}
VICTIMS = (*sorted(_WORDS), "JVM", "Python worker")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of ps."""

    pid: int
    parent: int
    command: str


@dataclass
class Processes:
    """All that runs; `run` is `ballast run-local`, as a user starts it."""

    folder: Path
    seen: dict[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.layout = Layout(root=self.folder / "state")
        self._lines = self.folder / "status.jsonl"
        self.summary = self.folder / "summary.json"
        self._agents = Supervisor()
        self._ending = threading.Event()
        words = ["--headless", "--state-dir", str(self.layout.root), "--summary", str(self.summary)]
        self.run = Child(
            ProcessSpec(
                name="run-local",
                command=(sys.executable, "-m", "jobs.cli", "run-local", *SIZE, *words),
                log_path=self._lines,
                environment={"PYTHONPATH": str(ROOT)},
                grace_ms=60_000,
            )
        )

    def start_agents(self) -> None:
        """Start the agents, to be kept alive until the end."""
        port = json.loads((self.layout.kafka / "ports.json").read_text())["client"]
        for name in AGENTS:
            words = ["--service", "tests.soak.service:make", "--cluster", CLUSTER]
            words += ["--broker", name, "--web-service-url", f"http://{name}:8080"]
            words += ["--bootstrap", f"127.0.0.1:{port}", "--conf", "demo"]
            spec = ProcessSpec(
                name=name,
                command=(sys.executable, "-m", "jobs.run_agent", *words),
                log_path=self.folder / f"{name}.log",
                environment={
                    "PYTHONPATH": str(ROOT),
                    FOLDER_VARIABLE: str(self.folder / "open" / name),
                },
                grace_ms=20_000,
            )
            self._agents.start(spec)
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def _keep(self) -> None:
        while not self._ending.wait(_WATCH_S):
            self._agents.watch()

    def status(self) -> Mapping[str, Any]:
        """The newest line of the run, {} before there is one."""
        lines = json_lines(self._lines) if self._lines.exists() else []
        return lines[-1] if lines else {}

    def said(self) -> str:
        """What the run said last."""
        return self._lines.read_text()[-1_500:] if self._lines.exists() else ""

    def served(self) -> dict[str, list[str]]:
        """Bundle → brokers that have it open now."""
        truth = fleet_client(self.layout).truth()
        found = {bundle: sorted(broker for broker, _ in by) for bundle, by in truth.items() if by}
        for name in AGENTS:
            for bundle in open_in(self.folder / "open" / name):
                found[bundle] = [*found.get(bundle, []), name]
        return found

    def kill(self, victim: str) -> int | None:
        """Kill -9 of one process; None when there is none of this kind right now."""
        found = self._of(victim)
        if not found:
            return None
        pid = found[-1].pid
        os.kill(pid, signal.SIGKILL)
        return pid

    def is_whole(self) -> bool:
        """Whether a process of each kind is there; of Python workers there may be none."""
        return all(self._of(victim) for victim in VICTIMS if victim != "Python worker")

    def _of(self, victim: str) -> list[Process]:
        mine = self.descendants()
        if victim in _WORDS:
            return [p for p in mine if _WORDS[victim] in f"{p.command} "]
        drivers = {p.pid for p in mine if _WORDS["driver"] in p.command}
        jvms = [p for p in mine if p.parent in drivers and "java" in p.command]
        if victim == "JVM":
            return jvms
        below = {p.pid for p in jvms}
        workers = []
        for process in mine:  # parents come first
            if process.parent in below:
                below.add(process.pid)
                workers.append(process)
        return [p for p in workers if "python" in p.command]

    def descendants(self) -> list[Process]:
        """All processes that the soak started, parents first, without the tethers."""
        children: dict[int, list[Process]] = {}
        for process in _listed():
            children.setdefault(process.parent, []).append(process)
        found: list[Process] = list(children.get(os.getpid(), ()))
        for process in found:  # it grows meanwhile
            found += children.get(process.pid, ())
        self.seen |= {p.pid: p.command for p in found}
        return [p for p in found if _CHILD_PROCESS not in p.command]

    def end(self) -> int:
        """Ctrl-C to the run, SIGTERM to the agents; the run's exit code."""
        self._ending.set()
        self._keeper.join()
        self._agents.stop_all()
        os.kill(self.run.pid, signal.SIGINT)
        return self.run.wait(60_000)

    def end_by_force(self) -> None:
        """Whatever is left goes at once."""
        self._ending.set()
        self._agents.stop_all()
        self.run.kill()

    def left(self) -> dict[int, str]:
        """The processes that were ours and still live."""
        return {p.pid: p.command for p in _listed() if self.seen.get(p.pid) == p.command}


def _listed() -> list[Process]:
    listed = subprocess.run(
        [shutil.which("ps") or "ps", "-axww", "-o", "pid=,ppid=,command="],
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [Process(int(row[0]), int(row[1]), row[2]) for row in rows if len(row) == 3]

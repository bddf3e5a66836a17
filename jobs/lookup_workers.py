"""Several processes that answer on one port, kept running.

Decides how many, and that they end together; who serves a connection, the kernel decides
(SO_REUSEPORT). Each worker holds its own snapshot.
"""

import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from jobs.adapters.processes.paths import private_directory
from jobs.adapters.processes.processes import ProcessSpec, Supervisor
from jobs.adapters.processes.signals import on_signals
from jobs.console import note

_ROOT = Path(__file__).parents[1]
_LOOK_S = 0.2
_GRACE_MS = 10_000


def run_workers(words: Sequence[str], count: int, port: int) -> None:
    """Keep `count` workers running until SIGTERM or SIGINT; words: their command line."""
    stop = threading.Event()
    on_signals(stop.set)
    supervisor = Supervisor()
    folder = str(private_directory("ballast-metrics"))
    try:
        for worker in range(count):
            supervisor.start(_spec((*words, "--worker-folder", folder), worker, port))
        while not stop.wait(_LOOK_S):
            for event in supervisor.watch():
                note(f"{event.name} {event.what} (exit code {event.exit_code})")
    finally:
        supervisor.stop_all()


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that holds the workers' port without listening. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    holder = socket.socket(family, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, port))
    except OSError:
        holder.close()
        raise
    return holder


def _spec(words: Sequence[str], worker: int, port: int) -> ProcessSpec:
    own = ("--worker", str(worker), "--port", str(port))
    return ProcessSpec(
        name=f"serve_lookup-{worker}",
        command=(sys.executable, "-m", "jobs.cli", "serve", *words, *own),
        log_path=Path("/dev/stderr"),
        environment={"PYTHONPATH": str(_ROOT)},
        grace_ms=_GRACE_MS,
    )

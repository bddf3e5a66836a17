"""Runs a few lines of Python as a process of their own, to its end."""

import sys
from pathlib import Path

from jobs.adapters.processes.processes import Child, ProcessSpec

_ENDS_MS = 60_000


def ended(folder: Path, program: str) -> tuple[int, str]:
    """Exit code and log of a program that ends by itself; TimeoutError when it does not."""
    spec = ProcessSpec(
        name="program",
        command=(sys.executable, "-c", program),
        log_path=folder / "program.log",
    )
    child = Child(spec)
    try:
        return child.wait(_ENDS_MS), spec.log_path.read_text()
    finally:
        child.kill()

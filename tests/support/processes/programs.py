"""Programs found on this machine, and the JSON lines that they write."""

import json
import sys
from pathlib import Path
from typing import Any

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


def json_lines(path: Path) -> list[dict[str, Any]]:
    """The objects of all whole lines; others are left out, be they not JSON or only begun."""
    text = path.read_text() if path.exists() else ""
    whole = text.rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in whole if line.startswith("{")]

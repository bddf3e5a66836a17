"""Programs of the tests' own, the JSON lines that they write, and waits for what they do."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jobs.adapters.processes.processes import Child, ProcessSpec

ROOT = Path(__file__).resolve().parents[3]
BALLAST = (sys.executable, "-m", "jobs.cli")
_ENDS_MS, _GRACE_MS = 60_000, 300_000


def start_ballast(name: str, words: Sequence[str], log_path: Path) -> Child:
    """`ballast` of this source, as a process that goes on."""
    return Child(
        ProcessSpec(
            name=name,
            command=(*BALLAST, *words),
            log_path=log_path,
            environment={"PYTHONPATH": str(ROOT)},
            grace_ms=_GRACE_MS,
        )
    )


def run_ballast(*words: str) -> "subprocess.CompletedProcess[str]":
    """`ballast` of this source, which ends by itself within ten minutes."""
    return subprocess.run(
        [*BALLAST, *words], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


def until(
    is_so: Callable[[], object], within_s: float = 180.0, told: Callable[[], object] = str
) -> None:
    """Wait for what must come. told: of what did not come in time."""
    deadline_s = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < deadline_s, told()
        time.sleep(0.02)


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

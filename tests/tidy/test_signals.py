"""Signals are heard by one piece of code: a handler of one's own may wait for itself for ever."""

from pathlib import Path

import pytest

HANDLES = {
    "jobs/adapters/processes/signals.py": "hears in a thread",
    "jobs/adapters/processes/tether.py": "reads the wake-up pipe; imports nothing of ours",
    "jobs/operating/keyboard.py": "raises",
    "jobs/operating/many_runs.py": "writes a field",
    "jobs/run_fleet.py": "raises",
    "jobs/serve_lookup.py": "uvicorn's own, which writes fields",
    "jobs/service/reader_process.py": "ignores",
    "jobs/tour/verb.py": "raises",
}


def _handling() -> set[str]:
    root = Path(__file__).parents[2]
    paths = (path for name in ("jobs", "lbcore") for path in (root / name).rglob("*.py"))
    return {str(path.relative_to(root)) for path in paths if "signal.signal(" in path.read_text()}


@pytest.mark.parametrize("module", sorted(_handling() | HANDLES.keys()))
def test_handlers_take_no_lock(module: str) -> None:
    assert module in HANDLES, "use jobs.adapters.processes.signals.hear"
    assert module in _handling(), "strike it from HANDLES"

"""Signals are heard by one piece of code: a handler of one's own may wait for itself for ever."""

import pytest

from tests.tidy.source_files import PACKAGES, ROOT, python_files

HANDLES = {
    "jobs/adapters/processes/signals.py": "hears in a thread",
    "jobs/adapters/processes/child_process.py": "reads the wake-up pipe; imports nothing of ours",
    "jobs/operating/many_runs.py": "ignores, in a process of a pool",
    "jobs/run_fleet.py": "raises",
    "jobs/serve_lookup.py": "uvicorn's own, which writes fields",
    "jobs/service/v1/reading.py": "ignores",
}


HANDLING = {
    path.relative_to(ROOT).as_posix()
    for path in python_files(*PACKAGES)
    if "signal.signal(" in path.read_text()
}


@pytest.mark.parametrize("module", sorted(HANDLING | HANDLES.keys()))
def test_handlers_take_no_lock(module: str) -> None:
    assert module in HANDLES, "use jobs.adapters.processes.signals.on_signals"
    assert module in HANDLING, "strike it from HANDLES"


def test_what_is_frozen_is_waited_for() -> None:
    stops = "signal.SIG" + "STOP"
    found = {
        path.relative_to(ROOT).as_posix()
        for path in python_files(*PACKAGES, "tests")
        if stops in path.read_text()
    }
    assert found == {"tests/support/processes/frozen.py"}, "use freeze, which waits for it"

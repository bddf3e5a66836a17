"""Children that never outlive their supervisor, with real processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.adapters.processes.processes import Child, ProcessSpec, Supervisor
from jobs.console import CommandError

_PATIENCE_S = 60.0
_SLEEPER = "import time; print('up', flush=True); time.sleep(600)"
_STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + _SLEEPER
_PARENT_OF_ONE = (
    "import subprocess, sys, time\n"
    f"child = subprocess.Popen([sys.executable, '-c', {_STUBBORN!r}])\n"
    "print('grandchild', child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def _spec(folder: Path, code: str, name: str = "sleeper", **more: object) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        command=(sys.executable, "-c", code),
        log_path=folder / f"{name}.log",
        **more,
    )


def _eventually(condition: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except ProcessLookupError:  # also when it ends while its state is read
        return False
    except FileNotFoundError:  # it ended just now, or this system has no such files
        return not Path("/proc/self/stat").exists()


def _logged(spec: ProcessSpec, word: str) -> bool:
    return spec.log_path.exists() and word in spec.log_path.read_text()


def _grandchild(log_path: Path) -> int:
    """Its process id, once it is up and its parent has said so; they write in any order."""

    def is_told() -> bool:
        lines = log_path.read_text().splitlines(keepends=True) if log_path.exists() else []
        told = [line for line in lines if line.startswith("grandchild") and line.endswith("\n")]
        return bool(told) and "up\n" in lines

    assert _eventually(is_told)
    return int(log_path.read_text().split("grandchild")[1].split()[0])


def test_child_stopped_ends_and_says_143(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _SLEEPER))
    assert _eventually(lambda: _logged(child.spec, "up"))
    assert child.exit_code() is None
    assert child.stop() == 128 + signal.SIGTERM
    assert not _runs(child.pid)


def test_child_that_ignores_sigterm_is_killed_after_grace(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _STUBBORN, grace_ms=300))
    assert _eventually(lambda: _logged(child.spec, "up"))
    assert child.stop() == 128 + signal.SIGKILL
    assert not _runs(child.pid)


def test_child_killed_takes_its_own_children_along(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _PARENT_OF_ONE))
    grandchild = _grandchild(child.spec.log_path)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60_000) == 128 + signal.SIGKILL
    assert _eventually(lambda: not _runs(grandchild))


def test_child_with_exit_code_reports_it(tmp_path: Path) -> None:
    assert Child(_spec(tmp_path, "import sys; sys.exit(7)")).wait(60_000) == 7


def test_child_with_unknown_command_says_127_and_why(tmp_path: Path) -> None:
    log_path = tmp_path / "absent.log"
    spec = ProcessSpec(name="absent", command=("no-such-command",), log_path=log_path)
    assert Child(spec).wait(60_000) == 127
    assert "no-such-command" in log_path.read_text()


def test_child_that_dies_before_ready_reports_its_last_words(tmp_path: Path) -> None:
    code = "import sys; sys.exit('the lamp is dark')"
    child = Child(_spec(tmp_path, code, is_ready=lambda: False))
    with pytest.raises(CommandError) as caught:
        child.wait_until_ready()
    assert "the lamp is dark" in caught.value.why
    assert "code 1" in caught.value.what


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_supervisor_process_ended_leaves_no_child(tmp_path: Path, number: int) -> None:
    log_path = tmp_path / "child.log"
    code = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from jobs.adapters.processes.processes import Child, ProcessSpec\n"
        f"command = (sys.executable, '-c', {_PARENT_OF_ONE!r})\n"
        "spec = ProcessSpec(name='c', command=command, log_path=Path(sys.argv[1]), grace_ms=300)\n"
        "print(Child(spec).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    supervisor = subprocess.Popen(
        [sys.executable, "-c", code, str(log_path)], stdout=subprocess.PIPE, text=True
    )
    assert supervisor.stdout is not None
    child_pid = int(supervisor.stdout.readline())
    grandchild = _grandchild(log_path)
    supervisor.send_signal(number)
    supervisor.communicate(timeout=60)
    assert _eventually(lambda: not _runs(child_pid))
    assert _eventually(lambda: not _runs(grandchild))


def test_supervisor_restarts_a_child_that_died_and_says_so(tmp_path: Path) -> None:
    supervisor = Supervisor()
    spec = _spec(tmp_path, _SLEEPER)
    supervisor.start(spec)
    first = supervisor.child("sleeper").pid
    os.kill(first, signal.SIGKILL)
    events = []
    assert _eventually(lambda: events.extend(supervisor.watch()) or len(events) == 2)
    assert [(event.what, event.exit_code) for event in events] == [
        ("died", 137),
        ("restarted", None),
    ]
    assert supervisor.child("sleeper").pid != first
    assert supervisor.restarts() == {"sleeper": 1}
    second = supervisor.child("sleeper").pid
    supervisor.stop_all()
    assert not _runs(second)


def test_supervisor_stops_lower_ranks_first(tmp_path: Path) -> None:
    code = (
        "import pathlib, signal, sys, time\n"
        "def stop(*_):\n"
        f"    path = pathlib.Path({str(tmp_path / 'order')!r})\n"
        "    path.open('a').write(sys.argv[1])\n"
        "    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "print('up', flush=True)\n"
        "time.sleep(600)\n"
    )
    supervisor = Supervisor()
    for name, rank in (("a", 2), ("b", 0), ("c", 1)):
        spec = ProcessSpec(
            name=name,
            command=(sys.executable, "-c", code, name),
            log_path=tmp_path / f"{name}.log",
            stop_rank=rank,
        )
        supervisor.start(spec)
        assert _eventually(lambda spec=spec: _logged(spec, "up"))
    supervisor.stop_all()
    assert (tmp_path / "order").read_text() == "bca"


def test_supervisor_waits_longer_and_longer_for_a_child_that_keeps_dying(tmp_path: Path) -> None:
    clock_ms = [0]
    supervisor = Supervisor(now_ms=lambda: clock_ms[0])
    supervisor.start(_spec(tmp_path, "import sys; sys.exit(3)"))
    died_at, restarted_at = [], []
    while len(restarted_at) < 4:
        for event in supervisor.watch():
            (died_at if event.what == "died" else restarted_at).append(clock_ms[0])
        if len(died_at) > len(restarted_at):
            clock_ms[0] += 100
        else:
            time.sleep(0.01)
    waits = [after - before for before, after in zip(died_at, restarted_at, strict=False)]
    assert waits == [100, 1_000, 2_000, 4_000]
    supervisor.stop_all()

"""Real processes: children, signals at the worst moment, processes that are suspended."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.adapters.processes.clocks import boot_ms
from jobs.adapters.processes.processes import Child, ProcessSpec, Supervisor
from jobs.console import CommandError
from tests.support.processes.frozen import freeze
from tests.support.processes.lookup_service import LookupService
from tests.support.processes.programs import ended, until
from tests.support.tables.away import LivingTables
from tests.support.tables.lookup_tables import BUNDLES, CLUSTER, NAMESPACE, fresh, served

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

    until(is_told)
    return int(log_path.read_text().split("grandchild")[1].split()[0])


def test_child_stopped_ends_and_says_143(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _SLEEPER))
    until(lambda: _logged(child.spec, "up"))
    assert child.exit_code() is None
    assert child.stop() == 128 + signal.SIGTERM
    assert not _runs(child.pid)


def test_child_of_a_process_with_very_many_open_files_runs_and_stops(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < 2_048:  # most shells allow 1,024
        resource.setrlimit(resource.RLIMIT_NOFILE, (2_048, hard))
    numbers = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_024)]
    try:
        child = Child(_spec(tmp_path, _SLEEPER))
        until(lambda: _logged(child.spec, "up"))
        assert child.stop() == 128 + signal.SIGTERM
    finally:
        for number in numbers:
            os.close(number)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_child_that_ignores_sigterm_is_killed_after_grace(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _STUBBORN, grace_ms=300))
    until(lambda: _logged(child.spec, "up"))
    assert child.stop() == 128 + signal.SIGKILL
    assert not _runs(child.pid)


def test_child_killed_takes_its_own_children_along(tmp_path: Path) -> None:
    child = Child(_spec(tmp_path, _PARENT_OF_ONE))
    grandchild = _grandchild(child.spec.log_path)
    os.kill(child.pid, signal.SIGKILL)
    assert child.wait(60_000) == 128 + signal.SIGKILL
    until(lambda: not _runs(grandchild))


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
    until(lambda: not _runs(child_pid))
    until(lambda: not _runs(grandchild))


def test_supervisor_restarts_a_child_that_died_and_says_so(tmp_path: Path) -> None:
    supervisor = Supervisor()
    spec = _spec(tmp_path, _SLEEPER)
    supervisor.start(spec)
    first = supervisor.child("sleeper").pid
    os.kill(first, signal.SIGKILL)
    events = []
    until(lambda: events.extend(supervisor.watch()) or len(events) == 2)
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
        until(lambda spec=spec: _logged(spec, "up"))
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


_HOLDS_THE_LOCK = """
import os, signal, threading, time
from jobs.adapters.processes.signals import on_signals
from jobs.adapters.processes.signals import Shutdown

{asked}
with asked._cond:
    os.kill(os.getpid(), signal.{number})
    time.sleep(0.1)
asked.wait()
print("heard", flush=True)
"""
_CASES = {
    "by on_signals": "asked = threading.Event(); on_signals(asked.set)",
    "by an ordered end": "asked = Shutdown(limit_s=600).listen().asked",
    "anew": "on_signals(lambda: None)(); asked = threading.Event(); on_signals(asked.set)",
}


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("asked", _CASES.values(), ids=_CASES)
def test_signal_is_heard_whatever_lock_the_main_thread_holds(
    tmp_path: Path, asked: str, number: str
) -> None:
    program = _HOLDS_THE_LOCK.format(asked=asked, number=number)
    assert ended(tmp_path, program) == (0, "heard\n")


def test_main_thread_may_raise_besides(tmp_path: Path) -> None:
    program = """
import os, signal, threading
from jobs.adapters.processes.signals import on_signals

def stop(*_):
    raise KeyboardInterrupt

asked = threading.Event()
on_signals(asked.set, handler=stop)
try:
    with asked._cond:
        signal.raise_signal(signal.SIGTERM)
except KeyboardInterrupt:
    print(asked.wait(60))
"""
    assert ended(tmp_path, program) == (0, "True\n")


def test_forked_process_does_not_speak_for_its_parent(tmp_path: Path) -> None:
    program = """
import os, signal, threading
from jobs.adapters.processes.signals import on_signals

asked = threading.Event()
on_signals(asked.set)
if not (child := os.fork()):
    signal.raise_signal(signal.SIGTERM)
    os._exit(0)
os.waitpid(child, 0)
print(asked.wait(0.5))
"""
    assert ended(tmp_path, program) == (0, "False\n")


STOPPED_MS = 5_000
UNTIL_RIGHT_MS = 20_000
UNHEARD_MS = 3_000
"""For so long a client of a service may have heard nothing without asking anew."""
CLIENT = """
import sys, time
from jobs.adapters.following.watch_follower import WatchAddress
from jobs.lookup_client import LookupClient
with LookupClient(WatchAddress(url=sys.argv[1]), sys.argv[2]) as client:
    assert client.wait_ready(60_000)
    while True:
        found = client.lookup(sys.argv[3])
        boot_ms = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000
        print(found.broker, found.freshness.age_ms, boot_ms, flush=True)
        time.sleep(0.005)
"""


@pytest.fixture
def tables(tmp_path: Path) -> LivingTables:
    made = LivingTables(tmp_path / "tables")
    made.go_on(2)
    return made


@pytest.fixture
def service(tables: LivingTables) -> Iterator[LookupService]:
    running = LookupService(tables.root)
    running.wait_ready()
    yield running
    running.stop(signal.SIGKILL)


def topic_that_moves(root: Path) -> str:
    """A local name in the bundle that moves in each step."""
    snapshot = served(fresh(root))
    for number in range(1_000):
        route = snapshot.lookup(f"persistent://{NAMESPACE}/t{number}")
        if route is not None and route.bundle == BUNDLES[0]:
            return f"t{number}"
    raise AssertionError


def stay_away(process: subprocess.Popen[bytes], tables: LivingTables) -> int:
    """Stop a process while the tables go on; when the first of that was written (boot clock)."""
    freeze(process.pid)
    since_ms = boot_ms()
    tables.go_on(4)
    written_ms = boot_ms()
    tables.clean_up()
    tables.go_on(1)
    threading.Event().wait(max(0, since_ms + STOPPED_MS - boot_ms()) / 1_000)
    os.kill(process.pid, signal.SIGCONT)
    return written_ms


def test_stopped_service_is_right_or_says_how_old_it_is(
    tables: LivingTables, service: LookupService
) -> None:
    topic = topic_that_moves(tables.root)
    written_ms = stay_away(service.process, tables)
    newest, deadline_ms = f"new-{tables.step}", boot_ms() + UNTIL_RIGHT_MS
    has_both = False
    while not has_both:
        assert boot_ms() < deadline_ms
        asked_ms = boot_ms()
        reply = service.get(f"/lookup/v2/topic/persistent/{NAMESPACE}/{topic}")
        is_right = reply.headers["x-ballast-broker"] == newest
        assert is_right or int(reply.headers["x-ballast-age-ms"]) >= asked_ms - written_ms
        brokers = service.get("/v1/brokers?max_age_ms=1000")
        names = {row["broker"] for row in brokers.json.get("brokers", ())}
        assert brokers.status == 503 or newest in names
        has_both = is_right and newest in names


def test_stopped_client_of_a_service_is_right_or_says_how_old_it_is(
    tables: LivingTables, service: LookupService
) -> None:
    topic = f"persistent://{NAMESPACE}/{topic_that_moves(tables.root)}"
    words = [sys.executable, "-c", CLIENT, f"http://127.0.0.1:{service.port}", CLUSTER, topic]
    client = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline()
        written_ms = stay_away(client, tables)
        newest, deadline_ms = f"new-{tables.step}", boot_ms() + UNTIL_RIGHT_MS
        for line in client.stdout:
            broker, age_ms, at_ms = line.decode().split()
            if broker == newest:
                return
            if int(at_ms) > written_ms:
                assert int(age_ms) + UNHEARD_MS >= int(at_ms) - written_ms
            assert boot_ms() < deadline_ms
        raise AssertionError("the client has ended")
    finally:
        client.kill()
        client.wait()

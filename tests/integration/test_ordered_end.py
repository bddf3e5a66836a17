"""Ends of processes: in order whatever hangs, and with fatal errors of a real JVM."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from jobs.adapters.processes.processes import Child, ProcessSpec
from tests.integration.stack import running_stack, wait_for
from tests.support.processes.frozen import freeze
from tests.support.processes.programs import ended

_PROGRAM = """
import subprocess, sys, threading
from jobs.adapters.processes.signals import Shutdown

def hangs_for_ever():
    threading.Event().wait()

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
end = Shutdown(limit_s=0.5, children=[child.pid]).listen()
print("child", child.pid, flush=True)
"""


def _started(folder: Path, then: str) -> Child:
    """A process that does this after the beginning that all have."""
    return _child(folder, "-c", _PROGRAM + then)


def _job(folder: Path, kafka_port: int) -> Child:
    places = (f"--state-dir={folder / 'state'}", f"--tables={folder / 'tables'}")
    bootstrap = f"--bootstrap=127.0.0.1:{kafka_port}"
    return _child(folder, "-m", "jobs.balance_cluster", bootstrap, *places)


def _child(folder: Path, *words: str) -> Child:
    return Child(
        ProcessSpec(
            name="asked",
            command=(sys.executable, *words),
            log_path=folder / "asked.log",
            grace_ms=60_000,
        )
    )


def _ended(folder: Path, then: str) -> tuple[int, str]:
    """Exit code and log of a process that does this when it is asked to end."""
    child = _started(folder, f"end.asked.wait()\n{then}")
    wait_for("it to be up", lambda: "child" in child.spec.log_path.read_text(), 60)
    return child.stop(), child.spec.log_path.read_text()


def _is_gone(pid: int) -> bool:
    """Whether it has ended, whoever is to take note of it."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize(
    ("then", "expected", "told"),
    [
        ("hangs_for_ever()", 1, "its last batch may be done again"),
        ("end.is_done = True\nhangs_for_ever()", 0, "nothing is lost"),
    ],
)
def test_what_hangs_at_its_end_goes_by_force_and_says_where_it_hung(
    tmp_path: Path, then: str, expected: int, told: str
) -> None:
    code, log = _ended(tmp_path, then)
    assert code == expected
    assert "had not after 0.5 s: it goes by force" in log
    assert told in log
    assert "in hangs_for_ever" in log
    assert _is_gone(int(log.split()[1]))


def test_what_ends_in_order_says_nothing(tmp_path: Path) -> None:
    code, log = _ended(tmp_path, "child.kill(); child.wait(); sys.exit(7)")
    assert code == 7
    assert len(log.splitlines()) == 1


def test_failure_whose_clean_up_hangs_is_told_and_goes_by_force(tmp_path: Path) -> None:
    fails = """
try:
    with end.with_work():
        raise ValueError("topics were lost")
finally:
    hangs_for_ever()
"""
    code, log = ended(tmp_path, _PROGRAM + fails)
    assert code == 1
    assert "topics were lost" in log
    assert "in hangs_for_ever" in log
    assert _is_gone(int(log.split()[1]))


def test_asked_twice_is_asked_once(tmp_path: Path) -> None:
    code, log = _ended(tmp_path, "end.ask(); end.ask()\nhangs_for_ever()")
    assert code == 1
    assert log.count("it goes by force") == 1


def _works(before: str) -> str:
    """Work that fails after this, and whose clean-up is in order."""
    return f"""
try:
    with end.with_work():
        {before}
        raise ValueError
except ValueError:
    child.kill()
    child.wait()
    sys.exit(not end.is_done)
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [("end.asked.wait()", 0), ("end.has_begun = True; end.asked.wait()", 1)],
)
def test_error_is_no_failure_of_what_was_to_end_before_its_work_began(
    tmp_path: Path, before: str, expected: int
) -> None:
    child = _started(tmp_path, _works(before))
    wait_for("it to be up", lambda: "child" in child.spec.log_path.read_text(), 60)
    assert child.stop() == expected


def test_error_of_what_nobody_asked_to_end_is_a_failure(tmp_path: Path) -> None:
    assert ended(tmp_path, _PROGRAM + _works("pass"))[0] == 1


@pytest.mark.long
def test_job_that_is_to_end_while_kafka_does_not_answer_its_first_question_ends_in_order(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        child = _job(tmp_path, silent.getsockname()[1])
        connection, _ = silent.accept()
        os.kill(child.pid, signal.SIGTERM)
    connection.close()
    assert child.stop() == 0
    assert "can't be asked for its topics" in child.spec.log_path.read_text()


@pytest.mark.long
def test_job_whose_spark_hangs_ends_by_itself_and_the_next_one_goes_on(tmp_path: Path) -> None:
    with running_stack(tmp_path) as stack:
        (jvm,) = (
            process
            for process in psutil.process_iter(["name"])
            if process.info["name"] == "java"
            and os.getpgid(process.pid) == stack.children["job"].pid
        )
        freeze(jvm.pid)
        assert stack.stop("job") == 1
        assert "goes by force" in (tmp_path / "job.log").read_text()
        # a killed process of 2 GB takes its time to go
        stack.wait("the frozen JVM to be gone", lambda: _is_gone(jvm.pid))
        stack.start_job()
        stack.wait_for_batches(2)
        stack.wait_settled()


SCRIPT = """
import json, os, sys
from pathlib import Path
from jobs.adapters.processes.preflight import use_java_home
from jobs.adapters.spark.fatal_errors import error_messages, java_failure, java_text
from jobs.adapters.spark.stream import jvm_id, spark_session
from jobs.console import CommandError
use_java_home()
folder = Path(sys.argv[1])
any_port = {"spark.ui.port": "0"}
session = spark_session(master="local[1]", local_dir=folder / "spark", settings=any_port)
jvm = session.sparkContext._jvm
def ended(sink):
    query = session.readStream.format("rate").load().writeStream.foreachBatch(sink)
    query = query.option("checkpointLocation", str(folder / sink.__name__)).start()
    while query.isActive: pass
    raise java_failure(java_text(query.exception()))
def heap(*_): jvm.java.util.ArrayList(2**31 - 1)
def python(*_): raise ValueError("boom")
def killed(): os.kill(jvm_id(session), 9); session.range(3).collect()
cases = {
    "missing class": lambda: jvm.java.lang.Class.forName("no.such.Thing"),
    "missing format": lambda: session.readStream.format("none").load(),
    "missing method": lambda: jvm.java.lang.System.nosuch(),
    "missing package": lambda: jvm.no.such.Thing(),
    "memory": lambda: ended(heap),
    "python": lambda: ended(python),
    "plan": lambda: session.table("none").collect(),
    "killed": killed,
}
told = {}
for name, case in cases.items():
    try:
        with error_messages(): case()
    except CommandError as error:
        told[name] = [error.what, error.why]
print(json.dumps(told))
"""


@pytest.mark.long
def test_errors_of_a_real_jvm_are_told_apart(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    told = json.loads(done.stdout)
    wanted = {
        "missing class": ("jars do not match", "ClassNotFoundException: no.such.Thing"),
        "missing format": ("jars do not match", "ClassNotFoundException: none.DefaultSource"),
        "missing method": ("jars do not match", "nosuch does not exist in the JVM"),
        "missing package": ("jars do not match", "'JavaPackage' object is not callable"),
        "memory": ("out of memory", "java.lang.OutOfMemoryError: Requested array size"),
        "python": ("ends by an error", "ValueError: boom"),
        "plan": ("ends by an error", "TABLE_OR_VIEW_NOT_FOUND"),
        "killed": ("lost its JVM", "SIGKILL"),
    }
    assert told.keys() == wanted.keys()
    for name, (what, why) in wanted.items():
        assert what in told[name][0], (name, told[name])
        assert why in told[name][1], (name, told[name])
        assert "\n" not in told[name][1]

"""A signal at the worst moment: the main thread holds the lock that what it asks for needs."""

from pathlib import Path

import pytest

from tests.support.processes.programs import ended

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

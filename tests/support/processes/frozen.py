"""Processes that stand still, as a suspended machine's do: none of their threads runs any more."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

_STILL = "TtZX"  # stopped, traced, ended: the states of /proc/PID/task/TID/stat


def freeze(*processes: int) -> None:
    """Stop processes (SIGSTOP), and return when all have: a signal is a request only.

    A thread that runs on another core goes on for a moment, and may answer what is sent meanwhile.
    """
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    _wait(processes)


def freeze_group(group: int) -> None:
    """Stop every process of a group, and return when all have."""
    os.killpg(group, signal.SIGSTOP)
    _wait([process for process in psutil.pids() if _group_of(process) == group])


def _wait(processes: Iterable[int]) -> None:
    while not all(map(_is_still, processes)):
        time.sleep(0.001)


def _group_of(process: int) -> int:
    with suppress(ProcessLookupError):
        return os.getpgid(process)
    return 0


def _is_still(process: int) -> bool:
    tasks = Path(f"/proc/{process}/task")
    if not Path("/proc/self").exists():  # no Linux: the process as a whole is what can be seen
        return psutil.Process(process).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return all(_state(task) in _STILL for task in tasks.glob("*/stat"))


def _state(task: Path) -> str:
    with suppress(FileNotFoundError, ProcessLookupError):
        return task.read_text().rpartition(")")[2].split()[0]
    return "X"

"""Processes that are frozen, have another clock, or see another root."""

import os
import shutil
import signal
import struct
import subprocess
import time
import venv
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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


COMPILER = shutil.which("cc")
_SOURCE = Path(__file__).with_name("turned_clock.c")
_NS = 1_000_000_000


class TurnedClock:
    """A clock that processes with its `environment` live by, right until it is turned."""

    def __init__(self, folder: Path) -> None:
        """Build the library into the folder, which is made."""
        folder.mkdir(parents=True)
        self._path, library = folder / "turned", folder / "turned_clock.so"
        self._path.write_bytes(struct.pack("=q", 0))
        words = [str(COMPILER), "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "TURNED_CLOCK": str(self._path),
        }

    def turn(self, ahead_s: int) -> None:
        """From now on it is ahead by so much, right with 0."""
        file = os.open(self._path, os.O_WRONLY)  # never shortened: processes have it mapped
        try:
            os.pwrite(file, struct.pack("=q", ahead_s * _NS), 0)
        finally:
            os.close(file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """Ballast as a wheel leaves it. python: which has it; folder: empty; more: its environment."""

    python: Path
    folder: Path
    more: Mapping[str, str]

    def run(self, *words: str, timeout_s: float = 300) -> "subprocess.CompletedProcess[str]":
        kept = {name: value for name, value in os.environ.items() if name != "BALLAST_JARS"}
        return subprocess.run(
            [str(self.python), *words],
            cwd=self.folder,
            env={**kept, **self.more},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def ballast(self, *words: str, timeout_s: float = 300) -> str:
        """What a verb answers and notes; fails with that when it fails."""
        done = self.run("-m", "jobs.cli", *words, timeout_s=timeout_s)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


def installed(wheel: Path, folder: Path) -> Elsewhere:
    """The wheel and its extras in an environment of its own, and an empty folder."""
    (folder / "empty").mkdir()
    venv.EnvBuilder(with_pip=True, symlinks=True).create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    there = Elsewhere(python=python, folder=folder / "empty", more={})
    done = there.run("-m", "pip", "install", "--quiet", f"{wheel}[job,service]", timeout_s=900)
    assert done.returncode == 0, done.stderr
    return there

"""Reads of the tables that take long, in a process of their own beside the service.

Decides what becomes of such a process: less urgent than lookups, ended after two minutes without
questions, or when one made it large; one that stays begins anew instead, to give back what it held.
The next is started before it is asked for, as a start takes longer than most answers. Nothing that
it does can hold up the event loop, which has another interpreter and another heap. An answer is
whole before anybody sees its first byte: it waits in a file, so a client that reads slowly holds no
process. Source: ours.
"""

import importlib
import logging
import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeAlias

from jobs.adapters.delta.arrow_alone import keep_from_pandas
from jobs.adapters.delta.table_place import TablePlace
from jobs.adapters.delta.table_reader import TableReader
from jobs.adapters.processes.json_log import log_json_lines
from jobs.console import CommandError, in_one_line
from lbcore.route.slices import write_slices

logger = logging.getLogger(__name__)

Read: TypeAlias = Callable[[TableReader], Any]
"""Makes a value for JSON, as `write_slices` takes it, of the tables; can be pickled."""

_NICE = 5
IDLE_S = 120.0
"""How long a process waits for the next question before it ends, unless it is to stay."""
_LARGE_KB = 256_000
_IN_MEMORY_BYTES = 1 << 20
_FRAME = struct.Struct(">cI")
_PART, _END, _REFUSED, _LEAVING = b"P", b"E", b"R", b"L"
_USUAL = "jobs.service.v1.overview"  # what is asked for most is imported before it is
_UNAVAILABLE = 503
_SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "65536",
    "MALLOC_TRIM_THRESHOLD_": "131072",
}
"""glibc's and Arrow's: what was freed is given back, and not kept for each of their threads."""


@dataclass(frozen=True, slots=True)
class ReadQuestion:
    """What is read of which cluster."""

    read: Read
    root: TablePlace
    cluster: str


class ReadRefusedError(Exception):
    """There is no such answer. status: as HTTP's, reason: a sentence."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(status, reason)
        self.status = status
        self.reason = reason


class ReaderGoneError(Exception):
    """The process ended before it had answered."""


@dataclass(slots=True)
class ReaderCounts:
    """What became of some processes. failures: ended while they were still wanted."""

    starts: int = 0
    failures: int = 0
    pids: set[int] = field(default_factory=set)

    def memory_bytes(self) -> list[int]:
        """What each that runs holds, code that it shares with others included (Linux)."""
        return [size for size in map(_resident_bytes, tuple(self.pids)) if size]


def _resident_bytes(pid: int) -> int:
    """0 for one that has ended."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


class ReaderProcess:
    """One process, asked by one thread at a time; blocks.

    is_staying: it waits for questions however long. Of two the one that stays comes first. idle_s:
    without a question for so long, what earlier ones made it hold is given back.
    """

    def __init__(
        self,
        counts: ReaderCounts | None = None,
        *,
        is_staying: bool = False,
        idle_s: float = IDLE_S,
    ) -> None:
        self.is_staying = is_staying
        self._command = _command(idle_s, is_staying=is_staying)
        self._counts = counts or ReaderCounts()
        self._process: subprocess.Popen[bytes] | None = None
        self._leaving: subprocess.Popen[bytes] | None = None

    def __lt__(self, other: "ReaderProcess") -> bool:
        return self.is_staying > other.is_staying

    def start(self) -> None:
        """Have the process there before it is asked; does not wait until it is."""
        self._running()

    def ask(self, question: ReadQuestion) -> IO[bytes]:
        """The answer as JSON, in a file at its begin; the caller closes it.

        Raises ReadRefusedError; ReaderGoneError, twice gone; OSError where no file can be made.
        """
        said = pickle.dumps(question)
        try:
            return self._ask(said)
        except ReaderGoneError:  # it may have been on its way out
            return self._ask(said)

    @property
    def pid(self) -> int | None:
        """Of the process, None while there is none."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._counts.failures += self._process.returncode != 0
            self._counts.pids.discard(self._process.pid)
            self._process = None
        self._see_off()

    def _see_off(self) -> None:
        """Wait for the one that has said that it goes."""
        if self._leaving is not None:
            self._leaving.communicate()
            self._leaving = None

    def _ask(self, said: bytes) -> IO[bytes]:
        process = self._running()
        assert process.stdin is not None  # noqa: S101 (a pipe, as asked for)
        answer: IO[bytes] = SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 (the caller's)
        try:
            process.stdin.write(_FRAME.pack(_PART, len(said)) + said)
            process.stdin.flush()
            is_leaving = self._take(process, answer)
        except BaseException as error:
            answer.close()
            if isinstance(error, ReadRefusedError):
                raise
            self.close()  # half of an answer may be in the pipe
            if isinstance(error, BrokenPipeError):
                raise ReaderGoneError from None
            raise
        answer.seek(0)
        if is_leaving:
            self._see_off()
            self._counts.pids.discard(process.pid)
            self._leaving, self._process = process, None
            self._running()
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(  # noqa: S603 (our own words)
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={
                    **os.environ,
                    **_SPARING,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                },
            )
            self._counts.starts += 1
            self._counts.pids.add(self._process.pid)
        return self._process

    def _take(self, process: subprocess.Popen[bytes], answer: IO[bytes]) -> bool:
        """Write the answer; whether the process goes after it."""
        assert process.stdout is not None  # noqa: S101 (a pipe, as asked for)
        for kind, part in _frames(process.stdout):
            if kind == _PART:
                answer.write(part)
            elif kind in (_END, _LEAVING):
                return kind == _LEAVING
            else:
                raise ReadRefusedError(*pickle.loads(part))  # noqa: S301 (our own process)
        raise ReaderGoneError


def _frames(pipe: IO[bytes]) -> Iterator[tuple[bytes, bytes]]:
    while len(head := pipe.read(_FRAME.size)) == _FRAME.size:
        kind, size = _FRAME.unpack(head)
        part = pipe.read(size)
        if len(part) < size:
            return
        yield kind, part


# -- in the process itself


def _command(idle_s: float, *, is_staying: bool) -> list[str]:
    words = f"is_staying={is_staying}, idle_s={idle_s}"
    return [sys.executable, "-c", f"from {__name__} import main; main({words})"]


def main(*, is_staying: bool, idle_s: float) -> None:
    """Answer questions on standard input until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it ends it, by its input
    if os.getpriority(os.PRIO_PROCESS, 0) <= os.getpriority(os.PRIO_PROCESS, os.getppid()):
        os.nice(_NICE)
    keep_from_pandas()
    log_json_lines()
    importlib.import_module(_USUAL)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed is no answer
    has_answered = False
    while True:
        if not select.select([sys.stdin], [], [], idle_s)[0]:
            if not is_staying:
                return
            if has_answered:
                os.dup2(answers.fileno(), sys.stdout.fileno())
                os.execv(sys.executable, _command(idle_s, is_staying=is_staying))  # noqa: S606 (our own words)
            continue
        question = next(_frames(sys.stdin.buffer), None)
        if question is None:
            return
        if not _answer(pickle.loads(question[1]), answers):  # noqa: S301 (our own parent)
            return
        has_answered = True


def _most_kb() -> int:
    """The most memory that this program has held.

    Not what `getrusage` calls so where Linux tells it: that is inherited, from a parent that may
    hold a million bundles.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line)
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _answer(question: ReadQuestion, answers: IO[bytes]) -> bool:
    """Answer; whether the process stays for another question."""
    is_staying = True

    def say(kind: bytes, part: bytes = b"") -> None:
        answers.write(_FRAME.pack(kind, len(part)) + part)

    try:
        reader = TableReader(question.root, question.cluster)
        for part in write_slices(question.read(reader)):
            say(_PART, part)
        is_staying = _most_kb() <= _LARGE_KB
        say(_END if is_staying else _LEAVING)
    except ReadRefusedError as refused:
        say(_REFUSED, pickle.dumps(refused.args))
    except CommandError as error:
        logger.warning("read_refused", extra={"fields": {"error": in_one_line(error)}})
        say(_REFUSED, pickle.dumps((_UNAVAILABLE, error.what)))
    except Exception as error:
        logger.exception("read_failed")
        say(_REFUSED, pickle.dumps((500, f"{type(error).__name__}: see the log of the service")))
    answers.flush()
    return is_staying

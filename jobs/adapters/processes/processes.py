"""Child processes that never outlive their parent, and their supervisor.

A child is restarted at once, then after 1, 2, 4, ... 30 s while it keeps dying. It is ended by its
own id, never by a name. `jobs.adapters.processes.child_process` ties it to its parent.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jobs.console import CommandError


def last_lines(path: Path, count: int = 3) -> str:
    """Return the last lines of a log as `last_output`; "" without a log."""
    return last_output(path.read_text(errors="replace"), count) if path.exists() else ""


def last_output(text: str, count: int = 3) -> str:
    """Join the last `count` lines that are not blank and no Java frame by ' | '."""
    lines = [line.strip() for line in text.splitlines()]
    return " | ".join([line for line in lines if line and not line.startswith("at ")][-count:])


_CHILD_PROCESS = Path(__file__).with_name("child_process.py")
_POLL_S = 0.05
_LOG_BYTES_MAX = 20_000_000
_BACKOFF_MS_MAX = 30_000
_STEADY_MS = 60_000
_SIGNAL_CODE_BASE = 128
"""Exit codes above it stand for a signal, as in a shell."""
_SHOWN_MAX = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """Child process: its command, log, readiness check and stop.

    is_ready: polled after a start, None = ready at once.
    grace_ms: from the request to stop to a forced end.
    stop_rank: children of a lower rank are stopped, and gone, before those of a higher one.
    """

    name: str
    command: tuple[str, ...]
    log_path: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    is_ready: Callable[[], bool] | None = None
    ready_timeout_ms: int = 60_000
    grace_ms: int = 5_000
    stop_rank: int = 0


class Child:
    """One running child, in a session of its own, tied to this process."""

    def __init__(self, spec: ProcessSpec) -> None:
        """Start it; returns when its process exists."""
        self.spec = spec
        lifeline_read, self._lifeline = os.pipe()
        pid_read, pid_write = os.pipe()
        spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        if spec.log_path.exists() and spec.log_path.stat().st_size > _LOG_BYTES_MAX:
            spec.log_path.replace(spec.log_path.with_name(f"{spec.log_path.name}.1"))
        words = [str(lifeline_read), str(pid_write), str(spec.grace_ms), *spec.command]
        with spec.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 (the project's own processes)
                [sys.executable, "-I", "-S", str(_CHILD_PROCESS), *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **spec.environment},
                pass_fds=(lifeline_read, pid_write),
                start_new_session=True,
            )
        os.close(lifeline_read)
        os.close(pid_write)
        with os.fdopen(pid_read) as answer:
            self.pid = int(answer.readline() or 0)

    def exit_code(self) -> int | None:
        """None while it runs, then its code; 128 + n when signal n ended it."""
        code = self._process.poll()
        if code is not None:
            self._close_lifeline()
        return code

    def ask_to_stop(self) -> None:
        """Send SIGTERM; SIGKILL follows by itself after the spec's grace_ms."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it and all it started with SIGKILL, now, and wait until it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.exit_code() is None and self.pid:
                os.killpg(self.pid, signal.SIGKILL)
        self.wait(10_000)

    def wait(self, timeout_ms: int) -> int:
        """Wait for its end and return its code; TimeoutError when it goes on."""
        try:
            code = self._process.wait(timeout_ms / 1000)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.spec.name} still runs after {timeout_ms} ms") from None
        self._close_lifeline()
        return code

    def stop(self) -> int:
        """Ask it to stop and wait for its end; returns its code."""
        self.ask_to_stop()
        return self.wait(self.spec.grace_ms + 5_000)

    def wait_until_ready(self) -> None:
        """Return when `is_ready` does.

        Raises CommandError when it dies before or takes too long.
        """
        if self.spec.is_ready is None:
            return
        deadline_s = time.monotonic() + self.spec.ready_timeout_ms / 1000
        while not self.spec.is_ready():
            code = self.exit_code()
            if code is not None or time.monotonic() > deadline_s:
                how = (
                    "does not answer" if code is None else f"ended with code {code} while starting"
                )
                raise CommandError(
                    f"{self.spec.name} {how}",
                    why=last_lines(self.spec.log_path) or "it wrote nothing to its log",
                    next_step=f"read {self.spec.log_path}",
                )
            time.sleep(_POLL_S)

    def _close_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """Something that happened to a child, for the log and for people."""

    name: str
    what: str
    exit_code: int | None = None


def exit_message(event: ProcessEvent, log_path: Path) -> str:
    """Describe how a process ended: its signal, or its code and last output."""
    code = event.exit_code or 0
    number = -code if code < 0 else code - _SIGNAL_CODE_BASE
    if number in {one.value for one in signal.Signals}:
        return f"{event.name} was ended by {signal.Signals(number).name}"
    output = last_lines(log_path, count=1)
    return f"{event.name} died (code {code}): {output[:_SHOWN_MAX]}"


@dataclass(slots=True)
class _Supervised:
    child: Child
    started_ms: int
    restarts: int = 0
    failures: int = 0
    due_ms: int | None = None


class Supervisor:
    """Supervisor that keeps children running.

    Call `watch` several times a second.
    """

    def __init__(self, now_ms: Callable[[], int] | None = None) -> None:
        self._now_ms = now_ms or (lambda: time.monotonic_ns() // 1_000_000)
        self._children: dict[str, _Supervised] = {}

    def start(self, spec: ProcessSpec) -> None:
        """Start a child and wait until it is ready; raises CommandError if it is not."""
        if spec.name in self._children:
            raise ValueError(f"name must be new, got {spec.name!r}")
        child = Child(spec)
        self._children[spec.name] = _Supervised(child=child, started_ms=self._now_ms())
        child.wait_until_ready()

    def child(self, name: str) -> Child:
        """The child of that name as it runs now; KeyError when there is none."""
        return self._children[name].child

    def restarts(self) -> dict[str, int]:
        """Return the number of restarts of each child, by name."""
        return {name: supervised.restarts for name, supervised in sorted(self._children.items())}

    def watch(self) -> list[ProcessEvent]:
        """Restart children that are due; return deaths and restarts. Never blocks."""
        events = []
        for name, one in sorted(self._children.items()):
            now_ms, code = self._now_ms(), None
            if one.due_ms is None:
                code = one.child.exit_code()
                if code is None:
                    continue
                is_steady = now_ms - one.started_ms >= _STEADY_MS
                one.failures = 0 if is_steady else one.failures + 1
                one.due_ms = now_ms
                if one.failures > 1:
                    one.due_ms += min(1_000 << min(one.failures - 2, 10), _BACKOFF_MS_MAX)
            elif now_ms >= one.due_ms:
                one.child, one.started_ms, one.due_ms = Child(one.child.spec), self._now_ms(), None
                one.restarts += 1
            else:
                continue
            what = "restarted" if code is None else "died"
            events.append(ProcessEvent(name=name, what=what, exit_code=code))
        return events

    def begin_stop(self, *names: str) -> None:
        """Ask these to stop, without waiting.

        Call `watch` no more, and `stop_all` at the end.
        """
        for name in names:
            if name in self._children:
                self._children[name].child.ask_to_stop()

    def stop_all(self) -> None:
        """Stop every child, rank by rank; at the end none is left."""
        all_children = [one.child for one in self._children.values()]
        for rank in sorted({child.spec.stop_rank for child in all_children}):
            children = [child for child in all_children if child.spec.stop_rank == rank]
            for child in children:
                child.ask_to_stop()
            for child in children:
                try:
                    child.wait(child.spec.grace_ms + 2_000)
                except TimeoutError:  # noqa: PERF203 (each child has its own)
                    child.kill()
        self._children.clear()

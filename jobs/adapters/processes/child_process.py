"""Ties one command to the process that started it: no supervisor, no child.

The command ends when its supervisor asks (SIGTERM) or is gone for any reason: a pipe whose other
end only the supervisor holds shows that at once, on every Unix. The command runs in a session of
its own; at the end, whatever it started is ended with it. Run as a script by
`jobs.adapters.processes.processes`, never imported by it: it must start fast.

child_process.py LIFELINE_FD PID_FD GRACE_MS COMMAND [ARGUMENT ...]
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)


def main(argv: Sequence[str]) -> int:
    """Run the command; return its exit code, 128 + n when signal n ended it."""
    lifeline_fd, pid_fd, grace_ms = (int(word) for word in argv[:3])
    wake_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    signal.set_wakeup_fd(write_fd)
    for number in _SIGNALS:
        signal.signal(number, lambda *_: None)
    pid = _spawn(argv[3:])
    os.write(pid_fd, b"%d\n" % pid)
    os.close(pid_fd)
    code = _watch(pid, lifeline_fd, wake_fd, grace_ms)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)  # the processes that it left behind
    return code


def _spawn(command: Sequence[str]) -> int:
    # Blocked until the child has its own handlers: a request to stop that comes early must wait.
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        return pid
    try:
        os.setsid()
        if sys.platform == "linux":  # in case this process itself is killed
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        os.execvp(command[0], list(command))  # noqa: S606 (no shell is wanted)
    except OSError as cause:
        os.write(2, f"{command[0]}: {cause}\n".encode())
    os._exit(127)


def _watch(pid: int, lifeline_fd: int, wake_fd: int, grace_ms: int) -> int:
    deadline_s: float | None = None
    poll = select.poll()  # select() takes no descriptor from 1,024 on
    poll.register(wake_fd, select.POLLIN)
    poll.register(lifeline_fd, select.POLLIN)
    while True:
        code = _exit_code(pid)
        if code is not None:
            return code
        left_s = None if deadline_s is None else max(0.0, deadline_s - time.monotonic())
        ready = {fd for fd, _ in poll.poll(left_s and left_s * 1_000)}
        signals = os.read(wake_fd, 64) if wake_fd in ready else b""
        is_stop_requested = signal.SIGTERM in signals or signal.SIGINT in signals
        if deadline_s is None and (is_stop_requested or lifeline_fd in ready):
            deadline_s = time.monotonic() + grace_ms / 1000
            poll.unregister(lifeline_fd)
            _send(pid, signal.SIGTERM)
        elif deadline_s is not None and time.monotonic() >= deadline_s:
            _send(-pid, signal.SIGKILL)
            deadline_s = time.monotonic() + 1


def _exit_code(pid: int) -> int | None:
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        return None
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

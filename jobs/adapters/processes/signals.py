"""Action on signals in a thread of its own, which may take locks.

Python runs a handler in the main thread, between two steps of its work. A handler that takes a lock
that the main thread holds (`Event.set` during `Event.wait`) deadlocks. See
signal.set_wakeup_fd in Python's library reference.
"""

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from jobs.console import CommandError, Exit, note

STOPPING = (signal.SIGTERM, signal.SIGINT)


def on_signals(
    act: Callable[[], object],
    numbers: Sequence[signal.Signals] = STOPPING,
    *,
    handler: Callable[..., object] = lambda *_: None,
) -> Callable[[], None]:
    """Call `act` at each of these signals; return the function that stops it.

    Main thread only. handler: also runs in the main thread; may raise, must take no lock. One call
    is in force at a time; a forked process gets no signals this way.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    before_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number in numbers}

    def listen() -> None:
        while received := os.read(read_fd, 1):
            if received[0] in before:
                act()
        os.close(read_fd)

    def end() -> None:
        for number, previous in before.items():
            signal.signal(number, previous)
        signal.set_wakeup_fd(before_fd)
        os.close(write_fd)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    return end


os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))


_STACKS_S = 2.0  # for a JVM to write them


@dataclass(slots=True)
class Shutdown:
    """Orderly end of a process, within `limit_s` seconds of the request.

    limit_s: longer than an orderly end takes at worst. children: ids of processes that end with it.
    is_done: all that matters is written, so that even a forced end is no failure. has_begun: the
    work itself has begun. Before that, an error after the request to end is no failure. An
    interrupted start often reports what ends beside it (Kafka, a network).
    """

    limit_s: float
    asked: threading.Event = field(default_factory=threading.Event)
    children: list[int] = field(default_factory=list)
    is_done: bool = False
    has_begun: bool = False
    _failure: str = ""

    def listen(self) -> "Shutdown":
        """Let SIGTERM and SIGINT request the end. Main thread only."""
        on_signals(self.ask)
        return self

    def ask(self) -> None:
        """Ask the process to end, from any thread but in no signal handler.

        Later calls change nothing.
        """
        if not self.asked.is_set():
            self.asked.set()
            threading.Thread(target=self._force, name="ordered-end", daemon=True).start()

    @contextlib.contextmanager
    def with_work(self) -> Iterator[None]:
        """Run the work itself; when it ends or raises, the shutdown begins.

        Enter it last, so that all clean-up has the time limit. If the clean-up hangs, the error
        is shown before the forced end.
        """
        try:
            yield
        except Exception as error:
            self._failure = self._failure or str(error)
            self.is_done |= self.asked.is_set() and not self.has_begun
            raise
        finally:
            self.ask()

    def _force(self) -> None:
        time.sleep(self.limit_s)
        if self._failure:
            note(*self._failure.split("\n"))
        lost = "nothing is lost" if self.is_done else "its last batch may be done again"
        late = CommandError(
            f"the process was to end and had not after {self.limit_s:g} s: it goes by force",
            why="something that it waits for hangs; what each thread was doing follows",
            next_step=f"start it again, {lost}; report the stacks if it happens often",
        )
        note(*late.lines())
        faulthandler.dump_traceback(file=sys.stderr)
        for number, then_s in ((signal.SIGQUIT, _STACKS_S), (signal.SIGKILL, 0.0)):
            for child in self.children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, number)
            time.sleep(then_s)
        os._exit(Exit.DONE if self.is_done else Exit.FAILED)

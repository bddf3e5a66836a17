"""Acts on signals in a thread of its own, where it may take locks.

Python runs a handler in the main thread, between two steps of whatever that does: where it takes a
lock that the main thread holds (`Event.set` beside `Event.wait`), that waits for itself for ever.
Python's library reference on signal.set_wakeup_fd.
"""

import os
import signal
import threading
from collections.abc import Callable, Sequence

STOPPING = (signal.SIGTERM, signal.SIGINT)


def hear(
    act: Callable[[], object],
    numbers: Sequence[signal.Signals] = STOPPING,
    *,
    handler: Callable[..., object] = lambda *_: None,
) -> Callable[[], None]:
    """Have `act` called at each of these signals; returns what ends that. Main thread only.

    handler: what the main thread does besides; it may raise, and takes no lock. A process hears by
    one of these at a time; one that is forked from it hears nothing.
    """
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    before_fd = signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    before = {number: signal.signal(number, handler) for number in numbers}

    def listen() -> None:
        while told := os.read(read_fd, 1):
            if told[0] in before:
                act()
        os.close(read_fd)

    def end() -> None:
        for number, its in before.items():
            signal.signal(number, its)
        signal.set_wakeup_fd(before_fd)
        os.close(write_fd)

    threading.Thread(target=listen, name="signals", daemon=True).start()
    return end


os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))

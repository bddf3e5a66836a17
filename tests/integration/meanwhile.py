"""Something done again and again beside a test's own steps."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(call: Callable[[], None], pause_s: float) -> Iterator[None]:
    """Call it in a thread until the block ends, and once at least; its error fails the block."""
    done, errors = threading.Event(), list[Exception]()

    def work() -> None:
        try:
            call()
            while not done.wait(pause_s):
                call()
        except Exception as error:  # noqa: BLE001 (raised below, in the thread that waits)
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    for error in errors:
        raise error

"""The job's state folder: one process at a time may use it.

The lock is the kernel's, so it ends with the process that holds it; the file has that process's id.
"""

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jobs.console import CommandError, cause_words

_AGAIN_S = 0.02


@contextmanager
def hold_folder(state_dir: Path, *, until: threading.Event | None = None) -> Iterator[bool]:
    """Hold the folder's lock. Raises CommandError when another process has it.

    until: wait for the lock instead, and give up when this is set: then the answer is False.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True)
        file = (state_dir / "lock").open("a")
    except OSError as error:
        raise CommandError(
            f"the lock of the state folder can't be opened: {state_dir / 'lock'}",
            why=cause_words(error),
            next_step="give this user the right to write there, or move what is in the way; what"
            " the lock file holds does not matter",
        ) from error
    with file as lock:
        is_held = _try(lock)
        while until is not None and not is_held and not until.wait(_AGAIN_S):
            is_held = _try(lock)
        if until is None and not is_held:
            raise CommandError(
                f"the state folder {state_dir} is in use",
                why="another balance_cluster job of this machine holds its lock",
                next_step="stop that job first, or give this one another --state-dir",
            )
        yield is_held


def _try(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return True

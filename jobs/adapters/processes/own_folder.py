"""Folders of one process, for what it can lose: gone with it, however it ends.

Decides which of them nobody needs any more: beside its own folder a process has a file that it
locks for as long as it lives, so the next one of the same kind removes those that can be locked.
Java and Spark clean up only where they end in order, which takes longer than a supervisor waits,
and Spark may write into a folder a minute after it has been removed.
"""

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TextIO

_LOCK = ".lock"


def own_folder(kind: str, parent: Path | None = None) -> Path:
    """A new folder, parent/KIND-..., removed when this process ends; its dead siblings go at once.

    Whoever needs it no longer may remove it before. parent: made if need be; None = the system's
    folder for temporary files. Raises OSError.
    """
    above = parent or Path(tempfile.gettempdir())
    above.mkdir(parents=True, exist_ok=True)
    for sibling in sorted(above.glob(f"{kind}-*{_LOCK}")):
        _remove_dead(sibling)
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f"{kind}-", suffix=_LOCK, dir=above)
        lock = os.fdopen(descriptor, "w", encoding="utf-8")  # for as long as we live
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(name).exists():  # or a sibling was quicker, and took it for a dead one's
            folder = Path(name).with_suffix("")
            folder.mkdir(mode=0o700)
            atexit.register(_remove, lock, Path(name))
            return folder
        lock.close()


def _remove_dead(path: Path) -> None:
    """Remove the folder of this lock unless its process lives."""
    try:
        with path.open("r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(lock, path)
    except OSError:
        return


def _remove(lock: TextIO, path: Path) -> None:
    """Remove the folder and then its lock; the lock stays where the folder can't be removed."""
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        with contextlib.suppress(OSError):
            path.unlink()
    lock.close()

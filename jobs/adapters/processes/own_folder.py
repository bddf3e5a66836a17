"""Folders of one process, for what it can lose: gone with it, however it ends.

Decides which of them nobody needs any more: a process holds a lock on its own for as long as it
lives, so the next one of the same kind removes those that can be locked. Java and Spark clean up
only where they end in order, which takes longer than a supervisor waits. Source: ours.
"""

import atexit
import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path
from typing import TextIO

_LOCK = "lock"


def own_folder(kind: str, parent: Path | None = None) -> Path:
    """A new folder, parent/KIND-..., removed when this process ends; its dead siblings go at once.

    parent: made if need be; None = the system's folder for temporary files. Raises OSError.
    """
    above = parent or Path(tempfile.gettempdir())
    above.mkdir(parents=True, exist_ok=True)
    for sibling in sorted(above.glob(f"{kind}-*")):
        _remove_dead(sibling)
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=above))
        lock = (folder / _LOCK).open("w", encoding="utf-8")
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / _LOCK).exists():  # or a sibling was quicker, and took it for a dead one's
            atexit.register(_end, folder, lock)
            return folder
        lock.close()


def remove_own_folder(folder: Path) -> bool:
    """Remove it before its process ends; whether it is gone: others may be writing there yet.

    The lock goes last: what is left without one nobody would ever remove.
    """
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != _LOCK:
            path.unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] == [_LOCK]:
        shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def _end(folder: Path, lock: TextIO) -> None:
    with contextlib.suppress(OSError):
        remove_own_folder(folder)
    lock.close()


def _remove_dead(folder: Path) -> None:
    """Remove it unless its process lives, or is just making it, or it is somebody else's."""
    try:
        with (folder / _LOCK).open("r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_own_folder(folder)
    except OSError:
        return

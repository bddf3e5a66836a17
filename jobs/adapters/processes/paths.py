"""Files and folders of the process: shipped, private, and digests of code.

Standard library only: set-up imports it before anything else is importable.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TextIO

CONF = (Path(__file__).parents[2] / "conf").resolve()
"""In a checkout conf/, to which jobs/conf leads; in a package jobs/conf itself."""


def shipped(path: Path) -> Path:
    """Return the path itself; for a missing `conf/...` the shipped file."""
    shipped_path = CONF.parent / path
    is_ours = path.parts[:1] == (CONF.name,) and not path.exists() and shipped_path.exists()
    return shipped_path if is_ours else path


_LOCK = ".lock"


@contextlib.contextmanager
def locked(path: Path, refusal: Exception) -> Iterator[None]:
    """Hold a lock file; raises the refusal while another process does."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise refusal from None
        yield


def private_directory(kind: str, parent: Path | None = None) -> Path:
    """Return a new folder, parent/KIND-..., removed when this process ends.

    The folders of dead processes go at once. The caller may remove its own earlier. parent: made if
    need be; None = the system's folder for temporary files. Raises OSError.
    """
    above = parent or Path(tempfile.gettempdir())
    above.mkdir(parents=True, exist_ok=True)
    for sibling in sorted(above.glob(f"{kind}-*{_LOCK}")):
        with contextlib.suppress(OSError), sibling.open("r+", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # its process lives no more
            _remove(lock, sibling)
    while True:
        descriptor, name = tempfile.mkstemp(prefix=f"{kind}-", suffix=_LOCK, dir=above)
        lock = os.fdopen(descriptor, "w", encoding="utf-8")  # for as long as we live
        fcntl.flock(lock, fcntl.LOCK_EX)
        if Path(name).exists():  # else a sibling has removed it as a dead process's
            folder = Path(name).with_suffix("")
            folder.mkdir(mode=0o700)
            atexit.register(_remove, lock, Path(name))
            return folder
        lock.close()


def _remove(lock: TextIO, path: Path) -> None:
    """Remove the folder and then its lock.

    The lock stays where the folder can't be removed.
    """
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)
    if not folder.exists():
        with contextlib.suppress(OSError):
            path.unlink()
    lock.close()


def code_digest(files: Iterable[tuple[str, Path]]) -> str:
    """Return the sha256, in hexadecimal, of files under these names, in order."""
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def python_files(root: Path) -> Iterator[tuple[str, Path]]:
    """Every Python file below a folder, under its path from there, in order."""
    for path in sorted(root.rglob("*.py")):
        yield path.relative_to(root).as_posix(), path

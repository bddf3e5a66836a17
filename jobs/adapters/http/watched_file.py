"""A value made from files that is made again when they change.

Decides when to look: at most once a second. A change that can't be used is logged once and the last
good value kept, so that a half-written file or a slip takes nothing down. Source: ours.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

Value = TypeVar("Value")
_LOOK_S = 1.0


class WatchedFile(Generic[Value]):
    """`value` is what `make` gave for the newest usable content of the files.

    make: called once at the start, where its errors are the caller's, and after each change, where
    OSError and ValueError keep the last value. look_s: seconds between two looks at the files.
    """

    def __init__(
        self, paths: tuple[str, ...], make: Callable[[], Value], *, look_s: float = _LOOK_S
    ) -> None:
        self._paths = tuple(Path(path) for path in paths if path)
        self._make = make
        self._look_s = look_s
        self._marks = self._mark()
        self._value = make()
        self._looked_s = time.monotonic()
        self.failures = 0

    @property
    def value(self) -> Value:
        """The newest usable value."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= self._look_s:
            self._looked_s = now_s
            self.look()
        return self._value

    def look(self) -> None:
        """Look at the files now, and take over what changed."""
        marks = self._mark()
        if marks == self._marks:
            return
        self._marks = marks
        names = [str(path) for path in self._paths]
        try:
            self._value = self._make()
        except (OSError, ValueError) as error:
            self.failures += 1
            fields = {"files": names, "error": f"{type(error).__name__}: {error}"}
            logger.warning("changed_files_not_used", extra={"fields": fields})
        else:
            logger.info("changed_files_used", extra={"fields": {"files": names}})

    def _mark(self) -> tuple[tuple[int, int, int], ...]:
        return tuple(_mark_of(path) for path in self._paths)


def _mark_of(path: Path) -> tuple[int, int, int]:
    """What changes with a file's content; a link that is turned to another file counts."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0, 0)
    return (found.st_mtime_ns, found.st_size, found.st_ino)

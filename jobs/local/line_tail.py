"""Reads the JSON lines that another process appends to a file.

A line counts when its end is written; the file may not be there yet, may be replaced by a new one,
and may hold a line cut off by a crash.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class LineTail:
    """The lines that are appended from now on, or from the file's beginning."""

    def __init__(self, path: Path, *, from_end: bool = False) -> None:
        """from_end: what is in the file already is skipped."""
        self._path = path
        self._offset = path.stat().st_size if from_end and path.exists() else 0
        self._rest = b""
        self.unreadable = 0

    def read(self) -> list[Mapping[str, Any]]:
        """The objects of the lines that came since the last call; others are counted."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            if file.seek(0, 2) < self._offset:  # a new file took its place
                self._offset, self._rest = 0, b""
            file.seek(self._offset)
            text = file.read()
        self._offset += len(text)
        *lines, self._rest = (self._rest + text).split(b"\n")
        return [found for line in lines if line and (found := self._parse(line)) is not None]

    def _parse(self, line: bytes) -> Mapping[str, Any] | None:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, Mapping):
            return found
        self.unreadable += 1
        return None

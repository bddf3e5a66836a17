"""Events of the fleet, as JSON lines with wall-clock times.

They are the judge's source for *served again*: `opened`, `closed` (bundle, version), `broker
alive`, `broker killed` and so on. A new process appends.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any


class EventLog:
    """Appends one line an event; every line is in the file when `note` returns."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", buffering=1, encoding="utf-8")

    def note(self, event: Mapping[str, Any]) -> None:
        """Write one event."""
        self._file.write(json.dumps(event, separators=(",", ":")) + "\n")

    def __enter__(self) -> "EventLog":  # noqa: PYI034 (Self is 3.11's)
        """Itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._file.close()

"""What `fenced_service` notes of its bundles, and how a test holds up one of its calls.

Times are the machine's monotonic clock, the same in every process of it.
"""

import json
import threading
import time
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

from lbcore.model.bundles import Bundle
from tests.support.processes.programs import json_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What happened: used, refused (by the store), not_served, opened, closed, or held.

    began_ns: when the permit was given; at_ns: when it was over.
    """

    what: str
    bundle: str
    token: int
    began_ns: int
    at_ns: int


class Notes:
    """A file that one process writes and others read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()

    def write(self, what: str, bundle: str, token: int, began_ns: int = 0) -> None:
        at_ns = time.monotonic_ns()
        line = {"what": what, "bundle": bundle, "token": token, "at_ns": at_ns}
        with self._lock, self._path.open("a") as file:
            file.write(json.dumps({**line, "began_ns": began_ns or at_ns}) + "\n")

    def read(self) -> list[Noted]:
        return [Noted(**line) for line in json_lines(self._path)]


class Hold:
    """A file that names a bundle; while it is there, a write to the bundle hangs."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def put(self, bundle: str) -> None:
        self._path.write_text(bundle)

    def lift(self) -> None:
        self._path.unlink()

    def is_on(self, bundle: str) -> bool:
        try:
            return self._path.read_text() == bundle
        except FileNotFoundError:
            return False


@cache
def topic_of(bundle: Bundle) -> str:
    names = (f"persistent://{bundle.namespace}/t-{number}" for number in count())
    return next(name for name in names if bundle.includes_topic(name))

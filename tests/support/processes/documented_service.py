"""The service that docs/agent.md shows: its two files, and the store that its brokers share."""

import shutil
import sqlite3
from pathlib import Path

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "docs" / "examples"
MODULES = ("word_store.py", "word_broker.py")


def write_service(folder: Path) -> None:
    """Copy the example's modules into the folder."""
    for name in MODULES:
        shutil.copyfile(EXAMPLES / name, folder / name)


class StoreFile:
    """The shared store, looked at and changed behind the service's back."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def claims(self) -> dict[tuple[int, int], int]:
        """Range of hashes, the end excluded → the token that it was claimed with."""
        rows = self._all("select lower, ends, token from claims") if self.path.exists() else []
        return {(lower, ends): token for lower, ends, token in rows}

    def claim(self, namespace: str, token: int) -> None:
        """As a newer owner of the whole namespace would."""
        with sqlite3.connect(self.path, timeout=30) as database:
            values = (namespace, 0, 1 << 32, token)
            database.execute("insert into claims values (?, ?, ?, ?)", values)

    def lines(self) -> list[tuple[str, str]]:
        """All topics with their lines, in the order in which they were written."""
        return [(topic, line) for topic, line in self._all("select topic, line from lines")]

    def _all(self, query: str) -> list[tuple[object, ...]]:
        with sqlite3.connect(self.path, timeout=30) as database:
            return database.execute(query).fetchall()

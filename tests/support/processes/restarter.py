"""Restarts brokers of a test when a shell asks: the command that a rolling restart is given.

The shell makes a file of the broker's name and waits until it is gone; a thread here restarts the
broker, and removes it.
"""

import threading
from collections.abc import Callable
from pathlib import Path

_POLL_S = 0.1


class Restarter:
    """Begins with its making, ends with `stop`."""

    def __init__(self, folder: Path, restart: Callable[[str], None]) -> None:
        """restart: returns when the broker of that name runs again."""
        self._folder, self._restart = folder, restart
        self._end = threading.Event()
        self.restarted: list[str] = []
        folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self._work, daemon=True, name="restarter")
        self._thread.start()

    @property
    def command(self) -> str:
        file = f"{self._folder}/{{broker}}"
        return f"touch {file}; while [ -e {file} ]; do sleep 0.2; done; ! [ -e {file}.failed ]"

    def stop(self) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._end.wait(_POLL_S):
            for path in sorted(self._folder.glob("*:*")):
                if path.suffix == ".failed":
                    continue
                try:
                    self._restart(path.name)
                    self.restarted.append(path.name)
                except Exception:  # noqa: BLE001 the shell shall see it
                    path.with_name(f"{path.name}.failed").touch()
                path.unlink()

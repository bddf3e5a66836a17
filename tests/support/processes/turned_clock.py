"""The wall's clock of a process of ours, JVMs included, as somebody's hand would set it.

Debian's libfaketime stops a JVM nearly whole (Kafka's controller took 2 to 3 s an event and never
came up, also with monotonic clocks left alone); `turned_clock.c` turns the wall's clock only.
"""

import os
import shutil
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

COMPILER = shutil.which("cc")
_SOURCE = Path(__file__).with_suffix(".c")
_NS = 1_000_000_000


class TurnedClock:
    """A clock that processes with its `environment` live by, right until it is turned."""

    def __init__(self, folder: Path) -> None:
        """Build the library into the folder, which is made."""
        folder.mkdir(parents=True)
        self._path, library = folder / "turned", folder / "turned_clock.so"
        self._path.write_bytes(struct.pack("=q", 0))
        words = [str(COMPILER), "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(words, check=True)
        self.environment: Mapping[str, str] = {
            "LD_PRELOAD": str(library),
            "TURNED_CLOCK": str(self._path),
        }

    def turn(self, ahead_s: int) -> None:
        """From now on it is ahead by so much, right with 0."""
        file = os.open(self._path, os.O_WRONLY)  # never shortened: processes have it mapped
        try:
            os.pwrite(file, struct.pack("=q", ahead_s * _NS), 0)
        finally:
            os.close(file)

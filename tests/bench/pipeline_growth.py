"""What of a running pipeline may grow: looked at twice a minute, and drawn.

Memory, open files, what the state and the tables' logs hold on disk, how long a log takes to list,
and, from the job's own lines, what its batches took.
"""

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import psutil

from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS

EVERY_S = 30.0
_MIB = 2**20
_WIDTH, _HEIGHT, _LEFT, _TOP = 560, 90, 60, 40

Sample = Mapping[str, float]


class GrowthWatch(threading.Thread):
    """Samples until `end`. pid: finds the job's process; folders: of its state, and the tables."""

    def __init__(self, pid: Callable[[], int], state: Path, tables: Path) -> None:
        super().__init__(daemon=True)
        self._pid, self._state, self._tables = pid, state, tables
        self._ended = threading.Event()
        self.samples: list[Sample] = []

    def run(self) -> None:
        """Until `end`."""
        while not self._ended.is_set():
            self.samples.append(self._look())
            self._ended.wait(EVERY_S)

    def end(self) -> list[Sample]:
        """Look no more; what was seen."""
        self._ended.set()
        self.join(timeout=30)
        return self.samples

    def _look(self) -> Sample:
        logs = {
            name: self._tables / name / "_delta_log"
            for name in (OWNERSHIP_EVENTS.name, BUNDLE_OWNERSHIP.name)
        }
        started_s = time.perf_counter()
        files = {name: len(os.listdir(log)) for name, log in logs.items()}  # noqa: PTH208 (its time is measured)
        listing_ms = (time.perf_counter() - started_s) * 1e3
        return {
            "at_s": time.time(),
            **_processes(self._pid()),
            "state on disk (MiB)": _size(self._state) / _MIB,
            "tables on disk (MiB)": _size(self._tables) / _MIB,
            **{f"files in the log of {name}": float(count) for name, count in files.items()},
            "listing these logs (ms)": listing_ms,
        }


def _processes(pid: int) -> dict[str, float]:
    """Memory and open files of the driver's Python, the JVM and the workers."""
    driver = psutil.Process(pid)
    found = {"driver's Python (MiB)": 0.0, "JVM (MiB)": 0.0, "workers (MiB)": 0.0, "open files": 0}
    for process in (driver, *driver.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            kind = "JVM (MiB)" if process.name() == "java" else "workers (MiB)"
            name = "driver's Python (MiB)" if process.pid == pid else kind
            found[name] += process.memory_info().rss / _MIB
            found["open files"] += process.num_fds()
    return found


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # it has been cleaned away meanwhile
            total += path.stat().st_size
    return total


def by_minute(samples: Sequence[Sample], batches: Sequence[Mapping[str, Any]]) -> list[Sample]:
    """A row a minute: medians of the samples and of the batches' times in it; `minute` from 0."""
    began_s = samples[0]["at_s"]
    rows: dict[int, dict[str, list[float]]] = {}
    for sample in samples:
        row = rows.setdefault(int((sample["at_s"] - began_s) // 60), {})
        for name, value in sample.items():
            if name != "at_s":
                row.setdefault(name, []).append(value)
    for batch in batches:
        at = int((batch["now_ms"] / 1e3 - began_s) // 60)
        if at in rows:
            took = float(batch["logged_at_ms"] - batch["now_ms"])
            rows[at].setdefault("batch (ms)", []).append(took)
    return [
        {"minute": minute, **{k: round(statistics.median(v), 2) for k, v in row.items()}}
        for minute, row in sorted(rows.items())
    ]


def grown(rows: Sequence[Sample]) -> dict[str, list[float]]:
    """Of each column its median in the second to fifth minute, and in the last four."""
    early, late = rows[1:5], rows[-4:]
    names = [name for name in rows[-1] if name != "minute"]
    return {name: [_median(early, name), _median(late, name)] for name in names}


def _median(rows: Sequence[Sample], name: str) -> float:
    values = [row[name] for row in rows if name in row]
    return round(statistics.median(values), 2) if values else 0.0


def curves(path: Path, rows: Sequence[Sample]) -> None:
    """Every column over the minutes, each from zero, in one SVG file."""
    names = sorted({name for row in rows for name in row} - {"minute"})
    width, height = _LEFT + _WIDTH + 40, (_HEIGHT + _TOP) * len(names) + 20
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
    ]
    for number, name in enumerate(names):
        lines += _curve(number * (_HEIGHT + _TOP) + _TOP, name, rows)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


def _curve(top: int, name: str, rows: Sequence[Sample]) -> list[str]:
    known = [(row["minute"], row[name]) for row in rows if name in row]
    most = max(value for _, value in known) or 1.0
    last = max(1.0, float(rows[-1]["minute"]))
    points = " ".join(
        f"{_LEFT + _WIDTH * minute / last:.1f},{top + _HEIGHT * (1 - value / most):.1f}"
        for minute, value in known
    )
    base = top + _HEIGHT
    return [
        f'<text x="{_LEFT}" y="{top - 8}" font-weight="bold">{escape(name)}</text>',
        f'<line x1="{_LEFT}" y1="{base}" x2="{_LEFT + _WIDTH}" y2="{base}" stroke="#999"/>',
        f'<text x="{_LEFT - 6}" y="{top + 10}" text-anchor="end">{most:g}</text>',
        f'<text x="{_LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{_LEFT + _WIDTH}" y="{base + 14}" text-anchor="end">minute {last:g}</text>',
        f'<polyline points="{points}" fill="none" stroke="#20568f" stroke-width="1.5"/>',
    ]

"""Figures of a bench of the pipeline, from the lines that the job and its operators log.

A cycle's time is from the batch's timestamp, when Spark has settled what it reads, to the last
commit of its tables; and from when all that was read from Kafka and the first scorer begins.
"""

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from lbcore.model.tables import BUNDLE_OWNERSHIP, OWNERSHIP_EVENTS

Line = Mapping[str, Any]

_SPARK = {
    "latestOffset": "Kafka: what is new",
    "queryPlanning": "Spark: planning",
    "walCommit": "Spark: write-ahead log",
    "commitOffsets": "Spark: commit",
}


def durable_ms(batch: Line) -> int:
    """When the batch's tables were committed, on the wall clock."""
    return int(batch["logged_at_ms"] - batch["parts"]["kafka_ms"])


def cycles(batches: Sequence[Line]) -> list[int]:
    """What each batch with a decision cycle took until it was durable, in ms."""
    pairs = pairwise(batches)
    return [durable_ms(b) - b["now_ms"] for a, b in pairs if b["cycle"] != a["cycle"]]


def cycles_read(batches: Sequence[Line], steps: Sequence[Line], at_least: int = 0) -> list[int]:
    """What each batch with a decision cycle took since its records were read, in ms.

    at_least: batches that took fewer messages are left out.
    """
    read_ms = _read_ms(steps)
    pairs = [
        (a, b)
        for a, b in pairwise(batches)
        if b["now_ms"] in read_ms and b["counts"].get("accepted", 0) >= at_least
    ]
    return [durable_ms(b) - read_ms[b["now_ms"]] for a, b in pairs if b["cycle"] != a["cycle"]]


def since_read(batch: Line, steps: Sequence[Line]) -> int:
    """What a batch took since its records were read, in ms."""
    return durable_ms(batch) - _read_ms(steps)[batch["now_ms"]]


def reassigned(batch: Line) -> int:
    """The bundles that a batch gave new owners because theirs were dead."""
    return sum(batch["counts"].get(f"repair:{who}_dead", 0) for who in ("owner", "destination"))


def _read_ms(steps: Sequence[Line]) -> dict[int, int]:
    """A batch's timestamp → when its first scorer began, in ms."""
    read_ms: dict[int, int] = {}
    for step in steps:
        if step["operator"] == "scorer":
            began_ms = step["began_ms"]
            read_ms[step["now_ms"]] = min(began_ms, read_ms.get(step["now_ms"], began_ms))
    return read_ms


def percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 (nearest rank) under a name with a place for which; none of no values."""
    ordered = sorted(values)
    return {
        name.format(f"p{percent}"): ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
        for percent in (50, 95, 99)
        if ordered
    }


def visible(batches: Sequence[Line], seen_ms: Mapping[int, int]) -> dict[str, float]:
    """From a decision to the lookup that knows it, and from a report to the score that shows it.

    A decision counts from when the sink has it. A report waits for its batch; reports are taken to
    come evenly between the timestamps of two batches.
    """
    decided = {b["batch_id"]: durable_ms(b) - b["parts"]["delta_ms"] for b in batches}
    to_lookup = [at - decided[batch] for batch, at in seen_ms.items() if batch in decided]
    to_score = [
        b["logged_at_ms"] - (a["now_ms"] + (b["now_ms"] - a["now_ms"]) * tenth / 10)
        for a, b in pairwise(batches)
        for tenth in range(11)
    ]
    return {
        **percentiles("decision → lookup visible {} (ms)", to_lookup),
        **percentiles("report → score visible {} (ms)", to_score),
    }


def cpu_shares(
    before: Mapping[str, float], after: Mapping[str, float], took_s: float, batches: int
) -> dict[str, dict[str, float]]:
    """By process: percent of one core, and CPU ms a batch."""
    spent = {name: after[name] - before.get(name, 0.0) for name in sorted(after)}
    return {
        name: {
            "percent of a core": round(100 * cpu_s / took_s, 1),
            "ms a batch": round(1e3 * cpu_s / max(1, batches)),
        }
        for name, cpu_s in spent.items()
    }


def parts(
    batches: Sequence[Line], lines: Sequence[Line], steps: Sequence[Line], since_s: float
) -> dict[str, dict[str, float]]:
    """Medians a batch in ms: wall by part, with the CPU of what the Python workers do.

    Parts of the operators are sums over their tasks, which may run side by side.
    """
    found = {
        "both operators, with fetch": _wall([b["parts"]["operators_ms"] for b in batches]),
        "Delta": _wall([b["parts"]["delta_ms"] for b in batches]),
        "Kafka out": _wall([b["parts"]["kafka_ms"] for b in batches]),
    }
    tables = sorted({name for batch in batches for name in batch.get("tables_ms", {})})
    for name in tables:
        values = [b["tables_ms"][name] for b in batches if name in b.get("tables_ms", {})]
        found[f"Delta: {name}, when written"] = _wall(values)
    progress = [
        line
        for line in lines
        if line.get("event") == "progress" and line["logged_at_ms"] >= since_s * 1e3
    ]
    for key, name in _SPARK.items():
        found[name] = _wall([line["spark_ms"].get(key, 0) for line in progress])
    found["whole batch"] = _wall([line["spark_ms"]["triggerExecution"] for line in progress])
    for operator in ("scorer", "balancer"):
        found |= _steps(operator, [step for step in steps if step["operator"] == operator])
    return found


def _steps(operator: str, steps: Sequence[Line]) -> dict[str, dict[str, float]]:
    by_batch: dict[int, dict[str, list[float]]] = {}
    for step in steps:
        sums = by_batch.setdefault(step["now_ms"], {})
        for name, (wall, cpu) in step["parts"].items():
            total = sums.setdefault(name, [0.0, 0.0])
            total[0], total[1] = total[0] + wall, total[1] + cpu
    names = sorted({name for sums in by_batch.values() for name in sums})
    return {
        f"{operator}: {name}": {
            "ms": round(statistics.median(s.get(name, (0, 0))[0] for s in by_batch.values()), 1),
            "cpu_ms": round(
                statistics.median(s.get(name, (0, 0))[1] for s in by_batch.values()), 1
            ),
            "most_ms": round(max(s.get(name, (0, 0))[0] for s in by_batch.values()), 1),
        }
        for name in names
    }


def _wall(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"ms": 0.0, "most_ms": 0.0}
    return {"ms": round(statistics.median(values), 1), "most_ms": round(max(values), 1)}


EVERY_S = 30.0
_MIB = 2**20
_C_WIDTH, _C_HEIGHT, _C_LEFT, _C_TOP = 560, 90, 60, 40

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
    width, height = _C_LEFT + _C_WIDTH + 40, (_C_HEIGHT + _C_TOP) * len(names) + 20
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
    ]
    for number, name in enumerate(names):
        lines += _curve(number * (_C_HEIGHT + _C_TOP) + _C_TOP, name, rows)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


def _curve(top: int, name: str, rows: Sequence[Sample]) -> list[str]:
    known = [(row["minute"], row[name]) for row in rows if name in row]
    most = max(value for _, value in known) or 1.0
    last = max(1.0, float(rows[-1]["minute"]))
    points = " ".join(
        f"{_C_LEFT + _C_WIDTH * minute / last:.1f},{top + _C_HEIGHT * (1 - value / most):.1f}"
        for minute, value in known
    )
    base = top + _C_HEIGHT
    return [
        f'<text x="{_C_LEFT}" y="{top - 8}" font-weight="bold">{escape(name)}</text>',
        f'<line x1="{_C_LEFT}" y1="{base}" x2="{_C_LEFT + _C_WIDTH}" y2="{base}" stroke="#999"/>',
        f'<text x="{_C_LEFT - 6}" y="{top + 10}" text-anchor="end">{most:g}</text>',
        f'<text x="{_C_LEFT - 6}" y="{base}" text-anchor="end">0</text>',
        f'<text x="{_C_LEFT + _C_WIDTH}" y="{base + 14}" text-anchor="end">minute {last:g}</text>',
        f'<polyline points="{points}" fill="none" stroke="#20568f" stroke-width="1.5"/>',
    ]


_ROW, _LEFT, _WIDTH, _RIGHT = 18, 300, 560, 160
_WALL, _CPU = "#8fb3d9", "#20568f"


def bars(path: Path, parts: Mapping[str, Mapping[str, float]]) -> None:
    """A bar a part: its median wall time in ms, and over it, where known, its CPU time.

    parts: name → `ms`, and maybe `cpu_ms`. Parts below 0.5 ms are left out.
    """
    shown = {name: part for name, part in parts.items() if part["ms"] >= 0.5}
    most = max((part["ms"] for part in shown.values()), default=1.0)
    height = _ROW * (len(shown) + 2)
    width = _LEFT + _WIDTH + _RIGHT
    size = f'width="{width}" height="{height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        f'<rect {size} fill="white"/>',
        '<text x="8" y="14">ms a batch, median: wall (light), CPU (dark) where it is known</text>',
    ]
    for row, (name, part) in enumerate(shown.items(), start=1):
        lines += _bar(row, name, part, _WIDTH / most)
    path.write_text("\n".join([*lines, "</svg>"]) + "\n")


def _bar(row: int, name: str, part: Mapping[str, float], scale: float) -> list[str]:
    top = row * _ROW
    cpu = part.get("cpu_ms", 0.0)
    label = f"{part['ms']:g}" + (f" (CPU {cpu:g})" if cpu else "")
    long, short = part["ms"] * scale, cpu * scale
    return [
        f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
        f'<rect x="{_LEFT}" y="{top + 3}" width="{long:.1f}" height="12" fill="{_WALL}"/>',
        f'<rect x="{_LEFT}" y="{top + 6}" width="{short:.1f}" height="6" fill="{_CPU}"/>',
        f'<text x="{_LEFT + long + 6:.1f}" y="{top + 13}">{label}</text>',
    ]

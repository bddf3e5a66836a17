"""Medians of repeated calls in this process, shown as a table and as a line of JSON."""

import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from tests.bench.calibration import machine

REPETITIONS, WARM_UPS = 20, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One line. Times in ms, cpu_ms and median_ms are medians; count: what came of a call."""

    name: str
    cpu_ms: float
    median_ms: float
    slowest_ms: float
    count: int
    wanted_ms: float | None = None


def timed(name: str, call: Callable[[], int], wanted_ms: float | None = None) -> Timing:
    """Time 20 calls after two to warm up."""
    walls, cpus, count = [], [], 0
    for _ in range(WARM_UPS + REPETITIONS):
        wall, cpu = time.perf_counter(), time.process_time()
        count = call()
        walls.append((time.perf_counter() - wall) * 1e3)
        cpus.append((time.process_time() - cpu) * 1e3)
    return Timing(
        name=name,
        cpu_ms=round(statistics.median(cpus[WARM_UPS:]), 2),
        median_ms=round(statistics.median(walls[WARM_UPS:]), 2),
        slowest_ms=round(max(walls[WARM_UPS:]), 2),
        count=count,
        wanted_ms=wanted_ms,
    )


def show(title: str, measure: Callable[[], Sequence[Timing]], output: Path | None) -> None:
    """Measure; write the table, and the JSON here and to a file if one is named."""
    on, lines = machine(), measure()
    form = "{:<34}" + "{:>12}" * (len(fields(Timing)) - 1) + "\n"
    sys.stdout.write(f"{title}\n" + form.format(*(field.name for field in fields(Timing))))
    for one in lines:
        sys.stdout.write(form.format(*("" if v is None else v for v in asdict(one).values())))
    figures = json.dumps({"machine": on, "rows": [asdict(one) for one in lines]})
    sys.stdout.write(f"{figures}\n")
    if output is not None:
        output.write_text(f"{figures}\n", encoding="utf-8")

"""What this machine can do at this moment: three fixed loops, whose CPU time is the measure.

Machines of one name differ by two, and so does one machine with others' work beside it; a figure
that is also given as a ratio to these loops can be compared. Never change a loop: all ratios that
were written down would lose their meaning. The JVM's is compiled by the Janino that comes with
Spark, so a Java without a compiler will do.
"""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyspark

from jobs.adapters.processes.preflight import find_java
from jobs.console import CommandError

ROUNDS = 8
_JVM_SOURCE = Path(__file__).with_name("Calibration.java")
_JVM_TIMEOUT_S = 120.0
_ITEMS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """CPU ms of each loop, the least of eight rounds; jvm_ms is None without a Java.

    load_average: of the last minute, when the loops were run.
    """

    numpy_ms: float
    python_ms: float
    jvm_ms: float | None
    load_average: float

    def line(self) -> str:
        jvm = "no Java" if self.jvm_ms is None else f"{self.jvm_ms:.1f}"
        return (
            f"calibration, CPU ms: numpy loop {self.numpy_ms:.1f}, Python loop "
            f"{self.python_ms:.1f}, JVM loop {jvm} (load {self.load_average:.1f})"
        )


@lru_cache(maxsize=1)
def calibrate() -> Calibration:
    """Run the loops; once in a process."""
    return Calibration(
        load_average=round(os.getloadavg()[0], 2),
        numpy_ms=round(_least_ms(_numpy_loop), 2),
        python_ms=round(_least_ms(_python_loop), 2),
        jvm_ms=_jvm_ms(),
    )


def _least_ms(loop: Callable[[], object]) -> float:
    times = []
    for _ in range(ROUNDS):
        started_s = time.process_time()
        loop()
        times.append(time.process_time() - started_s)
    return min(times) * 1e3


def _numpy_loop() -> float:
    """Sorting, gathering, sums: what a planning cycle is made of."""
    rng = np.random.default_rng(1)
    total = 0.0
    for _ in range(4):
        rates = rng.random(_ITEMS)
        order = np.argsort(rates, kind="stable")
        owners = (rates * 1_000).astype(np.int64)
        sums = np.bincount(owners, weights=rates[order], minlength=1_000)
        total += float(np.cumsum(sums)[-1]) + float(np.searchsorted(rates[order], rates).sum())
    return total


def _python_loop() -> int:
    """Slices of texts, dictionaries, small objects: what a lookup is made of."""
    names = [f"persistent://tenant/namespace{at % 997}/topic-{at}" for at in range(_ITEMS // 4)]
    counts: dict[str, int] = {}
    for name in names:
        key = name[: name.rfind("/")]
        counts[key] = counts.get(key, 0) + len(name.encode())
    return sum(counts.values())


def _jvm_ms() -> float | None:
    """The quick compiler alone and the plainest collector, as the job has them."""
    try:
        java = find_java().command
    except CommandError:
        return None
    jars = Path(pyspark.__file__).parent / "jars"
    found = [*jars.glob("janino-*.jar"), *jars.glob("commons-compiler-*.jar")]
    options = [
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        os.pathsep.join(map(str, found)),
    ]
    said = subprocess.run(
        [java, *options, "org.codehaus.janino.SimpleCompiler", str(_JVM_SOURCE), "Calibration"],
        capture_output=True,
        text=True,
        check=True,
        timeout=_JVM_TIMEOUT_S,
    )
    return round(int(said.stdout.split()[0]) / 1e6, 2)


def finish(result: Mapping[str, object], output: Path | None) -> int:
    """Write a bench's result here and to a file if one is named; 1 if it missed something."""
    text = json.dumps(result, indent=1)
    sys.stdout.write(f"{text}\n")
    if output is not None:
        output.write_text(f"{text}\n", encoding="utf-8")
    return int(bool(result.get("missed")))


_CPUINFO = Path("/proc/cpuinfo")


def machine() -> dict[str, object]:
    """Cores, memory, Python, the load average and the calibration when the measuring began."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": processor(),
        "memory_gib": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "calibration": asdict(calibrate()),
        "measured_at": time.strftime("%Y-%m-%d"),
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())

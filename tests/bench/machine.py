"""What a figure must be quoted with: the machine that it was measured on, and what it can do."""

import os
import platform
import time
from dataclasses import asdict
from pathlib import Path

from tests.bench.calibration import calibrate

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

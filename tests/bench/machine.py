"""What a figure must be quoted with: the machine that it was measured on, and what it can do."""

import os
import platform
import time
from dataclasses import asdict

from jobs.operating.machine import processor
from tests.bench.calibration import calibrate


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

"""What a figure must be quoted with: the machine that it was measured on."""

import os
import platform
import time
from pathlib import Path


def machine() -> dict[str, object]:
    """Cores, memory, Python and the load average when the measuring began."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cores": os.cpu_count(),
        "cpu": cpu,
        "memory_gib": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "measured_at": time.strftime("%Y-%m-%d"),
    }

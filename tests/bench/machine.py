"""What a figure must be quoted with: the machine that it was measured on."""

import os
import platform
import time

from jobs.operating.machine import processor


def machine() -> dict[str, object]:
    """Cores, memory, Python and the load average when the measuring began."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "cpu": processor(),
        "memory_gib": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
        "measured_at": time.strftime("%Y-%m-%d"),
    }

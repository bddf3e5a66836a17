"""On which machine, and when, the figures of a page were computed.

Decides how that is said. Source: ours.
"""

import os
import platform
import time
from pathlib import Path

import numpy as np

_CPUINFO = Path("/proc/cpuinfo")


def computed_where() -> str:
    """A line such as: Computed on 2026-11-21: 2 cores of X, Python 3.11.7, numpy 2.1.0."""
    date = time.strftime("%Y-%m-%d")
    versions = f"Python {platform.python_version()}, numpy {np.__version__}"
    return f"Computed on {date}: {os.cpu_count()} cores of {processor()}, {versions}."


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = _CPUINFO.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())

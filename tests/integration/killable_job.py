"""The streaming job, which kills itself without a word at a named point of a batch.

The point's name stands in the file that BALLAST_TEST_KILL_AT names; the file is taken away first,
so the job dies once.
"""

import os
import signal
import sys
from pathlib import Path

from jobs.balance_cluster import main


def die_here(point: str) -> None:
    """End this job with all that it started, as a crash would, if this is the armed point."""
    armed = Path(os.environ["BALLAST_TEST_KILL_AT"])
    if armed.exists() and armed.read_text() == point:
        armed.unlink()
        os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(passed=die_here))

"""Makes the worker with which Spark's driver prepares a query's state come too late, once.

Python runs this at its start. Spark waits 10 s for that worker.
"""

import os
import sys
import time
from pathlib import Path

WORKER = "transform_with_state_driver_worker"
TOO_LATE_S = 11

if any(WORKER in word for word in sys.orig_argv):
    told = Path(os.environ["BALLAST_TEST_WAS_LATE"])
    if not told.exists():
        told.touch()
        time.sleep(TOO_LATE_S)

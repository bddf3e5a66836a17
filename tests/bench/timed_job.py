"""The streaming job, which says when its first operator began with each batch.

Runs `jobs.balance_cluster` as it is; only the handler that Spark calls writes a JSON line a step
into BALLAST_STEP_LOG (a folder; a file a process). For benches only.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.adapters.spark.spark_machine import MachineProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

STEP_LOG = "BALLAST_STEP_LOG"


class TimedProcessor(MachineProcessor):
    """Spark's handler, which notes a scorer's steps."""

    def handleInputRows(  # noqa: N802 Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: ARG002, N803 Spark's name
    ) -> Iterator[pd.DataFrame]:
        began_ms = int(time.time() * 1e3)
        events, now_ms = self._decode(rows)
        if self._operator.name == "scorer":
            line = json.dumps({"now_ms": now_ms, "began_ms": began_ms})
            with Path(os.environ[STEP_LOG], f"{os.getpid()}.jsonl").open("a") as log:
                log.write(f"{line}\n")
        yield self._step(tuple(key), events, now_ms)


def main() -> int:
    # loaded here, so that a process that only declares the state loads no more than in production
    stream = importlib.import_module("jobs.adapters.spark.stream")
    stream.MachineProcessor = TimedProcessor  # type: ignore[attr-defined]
    return int(importlib.import_module("jobs.balance_cluster").main())


if __name__ == "__main__":
    # workers must find the class under a name that they can import
    sys.exit(importlib.import_module("tests.bench.timed_job").main())

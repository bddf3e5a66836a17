"""Spark's own figures: of a batch, and of executors' tasks.

A batch's are those of `StreamingQueryProgress`, an executor's those of Spark's status store.
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

from py4j.protocol import Py4JError

from jobs.adapters.spark.partitioning import PARTITIONS, local_cores
from jobs.console import note
from lbcore.config.tree import Config

_LOOK_S = 10.0
_IDLE_LOOKS = 3
_DRIVER = "driver"


def read_progress(query: Any) -> dict[str, Any] | None:
    """Read Spark's last progress, None before the first. Costs some 10 ms."""
    last = query.lastProgress
    return None if last is None else json.loads(last.json)


def progress_line(progress: Mapping[str, Any]) -> dict[str, Any]:
    """For the log: where a batch's time went, in ms."""
    return {
        "event": "progress",
        "spark_batch": progress["batchId"],
        "messages": progress["numInputRows"],
        "spark_ms": progress["durationMs"],
        "operators": [
            {"updates_ms": state["allUpdatesTimeMs"], "commit_ms": state["commitTimeMs"]}
            for state in progress["stateOperators"]
        ],
    }


class ExecutorWatch:
    """The tasks that each executor has ended; a note when executors have nothing to do."""

    def __init__(
        self, session: Any, config: Config, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._session, self._clock = session, clock
        self._looked_s, self._is_noted = clock() - _LOOK_S, False
        self._counts: dict[str, int] = {}
        self._idle: dict[str, int] = {}
        partitions = int(session.conf.get(PARTITIONS) or 1)
        groups = config.pipeline.scorer_groups
        self._is_cluster = local_cores(session.sparkContext.master) is None
        if self._is_cluster and groups > partitions:
            note(
                f"{groups} scorer groups (pipeline.scorer_groups) share {partitions} state"
                f" partitions ({PARTITIONS}): at most {partitions} executors work at once. Leave"
                f" {PARTITIONS} out, and as many are chosen as there are groups"
            )

    def look(self) -> Mapping[str, int]:
        """Executor → tasks ended since Spark began; nothing until 10 s after the last look."""
        if self._clock() - self._looked_s < _LOOK_S:
            return {}
        self._looked_s = self._clock()
        try:
            counts = tasks_by_executor(self._session)
        except Py4JError:  # a figure that can't be had ends no job; a lost JVM shows elsewhere
            return {}
        for name, count in counts.items():
            is_idle = name != _DRIVER and count == self._counts.get(name, 0)
            self._idle[name] = self._idle.get(name, 0) + 1 if is_idle else 0
        self._counts = counts
        idle = sorted(name for name in counts if self._idle[name] >= _IDLE_LOOKS)
        if idle and self._is_cluster and not self._is_noted:
            self._is_noted = True
            note(
                f"executors with nothing to do for {_IDLE_LOOKS * _LOOK_S:.0f} s: "
                f"{', '.join(idle[:20])} of {len(counts) - (_DRIVER in counts)}. There are more"
                " executors than keys to spread: raise pipeline.scorer_groups, or start fewer"
            )
        return counts


def tasks_by_executor(session: Any) -> dict[str, int]:
    """Executor that lives → tasks that it has ended, failed ones too."""
    found = session.sparkContext._jsc.sc().statusStore().executorList(True)  # noqa: SLF001, FBT003 (Spark has no other way)
    executors = [found.apply(number) for number in range(found.size())]
    return {str(one.id()): int(one.completedTasks()) + int(one.failedTasks()) for one in executors}

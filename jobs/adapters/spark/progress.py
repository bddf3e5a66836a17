"""What Spark says of a batch, without the time for which it was held back at rest.

Decides nothing. Source: ours; the numbers are those of `StreamingQueryProgress`.
"""

import json
from collections.abc import Mapping
from typing import Any

_HELD_BACK = ("addBatch", "triggerExecution")


def read_progress(query: Any, rested: Mapping[int, int]) -> dict[str, Any] | None:
    """Spark's last word about a batch, None before the first. Costs some 10 ms.

    rested: batch → how long it was held back, ms; goes into `restedMs`.
    """
    last = query.lastProgress
    if last is None:
        return None
    progress: dict[str, Any] = json.loads(last.json)
    rested_ms = rested.get(progress["batchId"], 0)
    took_ms = progress["durationMs"]
    for phase in _HELD_BACK:
        if phase in took_ms:
            took_ms[phase] = max(0, took_ms[phase] - rested_ms)
    return {**progress, "restedMs": rested_ms}


def progress_line(progress: Mapping[str, Any]) -> dict[str, Any]:
    """For the log: where a batch's time went, in ms."""
    return {
        "event": "progress",
        "spark_batch": progress["batchId"],
        "messages": progress["numInputRows"],
        "rested_ms": progress["restedMs"],
        "spark_ms": progress["durationMs"],
        "operators": [
            {"updates_ms": state["allUpdatesTimeMs"], "commit_ms": state["commitTimeMs"]}
            for state in progress["stateOperators"]
        ],
    }

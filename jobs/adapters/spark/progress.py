"""Spark's progress of a batch as a line of the log: numbers of `StreamingQueryProgress`."""

import json
from collections.abc import Mapping
from typing import Any


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

"""Figures of a bench of the pipeline, from the lines that the job and its operators log.

A cycle's time is from the batch's timestamp, when Spark has settled what it reads, to the last
commit of its tables; and from when all that was read from Kafka and the first scorer begins.
"""

import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Line = Mapping[str, Any]

_SPARK = {
    "latestOffset": "Kafka: what is new",
    "queryPlanning": "Spark: planning",
    "walCommit": "Spark: write-ahead log",
    "commitOffsets": "Spark: commit",
}


def durable_ms(batch: Line) -> int:
    """When the batch's tables were committed, on the wall clock."""
    return int(batch["logged_at_ms"] - batch["parts"]["kafka_ms"])


def cycles(batches: Sequence[Line]) -> list[int]:
    """What each batch with a decision cycle took until it was durable, in ms."""
    pairs = pairwise(batches)
    return [durable_ms(b) - b["now_ms"] for a, b in pairs if b["cycle"] != a["cycle"]]


def cycles_read(batches: Sequence[Line], steps: Sequence[Line], at_least: int = 0) -> list[int]:
    """What each batch with a decision cycle took since its records were read, in ms.

    at_least: batches that took fewer messages are left out.
    """
    read_ms = _read_ms(steps)
    pairs = [
        (a, b)
        for a, b in pairwise(batches)
        if b["now_ms"] in read_ms and b["counts"].get("accepted", 0) >= at_least
    ]
    return [durable_ms(b) - read_ms[b["now_ms"]] for a, b in pairs if b["cycle"] != a["cycle"]]


def since_read(batch: Line, steps: Sequence[Line]) -> int:
    """What a batch took since its records were read, in ms."""
    return durable_ms(batch) - _read_ms(steps)[batch["now_ms"]]


def reassigned(batch: Line) -> int:
    """The bundles that a batch gave new owners because theirs were dead."""
    return sum(batch["counts"].get(f"repair:{who}_dead", 0) for who in ("owner", "destination"))


def _read_ms(steps: Sequence[Line]) -> dict[int, int]:
    """A batch's timestamp → when its first scorer began, in ms."""
    read_ms: dict[int, int] = {}
    for step in steps:
        began_ms = step["began_ms"]
        read_ms[step["now_ms"]] = min(began_ms, read_ms.get(step["now_ms"], began_ms))
    return read_ms


def percentiles(name: str, values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99 (nearest rank) under a name with a place for which; none of no values."""
    ordered = sorted(values)
    return {
        name.format(f"p{percent}"): ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]
        for percent in (50, 95, 99)
        if ordered
    }


def visible(batches: Sequence[Line], seen_ms: Mapping[int, int]) -> dict[str, float]:
    """From a decision to the lookup that knows it, and from a report to the score that shows it.

    A decision counts from when the sink has it. A report waits for its batch; reports are taken to
    come evenly between the timestamps of two batches.
    """
    decided = {b["batch_id"]: durable_ms(b) - b["parts"]["delta_ms"] for b in batches}
    to_lookup = [at - decided[batch] for batch, at in seen_ms.items() if batch in decided]
    to_score = [
        b["logged_at_ms"] - (a["now_ms"] + (b["now_ms"] - a["now_ms"]) * tenth / 10)
        for a, b in pairwise(batches)
        for tenth in range(11)
    ]
    return {
        **percentiles("decision → lookup visible {} (ms)", to_lookup),
        **percentiles("report → score visible {} (ms)", to_score),
    }


def cpu_shares(
    before: Mapping[str, float], after: Mapping[str, float], took_s: float, batches: int
) -> dict[str, dict[str, float]]:
    """By process: percent of one core, and CPU ms a batch."""
    spent = {name: after[name] - before.get(name, 0.0) for name in sorted(after)}
    return {
        name: {
            "percent of a core": round(100 * cpu_s / took_s, 1),
            "ms a batch": round(1e3 * cpu_s / max(1, batches)),
        }
        for name, cpu_s in spent.items()
    }


def parts(
    batches: Sequence[Line], lines: Sequence[Line], since_s: float
) -> dict[str, dict[str, float]]:
    """Wall times of a batch's parts in ms: the median and the most.

    lines: of the job's event "progress".
    """
    found = {
        "both operators, with fetch": _wall([b["parts"]["operators_ms"] for b in batches]),
        "Delta": _wall([b["parts"]["delta_ms"] for b in batches]),
        "Kafka out": _wall([b["parts"]["kafka_ms"] for b in batches]),
    }
    tables = sorted({name for batch in batches for name in batch.get("tables_ms", {})})
    for name in tables:
        values = [b["tables_ms"][name] for b in batches if name in b.get("tables_ms", {})]
        found[f"Delta: {name}, when written"] = _wall(values)
    progress = [line for line in lines if line["logged_at_ms"] >= since_s * 1e3]
    for key, name in _SPARK.items():
        found[name] = _wall([line["spark_ms"].get(key, 0) for line in progress])
    found["whole batch"] = _wall([line["spark_ms"]["triggerExecution"] for line in progress])
    return found


def _wall(values: Sequence[float]) -> dict[str, float]:
    if not values:
        return {"ms": 0.0, "most_ms": 0.0}
    return {"ms": round(statistics.median(values), 1), "most_ms": round(max(values), 1)}

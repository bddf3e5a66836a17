"""The job's log of a batch: one line a cluster, plan, command and fault; more in debug mode.

Decides what is said of a batch. A plan's line has its decisions' ids, a command's its id, so both
lead to the tables; what a line repeats of a table is bounded.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from jobs.telemetry.seen import BatchSeen
from lbcore.balancer.report import FAULTS, GAUGES
from lbcore.model.tables import (
    COMMANDS,
    DECISION_CANDIDATES,
    DECISIONS,
    OWNERSHIP_EVENTS,
    REJECTED_REPORTS,
)

_UNLOGGED = frozenset({"ends", FAULTS, GAUGES})
_IDS_MAX = 20
_BROKERS_MAX = 200
_SPARSE = 10
"""Of more brokers only each tenth batch tells: 1,000 are 0.14 MB a line, a batch a second 12 GB a
day."""

_DEBUGGED = {
    OWNERSHIP_EVENTS.name: "transition",
    DECISIONS.name: "decision",
    DECISION_CANDIDATES.name: "candidate",
    REJECTED_REPORTS.name: "rejected",
}
_UNSHOWN = frozenset({"raw", "writer_epoch", "at_ms"})
_COMMAND = ("command_id", "kind", "status", "reason", "principal", "address")


def lines_of(seen: BatchSeen, about: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The lines of a batch. about: what each cluster's line says beside its report."""
    duration_ms = sum(seen.parts_ms.values())
    for report in seen.reports:
        shown = {key: value for key, value in report.items() if key not in _UNLOGGED}
        if seen.batch_id % _SPARSE and len(shown.get("brokers", ())) > _BROKERS_MAX:
            del shown["brokers"]
        common = {"batch_id": seen.batch_id, "duration_ms": duration_ms}
        yield {"event": "batch", **common, "parts": dict(seen.parts_ms), **about, **shown}
        for fault in report.get(FAULTS, ()):
            named = {"batch_id": seen.batch_id, "cluster": report["cluster"]}
            yield {"event": "fault", **named, **fault}
    yield from _plans(seen)
    for row in _rows(seen, COMMANDS.name):
        shown = {name: row[name] for name in _COMMAND}
        yield {"event": "command", "batch_id": seen.batch_id, "cluster": row["cluster"], **shown}
    debugged = {report["cluster"] for report in seen.reports if report["is_debugging"]}
    for table, event in _DEBUGGED.items() if debugged else ():
        for row in _rows(seen, table):
            if row["cluster"] in debugged:
                yield {"event": event, **{k: v for k, v in row.items() if k not in _UNSHOWN}}


def _plans(seen: BatchSeen) -> Iterator[dict[str, Any]]:
    """A line for each cluster's decisions of the batch: of its cycle, and between cycles."""
    found: dict[tuple[str, int], list[Mapping[str, Any]]] = defaultdict(list)
    for row in _rows(seen, DECISIONS.name):
        found[row["cluster"], row["cycle"]].append(row)
    for (cluster, cycle), rows in sorted(found.items()):
        counts = Counter(f"{row['kind']}:{row['reason']}" for row in rows)
        yield {
            "event": "plan",
            "batch_id": seen.batch_id,
            "cluster": cluster,
            "cycle": cycle,
            "config_version": rows[-1]["config_version"],
            "decisions": dict(sorted(counts.items())),
            "decision_ids": [row["decision_id"] for row in rows[:_IDS_MAX]],
            "more": max(0, len(rows) - _IDS_MAX),
        }


def _rows(seen: BatchSeen, table: str) -> list[dict[str, Any]]:
    found = seen.tables.get(table)
    return [] if found is None else found.to_pylist()

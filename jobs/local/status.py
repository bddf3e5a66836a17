"""One moment of a local run as a value, for the live view and the headless line.

`lbcore.sim.summary` defines the numbers.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobs import VERSION
from jobs.local.job_log import REPORT_VERDICTS, JobLog
from jobs.local.prober import ProbeCounts
from lbcore.plan.groups import worst_imbalance
from lbcore.sim.summary import (
    BundleOpened,
    Crash,
    LoadSample,
    balance,
    first_all_open_ms,
    moves,
    percentile,
    recovery,
    thrash,
)

_ALIVE = "alive"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One moment of a run; times in ms.

    brokers: name, state, msg_rate (true load, msg/s in + out), bundles and score (of the job) of
    each. job: its state by `lbcore.explain.job_state`, "" = no batch yet. troubles: present
    problems. imbalance: of the live brokers' true message rates, as in `signals.shown_load`.
    bundles_open: served bundles; for brokers outside the fleet as the job has them.
    """

    elapsed_ms: int
    phase: str
    job: str
    brokers: Sequence[Mapping[str, Any]]
    imbalance: float | None
    bundles_open: int
    bundles: int
    in_flight: int
    batches: int
    cycle_p50_ms: float | None
    cycle_p95_ms: float | None
    moves: int
    last_move: Mapping[str, Any] | None
    lookups: ProbeCounts | None
    restarts: Mapping[str, int]
    troubles: tuple[str, ...] = ()
    events: tuple[str, ...] = ()


def broker_rows(fleet: Sequence[Mapping[str, Any]], job: JobLog) -> list[dict[str, Any]]:
    """Return the fleet's brokers by number, then other brokers of the job.

    The state is the fleet's for its brokers that do not run, else the job's. Load is true load, for
    other brokers the reported one. fleet: rows of the control server.
    """
    rows = []
    for row in fleet:
        name, state = row["broker"], row["life"]
        known = job.brokers.get(name, {})
        if state == _ALIVE:
            is_suspected = job.silence.get(name, {}).get("reason") == "Suspected"
            state = "suspected" if is_suspected else str(known.get("state", "starting"))
        rows.append(
            {
                "name": name,
                "state": state,
                "msg_rate": row["load"],
                "bundles": row["bundle_count"],
                "score": known.get("score"),
            }
        )
    others = [
        {
            "name": name,
            "state": str(one["state"]),
            "msg_rate": one["msg_rate"] or 0.0,
            "bundles": one["bundles"],
            "score": one["score"],
        }
        for name, one in other_brokers(fleet, job).items()
    ]
    return [
        row
        for some in (rows, others)
        for row in sorted(some, key=lambda row: broker_order(row["name"]))
    ]


def other_brokers(fleet: Sequence[Mapping[str, Any]], job: JobLog) -> dict[str, Mapping[str, Any]]:
    """Return the brokers outside of the fleet, by the job's newest batch."""
    own = {row["broker"] for row in fleet}
    return {name: one for name, one in job.brokers.items() if name not in own}


def broker_order(name: str) -> tuple[str, int, str]:
    """Return a sort key with broker-2 before broker-10."""
    stem, _, number = name.rpartition("-")
    return (stem, int(number), "") if number.isdigit() else (name, -1, name)


def bundles_served(
    sample: LoadSample | None, fleet: Sequence[Mapping[str, Any]], job: JobLog
) -> int:
    """Return the number of served bundles.

    True ones of the fleet, and those of other brokers in the job's newest batch.
    """
    others = sum(int(one["bundles"]) for one in other_brokers(fleet, job).values())
    return (sample.bundles_open if sample else 0) + others


def imbalance_of(sample: LoadSample | None, groups: Mapping[str, str]) -> float | None:
    """Return the highest over the mean true load of live brokers, of the worst group.

    groups: of `JobLog.groups`. None without load.
    """
    return worst_imbalance(sample.broker_loads, groups, {})[0] if sample else None


WINDOW_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Data of a run; times by the wall clock, ms.

    samples: the fleet's true load, one a second; opened: each opening of a bundle by a broker.
    owned: each bundle that became Owned, in the order of ownership_events. probe: as
    `Prober.report`.
    """

    arguments: Mapping[str, Any]
    started_ms: int
    ended_ms: int
    bundles: int
    job: JobLog
    samples: Sequence[LoadSample]
    opened: Sequence[BundleOpened]
    owned: Sequence[BundleOpened]
    crashes: Sequence[Crash]
    probe: Mapping[str, Any] | None
    restarts: Mapping[str, int]
    events: Sequence[str] = ()


def summarise(facts: RunFacts) -> dict[str, Any]:
    """Return the summary as JSON. Durations end in _ms; None = not measured."""
    made = moves(facts.owned)
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "ballast": VERSION,
        "machine": {
            "cores": os.cpu_count(),
            "memory_gib": round(pages * page_bytes / 2**30, 1),
            "system": platform.system(),
            "python": platform.python_version(),
        },
        "arguments": dict(facts.arguments),
        "duration_ms": facts.ended_ms - facts.started_ms,
        "batches": facts.job.batches,
        "batch_ms": _spread(facts.job.durations_ms),
        "cycle_ms": _spread(facts.job.cycle_durations_ms),
        "decisions": dict(sorted(facts.job.decisions.items())),
        "moves": {"count": len(made), "thrash": thrash(made)},
        "imbalance": _imbalance(facts),
        "crashes": [
            {
                "broker": found.broker,
                "bundles": found.bundles,
                "first_served_again_ms": found.first_served_ms,
                "all_served_again_ms": found.all_served_ms,
                "unserved": list(found.unserved),
            }
            for found in (recovery(crash, facts.opened) for crash in facts.crashes)
        ],
        **(facts.probe or {"lookups": None, "decision_to_lookup_ms": None}),
        "reports": {verdict: facts.job.reports[verdict] for verdict in REPORT_VERDICTS},
        "restarts": dict(facts.restarts),
        "events": list(facts.events),
    }


def _spread(durations_ms: Sequence[int]) -> dict[str, float | None]:
    return {
        "p50": percentile(durations_ms, 50),
        "p95": percentile(durations_ms, 95),
        "max": percentile(durations_ms, 100),
    }


def _imbalance(facts: RunFacts) -> dict[str, Any]:
    """Return the imbalance of 30 s once all bundles are open, and of the last 30 s."""
    opened_ms = first_all_open_ms(facts.samples, facts.bundles)
    begins_ms = {"first_30_s": opened_ms, "last_30_s": facts.ended_ms - WINDOW_MS}
    found: dict[str, Any] = dict.fromkeys(("all_open_after_ms", *begins_ms))
    if opened_ms is not None:
        found["all_open_after_ms"] = opened_ms - facts.started_ms
    for name, begin_ms in begins_ms.items():
        if begin_ms is not None:
            end_ms = begin_ms + WINDOW_MS
            window = balance(facts.samples, begin_ms, end_ms, facts.job.groups())
            found[name] = {
                "max_over_mean": window.imbalance,
                "floor_adjusted": window.floor_adjusted,
                "samples": window.samples,
            }
    return found

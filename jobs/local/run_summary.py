"""The summary of a run: every number that an acceptance or a release note quotes.

Decides only which numbers belong together; each is defined in `lbcore.sim.summary`,
`lbcore.sim.judge.judge` or by the process that measured it.
"""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from jobs import VERSION
from jobs.local.job_log import JobLog
from jobs.local.prober import ProbeReport
from lbcore.sim.summary import (
    Balance,
    BundleOpened,
    Crash,
    LoadSample,
    Owned,
    balance,
    first_all_open_ms,
    moves,
    percentile,
    recovery,
    thrash,
)

WINDOW_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Data gathered during a run; times by the wall clock, in ms.

    samples: the fleet's true load, one a second; opened: each bundle that a broker opened.
    owned: each bundle that became Owned, from ownership_events, in the order of the records.
    """

    arguments: Mapping[str, Any]
    started_ms: int
    ended_ms: int
    bundles: int
    job: JobLog
    samples: Sequence[LoadSample]
    opened: Sequence[BundleOpened]
    owned: Sequence[Owned]
    crashes: Sequence[Crash]
    probe: ProbeReport | None
    restarts: Mapping[str, int]
    events: Sequence[str] = ()


def summarise(facts: RunFacts) -> dict[str, Any]:
    """The summary as a JSON object. Durations end in _ms; None where nothing was measured."""
    made = moves(facts.owned)
    return {
        "ballast": VERSION,
        "machine": machine(),
        "arguments": dict(facts.arguments),
        "duration_ms": facts.ended_ms - facts.started_ms,
        "batches": facts.job.batches,
        "batch_ms": _spread(facts.job.durations_ms),
        "cycle_ms": _spread(facts.job.cycle_durations_ms),
        "decisions": dict(sorted(facts.job.decisions.items())),
        "moves": {"count": len(made), "thrash": thrash(made)},
        "imbalance": _imbalance(facts),
        "crashes": [_crash(crash, facts.opened) for crash in facts.crashes],
        **_lookups(facts.probe),
        "reports": facts.job.reports_by_verdict(),
        "restarts": dict(facts.restarts),
        "events": list(facts.events),
    }


def machine() -> dict[str, Any]:
    """Return the machine that the numbers were measured on."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages * page_bytes / 2**30, 1),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _spread(durations_ms: Sequence[int]) -> dict[str, float | None]:
    return {
        "p50": percentile(durations_ms, 50),
        "p95": percentile(durations_ms, 95),
        "max": percentile(durations_ms, 100),
    }


def _imbalance(facts: RunFacts) -> dict[str, Any]:
    """Over the 30 s after all bundles were first opened, and over the last 30 s."""
    opened_ms = first_all_open_ms(facts.samples, facts.bundles)
    last = balance(facts.samples, facts.ended_ms - WINDOW_MS, facts.ended_ms)
    found: dict[str, Any] = {"all_open_after_ms": None, "first_30_s": None, "last_30_s": _of(last)}
    if opened_ms is not None:
        found["all_open_after_ms"] = opened_ms - facts.started_ms
        found["first_30_s"] = _of(balance(facts.samples, opened_ms, opened_ms + WINDOW_MS))
    return found


def _of(window: Balance) -> dict[str, float | int | None]:
    return {
        "max_over_mean": window.imbalance,
        "floor_adjusted": window.floor_adjusted,
        "samples": window.samples,
    }


def _crash(crash: Crash, opened: Sequence[BundleOpened]) -> dict[str, Any]:
    found = recovery(crash, opened)
    return {
        "broker": found.broker,
        "bundles": found.bundles,
        "first_served_again_ms": found.first_served_ms,
        "all_served_again_ms": found.all_served_ms,
        "unserved": list(found.unserved),
    }


def _lookups(probe: ProbeReport | None) -> dict[str, Any]:
    if probe is None:
        return {"lookups": None, "decision_to_lookup_ms": None}
    return {
        "lookups": {
            **asdict(probe.counts),
            "p50_ms": probe.lookup_p50_ms,
            "p99_ms": probe.lookup_p99_ms,
            "failures": dict(probe.failures),
            "wrong_answers": [asdict(answer) for answer in probe.wrong_answers],
        },
        "decision_to_lookup_ms": {
            "p50": probe.visible_p50_ms,
            "p99": probe.visible_p99_ms,
            "max": probe.visible_max_ms,
            "count": probe.visible_count,
            "unseen": probe.unseen,
        },
    }

"""What the job itself has noticed of late, as rows of `decisions` and `rejected_reports` say it.

Decides what of it is an alarm. Part of the status. Source: ours.
"""

from collections import Counter
from collections.abc import Iterable

from lbcore.balancer.decisions.unplaced import ALARM as NO_CANDIDATE
from lbcore.balancer.faults import KIND as FAULT
from lbcore.explain.explanation import Row
from lbcore.plan.shed.own import FAULTS

RECENT_MS = 600_000
"""How far back alarms look for decisions and rejected reports."""
_LATELY_MS = 60_000
"""How far back a setting without candidates is told: its rows come once a cycle."""


def decided_alarms(decisions: Iterable[Row], written_ms: int) -> Iterable[str]:
    """What is wrong, then what to do. written_ms: of the job's last commit. O(decisions)."""
    recent = [row for row in decisions if row["at_ms"] >= written_ms - RECENT_MS]
    if any(row["kind"] == FAULT for row in recent):
        yield (
            "something raised while it was worked on and was put aside: read the events fault of"
            " the job's log and section BallastFaults of docs/runbook.md, and report it"
        )
    lately_ms = written_ms - _LATELY_MS
    wrong = {
        row["reason"] for row in recent if row["reason"] in FAULTS and row["at_ms"] > lately_ms
    }
    if wrong:
        yield f"your strategy decides nothing ({min(wrong)}): read `ballast explain cluster`"
    without = [row for row in recent if row["kind"] == NO_CANDIDATE and row["at_ms"] > lately_ms]
    for setting in sorted({str(row["reason"]) for row in without}):
        yield (
            f"no broker may take some bundles because of {setting}: `ballast config reset` it or"
            " give it a value that brokers meet; section BallastNoCandidate of docs/runbook.md"
        )
    clocks = sorted((r for r in recent if r["kind"] == "clock"), key=lambda r: int(r["at_ms"]))
    words = {name: row["reason"] for row in clocks for name in str(row["source"]).split(", ")}
    for name in sorted(name for name, reason in words.items() if reason == "Apart"):
        yield f"the clock {name} is wrong: section BallastClockApart of docs/runbook.md"
    for broker in sorted({row["source"] for row in recent if row["kind"] == "back_off"}):
        yield f"{broker} starts again and again and gets no bundles for now: read its log"


def rejected_alarms(rejected: Iterable[Row]) -> Iterable[str]:
    """How many messages were rejected for which reason. rejected: rows of the last RECENT_MS."""
    reasons = Counter(row["reason"] for row in rejected)
    for reason, count in sorted(reasons.items()):
        yield f"{count} messages rejected ({reason}) within 10 minutes: see rejected_reports"

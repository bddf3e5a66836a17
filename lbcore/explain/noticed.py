"""What the job itself has noticed of late, as rows of `decisions` and `rejected_reports` say it.

Decides what of it is an alarm. Part of the status. Source: ours.
"""

import json
from collections import Counter
from collections.abc import Iterable

from lbcore.balancer.decisions.unplaced import ALARM as NO_CANDIDATE
from lbcore.balancer.decisions.unplaced import ISOLATION_POLICIES
from lbcore.balancer.faults import KIND as FAULT
from lbcore.balancer.state.rules import ISOLATION
from lbcore.explain.explanation import Row
from lbcore.plan.filter.policies import IsolationPolicy
from lbcore.plan.shed.own import FAULTS

RECENT_MS = 600_000
"""How far back alarms look for decisions and rejected reports."""
_LATELY_MS = 60_000
"""How far back a setting without candidates is told: its rows come once a cycle."""


def decided_alarms(
    decisions: Iterable[Row], whole: Iterable[Row], written_ms: int
) -> Iterable[str]:
    """What is wrong, then what to do. written_ms: of the job's last commit. O(decisions).

    whole: those of kind NO_CANDIDATE, with their inputs, among others.
    """
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
    without = [row for row in whole if row["kind"] == NO_CANDIDATE and row["at_ms"] > lately_ms]
    yield from sorted(set(map(_no_candidate, without)))
    clocks = sorted((r for r in recent if r["kind"] == "clock"), key=lambda r: int(r["at_ms"]))
    words = {name: row["reason"] for row in clocks for name in str(row["source"]).split(", ")}
    for name in sorted(name for name, reason in words.items() if reason == "Apart"):
        yield f"the clock {name} is wrong: section BallastClockApart of docs/runbook.md"
    for broker in sorted({row["source"] for row in recent if row["kind"] == "back_off"}):
        yield f"{broker} starts again and again and gets no bundles for now: read its log"


def _no_candidate(row: Row) -> str:
    setting, inputs = str(row["reason"]), json.loads(row["inputs"])
    if setting != ISOLATION_POLICIES or not inputs.get("namespaces"):
        return (
            f"no broker may take some bundles because of {setting}: `ballast config reset` it or"
            " give it a value that brokers meet; section BallastNoCandidate of docs/runbook.md"
        )
    more = inputs["namespace_count"] - len(inputs["namespaces"])
    whose = ", ".join(inputs["namespaces"]) + (f" and {more} more" if more else "")
    if not inputs["policy"]:
        return (
            f"isolation policies reserve every broker, so none may take bundles of {whose}: start"
            " a broker that no policy names as primary, or name fewer"
        )
    return (
        f"isolation policy {inputs['policy']} admits no broker for bundles of {whose}: start a"
        " broker that it names, or `ballast isolation set` it with patterns that match brokers"
    )


def policy_alarms(policies: Iterable[Row]) -> Iterable[str]:
    """A sentence for each pattern of an isolation policy that can't be used. O(patterns).

    policies: rows of the table, the newest of each name. Older versions and Pulsar take patterns
    that can't be matched in linear time.
    """
    for row in sorted(policies, key=lambda row: str(row["name"])):
        if row["kind"] == ISOLATION and row["is_set"]:
            policy = IsolationPolicy.from_json(row["name"], json.loads(row["value"]))
            for problem in policy.problems():
                yield f"{problem}; it matches nobody until the policy is set without it"


def rejected_alarms(rejected: Iterable[Row]) -> Iterable[str]:
    """How many messages were rejected for which reason. rejected: rows of the last RECENT_MS."""
    reasons = Counter(row["reason"] for row in rejected)
    for reason, count in sorted(reasons.items()):
        yield f"{count} messages rejected ({reason}) within 10 minutes: see rejected_reports"

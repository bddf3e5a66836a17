"""Plans that wait for a person, in words: what somebody is asked, until when, and how to answer.

Part of the status.
"""

import json
from collections.abc import Iterable, Iterator

from lbcore.balancer.state.rules import PROPOSAL, PlanProposal, Station
from lbcore.explain.explanation import Row
from lbcore.model.times import instant


def plan_alarms(policies: Iterable[Row]) -> Iterator[str]:
    """A sentence for each plan that waits. policies: rows of the table, the newest of each name."""
    for row in sorted(policies, key=lambda row: str(row["name"])):
        if row["kind"] != PROPOSAL or not row["is_set"]:
            continue
        plan = PlanProposal.from_json(json.loads(row["value"]))
        if plan.station is Station.WAITS:
            hottest = f"{100 * plan.before['max']:.0f} -> {100 * plan.after['max']:.0f} %"
            yield (
                f"plan {row['name']} waits for somebody until {instant(plan.until_ms)}:"
                f" {len(plan.steps)} {'step' if len(plan.steps) == 1 else 'steps'}, hottest broker"
                f" {hottest}{_meanwhile(plan)}: `ballast plan show {row['name']}`"
            )


def _meanwhile(plan: PlanProposal) -> str:
    """Return the proposer of the plan; one that a cycle made holds up all others."""
    return f", by {plan.by}" if plan.by else ", and no cycle moves anything meanwhile"

"""The plan of a cycle: read this first. The phases, in order, and nothing else.

Decides which bundles move, split and find an owner now. Called by `machines.balancer` once a
decision cycle, by the simulator and by a dry run; pure. Source: ours, after Dicer's
AlgorithmExecutor; the rules inside the phases are Pulsar 4.0.8's.
"""

from lbcore.plan.decision import (
    EVERYTHING,
    Plan,
    PlanConfig,
    PlanState,
    Scope,
    Skip,
)
from lbcore.plan.finish import finish, opened
from lbcore.plan.phases.adjust import adjust
from lbcore.plan.phases.assign import assign
from lbcore.plan.phases.eligible import eligible
from lbcore.plan.phases.limit import limit
from lbcore.plan.phases.shed import shed
from lbcore.plan.phases.split import split
from lbcore.plan.snapshot import Snapshot

PHASES = (
    adjust,  #   reported load → adjusted load; whose observations are fresh
    eligible,  # which bundles may move, which brokers may take some
    shed,  #     the strategy: who gives what
    split,  #    which bundles are divided
    assign,  #   where unowned and shed bundles go
    limit,  #    how much of it at once
)


def plan(
    snapshot: Snapshot,
    state: PlanState,
    config: PlanConfig,
    now_ms: int,
    scope: Scope = EVERYTHING,
) -> tuple[Plan | Skip, PlanState]:
    """What to do now, and what to remember; a skip advances hits and averages too.

    O(brokers log brokers + bundles); equal arguments always give equal results.
    """
    draft = opened(snapshot, state, config, now_ms, scope)
    for phase in PHASES:
        draft = phase(draft)
    return finish(draft)

"""The plan of a cycle: read this first. The phases, in order, and nothing else.

Decides which bundles move, split and find an owner now. Called by `balancer` once a decision cycle,
and between cycles for bundles that can't wait; by the simulator and by a dry run; pure.
Modelled on Dicer's AlgorithmExecutor; the rules inside the phases are Pulsar 4.0.8's.
"""

from collections.abc import Sequence
from dataclasses import replace

from lbcore.config.tree import Config
from lbcore.plan.decision import EVERYTHING, ONLY_PLACES, Places, Plan, PlanState, Scope, Skip
from lbcore.plan.draft import Moves
from lbcore.plan.finish import finish, finish_moves, finish_placing, initial_draft
from lbcore.plan.phases.adjust import adjust
from lbcore.plan.phases.assign import assign
from lbcore.plan.phases.eligible import eligible, index
from lbcore.plan.phases.limit import limit
from lbcore.plan.phases.shed import shed
from lbcore.plan.phases.split import split
from lbcore.plan.snapshot import Floats, Snapshot
from lbcore.plan.split.decision import SplitDecision

PHASES = (
    adjust,  #   reported load → adjusted load; whose observations are fresh
    eligible,  # which bundles may move, which brokers may take some
    shed,  #     the strategy: who gives what
    split,  #    which bundles are divided
    assign,  #   where unowned and shed bundles go
    limit,  #    how much of it at once
)
PLACING = (
    adjust,  # as in a cycle
    index,  #  which brokers are open
    assign,  # where unowned bundles and children of splits go
)


def plan(
    snapshot: Snapshot,
    state: PlanState,
    config: Config,
    now_ms: int,
    scope: Scope = EVERYTHING,
) -> tuple[Plan | Skip, PlanState]:
    """Return the decisions of this cycle and the new state.

    A skip advances hits and averages too. O(brokers log brokers + bundles); equal arguments always
    give equal results.
    """
    draft = initial_draft(snapshot, state, config, now_ms, scope)
    for phase in PHASES:
        draft = phase(draft)
    return finish(draft)


def place(
    snapshot: Snapshot,
    state: PlanState,
    config: Config,
    now_ms: int,
    splits: Sequence[SplitDecision] = (),
) -> tuple[Places, PlanState]:
    """Place bundles between cycles, whoever asks, by the phases of a cycle.

    Places bundles that need an owner now (`BundleTable.needs_owner`), and the children of these
    splits. The placed load counts for its broker until the broker reports it. O(bundles + placed x
    brokers).
    """
    draft = replace(
        initial_draft(snapshot, state, config, now_ms, ONLY_PLACES), splits=tuple(splits)
    )
    for phase in PLACING:
        draft = phase(draft)
    return finish_placing(draft)


def project_moves(
    snapshot: Snapshot, state: PlanState, config: Config, now_ms: int, moves: Moves
) -> tuple[Floats, Floats, PlanState]:
    """Return the brokers' usages before and after moves decided elsewhere.

    Weighted, float64[n], 1.0 = 100 %; both count load that is decided and not reported yet. Also
    returns the state in which the moves count as decided. O(brokers + moves).
    """
    draft = replace(
        adjust(initial_draft(snapshot, state, config, now_ms, ONLY_PLACES)), sheddings=moves
    )
    return finish_moves(draft)

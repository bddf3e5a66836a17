"""Planning state that the tables can restore, for rebuilds and dry runs.

Rows of `decisions` become graces and roles; hits and averages are in the state already, which the
table `planning_memory` brings back.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lbcore.balancer.decisions.placement import next_on_grid_ms
from lbcore.balancer.state.batch_context import BalancerState
from lbcore.config.strategies import LEAST_LONG_TERM_MESSAGE_RATE
from lbcore.config.tree import Config
from lbcore.plan.decision import PlanState
from lbcore.plan.registry import placement_name, shedding_name, shedding_strategy
from lbcore.plan.strategy import SCORE_WEIGHTS
from lbcore.validation.dynamic import in_force

Row = Mapping[str, Any]
REMEMBERED_MS = 7_200_000
"""Period of the decisions that are read for what planning remembers."""
_MOVES = frozenset({"transfer", "unload", "drain"})
_BY_LONG_TERM = frozenset({LEAST_LONG_TERM_MESSAGE_RATE})
_MADE = frozenset({"transfer", "unload", "split"})
_NO_CYCLE = frozenset({"NotThisCycle", "unsplittable"})
_WISHED = frozenset({"Draining", "Pinned"})


def with_recalled_plan(
    state: BalancerState, decisions: Iterable[Row], config: Config, now_ms: int
) -> BalancerState:
    """Return a rebuilt state with graces and roles at now_ms.

    By the settings in force. decisions: rows of its cluster since `REMEMBERED_MS` before, in any
    order. O(rows log rows).
    """
    present, _ = in_force(config, state.settings, state.rules.set_aside)
    return replace(state, plan=recalled_plan(state.plan, decisions, present, now_ms))


def recalled_plan(
    plan: PlanState, decisions: Iterable[Row], config: Config, now_ms: int
) -> PlanState:
    """The plan's memory with graces and roles as rows of decisions tell, in any order.

    plan: as a rebuild brings it back. O(rows log rows).
    """
    moved = [row for row in sorted(decisions, key=_at_ms) if is_planned(row)]
    shedding = config.shedding
    grace_ms, role_ms = now_ms - shedding.grace_period_ms, now_ms - shedding.role_cool_down_ms
    shed = [row for row in moved if row["reason"] not in _WISHED and row["at_ms"] > role_ms]
    return replace(
        plan,
        unloaded_ms=_by_name(
            (str(row["bundle"]), int(row["at_ms"])) for row in moved if row["at_ms"] >= grace_ms
        ),
        gave_ms=_by_name((str(row["source"]), int(row["at_ms"])) for row in shed),
        took_ms=_by_name(
            (str(row["destination"]), int(row["at_ms"])) for row in shed if row["destination"]
        ),
    )


def next_cycle_ms(decisions: Iterable[Row], now_ms: int, interval_ms: int, turn_ms: int) -> int:
    """Return the time of the next cycle that sheds, by the last one.

    This is now if none is known. turn_ms: as in `turns.turn_of`.
    """
    last_ms = max((int(row["at_ms"]) for row in decisions if _is_of_cycle(row)), default=0)
    return max(now_ms, next_on_grid_ms(min(last_ms, now_ms), interval_ms, turn_ms))


def unknowns(config: Config, plan: PlanState, load_age_ms: int) -> tuple[str, ...]:
    """Return what a dry run cannot know, in sentences.

    load_age_ms: age of the newest load, -1 = none.
    """
    shedding, lag_ms = config.shedding, config.signals.usage_lag_ms
    strategy = shedding_name(shedding.strategy)
    hits = f"hits and averages begin at 0, {plan.strategy or 'those of no strategy'} has some"
    age = f"is {load_age_ms // 1_000} s old" if load_age_ms >= 0 else "is not known"
    lag = f"changes of the last {lag_ms // 1_000} s, by which usages lag, but for planned moves"
    scores = "how smoothed scores go on: others may be paired"
    long_term = "averages over a long time: bundles may go to another broker"
    longest_ms = max(shedding.grace_period_ms, shedding.role_cool_down_ms)
    older = ("graces of bundles that moved more than two hours ago",)
    judged = "which report was judged last: a hit may count a report earlier or later"
    rests = ", and a grace that ends in between may hold or not" if longest_ms else ""
    return (
        *((hits,) if plan.strategy != strategy else ()),
        f"load {age}: what was reported since, and moves that reports don't show yet",
        judged + rests,
        "topics of bundles: splits are cut as if nobody had reported them",
        *((lag,) if lag_ms else ()),
        *((scores,) if {*SCORE_WEIGHTS}.issubset(shedding_strategy(config).settings) else ()),
        *((long_term,) if placement_name(config.placement.strategy) in _BY_LONG_TERM else ()),
        *(older if longest_ms > REMEMBERED_MS else ()),
    )


def _at_ms(row: Row) -> int:
    return int(row["at_ms"])


def _is_of_cycle(row: Row) -> bool:
    """True if a cycle that sheds wrote the row.

    Each such cycle writes a move, a split or a skip.
    """
    if row["kind"] == "skip":
        return row["reason"] not in _NO_CYCLE
    return row["kind"] in _MADE and row["reason"] not in _WISHED and not _is_commanded(row)


def _is_commanded(row: Row) -> bool:
    return "command_id" in json.loads(row["inputs"])


def is_planned(row: Row) -> bool:
    """True if a cycle moved a bundle, not a command."""
    if row["kind"] not in _MOVES or not row["bundle"]:
        return False
    return row["reason"] in _WISHED or not _is_commanded(row)


def _by_name(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The last of each name, in name order."""
    return dict(sorted(dict(pairs).items()))

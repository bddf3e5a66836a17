"""Planning's memory: what planning remembers, as far as the tables know it, for dry runs.

Decides nothing: rows of `decisions` and `decision_candidates` become graces, roles and hits.
Averages are in no table. Part of `foresee`. Source: ours.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lbcore.balancer.decisions.held_words import HELD, OVER, is_believed
from lbcore.plan.decision import Hot, PlanConfig, PlanState
from lbcore.plan.registry import shedding_strategy
from lbcore.plan.shed.common import ShedState

Row = Mapping[str, Any]
REMEMBERED_MS = 7_200_000
"""How far back decisions are read for what planning remembers."""
_MOVES = frozenset({"transfer", "unload", "drain"})
_WISHED = frozenset({"Draining", "Pinned"})


def recalled_plan(
    decisions: Iterable[Row], candidates: Iterable[Row], config: PlanConfig, now_ms: int
) -> PlanState:
    """What planning remembers at `now_ms`, in rows of any order. O(rows log rows).

    decisions: of the grace period and the role's cool-down; candidates: of the last cycles.
    """
    moved = [row for row in sorted(decisions, key=_at_ms) if _is_planned(row)]
    shedding = config.shedding
    grace_ms, role_ms = now_ms - shedding.grace_period_ms, now_ms - shedding.role_cool_down_ms
    shed = [row for row in moved if row["reason"] not in _WISHED and row["at_ms"] > role_ms]
    strategy = shedding_strategy(config)
    return PlanState(
        strategy=strategy.name,
        shed=_hits(candidates) if strategy.has_hits_in_tables else ShedState(),
        unloaded_ms=_by_name(
            (str(row["bundle"]), int(row["at_ms"])) for row in moved if row["at_ms"] >= grace_ms
        ),
        gave_ms=_by_name((str(row["source"]), int(row["at_ms"])) for row in shed),
        took_ms=_by_name(
            (str(row["destination"]), int(row["at_ms"])) for row in shed if row["destination"]
        ),
        hot=_hot(decisions, now_ms),
    )


def unknowns(config: PlanConfig, load_age_ms: int) -> tuple[str, ...]:
    """What a dry run cannot know, in sentences. load_age_ms: of the newest load, -1 = none."""
    strategy = shedding_strategy(config)
    hits = f"hits and averages of {strategy.name} are in no table and begin at 0: it may act sooner"
    if strategy.has_hits_in_tables:
        hits = "hits of brokers that are below 80 % of every threshold are taken as 0"
    longest_ms = max(config.shedding.grace_period_ms, config.shedding.role_cool_down_ms)
    older = ("graces of bundles that moved more than two hours ago",)
    age = f"is {load_age_ms // 1_000} s old" if load_age_ms >= 0 else "is not known"
    return (
        hits,
        f"load {age}: what was reported since, and moves that reports don't show yet",
        "which report was judged last: a hit may count a report earlier or later",
        "topics of bundles: splits are cut as if nobody had reported them",
        *(older if longest_ms > REMEMBERED_MS else ()),
    )


def _at_ms(row: Row) -> int:
    return int(row["at_ms"])


def _is_planned(row: Row) -> bool:
    """Whether a cycle moved a bundle, not a command."""
    if row["kind"] not in _MOVES or not row["bundle"]:
        return False
    return row["reason"] in _WISHED or "command_id" not in json.loads(row["inputs"])


def _hot(decisions: Iterable[Row], now_ms: int) -> dict[str, Hot]:
    """Since when brokers are hot that were told as held and are not known to have cooled."""
    told = {str(r["source"]): r for r in sorted(decisions, key=_at_ms) if r["kind"] == HELD}
    return {
        name: Hot(since_ms=int(json.loads(row["inputs"])["since_ms"]))
        for name, row in sorted(told.items())
        if row["reason"] != OVER and is_believed(row["at_ms"], now_ms)
    }


def _by_name(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The last of each name, in name order."""
    return dict(sorted(dict(pairs).items()))


def _hits(candidates: Iterable[Row]) -> ShedState:
    """Hits of the brokers that were near in the newest cycle, of a pair's both."""
    near = [row for row in candidates if row["phase"] == "shed" and row["hits_needed"]]
    newest_ms = max((row["at_ms"] for row in near), default=0)
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for row in near:
        if row["at_ms"] != newest_ms or row["verdict"] != "too_few_hits":
            continue
        levels = json.loads(row["detail"]).get("levels", [])
        for kept, level in zip((low, high), levels, strict=False):
            for broker in filter(None, (row["subject"], row["broker"])):
                if level["hits"]:
                    kept[broker] = max(kept.get(broker, 0), int(level["hits"]))
    return ShedState(hits_low=dict(sorted(low.items())), hits_high=dict(sorted(high.items())))

"""Shadows: other strategies plan on the same reports, and what they would have done is written.

Decides nothing that is done. After the acting strategy's plan each shadow plans under the same
settings but its own strategy, on the cluster as its own earlier moves would have left it
(`virtual_ownership`). It begins as a fork of the acting memory, so that a shadow of the acting
strategy decides what that decides, for as long as ownership agrees. What both decide is one move:
the real one. What only the cycle moved stays, for the shadow, where it was; what people, failover
and splits move, moves for everybody. Part of `balancer`, after `approvals`. Source: ours.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lbcore.balancer.decisions.placing import planning_config
from lbcore.balancer.decisions.shadow_placing import shadow_config
from lbcore.balancer.decisions.virtual_ownership import reconciled, virtual_snapshot
from lbcore.balancer.state.effects import to_json
from lbcore.balancer.state.shadows import CycleSeen, Elsewhere, Shadow
from lbcore.balancer.state.work import Work
from lbcore.model.shadow_tables import SHADOW_DECISIONS
from lbcore.ownership.records import Cause, State
from lbcore.plan.decision import Decision, Kind, Plan, Skip
from lbcore.plan.planner import plan
from lbcore.plan.registry import shedding_name
from lbcore.plan.snapshot import RATE_IN, RATE_OUT, Snapshot
from lbcore.signals.imbalance import floor_adjusted_imbalance, imbalance

COUNTED = "shadow:"
"""Begins the counts of a batch's report of what shadows would have moved, by strategy."""
STEPS_NAMED = 50
_OF_CYCLES = frozenset({Cause.SHED, Cause.DRAIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Balance:
    """How even message rates are; None = there is no load."""

    imbalance: float | None
    floor_adjusted: float | None


def think_along(work: Work) -> None:
    """Let each shadow plan, if the cycle did, and follow what this batch moved. Each by itself."""
    names = [shedding_name(name) for name in work.config.cluster.shadow]
    work.shadows = {name: one for name, one in work.shadows.items() if name in names}
    if not names:
        return
    real = _balance(work.cycle_seen.snapshot) if work.cycle_seen else None
    moved = _moved_by_cycles(work)
    work.guard.each(
        "shadow",
        names,
        lambda some: _each_thinks(work, some, real, moved),
        lambda name, _: name,
    )


def _each_thinks(
    work: Work, names: Sequence[str], real: _Balance | None, moved: Mapping[str, Elsewhere]
) -> None:
    for name in names:
        one = work.shadows.get(name)
        own: Mapping[str, Elsewhere | None] = {}
        if work.cycle_seen is not None and real is not None:
            one = one or Shadow(plan=work.cycle_seen.before)
            one, own = _thought(work, name, one, (work.cycle_seen, real))
        if one is not None:
            work.shadows[name] = _followed(work, one, moved, own)


def _thought(
    work: Work, name: str, shadow: Shadow, seen: tuple[CycleSeen, _Balance]
) -> tuple[Shadow, dict[str, Elsewhere | None]]:
    """The shadow after a plan of its own, and where that would move bundles; None = as is done."""
    cycle, real = seen
    shadow = reconciled(work, shadow, cycle.snapshot)
    snapshot = virtual_snapshot(work, shadow, cycle.snapshot, cycle.rows)
    config = shadow_config(planning_config(work), name)
    scope = replace(cycle.scope, is_traced=False)
    result, after = plan(snapshot, shadow.plan, config, work.now_ms, scope)
    own = real if snapshot is cycle.snapshot else _balance(snapshot)
    shadow = replace(shadow, plan=after, imbalance=own.imbalance, floor_adjusted=own.floor_adjusted)
    decisions = result.decisions if isinstance(result, Plan) else ()
    moves = [one for one in decisions if one.kind is not Kind.SPLIT]
    work.counts[f"{COUNTED}{name}"] += len(moves)
    if moves or cycle.scope.sheds:
        row = _row(name, result, moves)
        row |= {
            "splits": len(decisions) - len(moves),
            "elsewhere": len(shadow.elsewhere),
            **_balances("", real),
            **_balances("shadow_", own),
        }
        work.add_row(SHADOW_DECISIONS.name, {**row, "cycle": work.times.cycle})
    return shadow, _places(work, moves, cycle.carried)


def _row(name: str, result: Plan | Skip, moves: Sequence[Decision]) -> dict[str, Any]:
    steps = [
        {
            "bundle": one.bundle,
            "source": one.source,
            "destination": one.destination or one.expected,
            "reason": one.reason,
        }
        for one in moves[:STEPS_NAMED]
    ]
    return {
        "strategy": name,
        "reason": result.reason if isinstance(result, Skip) else "",
        "moves": len(moves),
        "moved_msg_rate": math.fsum(float(one.inputs.get("msg_rate", 0.0)) for one in moves),
        "steps": to_json(steps),
    }


def _places(
    work: Work, moves: Sequence[Decision], carried: Sequence[Decision]
) -> dict[str, Elsewhere | None]:
    """Where moves take their bundles; None for what is carried out just so."""
    real = {one.bundle: _way(one) for one in carried}
    now_ms = work.now_ms
    found: dict[str, Elsewhere | None] = {}
    for one in moves:
        broker = one.destination or one.expected
        if real.get(one.bundle) == _way(one):
            found[one.bundle] = None
        elif broker:
            found[one.bundle] = Elsewhere(broker=broker, since_ms=now_ms, moved_ms=now_ms)
    return found


def _way(decision: Decision) -> tuple[str, str, str]:
    return decision.source, decision.destination, decision.expected


def _moved_by_cycles(work: Work) -> dict[str, Elsewhere]:
    """What balancing and drains have begun to move in this batch, and where each is until then."""
    return {
        after.bundle: Elsewhere(
            broker=before.destination,
            since_ms=work.now_ms,
            moved_ms=int(work.ledger.moved_ms[work.ledger.index[after.bundle]]),
        )
        for before, after in work.transitions
        if before is not None and after.state is State.RELEASING and after.cause in _OF_CYCLES
    }


def _followed(
    work: Work,
    shadow: Shadow,
    moved: Mapping[str, Elsewhere],
    own: Mapping[str, Elsewhere | None],
) -> Shadow:
    """The shadow with its own moves, and without the cycle's; what people moved is for all."""
    asked = [
        after.bundle
        for _, after in work.transitions
        if after.state is State.RELEASING and after.cause is Cause.ADMIN
    ]
    found: dict[str, Elsewhere | None] = {**moved, **shadow.elsewhere, **own}
    found |= dict.fromkeys(asked)
    kept = {name: one for name, one in found.items() if one is not None}
    return shadow if kept == shadow.elsewhere else shadow.with_elsewhere(kept)


def _balance(snapshot: Snapshot) -> _Balance:
    """Of message rates of live brokers, as the gauges have it."""
    rates = snapshot.brokers.traffic[:, [RATE_IN, RATE_OUT]].sum(axis=1)
    bundles = np.where(
        snapshot.bundles.owner >= 0,
        snapshot.bundles.short[:, RATE_IN] + snapshot.bundles.short[:, RATE_OUT],
        0.0,
    )
    loads, hottest = rates.tolist(), float(bundles.max(initial=0.0))
    hottest = min(hottest, max(loads, default=0.0))  # averages may lag behind brokers
    return _Balance(
        imbalance=imbalance(loads), floor_adjusted=floor_adjusted_imbalance(loads, hottest)
    )


def _balances(prefix: str, of: _Balance) -> dict[str, float]:
    return {
        f"{prefix}imbalance": math.nan if of.imbalance is None else of.imbalance,
        f"{prefix}floor_adjusted": math.nan if of.floor_adjusted is None else of.floor_adjusted,
    }

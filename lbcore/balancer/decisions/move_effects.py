"""Effects of moves: what became of the bundles that balancing moved, and whether it helped.

Decides when a move's effect can be seen: its new owner has opened it, what was decided with it for
the same two brokers has landed too, and both have reported usages that are all of the time since
(`signals.usage_lag_ms`). It helped when the more loaded of the two is less loaded than the more
loaded of them was. Writes `decision_effects`; part of `balancer`, asked by nobody.
"""

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from lbcore.balancer.state.balancer_state import PendingEffect
from lbcore.balancer.state.work import Work
from lbcore.model.tables import DECISION_EFFECTS
from lbcore.ownership.records import State
from lbcore.plan.decision import Decision, Kind
from lbcore.signals.usage import weighted_usage

HELPED, NO_BETTER = "helped", "no_better"
NOT_SEEN, MOVED_ELSEWHERE = "not_seen", "moved_elsewhere"
NOTICEABLE = 0.005
"""A change of usage below this (1.0 = 100 %) is none."""
PENDING_MAX = 5_000


def watch_move(work: Work, decision: Decision, decision_id: str) -> None:
    """Follow a move that balancing has begun; the oldest ones are let go when they are many."""
    if decision.kind not in (Kind.TRANSFER, Kind.UNLOAD) or "source_usage" not in decision.inputs:
        return
    work.pending_effects[decision.bundle] = PendingEffect(
        decision_id=decision_id,
        source=decision.source,
        destination=decision.destination,
        decided_ms=work.now_ms,
        source_before=decision.inputs["source_usage"],
        destination_before=decision.inputs.get("destination_usage", math.nan),
    )
    if len(work.pending_effects) > PENDING_MAX:
        pending = work.pending_effects
        del pending[min(pending, key=lambda name: (pending[name].decided_ms, name))]


def observe_moves(work: Work) -> None:
    """Write the effects that can be seen now, and forget those moves. O(pending effects)."""
    for bundle in sorted(work.pending_effects):
        work.pending_effects[bundle] = _followed(work, bundle, work.pending_effects[bundle])
    under_way = {_pair(one) for one in work.pending_effects.values() if not one.moved_ms}
    landed: dict[tuple[int, str, str], int] = {}
    for one in work.pending_effects.values():
        pair = _pair(one)
        landed[pair] = max(landed.get(pair, 0), one.moved_tick_ms)
    for bundle, one in sorted(work.pending_effects.items()):
        pair = _pair(one)
        outcome = _outcome(work, bundle, one, 0 if pair in under_way else landed[pair])
        if outcome:
            _write(work, bundle, one, outcome)
            del work.pending_effects[bundle]


def _pair(one: PendingEffect) -> tuple[int, str, str]:
    return (one.decided_ms, one.source, one.destination)


def _followed(work: Work, bundle: str, one: PendingEffect) -> PendingEffect:
    """The move, noted as landed once its bundle is owned by another broker."""
    record = work.ledger.record(bundle)
    if one.moved_ms or record is None or record.state is not State.OWNED:
        return one
    if record.destination == one.source:
        return one
    destination = one.destination or record.destination
    if record.destination != destination:
        return one
    return replace(one, moved_ms=work.now_ms, moved_tick_ms=work.times.tick_ms)


def _outcome(work: Work, bundle: str, one: PendingEffect, landed_ms: int) -> str:
    """Return the effect of a move; "" = wait.

    landed_ms: when the last of the plan's moves between the pair landed, 0 = some are under way.
    """
    if not one.moved_ms and _is_elsewhere(work, bundle, one):
        return MOVED_ELSEWHERE
    shown_ms = landed_ms + work.config.signals.usage_lag_ms
    if landed_ms and all(_reported_ms(work, name) > shown_ms for name in _brokers(work, bundle)):
        source, destination = _after(work, bundle)
        before = np.fmax(one.source_before, one.destination_before)
        is_better = max(source, destination) < before - NOTICEABLE
        return HELPED if is_better else NO_BETTER
    limit_ms = work.config.shedding.adjust_max_ms
    return NOT_SEEN if work.now_ms - one.decided_ms > limit_ms else ""


def _is_elsewhere(work: Work, bundle: str, one: PendingEffect) -> bool:
    """True if the bundle is at rest but not at the move's destination.

    The move was cancelled, or the bundle split or overridden.
    """
    record = work.ledger.record(bundle)
    if record is None or record.state is State.DELETED:
        return True
    return record.state is State.OWNED and work.now_ms > one.decided_ms


def _brokers(work: Work, bundle: str) -> Iterable[str]:
    """Source and present owner of a bundle that was moved."""
    one, record = work.pending_effects[bundle], work.ledger.record(bundle)
    return (one.source, one.destination or (record.destination if record else ""))


def _reported_ms(work: Work, broker: str) -> int:
    entry = work.brokers.get(broker)
    return entry.reported_ms if entry is not None and not entry.is_silent else 0


def _after(work: Work, bundle: str) -> tuple[float, float]:
    """Usage of source and destination as last reported."""
    source, destination = _brokers(work, bundle)
    return _usage(work, source), _usage(work, destination)


def _usage(work: Work, broker: str) -> float:
    entry = work.brokers.get(broker)
    if entry is None:
        return math.nan
    percent = np.array([entry.percent], dtype=np.float64)
    return float(weighted_usage(percent, work.config.signals)[0])


def _write(work: Work, bundle: str, one: PendingEffect, outcome: str) -> None:
    is_seen = outcome in (HELPED, NO_BETTER)
    source, destination = _after(work, bundle) if is_seen else (math.nan, math.nan)
    work.add_row(
        DECISION_EFFECTS.name,
        {
            "decision_id": one.decision_id,
            "bundle": bundle,
            "source": one.source,
            "destination": tuple(_brokers(work, bundle))[1],
            "outcome": outcome,
            "decided_ms": one.decided_ms,
            "moved_ms": one.moved_ms,
            "source_before": one.source_before,
            "source_after": source,
            "destination_before": one.destination_before,
            "destination_after": destination,
        },
    )
    work.counts[f"effect:{outcome}"] += 1

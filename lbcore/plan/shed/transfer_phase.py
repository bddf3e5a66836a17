"""The transfer shedder as a strategy of the plan's shed phase.

Decides when its hits may advance (on a fresh report of the hottest or the coldest broker), and
turns its decisions into selections. Source: Pulsar 4.0.8 UnloadScheduler; fresh hits are ours.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lbcore.config.transfer import TransferConfig
from lbcore.plan.decision import PlanState
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.shed.common import Selection, Shed, ShedState, ShedView, throughput
from lbcore.plan.shed.strategy import ShedCycle
from lbcore.plan.shed.transfer import find_transfers
from lbcore.plan.shed.transfer_types import (
    TransferDecision,
    TransferOutcome,
    TransferState,
    TransferView,
)
from lbcore.plan.shed.transfer_view import TopLists, transfer_pipeline, transfer_view


def run_transfer(cycle: ShedCycle) -> tuple[Shed, PlanState]:
    """The strategy's answer for the brokers that take part, and the state after it."""
    view, config, filters = cycle.view, cycle.config.transfer, cycle.config.filters
    index = candidate_index(view.snapshot, view.usage, filters)
    pipeline = transfer_pipeline(view.snapshot, index, filters)
    lists = TopLists(
        limit=cycle.config.signals.top_bundles, with_policies=config.shed_bundles_with_policies
    )
    store = transfer_view(view.snapshot, view.owned, pipeline, lists)
    state = without_departed(cycle.state.transfer, cycle.everyone)
    answer = shed_by_transfer(view, store, state, config, cycle.now_ms)
    return answer.shed, replace(cycle.state, transfer=answer.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferShed:
    """The strategy's answer and its next state."""

    shed: Shed
    state: TransferState


def shed_by_transfer(
    view: ShedView,
    store: TransferView,
    state: TransferState,
    config: TransferConfig,
    now_ms: int,
) -> TransferShed:
    """One cycle of TransferShedder over `store`, which shows `view`'s brokers and bundles."""
    if not _is_reported(view):
        nothing = Shed(selections=(), state=ShedState(), reason="HitCount")
        return TransferShed(shed=nothing, state=state)
    outcome, state = find_transfers(store, state, config, now_ms)
    columns = {"score": view.snapshot.brokers.weighted_max_ema}
    reason = "" if outcome.reason is None else outcome.reason.value
    shed = Shed(
        selections=_selections(view, outcome, state),
        state=ShedState(),
        reason=reason,
        columns=columns,
        numbers={
            "average": state.load_avg,
            "deviation": state.load_std,
            "target": config.target_std,
            "hits": float(state.hits),
        },
    )
    return TransferShed(shed=shed, state=state)


def _is_reported(view: ShedView) -> bool:
    """True if the spread is a fresh observation.

    It is when the hottest or the coldest broker reported.
    """
    load = view.snapshot.brokers.weighted_max_ema
    if not len(load):
        return True
    return bool(view.is_due[int(np.argmax(load))] or view.is_due[int(np.argmin(load))])


def _selections(
    view: ShedView, outcome: TransferOutcome, state: TransferState
) -> tuple[Selection, ...]:
    """A selection a pair of brokers and reason, in the order decided."""
    groups: dict[tuple[str, str, str], list[TransferDecision]] = {}
    for decision in outcome.decisions:
        key = (decision.source, decision.destination, decision.reason.value)
        groups.setdefault(key, []).append(decision)
    rows = view.snapshot.bundles.rows_of(decision.bundle for decision in outcome.decisions)
    brokers = {name: at for at, name in enumerate(view.snapshot.brokers.names)}
    numbers = {"predicted_deviation": outcome.final_std, "deviation": state.load_std}
    return tuple(
        _selection(view, (brokers[source], brokers.get(destination, -1)), found, rows, numbers)
        for (source, destination, _), found in groups.items()
    )


def _selection(
    view: ShedView,
    pair: tuple[int, int],
    decisions: Sequence[TransferDecision],
    rows: dict[str, int],
    numbers: dict[str, float],
) -> Selection:
    taken = np.array([rows[decision.bundle] for decision in decisions], dtype=np.int64)
    load = view.snapshot.brokers.weighted_max_ema
    shown = {**numbers, "score": float(load[pair[0]])}
    if pair[1] >= 0:
        shown["score_of_destination"] = float(load[pair[1]])
    return Selection(
        source=pair[0],
        destination=pair[1],
        candidates=taken,
        traffic=throughput(view.snapshot.bundles.short[taken]),
        is_taken=np.ones(len(taken), dtype=np.bool_),
        reason=decisions[0].reason.value,
        numbers=shown,
    )


def without_departed(state: TransferState, names: Collection[str]) -> TransferState:
    """The state without cool-downs of brokers that are gone."""
    known = set(names)
    kept = {name: at for name, at in state.unloaded_brokers.items() if name in known}
    return replace(state, unloaded_brokers=kept)

"""The plan of a cycle: which bundles move and split. Read this first.

`plan` passes a draft through PHASES in order; `finish` makes decisions of what they chose. The
balancer calls it in each decision cycle, and in between while a broker drains. `place` finds owners
for bundles without one, at once. The simulator and dry runs call both. Modelled on Dicer's
AlgorithmExecutor. Each rule inside the phases names its source: Pulsar 4.0.8, or Ballast.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lbcore.config.tree import Config
from lbcore.model.names import tenant_of
from lbcore.plan.decision import (
    EVERYTHING,
    ONLY_PLACES,
    Decision,
    Kind,
    Places,
    Plan,
    PlanState,
    Scope,
    Skip,
    Trace,
    with_moves,
)
from lbcore.plan.draft import Draft, Moves
from lbcore.plan.filter.index import candidate_index
from lbcore.plan.pending import (
    COLUMNS,
    PendingMove,
    move_of,
    placed_load,
    unreported_by_broker,
    with_load,
)
from lbcore.plan.phases.adjust import adjust, shift_averages
from lbcore.plan.phases.assign import assign
from lbcore.plan.phases.eligible import eligible
from lbcore.plan.phases.limit import limit
from lbcore.plan.phases.shed import shed
from lbcore.plan.phases.split import split
from lbcore.plan.registry import placement_name, shedding_name, shedding_strategy
from lbcore.plan.shed.common import ShedState, TransferState
from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Floats,
    Ints,
    Snapshot,
)
from lbcore.plan.split.decision import SplitDecision
from lbcore.plan.strategy import Destinations
from lbcore.signals.usage import weighted_usage


def initial_draft(
    snapshot: Snapshot, state: PlanState, config: Config, now_ms: int, scope: Scope
) -> Draft:
    """The draft before the first phase."""
    brokers = len(snapshot.brokers.names)
    strategy = shedding_name(config.shedding.strategy)
    if state.strategy != strategy:  # another one begins without hits and averages
        state = replace(
            state, strategy=strategy, shed=ShedState(), transfer=TransferState(), judged={}, own={}
        )
    return Draft(
        reported=snapshot,  # stays as reported
        snapshot=snapshot,  # the phases adjust it
        state=state,
        config=config,
        now_ms=now_ms,
        scope=scope,
        strategy=strategy,
        usage=np.zeros(brokers),
        has_new_report=np.zeros(brokers, dtype=np.bool_),
        index=candidate_index(snapshot),
    )


def finish(draft: Draft) -> tuple[Plan | Skip, PlanState]:
    """The plan of a draft, or the reason for none, and the state after it."""
    state, load = _remember(draft)
    usage = weighted_usage(with_load(draft.reported.brokers, load).percent, draft.config.signals)
    trace = Trace(brokers=draft.snapshot.brokers.names, numbers=draft.numbers, parts=draft.parts)
    decisions = (*_forced(draft), *_sheddings(draft, usage), *_splits(draft))
    if decisions:
        return Plan(decisions=decisions, skipped=draft.skipped, trace=trace), state
    reason = draft.skipped.get("shed", "NoBundles")
    return Skip(reason=reason, strategy=draft.strategy, skipped=draft.skipped, trace=trace), state


def _remember(draft: Draft) -> tuple[PlanState, Floats]:
    """Return the state with this plan's moves, and the load not reported yet.

    Load: float64[n, COLUMNS]. The next plans count the moves until reports show them.
    """
    moves, bundles, now_ms = draft.sheddings, draft.snapshot.bundles, draft.now_ms
    unloaded, planned = dict(draft.state.unloaded_ms), dict(draft.state.moves)
    unloaded_brokers = dict(draft.state.transfer.unloaded_brokers)
    assigned = draft.assignments
    load = _unreported_before(draft) + placed_load(
        draft.snapshot, assigned.bundle, assigned.destination
    )
    made: list[PendingMove] = []
    for step in draft.forced.steps() + moves.steps():
        bundle, source, destination = step
        move = move_of(draft.snapshot, draft.usage, step, now_ms)
        name = bundles.names[bundle]
        planned[name], unloaded[name], unloaded_brokers[move.source] = move, now_ms, now_ms
        load[source] -= move.load
        load[destination] += move.at_destination()
        made.append(move)
    namespaces = bundles.namespace[moves.bundle].tolist()
    tenants = [tenant_of(bundles.namespaces[at]) for at in namespaces]
    touched = {*assigned.destination.tolist()}
    for some in (draft.forced, moves):
        touched.update(some.source.tolist(), some.destination.tolist())
    state = replace(
        draft.state,
        moves={name: planned[name] for name in sorted(planned)},
        unseen=unreported_by_broker(
            load, draft.state.unseen, draft.reported.brokers, dict.fromkeys(touched, now_ms)
        ),
        unloaded_ms=unloaded,
        gave_ms=_last_times(draft, draft.state.gave_ms, moves.source),
        took_ms=_last_times(draft, draft.state.took_ms, moves.destination),
        hourly=with_moves(draft.state.hourly, tenants, now_ms),
        transfer=replace(draft.state.transfer, unloaded_brokers=unloaded_brokers),
    )
    if draft.config.shedding.adjust_load:
        state = shift_averages(state, made, -1.0)  # sources carry less, destinations more
    return state, load


def _last_times(draft: Draft, before: Mapping[str, int], brokers: Ints) -> dict[str, int]:
    """Return when each broker last gave (or took), ms, within the role cool-down."""
    after_ms, table = draft.now_ms - draft.config.shedding.role_cool_down_ms, draft.snapshot.brokers
    kept = {name: at_ms for name, at_ms in before.items() if at_ms > after_ms}
    return kept | {table.names[at]: draft.now_ms for at in brokers.tolist() if at >= 0}


def _unreported_before(draft: Draft) -> Floats:
    """Return the unreported load before the plan, float64[n, COLUMNS]."""
    known, names = draft.state.unseen, draft.reported.brokers.names
    found = np.zeros((len(names), COLUMNS))
    for at, name in enumerate(names):
        if name in known:
            found[at] = known[name].load
    return found


def _forced(draft: Draft) -> list[Decision]:
    """Moves that operators want: to the bundle's pin, or away from a draining broker."""
    bundles, brokers = draft.snapshot.bundles.names, draft.snapshot.brokers
    return [
        Decision(
            kind=Kind.DRAIN if brokers.is_draining[source] else Kind.TRANSFER,
            strategy=placement_name(draft.config.placement.strategy),
            reason="Draining" if brokers.is_draining[source] else "Pinned",
            bundle=bundles[bundle],
            source=brokers.names[source],
            destination=brokers.names[destination],
        )
        for bundle, source, destination in draft.forced.steps()
    ]


def _sheddings(draft: Draft, usage: Floats) -> list[Decision]:
    """Return the strategy's moves.

    usage: float64[n], expected after the whole plan.
    """
    bundles, brokers = draft.snapshot.bundles.names, draft.snapshot.brokers.names
    chosen = shedding_strategy(draft.config)
    has_no_destination = chosen.destinations(draft.config) == Destinations.UNPLANNED
    shared: dict[str, Any] = {
        name.removeprefix("shed."): value
        for name, value in draft.numbers.items()
        if name.startswith("shed.")
    }
    if chosen.code:
        shared["code"] = chosen.code
    decisions = []
    origins = draft.sheddings.origin.tolist()
    for step, origin in zip(draft.sheddings.steps(), origins, strict=True):
        (bundle, source, destination), selection = step, draft.selections[origin]
        inputs = {**shared, **selection.numbers}
        # the broker with which the strategy reckoned; placement may have chosen another one
        partner = selection.destination
        if partner >= 0 and "score_of_destination" in inputs:
            inputs["partner"] = brokers[partner]
            inputs["score_of_partner"] = inputs["score_of_destination"]
            if partner != destination:
                del inputs["score_of_destination"]
        inputs |= _expected_usages(draft, usage, bundle, source, destination)
        decision = Decision(
            kind=Kind.UNLOAD if has_no_destination else Kind.TRANSFER,
            strategy=draft.strategy,
            reason=selection.reason,
            bundle=bundles[bundle],
            source=brokers[source],
            destination="" if has_no_destination else brokers[destination],
            expected=brokers[destination] if has_no_destination and destination >= 0 else "",
            inputs=inputs,
        )
        decisions.append(decision)
    return decisions


def _expected_usages(
    draft: Draft, usage: Floats, bundle: int, source: int, destination: int
) -> dict[str, float]:
    """Return the bundle's traffic, and both brokers' usages before and after the plan.

    Before: with earlier moves that reports don't show yet. Usage 1.0 = 100 %.
    """
    traffic = draft.snapshot.bundles.short[bundle].tolist()
    found = {
        "msg_rate": traffic[RATE_IN] + traffic[RATE_OUT],
        "throughput": traffic[THROUGHPUT_IN] + traffic[THROUGHPUT_OUT],
        "source_usage": float(draft.usage[source]),
        "source_usage_expected": float(usage[source]),
    }
    if destination < 0:
        return found
    return {
        **found,
        "destination_usage": float(draft.usage[destination]),
        "destination_usage_expected": float(usage[destination]),
    }


def _splits(draft: Draft) -> list[Decision]:
    return [
        Decision(
            kind=Kind.SPLIT,
            strategy=found.algorithm.value,
            reason=found.reason.value,
            bundle=found.name,
            source=found.broker,
            inputs={
                "hits": found.hits,
                "hits_needed": draft.config.splitting.hit_count_threshold + 1,
                "excess": found.excess,
                "topics": int(draft.snapshot.bundles.topics[found.bundle]),
                "sessions": int(draft.snapshot.bundles.sessions[found.bundle]),
                "children": list(found.children),
            },
            split=found,
            children={child: draft.children.get(child, "") for child in found.children},
        )
        for found in draft.splits
    ]


PHASES = (
    adjust,  #   adjusts reported load, finds brokers with a new report
    eligible,  # bundles that may move, isolation groups
    shed,  #     the strategy: who gives what
    split,  #    which bundles are divided
    assign,  #   where shed and drained bundles and children of splits go
    limit,  #    how much of it at once
)
PLACING = (
    adjust,  # as in a cycle
    assign,  # where unowned bundles and children of splits go
)


def plan(
    snapshot: Snapshot, state: PlanState, config: Config, now_ms: int, scope: Scope = EVERYTHING
) -> tuple[Plan | Skip, PlanState]:
    """Return the decisions of this cycle and the new state.

    A skip advances hits and averages too. Deterministic. O(brokers log brokers + bundles).
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
    """Return brokers for bundles at once, apart from a plan, by the phases PLACING.

    For bundles that need an owner now (`BundleTable.needs_owner`), and the children of these
    splits. The placed load counts for its broker until the broker reports it. O(bundles + placed x
    brokers).
    """
    draft = replace(
        initial_draft(snapshot, state, config, now_ms, ONLY_PLACES), splits=tuple(splits)
    )
    for phase in PLACING:
        draft = phase(draft)
    state, _ = _remember(draft)
    bundles, brokers = draft.snapshot.bundles.names, draft.snapshot.brokers.names
    found = {bundles[bundle]: brokers[at] for bundle, _, at in draft.assignments.steps()}
    trace = Trace(brokers=brokers, numbers=draft.numbers, parts=draft.parts)
    return Places(found={**found, **draft.children}, trace=trace), state


def project_moves(
    snapshot: Snapshot, state: PlanState, config: Config, now_ms: int, moves: Moves
) -> tuple[Floats, Floats, PlanState]:
    """Return usages before and after these moves, and the state with them decided.

    Weighted, float64[n], 1.0 = 100 %; both count load that reports don't show yet. O(bundles +
    policies x (brokers + namespaces) + moves).
    """
    draft = replace(
        adjust(initial_draft(snapshot, state, config, now_ms, ONLY_PLACES)), sheddings=moves
    )
    state, load = _remember(draft)
    brokers, signals = draft.reported.brokers, draft.config.signals
    before = weighted_usage(with_load(brokers, _unreported_before(draft)).percent, signals)
    return before, weighted_usage(with_load(brokers, load).percent, signals), state

"""The cycle: owners for free bundles, and, when it is due, the plan's decisions carried out.

Decides when: free bundles are placed once no broker has joined for a moment, so that the first one
up doesn't get everything; a plan is made every decision interval, unless something speaks against
it (`restraint`); drains go on between the cycles too. What and where is `lbcore.plan`'s to say.
Last deciding phase of `balancer`. Source: ours.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from lbcore.balancer.decisions.approvals import propose
from lbcore.balancer.decisions.candidate_rows import skip_inputs, write_candidates
from lbcore.balancer.decisions.carrying_out import carry_out
from lbcore.balancer.decisions.hot_brokers import Planned, watch_hot
from lbcore.balancer.decisions.placing import (
    make_snapshot,
    place,
    planning_config,
    usable_brokers,
    write_places,
)
from lbcore.balancer.decisions.restraint import (
    PLAN_WAITS,
    reason_not_to_balance,
    reason_to_stand_still,
)
from lbcore.balancer.decisions.turns import is_due
from lbcore.balancer.intake.external import is_external
from lbcore.balancer.state.ledger import CAUSE_CODE
from lbcore.balancer.state.shadows import CycleSeen
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.creations import is_rest
from lbcore.balancer.tasks.deletions import is_deleting
from lbcore.balancer.tasks.drains import is_emptying
from lbcore.config.ownership import EAGER
from lbcore.ownership.changes import Transition
from lbcore.ownership.protocol import assign
from lbcore.ownership.records import Cause, State
from lbcore.plan.decision import Plan, PlanState, Scope
from lbcore.plan.phases.shed import PHASE as SHED
from lbcore.plan.planner import plan
from lbcore.plan.registry import find_shedding, placement_name, shedding_strategy
from lbcore.plan.shed.own import FAULTS
from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Ints,
    Snapshot,
)

ALARM = "strategy"
"""A strategy that is not Ballast's decides nothing, by its own fault."""

_SETTLING_ROUNDS = 5
_ONLY_WISHES = Scope(sheds=False, splits=False, is_traced=True)
"""A plan that only moves what operators want moved: off draining brokers, and to pins."""


def place_free(work: Work) -> None:
    """Give the bundles that are free, and are not left for somebody to ask, their owners."""
    if is_external(work):
        work.counts["free_elsewhere"] += len(work.ledger.rows_in(State.FREE))
    elif work.config.ownership.assign == EAGER and not work.is_catching_up:
        _assign_each(work, work.ledger.rows_in(State.FREE))
    elif _is_cycle_due(work) and not work.is_catching_up:
        _assign_each(work, _freed(work))


def _assign_each(work: Work, free: Ints) -> None:
    work.guard.each(
        "assign_free",
        free.tolist(),
        lambda rows: assign_free(work, rows),
        lambda row, _: work.ledger.names[row],
    )


def _is_cycle_due(work: Work) -> bool:
    return is_due(work, work.times.cycle_ms, work.config.pipeline.decision_interval_ms)


def run_cycle(work: Work) -> None:
    """Plan when a plan is due."""
    is_cycle = _is_cycle_due(work)
    if not is_cycle and not is_emptying(work):
        return
    if is_cycle:
        work.note(cycle=work.times.cycle + 1, cycle_ms=work.now_ms)
    reason, inputs = reason_to_stand_still(work)
    if not reason and is_cycle:
        balancing = _scope(work)
        reason, inputs = reason_not_to_balance(work)
        shadows = balancing if reason in ("", PLAN_WAITS) else _ONLY_WISHES
        _plan(work, _ONLY_WISHES if reason else balancing, shadows)
    elif not reason:
        _plan(work, _ONLY_WISHES, _ONLY_WISHES)
    if reason and is_cycle:
        work.write_decision(work.next_decision(), "skip", reason, inputs)


def _freed(work: Work) -> Ints:
    """The free bundles that had an owner once: on demand, only new ones wait for a lookup."""
    free = work.ledger.rows_in(State.FREE)
    freed: Ints = free[work.ledger.cause[free] != CAUSE_CODE[Cause.CREATE]]
    return freed


def assign_free(work: Work, rows: Sequence[int]) -> None:
    """Give free bundles their owners. rows: of the ledger, ascending. O(bundles)."""
    free = [row for row in rows if _is_due(work, row)]
    places = place(work, free, {})
    if not places.found:
        return
    decision_id = work.next_decision()
    origin = work.origin(Cause.ASSIGN, decision_id)
    assigned: list[str] = []
    for row in free:
        broker = places.found.get(work.ledger.names[row])
        if broker is None:
            continue
        answer = assign(work.ledger.record_at(row), work.instance(broker), origin)
        if isinstance(answer, Transition):
            work.apply(answer)
            assigned.append(broker)
    work.write_decision(
        decision_id,
        kind="assign",
        reason="Unowned",
        inputs={"bundles": len(assigned), "brokers": len(set(assigned))},
        strategy=placement_name(work.config.placement.strategy),
    )
    write_places(work, places)


def _is_due(work: Work, row: int) -> bool:
    """Whether a free bundle gets an owner now: brokers have settled, and it is to stay."""
    name = work.ledger.names[row]
    if is_deleting(work, name.rpartition("/")[0]) or is_rest(work, name):
        return False
    settle_ms = work.config.pipeline.settle_ms
    waited_ms = work.clock_ms - int(work.ledger.clock_ms[row])
    quiet_ms = work.clock_ms - work.times.newcomer_clock_ms
    return quiet_ms >= settle_ms or waited_ms >= _SETTLING_ROUNDS * settle_ms


def _scope(work: Work) -> Scope:
    """What this cycle does; sheds and splits have intervals of their own."""
    rhythm, times = work.config.pipeline, work.times
    is_shedding = is_due(work, times.shed_ms, rhythm.shed_interval_ms) or _is_ripe(work)
    is_splitting = is_due(work, times.split_ms, rhythm.split_interval_ms)
    work.note(
        shed_ms=work.now_ms if is_shedding else times.shed_ms,
        split_ms=work.now_ms if is_splitting else times.split_ms,
    )
    return Scope(sheds=is_shedding, splits=is_splitting, observes=not is_shedding, is_traced=True)


def _is_ripe(work: Work) -> bool:
    """Whether a round need not wait for its place on the grid, where rounds are rarer than cycles.

    Some broker had all its high hits in the last cycle already, for what follows a jump of load
    at once may see a part of it only; and nothing was moved for an interval. O(brokers + bundles
    that have moved in the last hour).
    """
    config, state = planning_config(work), work.plan.shed
    strategy = find_shedding(config)
    if strategy is None or strategy.observe is None:
        return False
    _, needed = strategy.hits_needed(config)
    moved_ms = max(state.left_ms.values(), default=0)
    is_full = any(abs(hits) >= needed for hits in state.hits_high.values())
    return is_full and work.now_ms - moved_ms >= config.pipeline.shed_interval_ms


def _plan(work: Work, scope: Scope, shadows: Scope) -> None:
    """Plan and carry it out. shadows: what those that think along may do."""
    snapshot, rows = make_snapshot(work, usable_brokers(work))
    config = planning_config(work)
    before = work.plan
    result, after = plan(snapshot, before, config, work.now_ms, scope)
    if propose(work, snapshot, result):
        # what waits is not decided: the memory goes on without it, and with what operators want
        scope = _ONLY_WISHES
        result, after = plan(snapshot, before, config, work.now_ms, scope)
    work.plan = after
    if work.config.cluster.shadow:
        work.cycle_seen = CycleSeen(snapshot=snapshot, rows=rows, before=before, scope=shadows)
    made = Planned(snapshot=snapshot, before=before, config=config, scope=scope, result=result)
    watch_hot(work, made)
    _tell_unsplittable(work, snapshot, before.split.unsplittable)
    if result.skipped.get(SHED) in FAULTS:
        work.alarms.add(ALARM)
    if not isinstance(result, Plan):
        if scope is _ONLY_WISHES:
            return
        code = shedding_strategy(config).code
        inputs = {"skipped": dict(result.skipped), **skip_inputs(result.trace)}
        inputs |= {"code": code} if code else {}
        work.write_decision(
            work.next_decision(), "skip", result.reason, inputs, strategy=result.strategy
        )
        write_candidates(work, result.trace, {})
        return
    ids: dict[str, str] = {}
    refused: set[str] = set()
    for decision in result.decisions:
        done = carry_out(work, decision)
        ids |= dict.fromkeys((decision.bundle, *decision.children), done.decision_id)
        refused |= {decision.bundle} if done.refused else set()
    _forget_refused(work, before, refused)
    write_candidates(work, result.trace, ids)
    if work.cycle_seen is not None:
        begun = {after.decision_id for _, after in work.transitions}
        carried = tuple(one for one in result.decisions if ids[one.bundle] in begun)
        work.cycle_seen = replace(work.cycle_seen, carried=carried)


def _forget_refused(work: Work, before: PlanState, refused: Collection[str]) -> None:
    """Keep moves that were refused from counting as load on its way."""
    if refused:
        moves = {name: move for name, move in work.plan.moves.items() if name not in refused}
        moves |= {name: before.moves[name] for name in refused if name in before.moves}
        work.plan = replace(work.plan, moves={name: moves[name] for name in sorted(moves)})


def _tell_unsplittable(work: Work, snapshot: Snapshot, known: Mapping[str, int]) -> None:
    """A row for each bundle that was found to be over a limit and that nothing can divide."""
    found = work.plan.split.unsplittable
    new = {name for name, topics in found.items() if known.get(name) != topics}
    bundles = snapshot.bundles
    for row, name in sorted((row, name) for name, row in bundles.rows_of(new).items()):
        owner = int(bundles.owner[row])
        traffic = bundles.short[row].tolist()
        inputs = {
            "topics": int(bundles.topics[row]),
            "msg_rate": traffic[RATE_IN] + traffic[RATE_OUT],
            "throughput": traffic[THROUGHPUT_IN] + traffic[THROUGHPUT_OUT],
        }
        source = snapshot.brokers.names[owner] if owner >= 0 else ""
        names = {"bundle": name, "source": source}
        work.write_decision(work.next_decision(), "skip", "unsplittable", inputs, **names)

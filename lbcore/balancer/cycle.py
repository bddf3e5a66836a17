"""Decision cycle: owners for free bundles, then the plan and its execution.

Free bundles are placed once no broker has joined for a moment, so that the first one up does not
get everything. A plan is made every decision interval, unless `moves.reason_to_stand_still`
forbids it; `moves.reason_not_to_balance` leaves only operators' moves. While a broker drains,
drains and moves to pins go on between the cycles. Merges and plans that wait follow as phases of
their own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from lbcore.balancer.approvals import propose
from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.brokers import is_external, usable_brokers
from lbcore.balancer.candidate_rows import BLOCKED, ENDED, skip_inputs, write_candidates
from lbcore.balancer.ledger import CAUSE_CODE
from lbcore.balancer.moves import (
    carry_out,
    is_emptying,
    reason_not_to_balance,
    reason_to_stand_still,
)
from lbcore.balancer.namespaces import is_deleting, is_placeholder
from lbcore.balancer.placement import (
    is_cycle_due,
    is_due,
    make_snapshot,
    place,
    planning_config,
    report_stranded,
    write_places,
)
from lbcore.config.ownership import EAGER
from lbcore.ownership.protocol import assign
from lbcore.ownership.records import Cause, State
from lbcore.plan.blocked import beyond_threshold, blocked_brokers, givers, stuck
from lbcore.plan.decision import Hot, Plan, Scope, Skip
from lbcore.plan.groups import group_means, members_by_group
from lbcore.plan.phases import eligible, shed
from lbcore.plan.planner import plan
from lbcore.plan.readings import TARGET_POINTS, missing_brokers
from lbcore.plan.registry import find_shedding, placement_name, shedding_strategy
from lbcore.plan.shed.custom import FAULTS
from lbcore.plan.snapshot import (
    RATE_IN,
    RATE_OUT,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    Snapshot,
)
from lbcore.signals.usage import weighted_usage

REPEAT_MS = 60_000
"""Interval at which a lasting state is recorded again, ms."""
_NAMED = 5
"""Maximum brokers named of a full group."""
FULL, CLUSTER = "full", ""
"""FULL: alarm and row kind of a full cluster. CLUSTER: its key in `PlanState.hot`."""


def watch_hot(
    work: BatchContext, snapshot: Snapshot, before: Mapping[str, Hot], result: Plan | Skip
) -> None:
    """Record hot brokers that shed nothing: at once, each minute, and at the end.

    before: the hot brokers before the plan. The row has the verdicts on their bundles from the
    plan's trace. O(bundles) a minute.
    """
    known = {name: hot for name, hot in before.items() if name != CLUSTER}
    beyond = beyond_threshold(result) - givers(result)
    hot = {name: known.get(name, Hot(since_ms=work.now_ms)) for name in sorted(beyond)}
    for name in sorted(name for name in known.keys() - hot if known[name].told_ms):
        work.write_decision(BLOCKED, ENDED, {"since_ms": known[name].since_ms}, source=name)
    verdicts = {
        name: verdict
        for name, verdict in stuck(result).items()
        if name in hot and work.now_ms - hot[name].told_ms >= REPEAT_MS
    }
    if verdicts:
        usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
        names = snapshot.brokers.names
        means = group_means(names, work.plan.groups, usage)
        mean = np.array([means.get(name, 0.0) for name in names])
        for found in blocked_brokers(result.trace, verdicts, usage, mean):
            now = replace(hot[found.broker], told_ms=work.now_ms, reason=found.reason)
            hot[found.broker] = now
            inputs = {"since_ms": now.since_ms, **asdict(found)}
            work.write_decision(BLOCKED, found.reason, inputs, source=found.broker)
    kept = {name: one for name, one in work.plan.hot.items() if name == CLUSTER}
    work.plan = replace(work.plan, hot={**kept, **hot})


def watch_full(work: BatchContext, snapshot: Snapshot) -> None:
    """Record that the cluster is full: at its start, each minute, and at its end.

    The decision's inputs are on the isolation group that lacks the most brokers; a cluster without
    policies is one group.
    """
    usage = weighted_usage(snapshot.brokers.percent, work.config.signals)
    names, draining = snapshot.brokers.names, snapshot.brokers.is_draining
    inputs: dict[str, Any] = {"mean": 0.0, "missing": 0, "brokers": len(usage)}
    for group, members in members_by_group(names, work.plan.groups).items():
        missing, mean = missing_brokers(snapshot.brokers, usage, members)
        if missing > inputs["missing"]:
            staying = [names[at] for at in members.tolist() if not draining[at]]
            inputs = {
                "mean": mean,
                "missing": missing,
                "brokers": len(staying),
                "of": staying[:_NAMED],
                **({"group": group} if group else {}),
            }
    inputs["target"] = TARGET_POINTS
    known = work.plan.hot.get(CLUSTER)
    others = {name: hot for name, hot in work.plan.hot.items() if name != CLUSTER}
    if not inputs["missing"] and known is not None:
        work.plan = replace(work.plan, hot=others)
        work.write_decision(FULL, ENDED, inputs)
    elif inputs["missing"]:
        now = known or Hot(since_ms=work.now_ms)
        if work.now_ms - now.told_ms >= REPEAT_MS:
            now = replace(now, told_ms=work.now_ms)
            work.write_decision(FULL, "Full", inputs)
        work.plan = replace(work.plan, hot={CLUSTER: now, **others})


ALARM = "strategy"
"""Alarm: a strategy of the user's own failed, and nothing is shed."""

_SETTLE_PERIODS = 5
"""Multiple of `settle_ms` after which free bundles get owners though brokers still join."""
_OPERATOR_MOVES_ONLY = Scope(sheds=False, splits=False, is_traced=True)
"""Scope of a plan with operators' moves only: off draining brokers, and to pins."""


def place_free(work: BatchContext) -> None:
    """Assign owners to free bundles that don't wait for a lookup."""
    is_eager = work.config.ownership.assign == EAGER
    if is_external(work):
        work.counts["free_elsewhere"] += len(work.ledger.rows_in(State.FREE))
    elif (is_eager or is_cycle_due(work)) and not work.is_catching_up:
        free = work.ledger.rows_in(State.FREE)
        if not is_eager:  # new ones wait for a lookup, those that had an owner do not
            free = free[work.ledger.cause[free] != CAUSE_CODE[Cause.CREATE]]
        work.guard.each(
            "assign_free",
            free.tolist(),
            lambda rows: assign_free(work, rows),
            lambda row, _: work.ledger.names[row],
        )


def run_cycle(work: BatchContext) -> None:
    """Plan if a cycle is due; between cycles, drains and pins while a broker empties.

    Sheds and splits have intervals of their own.
    """
    if CLUSTER in work.plan.hot:
        work.alarms.add(FULL)
    is_cycle = is_cycle_due(work)
    if not is_cycle and not is_emptying(work):
        return
    if is_cycle:
        work.set_times(cycle=work.times.cycle + 1, cycle_ms=work.now_ms)
    reason, inputs = reason_to_stand_still(work)
    if not reason and is_cycle:
        config, times = work.config.pipeline, work.times
        sheds = is_due(work, times.shed_ms, config.shed_interval_ms) or _is_early_shed_due(work)
        splits = is_due(work, times.split_ms, config.split_interval_ms)
        # a due interval begins anew, also if a reason forbids balancing
        work.set_times(
            shed_ms=work.now_ms if sheds else times.shed_ms,
            split_ms=work.now_ms if splits else times.split_ms,
        )
        reason, inputs = reason_not_to_balance(work)
        # observes: a strategy counts hits also when no shedding is due
        balancing = Scope(sheds=sheds, splits=splits, observes=not sheds, is_traced=True)
        _plan(work, _OPERATOR_MOVES_ONLY if reason else balancing)
    elif not reason:
        _plan(work, _OPERATOR_MOVES_ONLY)
    if reason and is_cycle:
        work.write_decision("skip", reason, inputs)


def assign_free(work: BatchContext, rows: Sequence[int]) -> None:
    """Give free bundles their owners. rows: of the ledger, ascending. O(bundles)."""
    free = [row for row in rows if _may_be_placed(work, row)]
    places = place(work, free, {})
    if not places.found:
        return
    decision_id = work.next_decision()
    origin = work.origin(Cause.ASSIGN, decision_id)
    assigned: list[str] = []
    for row in free:
        broker = places.found.get(work.ledger.names[row])
        if broker is not None and not work.apply(
            assign(work.ledger.record_at(row), work.instance(broker), origin)
        ):
            assigned.append(broker)
    work.write_decision(
        decision_id=decision_id,
        kind="assign",
        reason="Unowned",
        inputs={"bundles": len(assigned), "brokers": len(set(assigned))},
        strategy=placement_name(work.config.placement.strategy),
    )
    write_places(work, places)


def _may_be_placed(work: BatchContext, row: int) -> bool:
    """True if a free bundle may get its owner now.

    Not while its namespace is being deleted, it stands for bundles to be created, or more brokers
    may join.
    """
    name = work.ledger.names[row]
    if is_deleting(work, name.rpartition("/")[0]) or is_placeholder(work, name):
        return False
    settle_ms = work.config.pipeline.settle_ms
    waited_ms = work.times.clock_ms - int(work.ledger.clock_ms[row])
    quiet_ms = work.times.clock_ms - work.times.newcomer_clock_ms
    return quiet_ms >= settle_ms or waited_ms >= _SETTLE_PERIODS * settle_ms


def _is_early_shed_due(work: BatchContext) -> bool:
    """Return True if a shedding round may run before its regular time.

    Used where rounds are rarer than cycles. It needs `shed_interval_ms` since the last move, not
    the last round, and a broker whose high hits were complete after the last cycle: the first
    reports after a jump of load show only a part of it. O(brokers + bundles within their grace
    period).
    """
    config, state = planning_config(work), work.plan.shed
    now_ms = work.now_ms
    strategy = find_shedding(config)
    if strategy is None or strategy.observe is None:
        return False
    _, needed = strategy.hits_needed(config)
    moved_ms = max(
        (at_ms for at_ms in work.plan.unloaded_ms.values() if at_ms <= now_ms), default=0
    )
    has_all_hits = any(abs(hits) >= needed for hits in state.hits_high.values())
    return has_all_hits and now_ms - moved_ms >= config.pipeline.shed_interval_ms


def _plan(work: BatchContext, scope: Scope) -> None:
    """Plan within this scope; carry the plan out, or record why it decided nothing."""
    snapshot, _ = make_snapshot(work, usable_brokers(work))
    config = planning_config(work)
    before = work.plan
    result, after = plan(snapshot, before, config, work.now_ms, scope)
    work.plan = replace(before, groups=after.groups)  # `propose` reads the groups
    if propose(work, snapshot, result):
        # what awaits approval is not decided: plan again, with the operators' moves only
        scope = _OPERATOR_MOVES_ONLY
        result, after = plan(snapshot, before, config, work.now_ms, scope)
    work.plan = after
    if scope.sheds:
        watch_hot(work, snapshot, before.hot, result)
    watch_full(work, snapshot)
    # the trace has this number only if policies admit some owned bundles on no broker
    if (
        scope is not _OPERATOR_MOVES_ONLY
        and f"{eligible.PHASE}.{eligible.STRANDED}" in result.trace.numbers
    ):
        report_stranded(work, snapshot)
    _record_unsplittable(work, snapshot, before.split.unsplittable)
    if result.skipped.get(shed.PHASE) in FAULTS:
        work.alarms.add(ALARM)
    if not isinstance(result, Plan):
        if scope is _OPERATOR_MOVES_ONLY:
            return
        code = shedding_strategy(config).code
        inputs = {
            "skipped": dict(result.skipped),
            **skip_inputs(result.trace),
            **({"code": code} if code else {}),
        }
        work.write_decision("skip", result.reason, inputs, strategy=result.strategy)
        write_candidates(work, result.trace, {})
        return
    ids: dict[str, str] = {}
    for decision in result.decisions:
        # when it is refused its bundle stays: the next plan sees that, and counts no move
        decision_id, _ = carry_out(work, decision)
        ids |= dict.fromkeys((decision.bundle, *decision.children), decision_id)
    write_candidates(work, result.trace, ids)


def _record_unsplittable(work: BatchContext, snapshot: Snapshot, known: Mapping[str, int]) -> None:
    """Record each newly found bundle that is over a limit and that nothing can divide.

    known: bundle → its topics, of those found before.
    """
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
        work.write_decision("skip", "unsplittable", inputs, bundle=name, source=source)

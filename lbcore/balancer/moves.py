"""Moves: decisions executed as transitions, their effects, drains and pins."""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from lbcore.balancer.batch_context import BatchContext, UnmeasuredMove
from lbcore.balancer.book import DONE, TIMED_OUT, BrokerEntry, Outcome
from lbcore.balancer.brokers import held_by, is_external, reason_not_to_take, usable_brokers
from lbcore.balancer.namespaces import is_deleting
from lbcore.balancer.placement import planning_config
from lbcore.balancer.rules import WHOLE_CLUSTER, Pin, PlanStatus
from lbcore.balancer.waiting import finish_command
from lbcore.model.names import namespace_of_bundle
from lbcore.model.tables import DECISION_EFFECTS
from lbcore.ownership.protocol import split, transfer, unload
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.plan.decision import Decision, Kind
from lbcore.signals.usage import weighted_usage

HELPED, NO_BETTER = "helped", "ineffective"
UNOBSERVED, MOVED_ELSEWHERE = "unobserved", "moved_elsewhere"
NOTICEABLE = 0.005
"""Smallest fall of usage that counts as one, 1.0 = 100 %."""
UNMEASURED_MAX = 5_000


def observe_moves(work: BatchContext) -> None:
    """Record the effects that are visible now. O(unmeasured moves).

    Their moves are then forgotten.
    """
    moves = work.unmeasured_moves
    records = {bundle: work.ledger.record(bundle) for bundle in sorted(moves)}
    together: dict[tuple[int, str, str], list[UnmeasuredMove]] = {}  # of one plan and pair
    for bundle, record in records.items():
        one = moves[bundle]
        owner = record.destination if record and record.state is State.OWNED else one.source
        if not one.moved_ms and owner != one.source and one.destination in ("", owner):
            moves[bundle] = replace(one, moved_ms=work.now_ms, moved_tick_ms=work.times.tick_ms)
        pair = (one.decided_ms, one.source, one.destination)
        together.setdefault(pair, []).append(moves[bundle])
    landed = {
        pair: max(one.moved_tick_ms for one in some) if all(one.moved_ms for one in some) else 0
        for pair, some in together.items()
    }
    for bundle, record in records.items():
        one = moves[bundle]
        destination = one.destination or (record.destination if record else "")
        entries = [work.brokers.get(name) for name in (one.source, destination)]
        landed_ms = landed[one.decided_ms, one.source, one.destination]
        outcome, source_after, destination_after = _outcome(work, one, record, entries, landed_ms)
        if outcome:
            work.add_row(
                DECISION_EFFECTS.name,
                {
                    "decision_id": one.decision_id,
                    "bundle": bundle,
                    "source": one.source,
                    "destination": destination,
                    "outcome": outcome,
                    "decided_ms": one.decided_ms,
                    "moved_ms": one.moved_ms,
                    "source_before": one.source_before,
                    "source_after": source_after,
                    "destination_before": one.destination_before,
                    "destination_after": destination_after,
                },
            )
            work.counts[f"effect:{outcome}"] += 1
            del moves[bundle]


def _outcome(
    work: BatchContext,
    one: UnmeasuredMove,
    record: OwnershipRecord | None,
    entries: Sequence[BrokerEntry | None],
    landed_ms: int,
) -> tuple[str, float, float]:
    """Return the effect of a move, and the usage of both brokers after it; "" = wait.

    entries: of source and destination. landed_ms: when the last of the plan's moves between the
    pair landed, 0 = some are under way. A bundle that is gone, or Owned by a broker other than the
    planned one, gets MOVED_ELSEWHERE: it was split or overridden, or its move was cancelled.
    """
    is_gone = record is None or record.state is State.DELETED
    is_owned = record is not None and record.state is State.OWNED
    if not one.moved_ms and (is_gone or (is_owned and work.now_ms > one.decided_ms)):
        return MOVED_ELSEWHERE, math.nan, math.nan
    shown_ms = landed_ms + work.config.signals.usage_lag_ms
    live = [e for e in entries if e and not e.is_dead and e.reported_ms > shown_ms]
    if landed_ms and len(live) == len(entries):
        percent = np.array([entry.percent for entry in live], dtype=np.float64)
        source, destination = weighted_usage(percent, work.config.signals).tolist()
        before = np.fmax(one.source_before, one.destination_before)
        is_better = max(source, destination) < before - NOTICEABLE
        return HELPED if is_better else NO_BETTER, source, destination
    is_late = work.now_ms - one.decided_ms > work.config.shedding.adjust_max_ms
    return UNOBSERVED if is_late else "", math.nan, math.nan


PLAN_WAITS = "PlanWaits"
OBSERVE_ONLY = "observe_only"

Reason = tuple[str, dict[str, Any]]
"""A label, "" = there is none, and the numbers behind it."""


def reason_to_stand_still(work: BatchContext) -> Reason:
    """Return the reason why nothing is moved, split or drained now; "" if none."""
    rules, behind_ms = work.rules, work.now_ms - work.times.tick_ms
    brake, paused = rules.brake, rules.paused.get(WHOLE_CLUSTER)
    if brake is not None:
        since = {"since_ms": brake.since_ms, "lost": list(brake.lost), "brokers": brake.brokers}
        return "Brake", since
    if paused is not None:
        return "Paused", {"since_ms": paused.since_ms, "by": paused.by, "why": paused.reason}
    if not usable_brokers(work):
        return "NoBrokers", {"behind_ms": behind_ms}
    limit_ms = work.config.pipeline.plan_lag_max_ms
    if behind_ms > limit_ms:
        return "OutDatedData", {"behind_ms": behind_ms, "plan_lag_max_ms": limit_ms}
    return "", {}


def reason_not_to_balance(work: BatchContext) -> Reason:
    """Return the reason why nothing is shed or split now; "" if none.

    Operators' requests are still carried out.
    """
    pipeline, names = work.config.pipeline, usable_brokers(work)
    live = [entry for entry in work.brokers.values() if not entry.is_dead]
    stale_ms = work.times.tick_ms - pipeline.report_age_max_ms
    stale = sum(work.brokers[name].reported_ms < stale_ms for name in names)
    restarted_ms = work.now_ms - pipeline.restart_settle_ms
    restarted = sum(entry.restarted_ms > restarted_ms for entry in live)
    inputs = {
        "brokers": len(live),
        "stale": stale,
        "restarted": restarted,
        "report_age_max_ms": pipeline.report_age_max_ms,
        "restart_settle_ms": pipeline.restart_settle_ms,
        "unsettled_max_percent": pipeline.unsettled_max_percent,
    }
    if 100 * stale > pipeline.unsettled_max_percent * len(names):
        return "StaleReports", inputs
    if 100 * restarted > pipeline.unsettled_max_percent * len(live):
        return "JustRestarted", inputs
    for name, proposal in sorted(work.rules.proposals.items()):
        # a waiting plan of a person holds up no cycle
        is_waiting = proposal.station is PlanStatus.WAITS and not proposal.by
        if is_waiting or proposal.station is PlanStatus.APPROVED:
            plan = {"plan": name, "station": proposal.station.value, "until_ms": proposal.until_ms}
            return PLAN_WAITS, plan
    quiet_until_ms = work.config.cluster.quiet_until_ms(work.now_ms)
    if quiet_until_ms:
        return "QuietHours", {"until_ms": quiet_until_ms}
    return "", {}


def reason_to_stay(
    work: BatchContext, bundle: str, destination: str = "", *, is_split: bool = False
) -> str:
    """Return the reason why a bundle may not be moved or split now; "" if it may.

    By the rules of its bundle and namespace. destination: "" = placement chooses. Splits ignore
    pins and exclusion, as in a cycle: children stay on the broker of their parent's pin.
    """
    namespace = namespace_of_bundle(bundle)
    if is_deleting(work, namespace):
        return f"namespace {namespace} is being deleted"
    if namespace in work.rules.paused:
        return f"namespace {namespace} is paused"
    if is_split:
        return ""
    if namespace in planning_config(work).shedding.excluded_namespaces:
        return f"namespace {namespace} is excluded from shedding"
    pin = work.rules.pins.get(bundle)
    if pin is not None and pin.broker != destination:
        return f"it is pinned to {pin.broker}"
    return reason_not_to_take(work, destination)


def is_only_observed(work: BatchContext, decision: Decision) -> bool:
    """Return whether `cluster.observe_only` keeps a decision from being carried out.

    Drains and pins are operators' commands: it does not hold them back, unless another authority
    owns the cluster, whose bridge then carries nothing out.
    """
    is_asked_for = decision.kind is Kind.DRAIN or decision.reason == "Pinned"
    return work.config.cluster.observe_only and (is_external(work) or not is_asked_for)


def carry_out(work: BatchContext, decision: Decision) -> tuple[str, str]:
    """Make the decision's transition and its row; watch a move of balancing.

    Return the decision's id, and why nothing was begun; "" = its transition has begun. When many
    moves are watched, the oldest one is dropped.
    """
    decision_id, bundle, rules = work.next_decision(), decision.bundle, work.rules
    inputs: dict[str, Any] = dict(decision.inputs)
    if decision.kind is Kind.DRAIN and decision.source in rules.drains:
        inputs |= asdict(rules.drains[decision.source])
    elif decision.reason == "Pinned" and bundle in rules.pins:
        inputs |= asdict(rules.pins[bundle])
    refused = _transit(work, decision, decision_id)
    if refused:
        inputs["refused"] = refused
    elif decision.kind in (Kind.TRANSFER, Kind.UNLOAD) and "source_usage" in decision.inputs:
        pending = work.unmeasured_moves
        pending[bundle] = UnmeasuredMove(
            decision_id=decision_id,
            source=decision.source,
            destination=decision.destination,
            decided_ms=work.now_ms,
            source_before=decision.inputs["source_usage"],
            destination_before=decision.inputs.get("destination_usage", math.nan),
        )
        if len(pending) > UNMEASURED_MAX:
            del pending[min(pending, key=lambda name: (pending[name].decided_ms, name))]
    work.write_decision(
        decision.kind.value,
        decision.reason,
        inputs,
        decision_id=decision_id,
        strategy=decision.strategy,
        bundle=bundle,
        source=decision.source,
        destination=decision.destination,
    )
    return decision_id, refused


def _transit(work: BatchContext, decision: Decision, decision_id: str) -> str:
    """Make the decision's transition; return why it was refused, or ""."""
    record = work.ledger.record(decision.bundle)
    if record is None:
        return "unknown_bundle"
    if is_only_observed(work, decision):
        return OBSERVE_ONLY
    if decision.kind is Kind.SPLIT:
        # the children of a pinned bundle stay on its broker
        is_pinned = decision.bundle in work.rules.pins
        children = dict.fromkeys(decision.children, "") if is_pinned else decision.children
        return work.apply(split(record, children, work.origin(Cause.SPLIT, decision_id)))
    cause = Cause.DRAIN if decision.kind is Kind.DRAIN else Cause.SHED
    origin = work.origin(cause, decision_id)
    target = decision.destination
    return work.apply(
        transfer(record, work.instance(target), origin) if target else unload(record, origin)
    )


def end_pins(work: BatchContext) -> None:
    """Drop the pins whose time is over."""
    pins = work.rules.pins
    for bundle in sorted(name for name in pins if 0 < pins[name].until_ms <= work.now_ms):
        work.counts["pin_expired"] += 1
        _write_pin(work, bundle, pins[bundle], "Expired")
        work.set_rule("pins", bundle, None)


def follow_pins(work: BatchContext) -> None:
    """Update pins after transitions: children inherit, deleted bundles are unpinned.

    Counts the pins that a forced transition or a drain broke.
    """
    for before, after in work.transitions if work.rules.pins else ():
        pin = work.rules.pins.get(after.bundle)
        if pin is None:
            continue
        if after.state is State.DELETED:
            work.set_rule("pins", after.bundle, None)
            children = before.children if before and before.state is State.SPLITTING else {}
            for child in sorted(children):
                work.set_rule("pins", child, pin)
            reason = "Inherited" if children else "Gone"
            _write_pin(work, after.bundle, pin, reason, children=len(children))
        # by force, or by a drain of the pin's broker
        is_forced = after.is_forced and after.state is State.ASSIGNING
        is_drained = after.cause is Cause.DRAIN and after.state is State.RELEASING
        was_there = before is not None and pin.broker in (before.source, before.destination)
        is_broken = (is_forced or is_drained) and was_there and after.destination != pin.broker
        if is_broken:
            work.counts["pin_broken"] += 1
            _write_pin(work, after.bundle, pin, "Broken", destination=after.destination)


def _write_pin(work: BatchContext, bundle: str, pin: Pin, reason: str, **inputs: object) -> None:
    about = {"until_ms": pin.until_ms, "owner": pin.owner, "why": pin.reason, **inputs}
    work.write_decision("pin", reason, about, bundle=bundle, destination=pin.broker)


def pins_of_drain(work: BatchContext, broker: str) -> dict[str, list[str]]:
    """Return the result field with bundles pinned to a drained broker; {} without any.

    A drain breaks pins, because the broker will stop; they stay set, and the bundles come back
    when it takes bundles again.
    """
    pinned = sorted(name for name, pin in work.rules.pins.items() if pin.broker == broker)
    return {"pins_broken": pinned} if pinned else {}


def is_emptying(work: BatchContext) -> bool:
    """True if a live broker, draining by command or by itself, still owns bundles."""
    names = {
        name
        for name, entry in work.brokers.items()
        if not entry.is_dead and (entry.is_draining or name in work.rules.drains)
    }
    if not names:
        return False
    owners = work.ledger.destination[work.ledger.rows_in(State.OWNED)]
    return not names.isdisjoint(work.ledger.count_by_broker(owners))


def continue_drains(work: BatchContext, brokers: Sequence[str]) -> None:
    """End drains that are done or past their deadline; record the others' progress."""
    for broker in [name for name in brokers if not work.rules.drains[name].is_done]:
        drain, left = work.rules.drains[broker], held_by(work, broker)
        if left == 0:
            done = replace(drain, left=0, estimated_end_ms=work.now_ms, is_done=True)
            work.set_rule("drains", broker, done)
            took_ms = work.now_ms - drain.since_ms
            result = {"moved": drain.total, "took_ms": took_ms, **pins_of_drain(work, broker)}
            work.write_decision("drain", "Done", result, source=broker)
            finish_command(work, drain.command_id, Outcome(status=DONE, result=result))
        elif 0 < drain.deadline_ms <= work.now_ms:
            work.set_rule("drains", broker, None)
            result = {"left": left, "total": drain.total, "deadline_ms": drain.deadline_ms}
            work.write_decision("drain", "GivenUp", result, source=broker)
            reason = (
                f"broker {broker} still had {left} of {drain.total} bundles at the deadline, and "
                "takes bundles again: see what holds them (a pause, the brake, no other broker), "
                "or drain it again with more time"
            )
            given_up = Outcome(status=TIMED_OUT, reason=reason, result=result)
            finish_command(work, drain.command_id, given_up)
        elif work.times.cycle_ms == work.now_ms and left != drain.left:
            # when it ends, at the pace until now
            gone, elapsed_ms = drain.total - left, work.now_ms - drain.since_ms
            end_ms = work.now_ms + left * elapsed_ms // gone if gone > 0 else 0
            work.set_rule("drains", broker, replace(drain, left=left, estimated_end_ms=end_ms))

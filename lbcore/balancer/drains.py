"""Drains and pins: brokers to be emptied, and bundles bound to a broker."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lbcore.balancer.batch_context import BatchContext
from lbcore.balancer.book import DONE, TIMED_OUT, Outcome
from lbcore.balancer.rules import Pin
from lbcore.balancer.waiting import finish_command
from lbcore.ownership.records import Cause, State
from lbcore.ownership.states import IN_FLIGHT


def end_pins(work: BatchContext) -> None:
    """Drop the pins whose time is over."""
    pins = work.rules.pins
    for bundle in sorted(name for name in pins if 0 < pins[name].until_ms <= work.now_ms):
        work.counts["pin_expired"] += 1
        _write(work, bundle, pins[bundle], "Expired")
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
            _write(work, after.bundle, pin, reason, children=len(children))
        # by force, or by a drain of the pin's broker
        is_forced = after.is_forced and after.state is State.ASSIGNING
        is_drained = after.cause is Cause.DRAIN and after.state is State.RELEASING
        was_there = before is not None and pin.broker in (before.source, before.destination)
        is_broken = (is_forced or is_drained) and was_there and after.destination != pin.broker
        if is_broken:
            work.counts["pin_broken"] += 1
            _write(work, after.bundle, pin, "Broken", destination=after.destination)


def _write(work: BatchContext, bundle: str, pin: Pin, reason: str, **inputs: object) -> None:
    about = {"until_ms": pin.until_ms, "owner": pin.owner, "why": pin.reason, **inputs}
    work.write_decision(
        work.next_decision(), "pin", reason, about, bundle=bundle, destination=pin.broker
    )


def held_by(work: BatchContext, broker: str) -> int:
    """Return the number of bundles a broker has or is to open. O(bundles)."""
    ids = [i for i, one in enumerate(work.ledger.instances.rows) if one.broker == broker]
    # prospects: also bundles that another broker still closes for it
    is_held = np.isin(work.ledger.holders(), ids) | np.isin(work.ledger.prospects(), ids)
    return int(is_held.sum())


def is_named(work: BatchContext, broker: str) -> bool:
    """True if a record names the broker: as holder or, in flight, as either party."""
    ledger = work.ledger
    rows = ledger.rows_in(*IN_FLIGHT)
    moving = ledger.count_by_broker(np.append(ledger.source[rows], ledger.destination[rows]))
    return held_by(work, broker) > 0 or broker in moving


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
    for broker in brokers:
        drain = work.rules.drains[broker]
        if drain.is_done:
            continue
        left = held_by(work, broker)
        if left == 0:
            done = replace(drain, left=0, estimated_end_ms=work.now_ms, is_done=True)
            work.set_rule("drains", broker, done)
            took_ms = work.now_ms - drain.since_ms
            result = {"moved": drain.total, "took_ms": took_ms, **pins_of_drain(work, broker)}
            work.write_decision(work.next_decision(), "drain", "Done", result, source=broker)
            finish_command(work, drain.command_id, Outcome(status=DONE, result=result))
        elif 0 < drain.deadline_ms <= work.now_ms:
            work.set_rule("drains", broker, None)
            result = {"left": left, "total": drain.total, "deadline_ms": drain.deadline_ms}
            work.write_decision(work.next_decision(), "drain", "GivenUp", result, source=broker)
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

"""Pins: bundles that operators keep on a broker, followed through splits, deaths and time.

Decides when a pin ends (its time is over, its bundle gone) and who inherits it; the plan's cycle
moves strayed bundles to their pins. A failure breaks a pin, because serving comes first, and so
does a drain, because the broker is to be stopped; the bundle returns when the broker takes bundles
again. Part of `balancer`. Source: ours.
"""

from lbcore.balancer.state.rules import Pin
from lbcore.balancer.state.work import Work
from lbcore.ownership.records import Cause, OwnershipRecord, State


def end_pins(work: Work) -> None:
    """Drop the pins whose time is over."""
    pins = work.rules.pins
    for bundle in sorted(name for name in pins if 0 < pins[name].until_ms <= work.now_ms):
        work.counts["pin_expired"] += 1
        _write(work, bundle, pins[bundle], "Expired")
        work.set_rule("pins", bundle, None)


def follow_pins(work: Work) -> None:
    """After the batch's transitions: children of splits inherit, gone bundles are unpinned.

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
        elif _is_broken(pin, before, after):
            work.counts["pin_broken"] += 1
            _write(work, after.bundle, pin, "Broken", destination=after.destination)


def _is_broken(pin: Pin, before: OwnershipRecord | None, after: OwnershipRecord) -> bool:
    """Whether the bundle is taken from its pin, by force or by a drain of the pin's broker."""
    was_there = before is not None and pin.broker in (before.source, before.destination)
    is_forced = after.is_forced and after.state is State.ASSIGNING
    is_drained = after.cause is Cause.DRAIN and after.state is State.RELEASING
    return (is_forced or is_drained) and was_there and after.destination != pin.broker


def _write(work: Work, bundle: str, pin: Pin, reason: str, **inputs: object) -> None:
    about = {"until_ms": pin.until_ms, "owner": pin.owner, "why": pin.reason, **inputs}
    work.write_decision(
        work.next_decision(), "pin", reason, about, bundle=bundle, destination=pin.broker
    )

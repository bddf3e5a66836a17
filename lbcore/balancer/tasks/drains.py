"""Drains: brokers that operators empty, at a bounded rate, until they are empty or time is over.

Decides when a drain has ended and how it stands; the plan's forced moves carry it out, between the
cycles too. An empty broker stays closed until `cancel_drain` or `forget_broker`, so that it can be
stopped. Part of `balancer`, after the cycle. Source: ours.
"""

from collections.abc import Sequence
from dataclasses import replace

from lbcore.balancer.state.instances import NOBODY
from lbcore.balancer.state.outcome import DONE, TIMED_OUT, Outcome
from lbcore.balancer.state.rules import Drain
from lbcore.balancer.state.work import Work
from lbcore.balancer.tasks.waiting import finish_command
from lbcore.ownership.records import State
from lbcore.ownership.states import IN_FLIGHT


def held_by(work: Work, broker: str) -> int:
    """How many bundles a broker has, or shall open. O(bundles)."""
    ids = [i for i, one in enumerate(work.ledger.instances.rows) if one.broker == broker]
    holders = work.ledger.holders()
    return int(sum(int((holders == one).sum()) for one in ids))


def is_named(work: Work, broker: str) -> bool:
    """Whether a record in flight or at rest names the broker as one that has or gets a bundle."""
    ledger = work.ledger
    rows = ledger.rows_in(*IN_FLIGHT)
    moving = {*ledger.source[rows].tolist(), *ledger.destination[rows].tolist()} - {NOBODY}
    return held_by(work, broker) > 0 or any(
        ledger.instances.of(one)[0] == broker for one in sorted(moving)
    )


def pins_of_drain(work: Work, broker: str) -> dict[str, list[str]]:
    """The bundles pinned to a broker that is drained, if there are any.

    A drain breaks pins, for the broker is to be stopped; they stay set, and the bundles come back
    when it takes bundles again.
    """
    pinned = sorted(name for name, pin in work.rules.pins.items() if pin.broker == broker)
    return {"pins_broken": pinned} if pinned else {}


def is_emptying(work: Work) -> bool:
    """Whether some live broker that drains, by command or by its own word, has bundles left."""
    names = {
        name
        for name, entry in work.brokers.items()
        if not entry.is_silent and (entry.is_draining or name in work.rules.drains)
    }
    if not names:
        return False
    ledger = work.ledger
    ids = [i for i, one in enumerate(ledger.instances.rows) if one.broker in names]
    owners = set(ledger.destination[ledger.rows_in(State.OWNED)].tolist())
    return any(one in owners for one in ids)


def drive_drains(work: Work) -> None:
    """End the drains that are done or whose time is over; note how the others stand."""
    drains = [name for name, drain in sorted(work.rules.drains.items()) if not drain.is_done]
    work.guard.each("drain", drains, lambda some: _drive(work, some), lambda name, _: name)


def _drive(work: Work, brokers: Sequence[str]) -> None:
    for broker in brokers:
        drain = work.rules.drains[broker]
        left = held_by(work, broker)
        if left == 0:
            _end(work, broker, drain)
        elif 0 < drain.deadline_ms <= work.now_ms:
            _give_up(work, broker, replace(drain, left=left))
        elif work.times.cycle_ms == work.now_ms and left != drain.left:
            _keep(work, broker, _advanced(work, drain, left))


def _advanced(work: Work, drain: Drain, left: int) -> Drain:
    """The drain with what is left, and when it ends if it goes on as until now."""
    gone, elapsed_ms = drain.total - left, work.now_ms - drain.since_ms
    end_ms = work.now_ms + left * elapsed_ms // gone if gone > 0 else 0
    return replace(drain, left=left, estimated_end_ms=end_ms)


def _end(work: Work, broker: str, drain: Drain) -> None:
    done = replace(drain, left=0, estimated_end_ms=work.now_ms, is_done=True)
    _keep(work, broker, done)
    took_ms = work.now_ms - drain.since_ms
    result = {"moved": drain.total, "took_ms": took_ms, **pins_of_drain(work, broker)}
    work.write_decision(work.next_decision(), "drain", "Done", result, source=broker)
    finish_command(work, drain.command_id, Outcome(status=DONE, result=result))


def _give_up(work: Work, broker: str, drain: Drain) -> None:
    work.set_rule("drains", broker, None)
    result = {"left": drain.left, "total": drain.total, "deadline_ms": drain.deadline_ms}
    work.write_decision(work.next_decision(), "drain", "GivenUp", result, source=broker)
    reason = (
        f"broker {broker} still had {drain.left} of {drain.total} bundles at the deadline, and "
        "takes bundles again: see what holds them (a pause, the brake, no other broker), or drain "
        "it again with more time"
    )
    finish_command(work, drain.command_id, Outcome(status=TIMED_OUT, reason=reason, result=result))


def _keep(work: Work, broker: str, drain: Drain) -> None:
    work.set_rule("drains", broker, drain)

"""The brake: when many brokers vanish at once, balancing stands still and failover looks twice.

Decides when it is engaged (so many and such a part of the brokers taken for dead within a window)
and when it is over: by command, or when so many are back that it would not be engaged. While it is
on, nothing is shed, split or drained; what the lost brokers had goes to others after
`brake_confirm_ms`, because a cut network looks like deaths and ends by itself. Brokers that were
drained and are empty don't count. Part of `balancer`, after brokers are judged.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from lbcore.balancer.intake.eligible_brokers import is_draining
from lbcore.balancer.state.ledger import NOBODY
from lbcore.balancer.state.rules import Brake
from lbcore.balancer.state.work import Work
from lbcore.wire.messages import Command

ALARM = "brake"


def watch_brake(work: Work, died: Sequence[str]) -> None:
    """Engage, widen or release the brake. died: brokers that were taken for dead just now."""
    brake = work.rules.brake
    if brake is None:
        if died:
            _engage(work)
    else:
        lost = {*brake.lost, *(name for name in died if _counts(work, name))}
        lost = {name for name in lost if name in work.brokers and work.brokers[name].is_silent}
        if not _is_many(work, len(lost), brake.brokers):
            release(work, "Recovered")
        elif tuple(sorted(lost)) != brake.lost:
            brake = Brake(since_ms=brake.since_ms, lost=tuple(sorted(lost)), brokers=brake.brokers)
            work.change_rules(brake=brake)
    if work.rules.brake is not None:
        work.alarms.add(ALARM)


def is_confirming(work: Work) -> bool:
    """True if failover waits, because the lost brokers may come back at once."""
    waited_ms = work.clock_ms - work.times.brake_clock_ms
    return work.rules.brake is not None and waited_ms < work.config.ownership.brake_confirm_ms


def release(work: Work, reason: str, command: Command | None = None) -> None:
    """Let balancing go on. reason: Released (by command) or Recovered."""
    brake = work.rules.brake
    if brake is None:
        return
    work.change_rules(command, brake=None)
    inputs = {**_numbers(work), "still_lost": list(brake.lost), "since_ms": brake.since_ms}
    work.write_decision(work.next_decision(), ALARM, reason, inputs)


def _engage(work: Work) -> None:
    since_ms = work.clock_ms - work.config.ownership.brake_window_ms
    lost = [
        name
        for name, entry in sorted(work.brokers.items())
        if entry.is_silent and entry.died_clock_ms >= max(since_ms, 0) and _counts(work, name)
    ]
    live = sum(not entry.is_silent for entry in work.brokers.values())
    if not _is_many(work, len(lost), live + len(lost)):
        return
    work.change_rules(brake=Brake(since_ms=work.now_ms, lost=tuple(lost), brokers=live + len(lost)))
    work.note(brake_clock_ms=work.clock_ms)
    inputs = {**_numbers(work), "lost": lost, "brokers": live + len(lost)}
    work.write_decision(work.next_decision(), ALARM, "Engaged", inputs)


def _is_many(work: Work, lost: int, brokers: int) -> bool:
    settings = work.config.ownership
    is_part = 100 * lost >= settings.brake_percent * brokers
    return 0 < settings.brake_brokers <= lost and is_part


def _counts(work: Work, broker: str) -> bool:
    """True if the lost broker counts; one that was drained to empty does not."""
    if not is_draining(work, broker):
        return True
    held = np.unique(work.ledger.holders()).tolist()
    return any(work.ledger.instances.of(row)[0] == broker for row in held if row != NOBODY)


def _numbers(work: Work) -> dict[str, Any]:
    settings = work.config.ownership
    return {
        "brake_percent": settings.brake_percent,
        "brake_brokers": settings.brake_brokers,
        "brake_window_ms": settings.brake_window_ms,
        "brake_confirm_ms": settings.brake_confirm_ms,
    }

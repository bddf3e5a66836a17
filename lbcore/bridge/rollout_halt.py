"""How a rolling restart ends before all is done: by a fault, by Ctrl-C, or for good.

Decides what is undone of the broker in hand, and from where it would go on. Part of `rolling`.
Source: ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lbcore.bridge.rollout import (
    Complaint,
    Deed,
    DropIt,
    GiveUp,
    ReopenIt,
    RestartSight,
    RestartStage,
    Rollout,
    Tell,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The next state, to be kept before anything is done, and what is to be done, in order."""

    rollout: Rollout
    deeds: tuple[Deed, ...] = ()

    @property
    def stop(self) -> GiveUp | None:
        """Why it goes no further."""
        return next((one for one in self.deeds if isinstance(one, GiveUp)), None)


def stopped(rollout: Rollout, sight: RestartSight, fault: Complaint) -> Advance:
    """It goes no further; nothing is left by half that can be undone."""
    left = halted(rollout, sight)
    what = f"the rolling restart has stopped at {rollout.broker}"
    what += f" ({rollout.at} of {len(rollout.order)} done)"
    deeds = (*left.deeds, GiveUp(what=what, why=fault.why, next_step=fault.next_step))
    return Advance(rollout=replace(left.rollout, stopped=fault.why), deeds=deeds)


def halted(rollout: Rollout, sight: RestartSight, *, for_good: bool = False) -> Advance:
    """What is undone when it is cut off, and from where it would go on.

    for_good: nobody will go on with it. A broker that is back, or was never touched, is opened; one
    that may be in the middle of its restart stays closed, and that is said.
    """
    broker = rollout.broker
    deeds: list[Deed] = [DropIt(plan=name) for name in sorted(sight.plans)]
    if _may_open(rollout, sight, for_good=for_good):
        if rollout.was_drained or broker in sight.drains:
            deeds += [ReopenIt(), Tell(text=f"{broker} is open again: its drain was cancelled")]
        is_new = rollout.under is not RestartStage.DRAINING and rollout.is_other(sight.incarnation)
        stage = RestartStage.FILLING if is_new else RestartStage.WAITING
        rollout = rollout.to(stage, sight.now_ms, was_drained=False)
    elif broker in sight.drains:
        opens = f"`ballast broker cancel-drain {broker}`"
        deeds.append(Tell(text=f"{broker} is still closed: {opens} opens it"))
    elif rollout.stage is RestartStage.EASING:
        rollout = rollout.to(RestartStage.FILLING, sight.now_ms)
    if for_good and rollout.homes and missing_of(rollout, sight):
        undo = f"`ballast plan undo --drain {broker}`"
        deeds.append(Tell(text=f"what has left {broker} stays where it is: {undo} moves it back"))
    return Advance(rollout=rollout, deeds=tuple(deeds))


def _may_open(rollout: Rollout, sight: RestartSight, *, for_good: bool) -> bool:
    if rollout.under in (RestartStage.DRAINING, RestartStage.EMPTIED):
        return True
    if not sight.incarnation or rollout.broker not in sight.listed:
        return False
    if rollout.stage is RestartStage.RESTARTING:
        return for_good and not rollout.pid
    if rollout.stage not in (RestartStage.RETURNING, RestartStage.REOPENING):
        return False
    return for_good or not rollout.command or rollout.is_other(sight.incarnation)


def missing_of(rollout: Rollout, sight: RestartSight) -> list[str]:
    """What the broker had and somebody else has now; what is gone, as after a split, stays so."""
    elsewhere: Mapping[str, str] = sight.owners
    known = (one for one in rollout.homes if one in elsewhere or one in sight.moving)
    return [one for one in known if elsewhere.get(one) != rollout.broker]

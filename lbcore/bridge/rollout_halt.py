"""End of a rolling restart before all is done: by a fault, Ctrl-C, or for good.

Decides what is undone for the current broker, and from where it would resume. Part of `rolling`.
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
        """Deed with the reason why it stops; None = it goes on."""
        return next((one for one in self.deeds if isinstance(one, GiveUp)), None)


def stopped(rollout: Rollout, sight: RestartSight, fault: Complaint) -> Advance:
    """It goes no further; nothing is left by half that can be undone."""
    left = halted(rollout, sight)
    what = f"the rolling restart has stopped at {rollout.broker}"
    what += f" ({rollout.at} of {len(rollout.order)} done)"
    deeds = (*left.deeds, GiveUp(what=what, why=fault.why, next_step=fault.next_step))
    return Advance(rollout=replace(left.rollout, stopped=fault.why), deeds=deeds)


def halted(rollout: Rollout, sight: RestartSight, *, for_good: bool = False) -> Advance:
    """Undo what can be undone at a halt, and set the stage to resume from.

    for_good: nobody will resume it. A broker that is back, or was never touched, is opened. One
    that may be in the middle of its restart stays closed, and that is reported.
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
    """Return the bundles that the broker had and another broker has now.

    Bundles in transit count, too. What is gone, as after a split, is left out.
    """
    elsewhere: Mapping[str, str] = sight.owners
    known = (one for one in rollout.homes if one in elsewhere or one in sight.moving)
    return [one for one in known if elsewhere.get(one) != rollout.broker]

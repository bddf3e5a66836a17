"""A rolling restart's state machine: what comes next, by how far it is and by what is seen.

Decides the steps of each broker: all is well; drained; empty in Pulsar's own words; the command;
back as another process, for a while; open again; filled with what it had; even. A deed is asked for
until it is seen to be done, so a cut between any two steps loses nothing and does nothing twice.
Whatever lasts too long stops it, with the broker in hand opened again unless it may have been
restarted by then. No clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lbcore.bridge.rollout import (
    GO_ON,
    NOT_KNOWN,
    ApproveIt,
    Complaint,
    Deed,
    DrainIt,
    DropIt,
    FillIt,
    GiveUp,
    ReopenIt,
    RestartBounds,
    RestartIt,
    RestartSight,
    RestartStage,
    Rollout,
    Tell,
    complaints,
    overdue,
    with_doubts,
)
from lbcore.model.times import duration


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


WAITS = "waits"
"""A plan of ours that nobody has approved yet."""
_STILL_MS = 60_000
_FILLS, _AGAIN_MS = 4, 5_000
_EVEN_SLACK = 0.1


def advance(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    """One step. O(bundles)."""
    if rollout.stage is RestartStage.DONE:
        return Advance(rollout=rollout)
    wrong = complaints(rollout, sight, bounds)
    rollout = with_doubts(rollout, wrong, sight.now_ms)
    fault = overdue(rollout, wrong, sight.now_ms, bounds)
    if fault is not None:
        return stopped(rollout, sight, fault)
    return _STEPS[rollout.stage](rollout, sight, bounds)


def resumed(rollout: Rollout, sight: RestartSight, command: str | None = None) -> Rollout:
    """Resume after a cut or a stop, with new ids and the current settings."""
    return replace(
        rollout,
        command=rollout.command if command is None else command,
        since_ms=sight.now_ms,
        turn=rollout.turn + 1,
        tries=0,
        doubts={},
        stopped="",
        was_drained=rollout.broker in sight.drains,
        settings=sight.settings or rollout.settings,
    )


def _waiting(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    waited_ms = sight.now_ms - rollout.since_ms
    is_quiet = not sight.moving or waited_ms >= _STILL_MS
    if rollout.doubts or not is_quiet or not sight.incarnation:
        if waited_ms >= bounds.ready_ms and not sight.incarnation:
            return _stop(rollout, sight, f"{rollout.broker} does not answer", "see its log")
        return Advance(rollout=rollout)
    homes = tuple(sorted(one for one, at in sight.owners.items() if at == rollout.broker))
    served = homes if sight.loaded is None else [one for one in homes if one in sight.loaded]
    known = NOT_KNOWN if sight.imbalance is None else sight.imbalance
    begun = rollout.to(
        RestartStage.DRAINING,
        sight.now_ms,
        incarnation=sight.incarnation,
        homes=tuple(sorted({*rollout.homes, *homes})),
        served=tuple(sorted({*rollout.served, *served})),
        imbalance=known if rollout.imbalance == NOT_KNOWN else rollout.imbalance,
        was_drained=False,
        turn=rollout.turn + 1,
    )
    text = f"{rollout.broker}: {len(homes)} bundles are moved away, {rollout.at_once} at once"
    return Advance(rollout=begun, deeds=(Tell(text=text),))


def _draining(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    drain = sight.drains.get(rollout.broker)
    waited_ms = sight.now_ms - rollout.since_ms
    if drain is None:
        return _not_drained(rollout, sight)
    rollout = replace(rollout, was_drained=True)
    if drain.is_done:
        return Advance(rollout=rollout.to(RestartStage.EMPTIED, sight.now_ms))
    if _is_felt(rollout, sight, bounds):
        return _ease(rollout, sight, (ReopenIt(),))
    if waited_ms >= bounds.drain_ms:
        why = f"{drain.left} bundles are still there after {duration(waited_ms)}"
        return _stop(rollout, sight, why, "`ballast explain broker` says what holds them")
    return Advance(rollout=rollout)


def _not_drained(rollout: Rollout, sight: RestartSight) -> Advance:
    if sight.refused:
        return _stop(rollout, sight, sight.refused, "see `ballast status`")
    if rollout.was_drained:
        why = f"somebody else has cancelled the drain of {rollout.broker}"
        return _stop(rollout, sight, why, "ask who it was")
    return Advance(rollout=rollout, deeds=(DrainIt(at_once=rollout.at_once),))


def _easing(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    """Nothing of ours moves. What does not get better by that is not ours."""
    is_felt = (sight.felt_ms or 0.0) > bounds.felt_ms
    rollout = replace(
        rollout,
        calm_since_ms=0 if is_felt else rollout.calm_since_ms or sight.now_ms,
    )
    waited_ms = sight.now_ms - rollout.since_ms
    if rollout.back is RestartStage.DRAINING and rollout.broker in sight.drains:
        return Advance(rollout=rollout, deeds=(ReopenIt(),))
    if rollout.calm_since_ms and sight.now_ms - rollout.calm_since_ms >= bounds.calm_ms:
        begun = rollout.to(
            rollout.back, sight.now_ms, calm_since_ms=0, was_drained=False, turn=rollout.turn + 1
        )
        text = f"{rollout.broker}: clients feel nothing now; on, {rollout.at_once} at once"
        return Advance(rollout=begun, deeds=(Tell(text=text),))
    if waited_ms >= bounds.ease_ms:
        why = f"clients wait more than {bounds.felt_ms:.0f} ms though nothing is moved for"
        why += f" {duration(waited_ms)}"
        return _stop(rollout, sight, why, "see what hurts them, or allow more with --felt-ms")
    return Advance(rollout=rollout)


def _emptied(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    if rollout.broker not in sight.drains:
        why = f"somebody else has cancelled the drain of {rollout.broker}"
        return _stop(rollout, sight, why, "ask who it was")
    if sight.held is not None and not sight.held and sight.incarnation:
        begun = rollout.to(
            RestartStage.RESTARTING, sight.now_ms, incarnation=sight.incarnation, pid=0, returned=""
        )
        text = f"{rollout.broker} is empty, in Pulsar's own words"
        return Advance(rollout=begun, deeds=(Tell(text=text), RestartIt()))
    waited_ms = sight.now_ms - rollout.since_ms
    if waited_ms >= bounds.empty_ms:
        held = ", ".join((sight.held or ())[:3]) or "what it owns is not told"
        why = f"Pulsar shows it not empty {duration(waited_ms)} after its drain: {held}"
        return _stop(rollout, sight, why, "see who gives it bundles")
    return Advance(rollout=rollout)


def _restarting(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    waited_ms = sight.now_ms - rollout.since_ms
    seen = sight.command
    if not rollout.command:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, sight.now_ms))
    if seen is None:
        return _after_a_cut(rollout, sight, bounds)
    if seen.code is None and waited_ms < bounds.command_ms:
        return Advance(rollout=rollout)
    if seen.code == 0:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, sight.now_ms, pid=0))
    how = f"ended with {seen.code}" if seen.code is not None else "still runs"
    why = f"the command {how} after {duration(waited_ms)}"
    why += f": {seen.said}" if seen.said else " and said nothing"
    next_step = f"mend it (--command), see that {rollout.broker} runs"
    rollout = replace(rollout, pid=0 if seen.code is not None else rollout.pid)
    return _stop(rollout, sight, why, next_step)


def _after_a_cut(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    """Nobody saw the command's end: another process, or none, shows that it has run."""
    if sight.incarnation == rollout.incarnation:
        return Advance(rollout=rollout, deeds=(RestartIt(),))
    if sight.incarnation or rollout.broker not in sight.listed:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, sight.now_ms))
    if sight.now_ms - rollout.since_ms >= bounds.command_ms:
        return _stop(rollout, sight, f"{rollout.broker} does not answer", "see its log")
    return Advance(rollout=rollout)


def _returning(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    waited_ms = sight.now_ms - rollout.since_ms
    is_there = rollout.broker in sight.listed and bool(sight.incarnation)
    is_new = is_there and rollout.is_other(sight.incarnation)
    if is_new and sight.incarnation == rollout.returned:
        if sight.now_ms - rollout.returned_ms >= bounds.settle_ms:
            text = f"{rollout.broker} is back as another process"
            begun = rollout.to(RestartStage.REOPENING, sight.now_ms, turn=rollout.turn + 1)
            return Advance(rollout=begun, deeds=(Tell(text=text),))
        return Advance(rollout=rollout)
    if is_new:
        kept = replace(rollout, returned=sight.incarnation, returned_ms=sight.now_ms)
        return Advance(rollout=kept)
    is_person = not rollout.command
    if is_there and waited_ms >= (bounds.drain_ms if is_person else bounds.restart_ms):
        who = "nobody has restarted it" if is_person else "the command ended well"
        why = f"{who}, and {rollout.broker} is the same process as before"
        next_step = "restart it, or have the command (--command) do it"
        back = rollout.to(RestartStage.RESTARTING, sight.now_ms, pid=0)
        return _stop(back, sight, why, next_step)
    if not is_there and waited_ms >= (bounds.drain_ms if is_person else bounds.return_ms):
        why = f"{rollout.broker} has not come back within {duration(waited_ms)}"
        return _stop(rollout, sight, why, "read its log and start it")
    return Advance(rollout=rollout)


def _reopening(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    if rollout.broker not in sight.drains:
        missing = missing_of(rollout, sight)
        text = f"{rollout.broker}: {len(missing)} bundles are moved back"
        begun = rollout.to(
            RestartStage.FILLING,
            sight.now_ms,
            tries=0,
            left=len(missing) + 1,
            turn=rollout.turn + 1,
        )
        return Advance(rollout=begun, deeds=(Tell(text=text),))
    if sight.now_ms - rollout.since_ms >= bounds.empty_ms:
        return _stop(rollout, sight, sight.refused or "its drain can't be cancelled", "see status")
    return Advance(rollout=rollout, deeds=(ReopenIt(),))


def _filling(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    waited_ms = sight.now_ms - rollout.since_ms
    if sight.plans and _is_felt(rollout, sight, bounds):
        return _ease(rollout, sight, [DropIt(plan=name) for name in sorted(sight.plans)])
    if sight.plans:
        waiting = [
            ApproveIt(plan=name) for name, how in sorted(sight.plans.items()) if how == WAITS
        ]
        return Advance(rollout=rollout, deeds=tuple(waiting))
    missing = missing_of(rollout, sight)
    if not missing:
        return Advance(rollout=rollout.to(RestartStage.EVENING, sight.now_ms))
    if waited_ms >= bounds.fill_ms:
        why = sight.refused or f"{len(missing)} bundles are not back after {duration(waited_ms)}"
        return _stop(rollout, sight, why, "`ballast explain bundle` says what holds one")
    return _fill_more(rollout, sight, missing)


def _fill_more(rollout: Rollout, sight: RestartSight, missing: Sequence[str]) -> Advance:
    ready = [one for one in missing if one not in sight.moving]
    has_helped = len(missing) < rollout.left
    is_early = not has_helped and sight.now_ms - rollout.tried_ms < _AGAIN_MS
    if len(ready) < len(missing) or is_early:
        return Advance(rollout=rollout)
    tries = 1 if has_helped else rollout.tries + 1
    if tries > _FILLS and not sight.refused:
        text = f"{rollout.broker}: {len(missing)} bundles stay elsewhere, such as {missing[0]}:"
        text += " they are pinned, kept from it by a policy, or were moved on"
        return Advance(
            rollout=rollout.to(RestartStage.EVENING, sight.now_ms), deeds=(Tell(text=text),)
        )
    begun = replace(
        rollout,
        turn=rollout.turn + 1,
        tries=tries,
        left=len(missing),
        tried_ms=sight.now_ms,
    )
    moves = dict.fromkeys(ready[: rollout.at_once], rollout.broker)
    return Advance(rollout=begun, deeds=(FillIt(moves=moves),))


def _evening(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> Advance:
    bar = max(bounds.even, rollout.imbalance + _EVEN_SLACK)
    waited_ms = sight.now_ms - rollout.since_ms
    is_even = sight.imbalance is None or sight.imbalance <= bar or not rollout.homes
    if is_even and not sight.moving:
        return _next_broker(rollout, sight)
    if waited_ms >= bounds.even_ms:
        why = f"{duration(waited_ms)} after {rollout.broker} was filled the busiest broker has"
        why += f" {sight.imbalance or 0.0:.2f} of the mean, more than {bar:.2f}"
        return _stop(
            rollout, sight, why, "see `ballast explain cluster`, or allow more with --even"
        )
    return Advance(rollout=rollout)


def _next_broker(rollout: Rollout, sight: RestartSight) -> Advance:
    done = f"{rollout.broker} is done, {rollout.at + 1} of {len(rollout.order)}"
    is_last = rollout.at + 1 == len(rollout.order)
    begun = rollout.to(
        RestartStage.DONE if is_last else RestartStage.WAITING,
        sight.now_ms,
        at=rollout.at + 1,
        turn=0,
        homes=(),
        served=(),
        incarnation="",
        returned="",
        was_drained=False,
    )
    return Advance(rollout=begun, deeds=(Tell(text=done),))


def _is_felt(rollout: Rollout, sight: RestartSight, bounds: RestartBounds) -> bool:
    """True if clients notice the moves more than they may.

    Loading a topic takes no less time if it is moved alone: then only publishing counts.
    """
    slowest_ms = sight.felt_ms or 0.0
    if rollout.at_once > 1:
        slowest_ms = max(slowest_ms, sight.load_ms or 0.0)
    return slowest_ms > bounds.felt_ms


def _ease(rollout: Rollout, sight: RestartSight, deeds: Iterable[Deed]) -> Advance:
    slower = rollout.to(
        RestartStage.EASING,
        sight.now_ms,
        back=rollout.stage,
        calm_since_ms=0,
        at_once=max(1, rollout.at_once // 2),
    )
    waits = f"{sight.felt_ms or 0.0:.0f} ms to publish, topics take {sight.load_ms or 0.0:.0f} ms"
    text = f"{rollout.broker}: clients wait {waits} to load: nothing is moved until that is over"
    return Advance(rollout=slower, deeds=(*deeds, Tell(text=text)))


def _stop(rollout: Rollout, sight: RestartSight, why: str, next_step: str) -> Advance:
    return stopped(rollout, sight, Complaint(key="", why=why, next_step=f"{next_step}, {GO_ON}"))


_STEPS: Mapping[RestartStage, Callable[[Rollout, RestartSight, RestartBounds], Advance]] = {
    RestartStage.WAITING: _waiting,
    RestartStage.DRAINING: _draining,
    RestartStage.EASING: _easing,
    RestartStage.EMPTIED: _emptied,
    RestartStage.RESTARTING: _restarting,
    RestartStage.RETURNING: _returning,
    RestartStage.REOPENING: _reopening,
    RestartStage.FILLING: _filling,
    RestartStage.EVENING: _evening,
}

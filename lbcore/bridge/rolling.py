"""A rolling restart's state machine: what comes next, by how far it is and by what is seen.

Decides the steps of each broker: all is well; drained; empty in Pulsar's own words; the command;
back as another process, for a while; open again; filled with what it had; even. A rollout_action is
asked for until it is seen to be done, so a cut between any two steps loses nothing and does nothing
twice. Whatever lasts too long stops it, with the broker in hand opened again unless it may have
been restarted by then. No clock, no I/O.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lbcore.bridge.rollout import (
    GO_ON,
    NOT_KNOWN,
    Announce,
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
    RestartStage,
    Rollout,
    RolloutObservation,
    complaints,
    overdue,
    with_doubts,
)
from lbcore.model.times import duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The next state, to be kept before anything is done, and what is to be done, in order."""

    rollout: Rollout
    actions: tuple[Deed, ...] = ()

    @property
    def stop(self) -> GiveUp | None:
        """Deed with the reason why it stops; None = it goes on."""
        return next((one for one in self.actions if isinstance(one, GiveUp)), None)


def stopped(rollout: Rollout, observed: RolloutObservation, fault: Complaint) -> Advance:
    """It goes no further; nothing is left by half that can be undone."""
    left = halted(rollout, observed)
    what = f"the rolling restart has stopped at {rollout.broker}"
    what += f" ({rollout.at} of {len(rollout.order)} done)"
    actions = (*left.actions, GiveUp(what=what, why=fault.why, next_step=fault.next_step))
    return Advance(rollout=replace(left.rollout, stopped=fault.why), actions=actions)


def halted(rollout: Rollout, observed: RolloutObservation, *, for_good: bool = False) -> Advance:
    """Undo what can be undone at a halt, and set the stage to resume from.

    for_good: nobody will resume it. A broker that is back, or was never touched, is opened. One
    that may be in the middle of its restart stays closed, and that is reported.
    """
    broker = rollout.broker
    actions: list[Deed] = [DropIt(plan=name) for name in sorted(observed.plans)]
    if _may_open(rollout, observed, for_good=for_good):
        if rollout.was_drained or broker in observed.drains:
            actions += [
                ReopenIt(),
                Announce(text=f"{broker} is open again: its drain was cancelled"),
            ]
        is_new = rollout.under is not RestartStage.DRAINING and rollout.is_other(
            observed.incarnation
        )
        stage = RestartStage.FILLING if is_new else RestartStage.WAITING
        rollout = rollout.to(stage, observed.now_ms, was_drained=False)
    elif broker in observed.drains:
        opens = f"`ballast broker cancel-drain {broker}`"
        actions.append(Announce(text=f"{broker} is still closed: {opens} opens it"))
    elif rollout.stage is RestartStage.EASING:
        rollout = rollout.to(RestartStage.FILLING, observed.now_ms)
    if for_good and rollout.homes and missing_of(rollout, observed):
        undo = f"`ballast plan undo --drain {broker}`"
        actions.append(
            Announce(text=f"what has left {broker} stays where it is: {undo} moves it back")
        )
    return Advance(rollout=rollout, actions=tuple(actions))


def _may_open(rollout: Rollout, observed: RolloutObservation, *, for_good: bool) -> bool:
    if rollout.under in (RestartStage.DRAINING, RestartStage.EMPTIED):
        return True
    if not observed.incarnation or rollout.broker not in observed.listed:
        return False
    if rollout.stage is RestartStage.RESTARTING:
        return for_good and not rollout.pid
    if rollout.stage not in (RestartStage.RETURNING, RestartStage.REOPENING):
        return False
    return for_good or not rollout.command or rollout.is_other(observed.incarnation)


def missing_of(rollout: Rollout, observed: RolloutObservation) -> list[str]:
    """Return the bundles that the broker had and another broker has now.

    Bundles in transit count, too. What is gone, as after a split, is left out.
    """
    elsewhere: Mapping[str, str] = observed.owners
    known = (one for one in rollout.homes if one in elsewhere or one in observed.moving)
    return [one for one in known if elsewhere.get(one) != rollout.broker]


WAITS = "waits"
"""A plan of ours that nobody has approved yet."""
_STILL_MS = 60_000
_FILLS, _AGAIN_MS = 4, 5_000
_EVEN_SLACK = 0.1


def advance(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    """One step. O(bundles)."""
    if rollout.stage is RestartStage.DONE:
        return Advance(rollout=rollout)
    wrong = complaints(rollout, observed, bounds)
    rollout = with_doubts(rollout, wrong, observed.now_ms)
    fault = overdue(rollout, wrong, observed.now_ms, bounds)
    if fault is not None:
        return stopped(rollout, observed, fault)
    return _STEPS[rollout.stage](rollout, observed, bounds)


def resumed(rollout: Rollout, observed: RolloutObservation, command: str | None = None) -> Rollout:
    """Resume after a cut or a stop, with new ids and the current settings."""
    return replace(
        rollout,
        command=rollout.command if command is None else command,
        since_ms=observed.now_ms,
        turn=rollout.turn + 1,
        tries=0,
        doubts={},
        stopped="",
        was_drained=rollout.broker in observed.drains,
        settings=observed.settings or rollout.settings,
    )


def _waiting(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    waited_ms = observed.now_ms - rollout.since_ms
    is_quiet = not observed.moving or waited_ms >= _STILL_MS
    if rollout.doubts or not is_quiet or not observed.incarnation:
        if waited_ms >= bounds.ready_ms and not observed.incarnation:
            return _stop(rollout, observed, f"{rollout.broker} does not answer", "see its log")
        return Advance(rollout=rollout)
    homes = tuple(sorted(one for one, at in observed.owners.items() if at == rollout.broker))
    served = homes if observed.loaded is None else [one for one in homes if one in observed.loaded]
    known = NOT_KNOWN if observed.imbalance is None else observed.imbalance
    begun = rollout.to(
        RestartStage.DRAINING,
        observed.now_ms,
        incarnation=observed.incarnation,
        homes=tuple(sorted({*rollout.homes, *homes})),
        served=tuple(sorted({*rollout.served, *served})),
        imbalance=known if rollout.imbalance == NOT_KNOWN else rollout.imbalance,
        was_drained=False,
        turn=rollout.turn + 1,
    )
    text = f"{rollout.broker}: {len(homes)} bundles are moved away, {rollout.at_once} at once"
    return Advance(rollout=begun, actions=(Announce(text=text),))


def _draining(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    drain = observed.drains.get(rollout.broker)
    waited_ms = observed.now_ms - rollout.since_ms
    if drain is None:
        return _not_drained(rollout, observed)
    rollout = replace(rollout, was_drained=True)
    if drain.is_done:
        return Advance(rollout=rollout.to(RestartStage.EMPTIED, observed.now_ms))
    if _is_latency_high(rollout, observed, bounds):
        return _ease(rollout, observed, (ReopenIt(),))
    if waited_ms >= bounds.drain_ms:
        why = f"{drain.left} bundles are still there after {duration(waited_ms)}"
        return _stop(rollout, observed, why, "`ballast explain broker` says what holds them")
    return Advance(rollout=rollout)


def _not_drained(rollout: Rollout, observed: RolloutObservation) -> Advance:
    if observed.refused:
        return _stop(rollout, observed, observed.refused, "see `ballast status`")
    if rollout.was_drained:
        why = f"somebody else has cancelled the drain of {rollout.broker}"
        return _stop(rollout, observed, why, "ask who it was")
    return Advance(rollout=rollout, actions=(DrainIt(at_once=rollout.at_once),))


def _easing(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    """Nothing of ours moves. What does not get better by that is not ours."""
    is_felt = (observed.publish_latency_ms or 0.0) > bounds.publish_latency_ms
    rollout = replace(
        rollout,
        calm_since_ms=0 if is_felt else rollout.calm_since_ms or observed.now_ms,
    )
    waited_ms = observed.now_ms - rollout.since_ms
    if rollout.back is RestartStage.DRAINING and rollout.broker in observed.drains:
        return Advance(rollout=rollout, actions=(ReopenIt(),))
    if rollout.calm_since_ms and observed.now_ms - rollout.calm_since_ms >= bounds.calm_ms:
        begun = rollout.to(
            rollout.back, observed.now_ms, calm_since_ms=0, was_drained=False, turn=rollout.turn + 1
        )
        text = f"{rollout.broker}: clients feel nothing now; on, {rollout.at_once} at once"
        return Advance(rollout=begun, actions=(Announce(text=text),))
    if waited_ms >= bounds.ease_ms:
        why = (
            f"clients wait more than {bounds.publish_latency_ms:.0f} ms though nothing is moved for"
        )
        why += f" {duration(waited_ms)}"
        return _stop(rollout, observed, why, "see what hurts them, or allow more with --felt-ms")
    return Advance(rollout=rollout)


def _emptied(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    if rollout.broker not in observed.drains:
        why = f"somebody else has cancelled the drain of {rollout.broker}"
        return _stop(rollout, observed, why, "ask who it was")
    if observed.held is not None and not observed.held and observed.incarnation:
        begun = rollout.to(
            RestartStage.RESTARTING,
            observed.now_ms,
            incarnation=observed.incarnation,
            pid=0,
            returned="",
        )
        text = f"{rollout.broker} is empty, in Pulsar's own words"
        return Advance(rollout=begun, actions=(Announce(text=text), RestartIt()))
    waited_ms = observed.now_ms - rollout.since_ms
    if waited_ms >= bounds.empty_ms:
        held = ", ".join((observed.held or ())[:3]) or "what it owns is not told"
        why = f"Pulsar shows it not empty {duration(waited_ms)} after its drain: {held}"
        return _stop(rollout, observed, why, "see who gives it bundles")
    return Advance(rollout=rollout)


def _restarting(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    waited_ms = observed.now_ms - rollout.since_ms
    seen = observed.command
    if not rollout.command:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, observed.now_ms))
    if seen is None:
        return _after_a_cut(rollout, observed, bounds)
    if seen.code is None and waited_ms < bounds.command_ms:
        return Advance(rollout=rollout)
    if seen.code == 0:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, observed.now_ms, pid=0))
    how = f"ended with {seen.code}" if seen.code is not None else "still runs"
    why = f"the command {how} after {duration(waited_ms)}"
    why += f": {seen.said}" if seen.said else " and said nothing"
    next_step = f"mend it (--command), see that {rollout.broker} runs"
    rollout = replace(rollout, pid=0 if seen.code is not None else rollout.pid)
    return _stop(rollout, observed, why, next_step)


def _after_a_cut(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    """Nobody saw the command's end: another process, or none, shows that it has run."""
    if observed.incarnation == rollout.incarnation:
        return Advance(rollout=rollout, actions=(RestartIt(),))
    if observed.incarnation or rollout.broker not in observed.listed:
        return Advance(rollout=rollout.to(RestartStage.RETURNING, observed.now_ms))
    if observed.now_ms - rollout.since_ms >= bounds.command_ms:
        return _stop(rollout, observed, f"{rollout.broker} does not answer", "see its log")
    return Advance(rollout=rollout)


def _returning(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    waited_ms = observed.now_ms - rollout.since_ms
    is_there = rollout.broker in observed.listed and bool(observed.incarnation)
    is_new = is_there and rollout.is_other(observed.incarnation)
    if is_new and observed.incarnation == rollout.returned:
        if observed.now_ms - rollout.returned_ms >= bounds.settle_ms:
            text = f"{rollout.broker} is back as another process"
            begun = rollout.to(RestartStage.REOPENING, observed.now_ms, turn=rollout.turn + 1)
            return Advance(rollout=begun, actions=(Announce(text=text),))
        return Advance(rollout=rollout)
    if is_new:
        kept = replace(rollout, returned=observed.incarnation, returned_ms=observed.now_ms)
        return Advance(rollout=kept)
    is_person = not rollout.command
    if is_there and waited_ms >= (bounds.drain_ms if is_person else bounds.restart_ms):
        who = "nobody has restarted it" if is_person else "the command ended well"
        why = f"{who}, and {rollout.broker} is the same process as before"
        next_step = "restart it, or have the command (--command) do it"
        back = rollout.to(RestartStage.RESTARTING, observed.now_ms, pid=0)
        return _stop(back, observed, why, next_step)
    if not is_there and waited_ms >= (bounds.drain_ms if is_person else bounds.return_ms):
        why = f"{rollout.broker} has not come back within {duration(waited_ms)}"
        return _stop(rollout, observed, why, "read its log and start it")
    return Advance(rollout=rollout)


def _reopening(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    if rollout.broker not in observed.drains:
        missing = missing_of(rollout, observed)
        text = f"{rollout.broker}: {len(missing)} bundles are moved back"
        begun = rollout.to(
            RestartStage.FILLING,
            observed.now_ms,
            tries=0,
            left=len(missing) + 1,
            turn=rollout.turn + 1,
        )
        return Advance(rollout=begun, actions=(Announce(text=text),))
    if observed.now_ms - rollout.since_ms >= bounds.empty_ms:
        return _stop(
            rollout, observed, observed.refused or "its drain can't be cancelled", "see status"
        )
    return Advance(rollout=rollout, actions=(ReopenIt(),))


def _filling(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    waited_ms = observed.now_ms - rollout.since_ms
    if observed.plans and _is_latency_high(rollout, observed, bounds):
        return _ease(rollout, observed, [DropIt(plan=name) for name in sorted(observed.plans)])
    if observed.plans:
        waiting = [
            ApproveIt(plan=name) for name, how in sorted(observed.plans.items()) if how == WAITS
        ]
        return Advance(rollout=rollout, actions=tuple(waiting))
    missing = missing_of(rollout, observed)
    if not missing:
        return Advance(rollout=rollout.to(RestartStage.EVENING, observed.now_ms))
    if waited_ms >= bounds.fill_ms:
        why = observed.refused or f"{len(missing)} bundles are not back after {duration(waited_ms)}"
        return _stop(rollout, observed, why, "`ballast explain bundle` says what holds one")
    return _fill_more(rollout, observed, missing)


def _fill_more(rollout: Rollout, observed: RolloutObservation, missing: Sequence[str]) -> Advance:
    ready = [one for one in missing if one not in observed.moving]
    has_helped = len(missing) < rollout.left
    is_early = not has_helped and observed.now_ms - rollout.tried_ms < _AGAIN_MS
    if len(ready) < len(missing) or is_early:
        return Advance(rollout=rollout)
    tries = 1 if has_helped else rollout.tries + 1
    if tries > _FILLS and not observed.refused:
        text = f"{rollout.broker}: {len(missing)} bundles stay elsewhere, such as {missing[0]}:"
        text += " they are pinned, kept from it by a policy, or were moved on"
        return Advance(
            rollout=rollout.to(RestartStage.EVENING, observed.now_ms),
            actions=(Announce(text=text),),
        )
    begun = replace(
        rollout,
        turn=rollout.turn + 1,
        tries=tries,
        left=len(missing),
        tried_ms=observed.now_ms,
    )
    moves = dict.fromkeys(ready[: rollout.at_once], rollout.broker)
    return Advance(rollout=begun, actions=(FillIt(moves=moves),))


def _evening(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> Advance:
    bar = max(bounds.even, rollout.imbalance + _EVEN_SLACK)
    waited_ms = observed.now_ms - rollout.since_ms
    is_even = observed.imbalance is None or observed.imbalance <= bar or not rollout.homes
    if is_even and not observed.moving:
        done = f"{rollout.broker} is done, {rollout.at + 1} of {len(rollout.order)}"
        is_last = rollout.at + 1 == len(rollout.order)
        begun = rollout.to(
            RestartStage.DONE if is_last else RestartStage.WAITING,
            observed.now_ms,
            at=rollout.at + 1,
            turn=0,
            homes=(),
            served=(),
            incarnation="",
            returned="",
            was_drained=False,
        )
        return Advance(rollout=begun, actions=(Announce(text=done),))
    if waited_ms >= bounds.even_ms:
        why = f"{duration(waited_ms)} after {rollout.broker} was filled the busiest broker has"
        why += f" {observed.imbalance or 0.0:.2f} of the mean, more than {bar:.2f}"
        return _stop(
            rollout, observed, why, "see `ballast explain cluster`, or allow more with --even"
        )
    return Advance(rollout=rollout)


def _is_latency_high(rollout: Rollout, observed: RolloutObservation, bounds: RestartBounds) -> bool:
    """True if clients notice the moves more than they may.

    Loading a topic takes no less time if it is moved alone: then only publishing counts.
    """
    slowest_ms = observed.publish_latency_ms or 0.0
    if rollout.at_once > 1:
        slowest_ms = max(slowest_ms, observed.load_ms or 0.0)
    return slowest_ms > bounds.publish_latency_ms


def _ease(rollout: Rollout, observed: RolloutObservation, actions: Iterable[Deed]) -> Advance:
    slower = rollout.to(
        RestartStage.EASING,
        observed.now_ms,
        back=rollout.stage,
        calm_since_ms=0,
        at_once=max(1, rollout.at_once // 2),
    )
    publish_ms, load_ms = observed.publish_latency_ms or 0.0, observed.load_ms or 0.0
    waits = f"{publish_ms:.0f} ms to publish, topics take {load_ms:.0f} ms"
    text = f"{rollout.broker}: clients wait {waits} to load: nothing is moved until that is over"
    return Advance(rollout=slower, actions=(*actions, Announce(text=text)))


def _stop(rollout: Rollout, observed: RolloutObservation, why: str, next_step: str) -> Advance:
    return stopped(rollout, observed, Complaint(key="", why=why, next_step=f"{next_step}, {GO_ON}"))


_STEPS: Mapping[RestartStage, Callable[[Rollout, RolloutObservation, RestartBounds], Advance]] = {
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

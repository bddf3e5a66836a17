"""Overdue callbacks of an agent's service: given up, or returned after all.

Decides what is true of one bundle then: the callback has failed, and is *stuck*. Until it returns
nobody knows what of its hash range is served, so nothing of it may be used, and no other callback
of it runs: one of them, ending late, would undo the other. Part of `holding`.
"""

from dataclasses import dataclass, replace

from lbcore.ownership.holding import NO_TOKEN, Callback, CallDone, Goal, Holding, finish, settle
from lbcore.wire.messages import AckOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOverdue:
    """Event: a call has not returned in time. failure: that as a sentence."""

    callback: Callback
    bundle: str
    version_id: int
    failure: str


def overdue(holding: Holding, event: CallOverdue) -> Holding:
    """The holding once its callback has taken too long: that has failed, and is stuck.

    One that nobody waits for changes nothing.
    """
    call = holding.running
    failed = finish(
        holding,
        CallDone(
            callback=event.callback,
            bundle=event.bundle,
            version_id=event.version_id,
            failure=event.failure,
        ),
    )
    return failed if failed is holding else replace(failed, stuck=call)


def refuse_call(holding: Holding, reason: str) -> Holding:
    """The holding whose next callback can't run, because one of its range is stuck."""
    if holding.goal is Goal.DROP or holding.version_id == 0:
        return replace(holding, is_settled=True)
    return settle(holding, AckOutcome.FAILED, reason)


def is_return_of_stuck(holding: Holding, done: CallDone) -> bool:
    """True if the result belongs to the holding's stuck call."""
    call = holding.stuck
    return call is not None and (call.callback, call.version_id) == (done.callback, done.version_id)


def come_back(holding: Holding, done: CallDone) -> Holding:
    """The holding when its stuck call has returned after all, with what is true since.

    The balancer was told of a failure and has gone on, so nothing is put to use by it: what was
    opened so late is closed when another broker has it, or this one stops, and opened again, under
    another version, when this one shall have it.
    """
    free = replace(holding, stuck=None)
    if holding.goal in (Goal.DROP, Goal.GIVE_UP):
        free = replace(free, is_settled=False)
    if done.callback is Callback.OPEN:
        token = NO_TOKEN if done.failure else done.version_id
        return replace(free, token=token, split_into=())
    if done.failure or holding.stuck is None or done.callback is Callback.MERGE:
        return free
    if done.callback is Callback.CLOSE:
        return replace(free, token=NO_TOKEN, split_into=())
    return replace(free, split_into=holding.stuck.children)

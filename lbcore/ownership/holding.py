"""One bundle in an agent: its newest record's goal, and the service's progress.

Chooses the next callback and the ack for the balancer. One callback a bundle runs at a time; a
record that arrives meanwhile changes the goal, and so the next callback. The states mean for
brokers what they mean in Pulsar 4.0.8's ServiceUnitStateChannelImpl.
"""

from bisect import bisect_left, insort
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from lbcore.model.names import parse_bundle, range_end
from lbcore.ownership.changes import Instance, destination_of, source_of
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.wire.messages import Ack, AckOutcome

NO_TOKEN = 0


class Callback(str, Enum):
    """Action of a service on a bundle, requested by its agent.

    Each is for a hash range and a fencing token, and may be repeated. The state after a success /
    after a failure:

    open: the range is served as one bundle under this token / nothing of it is open.
    close: nothing of the range is served / unchanged.
    split: the range is served as the named children / unchanged.
    merge: unchanged, but the service is ready to open the named bundle / unchanged.
    """

    OPEN = "open"
    CLOSE = "close"
    SPLIT = "split"
    MERGE = "merge"


class Goal(str, Enum):
    """Goal that the newest record sets; a stopping agent itself sets GIVE_UP."""

    SERVE = "serve"
    RELEASE = "release"
    SPLIT = "split"
    MERGE = "merge"
    DROP = "drop"
    GIVE_UP = "give_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A callback to run.

    version_id: the fencing token. children: of a split, ascending; of a merge, the one bundle that
    this and its neighbour become.
    """

    callback: Callback
    bundle: str
    version_id: int
    children: tuple[str, ...] = ()

    @property
    def range(self) -> str:
        """The bundle in whose range no other callback may run at the same time."""
        return self.children[0] if self.callback is Callback.MERGE else self.bundle


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDone:
    """Outcome of a call. failure: its reason, "" = succeeded.

    It may also come after a CallOverdue of the same call.
    """

    callback: Callback
    bundle: str
    version_id: int
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOverdue:
    """Event: a call has not returned in time. failure: a sentence that says so."""

    callback: Callback
    bundle: str
    version_id: int
    failure: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """One bundle as its agent sees it.

    version_id: of the newest record; 0 for a child of a split whose record is not read yet.
    is_owned: that record is Owned. token: the version under which the bundle is open; NO_TOKEN =
    not open. split_into: the children that it is served as, if any. is_settled: the goal is reached
    or has failed. stuck: an overdue call that has not returned; until it does, nothing of the range
    may be used, and no other callback runs on it. outcome: the ack for this version, repeated until
    a newer record comes; said: how often it was sent. since_ms: time of the last ack, or start of
    the wait for the next one.
    """

    bundle: str
    version_id: int
    goal: Goal
    is_owned: bool = False
    children: tuple[str, ...] = ()
    token: int = NO_TOKEN
    split_into: tuple[str, ...] = ()
    is_settled: bool = False
    running: Call | None = None
    stuck: Call | None = None
    outcome: AckOutcome | None = None
    reason: str = ""
    said: int = 0
    since_ms: int = 0

    @property
    def is_closed(self) -> bool:
        """True if nothing of the bundle is served here, and no callback is under way."""
        return self.running is None and self.stuck is None and self.token == NO_TOKEN

    @property
    def merged(self) -> str:
        """The bundle that this one becomes with its neighbour; "" = none."""
        return self.children[0] if len(self.children) == 1 else ""

    @property
    def is_open(self) -> bool:
        """True if it is open here as one bundle."""
        return self.token != NO_TOKEN and not self.split_into

    @property
    def is_confirmed(self) -> bool:
        """True if by the newest record no other broker may serve the bundle.

        False in Assigning: another broker may get it if opening takes too long.
        """
        return self.is_owned or self.version_id == 0 or self.goal in _LEAVING

    @property
    def is_usable(self) -> bool:
        """True if the service may use it: open as one bundle, not lost, failed or stuck."""
        is_given_back = self.goal is Goal.SERVE and self.outcome is AckOutcome.FAILED
        is_unclear = self.stuck is not None or is_given_back
        return self.is_open and self.goal is not Goal.DROP and not is_unclear

    @property
    def is_idle(self) -> bool:
        """True if the agent has nothing to do with the bundle any more."""
        return self.goal is Goal.DROP and self.is_closed

    @property
    def is_pending(self) -> bool:
        """True if an ack or a retry is due later, without a further event."""
        return _due_outcome(self) is not None or self.has_failed_to_drop

    @property
    def has_failed_to_drop(self) -> bool:
        """True if the service could not close a bundle that another broker owns."""
        return self.goal is Goal.DROP and self.is_settled and not self.is_closed

    @property
    def is_finished(self) -> bool:
        """True if a stopping agent may leave it: closed or given up, and acknowledged."""
        is_given_up = self.goal is Goal.GIVE_UP and self.is_settled and self.running is None
        return (self.is_closed or is_given_up) and (self.outcome is None or self.said > 0)


_LEAVING = frozenset({Goal.RELEASE, Goal.SPLIT, Goal.MERGE})


def goal_of(record: OwnershipRecord, me: Instance) -> Goal:
    """Return the record's goal for this agent; DROP if it names another instance."""
    if record.state in (State.ASSIGNING, State.OWNED) and destination_of(record) == me:
        return Goal.SERVE
    return _SOURCE_GOALS.get(record.state, Goal.DROP) if source_of(record) == me else Goal.DROP


_SOURCE_GOALS = {
    State.RELEASING: Goal.RELEASE,
    State.SPLITTING: Goal.SPLIT,
    State.MERGING: Goal.MERGE,
}


def apply_record(
    holding: Holding | None, record: OwnershipRecord, me: Instance, now_ms: int
) -> Holding:
    """Return the holding under a newer record. holding: None = new to the agent.

    A parent that this agent has split needs no close callback when the end of that split deletes
    its record: its children have records of their own. A merged one stays in use until the record
    of the merged bundle is read.
    """
    before = holding or Holding(bundle=record.bundle, version_id=0, goal=Goal.DROP)
    is_end = record.state is State.DELETED and not record.is_forced and source_of(record) == me
    if is_end and before.merged and before.is_open:
        is_waiting = before.goal is Goal.MERGE
        return replace(before, is_settled=before.is_settled or is_waiting, outcome=None, reason="")
    is_over = is_end and bool(before.split_into)
    return replace(
        before,
        version_id=record.version_id,
        goal=goal_of(record, me),
        is_owned=record.state is State.OWNED,
        children=tuple(sorted(record.children)),
        token=NO_TOKEN if is_over else before.token,
        split_into=() if is_over else before.split_into,
        is_settled=False,
        outcome=None,
        reason="",
        said=0,
        since_ms=now_ms,
    )


def forget(holding: Holding, now_ms: int, *, is_split_over: bool) -> Holding:
    """Return the holding once its bundle's key is deleted (after the tombstone delay).

    is_split_over: it was split here and its children have had records, so nothing is left to close.
    """
    return replace(
        holding,
        goal=Goal.DROP,
        token=NO_TOKEN if is_split_over else holding.token,
        split_into=() if is_split_over else holding.split_into,
        is_settled=False,
        outcome=None,
        since_ms=now_ms,
    )


def next_call(holding: Holding) -> tuple[Holding, Call | None]:
    """Return the holding, and the callback that must run now, if any."""
    if holding.running is not None or holding.is_settled:
        return holding, None
    if holding.goal in (Goal.SPLIT, Goal.MERGE) and holding.token == NO_TOKEN:
        return settle(holding, AckOutcome.FAILED, "the bundle is not open here"), None
    if holding.goal is Goal.SERVE and _is_served(holding):
        return replace(holding, is_settled=True), None
    if holding.goal is Goal.GIVE_UP and holding.is_closed:
        return fail(holding, holding.reason), None
    if holding.is_idle or (holding.goal is Goal.MERGE and not _leads_merge(holding)):
        return holding, None
    callback = _CALLBACKS[holding.goal]
    children = holding.children if callback in (Callback.SPLIT, Callback.MERGE) else ()
    call = Call(
        callback=callback, bundle=holding.bundle, version_id=holding.version_id, children=children
    )
    return replace(holding, running=call), call


def finish(holding: Holding, done: CallDone | CallOverdue) -> Holding:
    """Return the holding after a callback's result; ignores an unexpected result."""
    call = holding.running
    if call is None or (call.callback, call.version_id) != (done.callback, done.version_id):
        return holding
    after = _served_after(replace(holding, running=None), call, done.failure)
    is_current = call.version_id == holding.version_id
    if call.callback is Callback.CLOSE:
        return _closed(after, done.failure, is_current=is_current)
    if not is_current or call.callback is not _CALLBACKS[holding.goal]:
        return after
    if done.failure:
        return settle(after, AckOutcome.FAILED, done.failure)
    if holding.goal is Goal.SERVE and holding.is_owned:
        return replace(after, is_settled=True)
    return settle(after, _DONE[call.callback])


def inherited(parent: Holding) -> tuple[Holding, ...]:
    """Return the children of a bundle split here, under its token, without records."""
    return tuple(
        Holding(bundle=child, version_id=0, goal=Goal.SERVE, token=parent.token, is_settled=True)
        for child in parent.split_into
    )


def give_up(holding: Holding, reason: str) -> Holding:
    """Return the holding of a stopping agent that no longer waits for a move."""
    is_done = holding.outcome in (AckOutcome.SPLIT, AckOutcome.MERGED)
    if holding.goal not in (Goal.SERVE, Goal.SPLIT, Goal.MERGE) or is_done:
        return holding
    return replace(holding, goal=Goal.GIVE_UP, reason=reason, is_settled=False, outcome=None)


def next_ack(holding: Holding, now_ms: int, repeat_ms: int) -> tuple[Holding, Ack | None]:
    """Return the holding and the acknowledgement to send now, if any.

    A final outcome is sent at once, then at growing intervals, up to 8 × the first. *closing* is
    sent at equal intervals, for as long as closing, splitting or merging takes.
    """
    outcome = _due_outcome(holding)
    if outcome is None or now_ms < due_at_ms(holding, repeat_ms):
        return holding, None
    return replace(holding, said=holding.said + 1, since_ms=now_ms), Ack(
        bundle=holding.bundle, version_id=holding.version_id, outcome=outcome, reason=holding.reason
    )


def retry(holding: Holding, now_ms: int, repeat_ms: int) -> Holding:
    """Return the holding ready to try again to close another broker's bundle."""
    if not holding.has_failed_to_drop or now_ms < due_at_ms(holding, repeat_ms):
        return holding
    return replace(holding, is_settled=False, since_ms=now_ms)


def due_at_ms(holding: Holding, repeat_ms: int) -> int:
    """Return the time when a pending holding is due again."""
    if holding.outcome is None:
        return holding.since_ms + repeat_ms
    if holding.said == 0:
        return holding.since_ms
    return int(holding.since_ms + repeat_ms * min(1 << (holding.said - 1), _MAX_BACK_OFF))


_MAX_BACK_OFF = 8
_CALLBACKS = {
    Goal.SERVE: Callback.OPEN,
    Goal.RELEASE: Callback.CLOSE,
    Goal.SPLIT: Callback.SPLIT,
    Goal.MERGE: Callback.MERGE,
    Goal.DROP: Callback.CLOSE,
    Goal.GIVE_UP: Callback.CLOSE,
}
_DONE = {
    Callback.OPEN: AckOutcome.OPENED,
    Callback.SPLIT: AckOutcome.SPLIT,
    Callback.MERGE: AckOutcome.MERGED,
}


def _is_served(holding: Holding) -> bool:
    """Return True if open under this record, or the Assigning that an Owned confirms.

    Otherwise another broker may have had the bundle in between: its token is too old.
    """
    if holding.split_into or holding.token == NO_TOKEN:
        return False
    confirmed = holding.token + 1 if holding.is_owned else holding.token
    return holding.version_id in (holding.token, confirmed)


def settle(holding: Holding, outcome: AckOutcome, reason: str = "") -> Holding:
    """Return the holding with its goal reached or failed, and the ack for that."""
    return replace(holding, is_settled=True, outcome=outcome, reason=reason, said=0)


def _due_outcome(holding: Holding) -> AckOutcome | None:
    if holding.outcome is not None:
        return holding.outcome
    is_busy = holding.goal in _LEAVING and not holding.is_settled
    return AckOutcome.CLOSING if is_busy else None


def _served_after(holding: Holding, call: Call, failure: str) -> Holding:
    """Return the holding with what its service serves once the call has returned."""
    if call.callback is Callback.OPEN:
        return replace(holding, token=NO_TOKEN if failure else call.version_id, split_into=())
    if failure or call.callback is Callback.MERGE:
        return holding
    if call.callback is Callback.CLOSE:
        return replace(holding, token=NO_TOKEN, split_into=())
    return replace(holding, split_into=call.children)


def _closed(holding: Holding, failure: str, *, is_current: bool) -> Holding:
    if not failure:
        is_released = holding.goal is Goal.RELEASE
        return settle(holding, AckOutcome.CLOSED) if is_released else holding
    if is_current and holding.goal in (Goal.RELEASE, Goal.GIVE_UP):
        return settle(holding, AckOutcome.FAILED, failure)
    return replace(holding, is_settled=holding.goal is Goal.DROP)


def _leads_merge(holding: Holding) -> bool:
    """Return True for the lower of two merged bundles, whose callback is for both."""
    return parse_bundle(holding.bundle)[1] == parse_bundle(holding.children[0])[1]


def overdue(holding: Holding, event: CallOverdue) -> Holding:
    """Return the holding after an overdue callback: it has failed, and is stuck.

    Until the callback returns, it is unknown which part of its hash range is served. So nothing of
    the range may be used, and no other callback runs on it: the late one would undo it. An
    unexpected event changes nothing.
    """
    call = holding.running
    failed = finish(holding, event)
    return failed if failed is holding else replace(failed, stuck=call)


def fail(holding: Holding, reason: str) -> Holding:
    """Return the holding with a failed goal, which is acknowledged if a record set it."""
    if holding.goal is Goal.DROP or holding.version_id == 0:
        return replace(holding, is_settled=True)
    return settle(holding, AckOutcome.FAILED, reason)


def finish_stuck(holding: Holding, done: CallDone) -> Holding | None:
    """Return the holding after its stuck call has returned; None for another call.

    The balancer has been sent a failure, so the result is not acknowledged. A bundle that opened
    late is closed if another broker has it or this agent stops; if this agent shall have it, it is
    opened again, under another version.
    """
    call = holding.stuck
    if call is None or (call.callback, call.version_id) != (done.callback, done.version_id):
        return None
    is_settled = holding.is_settled and holding.goal not in (Goal.DROP, Goal.GIVE_UP)
    return _served_after(replace(holding, stuck=None, is_settled=is_settled), call, done.failure)


Range: TypeAlias = tuple[int, int]
"""First and last hash, both included."""

Busy: TypeAlias = Mapping[str, tuple[Range, ...]]
"""Namespace → its busy ranges, ascending."""


class BusyRanges:
    """Hash ranges in use within one step, of which no two overlap.

    They have a running callback, or an open bundle. Bundles overlap only around splits and merges,
    and if a namespace was created again. A parent that is still closing must not close what a child
    has just opened. The ranges passed in are not changed: a namespace's are copied at its first
    change.
    """

    def __init__(self, busy: Busy) -> None:
        self._before = busy
        self._changed: dict[str, list[Range]] = {}

    def freeze(self) -> Busy:
        """Return the ranges as they are now; the same object if nothing has changed."""
        if not self._changed:
            return self._before
        merged = {**self._before, **{n: tuple(ranges) for n, ranges in self._changed.items()}}
        return {namespace: ranges for namespace, ranges in merged.items() if ranges}

    def take(self, bundle: str) -> bool:
        """Make a bundle's range busy; return False if it overlaps a busy one. O(log n)."""
        if not self.is_free(bundle):
            return False
        namespace, taken = _parse(bundle)
        insort(self._ranges(namespace), taken)
        return True

    def is_free(self, bundle: str) -> bool:
        """Return True if a bundle's range overlaps no busy one. O(log n)."""
        namespace, wanted = _parse(bundle)
        ranges = self._changed.get(namespace, self._before.get(namespace, ()))
        at = bisect_left(ranges, wanted)
        is_hit_below = at > 0 and ranges[at - 1][1] >= wanted[0]
        is_hit_above = at < len(ranges) and ranges[at][0] <= wanted[1]
        return not (is_hit_below or is_hit_above)

    def release(self, bundle: str) -> None:
        """Make a bundle's range free again; raises ValueError when it was not busy."""
        namespace, taken = _parse(bundle)
        self._ranges(namespace).remove(taken)

    def discard(self, bundle: str) -> None:
        """Make a bundle's range free again if exactly that one is busy. O(log n)."""
        namespace, wanted = _parse(bundle)
        ranges = self._ranges(namespace)
        at = bisect_left(ranges, wanted)
        if ranges[at : at + 1] == [wanted]:
            del ranges[at]

    def _ranges(self, namespace: str) -> list[Range]:
        if namespace not in self._changed:
            self._changed[namespace] = list(self._before.get(namespace, ()))
        return self._changed[namespace]


def _parse(bundle: str) -> tuple[str, Range]:
    namespace, lower, upper = parse_bundle(bundle)
    return namespace, (lower, range_end(upper) - 1)

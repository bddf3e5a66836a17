"""Events, effects and state of an agent's Machine, and its lease."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from lbcore.agent.reporting import NEVER_MS, LoadRead, Reporting, TopicsRead
from lbcore.ownership.holding import (
    NO_TOKEN,
    Busy,
    BusyRanges,
    Call,
    Callback,
    CallDone,
    CallOverdue,
    Goal,
    Holding,
    fail,
    finish,
    finish_stuck,
    forget,
    inherited,
    next_call,
    overdue,
)
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.resolve import is_newer
from lbcore.wire.messages import Acks, BrokerLoad, BundleLoad, Heartbeat, TopicLoad

Kept = TypeVar("Kept")

FOR_EVER_MS = 2**62

ReportMessage: TypeAlias = Heartbeat | BrokerLoad | BundleLoad | TopicLoad | Acks


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportConfirmed:
    """Event: all in-sync replicas have a message of broker-load.

    sent_ms: its envelope's reportedAt, by the agent's own clock before it was sent.
    """

    sent_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EndConfirmed:
    """Event: all records of the topic ownership before asked_ms have been read."""

    asked_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Confirmations of Kafka by which the agent may go on serving, by its own clock.

    Two confirmations extend it. Kafka has acknowledged a report: the balancer can't take the broker
    for dead before broker_timeout_ms after that was sent. And the topic ownership was read to its
    end: no record was missed. The service asks at every use, so a frozen process or one without
    network finds out by itself. Leases as in Gray and Cheriton, 1989.

    reported_ms, read_ms: the newest sent_ms and asked_ms. returned_ms: when a confirmation came
    after the lease had run out the last time; NEVER_MS = it never has.
    """

    reported_ms: int = NEVER_MS
    read_ms: int = NEVER_MS
    returned_ms: int = NEVER_MS

    def confirmed(
        self, event: ReportConfirmed | EndConfirmed, lease_ms: int, now_ms: int
    ) -> "Lease":
        """Return the lease after a confirmation taken at now_ms.

        One that comes too late starts the waiting time of `until_ms`.
        """
        known = [at_ms for at_ms in (self.reported_ms, self.read_ms) if at_ms != NEVER_MS]
        has_run_out = any(now_ms - at_ms > lease_ms for at_ms in known)
        lease = replace(self, returned_ms=now_ms if has_run_out else self.returned_ms)
        if isinstance(event, ReportConfirmed):
            return replace(lease, reported_ms=max(self.reported_ms, event.sent_ms))
        return replace(lease, read_ms=max(self.read_ms, event.asked_ms))

    def until_ms(self, lease_ms: int) -> int:
        """The last moment at which anything may be served; NEVER_MS = nothing now.

        After it has run out, one whole lease must pass under confirmations, and after that the
        topic ownership be read to its end. By then the agent has read a record that gave its
        bundles away, even if the balancer was behind when it decided so.
        """
        if self.read_ms < self.returned_ms + lease_ms:
            return NEVER_MS
        return min(self.reported_ms, self.read_ms) + lease_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRead:
    """A record of the ownership topic."""

    record: OwnershipRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordTombstone:
    """A tombstone of the ownership topic: the bundle's key is deleted."""

    bundle: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Event: the broker shall end.

    It asks to be drained, and waits at most shutdown_timeout_ms.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLoad:
    """Effect: read the load, answered with LoadRead and TopicsRead for each bundle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Effect: send this message, after those before it, with acks=all."""

    message: ReportMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Effect: everything is sent; the process may end.

    left: names of bundles that were not moved away in time. They are closed and given back if the
    service closed them in time; the others end with the process.
    """

    left: tuple[str, ...] = ()


Event: TypeAlias = (
    RecordRead
    | RecordTombstone
    | CallDone
    | CallOverdue
    | LoadRead
    | TopicsRead
    | ReportConfirmed
    | EndConfirmed
    | Stop
)
Effect: TypeAlias = Call | ReadLoad | Send | Stopped

STUCK = "an earlier callback of this hash range has not returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentState:
    """State of an agent.

    versions: the newest version read of each bundle. holdings: its bundles; pending: those for
    which something may be due. busy: hash ranges of running callbacks; blocked: bundles whose
    callback waits for one of an overlapping bundle; stuck: hash ranges of callbacks that are
    overdue. merging: those bundles that become another with a neighbour. stopping_at_ms: when it
    got Stop. lease: confirmations of Kafka.
    """

    versions: Mapping[str, int] = field(default_factory=dict)
    holdings: Mapping[str, Holding] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    busy: Busy = field(default_factory=dict)
    blocked: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    merging: frozenset[str] = frozenset()
    reporting: Reporting = field(default_factory=Reporting)
    stopping_at_ms: int | None = None
    is_stopped: bool = False
    lease: Lease = field(default_factory=Lease)


class AgentContext:
    """An agent's state within one step; what does not change is not copied."""

    def __init__(self, state: AgentState) -> None:
        self.versions = state.versions
        self.holdings = state.holdings
        self.reporting = state.reporting
        self.stopping_at_ms = state.stopping_at_ms
        self.is_stopped = state.is_stopped
        self.lease = state.lease
        self.effects: list[Effect] = []
        self._before = state
        self.pending = set(state.pending)
        self._busy = BusyRanges(state.busy)
        self._blocked = set(state.blocked)
        self._stuck = set(state.stuck)
        self._merging = set(state.merging)
        self._open: BusyRanges | None = None

    def freeze(self) -> AgentState:
        """The state as it is now."""
        return AgentState(
            versions=self.versions,
            holdings=self.holdings,
            pending=frozenset(self.pending),
            busy=self._busy.freeze(),
            blocked=frozenset(self._blocked),
            stuck=frozenset(self._stuck),
            merging=frozenset(self._merging),
            reporting=self.reporting,
            stopping_at_ms=self.stopping_at_ms,
            is_stopped=self.is_stopped,
            lease=self.lease,
        )

    def send(self, *messages: ReportMessage, **reported: Any) -> None:
        """Send messages; reported: what of `reporting` they change."""
        self.reporting = replace(self.reporting, **reported)
        self.effects += [Send(message=message) for message in messages]

    def advance(self, holding: Holding) -> None:
        """Keep a holding after starting its callback; forget it when it is idle.

        The callback waits while an overlapping bundle is open, or has one running. It fails while
        one is stuck there: that may never return, and another broker can do it.
        """
        kept, call = next_call(holding)
        self._blocked.discard(kept.bundle)
        if call is not None and self._is_stuck(call.range):
            kept, call = fail(holding, STUCK), None
        if call is not None and self._may_run(holding, call):
            self.effects.append(call)
        elif call is not None:
            self._blocked.add(call.bundle)
            kept = holding
        if kept is self.holdings.get(kept.bundle):
            return
        if kept.is_idle:
            self._drop(kept.bundle)
        else:
            self._keep(kept)
        if kept.is_pending:
            self.pending.add(kept.bundle)
        else:
            self.pending.discard(kept.bundle)

    def _may_run(self, holding: Holding, call: Call) -> bool:
        """Take the range of a holding's call unless it overlaps a call or an open bundle.

        Records are in order within a bundle only. So an open bundle may be of the namespace's
        former boundaries: its own next record closes it. Or the call's bundle may be: its next
        record cancels the call. Bundles that were merged into this one are open until its
        callback has run.
        """
        if self._open is None:
            self._open = BusyRanges({})
            for name, kept in self.holdings.items():
                if kept.is_open:
                    self._open.take(name)  # unless it overlaps another
        parents = self._merged_into(holding.bundle, call.version_id)
        for name in parents:
            self._open.discard(name)
        is_beside_open = holding.token == NO_TOKEN and not self._open.is_free(holding.bundle)
        for name in parents:
            self._open.take(name)
        return not is_beside_open and self._busy.take(call.range)

    def _merged_into(self, bundle: str, version_id: int) -> list[str]:
        """Return the open bundles that this one replaces from this version on."""
        return [
            name
            for name in sorted(self._merging)
            if self.holdings[name].merged == bundle
            and self.holdings[name].is_open
            and is_newer(version_id, self.holdings[name].version_id)
        ]

    def end_merge(self, bundle: str, version_id: int) -> None:
        """Close what was merged into a bundle that is not for this agent, or is stuck."""
        for name in self._merged_into(bundle, version_id):
            self.advance(replace(self.holdings[name], goal=Goal.DROP, is_settled=False))

    def take_result(self, done: CallDone) -> None:
        """Follow a callback that has returned, in time or after it was given up.

        Its range is free, and callbacks that waited for it begin. What was merged into its bundle
        is forgotten. One in time hands a split's children on.
        """
        before = self.holdings.get(done.bundle)
        if before is None:
            return
        call, after = before.stuck, finish_stuck(before, done)
        is_late = after is not None
        if after is None:
            call, after = before.running, finish(before, done)
        if call is None or after is before:
            return
        if is_late:
            self._stuck.remove(call.range)
        self._busy.release(call.range)
        if not done.failure or call.callback is Callback.OPEN:
            for name in self._merged_into(call.bundle, call.version_id):
                self._drop(name)
        if not is_late and after.split_into != before.split_into:
            self._disinherit(before)
            for child in inherited(after):
                if child.bundle not in self.holdings:
                    self._keep(child)
        self.advance(after)
        self.advance_blocked()

    def take_overdue(self, event: CallOverdue) -> None:
        """Give up an overdue callback: its range stays taken, and waiting ones fail."""
        before = self.holdings.get(event.bundle)
        after = before and overdue(before, event)
        if after is None or after is before or after.stuck is None:
            return
        self._stuck.add(after.stuck.range)
        self.end_merge(after.bundle, after.stuck.version_id)
        self.advance(after)
        self.advance_blocked()

    def advance_blocked(self) -> None:
        """Start callbacks that no longer wait for an overlapping bundle."""
        for bundle in sorted(self._blocked):
            self.advance(self.holdings[bundle])

    def _is_stuck(self, bundle: str) -> bool:
        """True if a callback is stuck in the bundle's range. O(stuck callbacks)."""
        ranges = BusyRanges({})
        for stuck in self._stuck:
            ranges.take(stuck)
        return not ranges.is_free(bundle)

    def remember_version(self, bundle: str, version_id: int | None) -> None:
        """Note the newest version read of a bundle; None = its key is deleted."""
        self.versions = versions = _own(self.versions, self._before.versions)
        if version_id is None:
            versions.pop(bundle, None)
        else:
            versions[bundle] = version_id

    def take_tombstone(self, bundle: str, now_ms: int) -> None:
        """Forget a bundle whose key is deleted; what is open of it is closed."""
        self.remember_version(bundle, None)
        holding = self.holdings.get(bundle)
        if holding is None:
            return
        children = [self.holdings.get(name) for name in holding.split_into]
        is_over = bool(children) and all(child is None or child.version_id for child in children)
        self.advance(forget(holding, now_ms, is_split_over=is_over))

    def ask_load(self, now_ms: int) -> None:
        """Ask for the service's load."""
        self.reporting = replace(self.reporting, asked_at_ms=now_ms)
        self.effects.append(ReadLoad())

    def _disinherit(self, parent: Holding) -> None:
        """Drop the children without records of a bundle that is not split any more."""
        for name in parent.split_into:
            child = self.holdings.get(name)
            if child is not None and child.version_id == 0:
                self._drop(name)
            elif child is not None:
                self.advance(replace(child, token=NO_TOKEN, is_settled=False))

    def _keep(self, holding: Holding) -> None:
        self.holdings = holdings = _own(self.holdings, self._before.holdings)
        holdings[holding.bundle] = holding
        if holding.merged:
            self._merging.add(holding.bundle)
        else:
            self._merging.discard(holding.bundle)
        if self._open is not None and holding.is_open:
            self._open.take(holding.bundle)
        elif self._open is not None:
            self._open.discard(holding.bundle)

    def _drop(self, bundle: str) -> None:
        self.holdings = holdings = _own(self.holdings, self._before.holdings)
        holdings.pop(bundle, None)
        for kept in (self._merging, self.pending, self._blocked):
            kept.discard(bundle)
        if self._open is not None:
            self._open.discard(bundle)


def _own(now: Mapping[str, Kept], before: Mapping[str, Kept]) -> dict[str, Kept]:
    """Return a mapping that the step may change: a copy of the state's, once."""
    return now if isinstance(now, dict) and now is not before else dict(now)

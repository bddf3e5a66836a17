"""The agent: a broker's side of the protocol, for any sharded service.

It says which callback runs next and which messages are sent when. The shell around it (a real
service's, or the simulated fleet's) does all I/O, and returns results as events.

The shell passes in, in order, each record of the ownership topic that names the broker, and later
every record of the same bundle. It runs only the callbacks that Calls ask for, sends each message
in order, and calls `step` again at `wake_at_ms`, or earlier with events. `now_ms` must never go
back: wall clock at the start plus a monotonic clock since.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lbcore.agent.reporting import (
    NEVER_MS,
    Identity,
    LoadRead,
    TopicsRead,
    are_due,
    envelope,
    heartbeat,
    in_parts,
    report_bundles,
    report_load,
    report_topics,
)
from lbcore.agent.state import (
    FOR_EVER_MS,
    AgentContext,
    AgentState,
    Effect,
    EndConfirmed,
    Event,
    RecordRead,
    RecordTombstone,
    ReportConfirmed,
    Send,
    Stop,
    Stopped,
)
from lbcore.config.ownership import FENCING_LEASE, FENCING_TOKEN, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.machine import Step
from lbcore.ownership.changes import Instance
from lbcore.ownership.holding import (
    CallDone,
    CallOverdue,
    Goal,
    Holding,
    apply_record,
    due_at_ms,
    finish,
    finish_stuck,
    give_up,
    next_ack,
    overdue,
    retry,
)
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.resolve import is_newer
from lbcore.wire.messages import Acks, Topic

STOPPING = "the broker is stopping"


class AgentMachine:
    """The Machine of one start of a broker."""

    def __init__(
        self,
        identity: Identity,
        config: AgentConfig,
        signals: SignalsConfig,
        fencing: str = FENCING_TOKEN,
    ) -> None:
        """fencing: the setting ownership.fencing; with a lease, agent_lease_ms counts."""
        self._identity = identity
        self._is_leased = fencing == FENCING_LEASE
        self._me = Instance(broker=identity.broker, incarnation=identity.incarnation)
        self._config = config
        self._signals = signals

    def step(
        self, state: AgentState | None, events: Sequence[Event], now_ms: int
    ) -> Step[AgentState, Effect]:
        """Apply events in order, and do what is due at now_ms; no events = a timer.

        O(events + pending bundles), plus a copy of what changes.
        """
        work = AgentContext(state or AgentState())
        for event in events:
            self._take(work, event, now_ms)
        self._give_up_late(work, now_ms)
        self._send_due_acks(work, now_ms)
        self._report(work, now_ms)
        self._end_if_finished(work, now_ms)
        frozen = work.freeze()
        wake_at_ms = None if frozen.is_stopped else self._wake_at_ms(frozen, now_ms)
        return Step(state=frozen, effects=work.effects, wake_at_ms=wake_at_ms)

    def usable(self, state: AgentState) -> dict[str, int]:
        """Return the bundles that may be used now → fencing tokens, until `until_ms`.

        Left out: bundles that are another broker's by now though still open, those whose overdue
        callback has not returned, those given back with *failed*. With a lease also those whose
        newest record is Assigning: one that opens too late goes to another broker, so the
        balancer's *Owned* must be read first. O(holdings).
        """
        return {
            name: holding.token
            for name, holding in sorted(state.holdings.items())
            if holding.is_usable and (not self._is_leased or holding.is_confirmed)
        }

    def until_ms(self, state: AgentState) -> int:
        """The last moment, by the clock of now_ms, at which `usable` holds.

        Compare at every use, not by a timer: in a frozen process it would fire too late.
        """
        if not self._is_leased:
            return FOR_EVER_MS
        return state.lease.until_ms(self._config.agent_lease_ms)

    def _take(self, work: AgentContext, event: Event, now_ms: int) -> None:
        if isinstance(event, RecordRead):
            self._take_record(work, event.record, now_ms)
        elif isinstance(event, RecordTombstone):
            work.take_tombstone(event.bundle, now_ms)
        elif isinstance(event, CallDone):
            _take_result(work, event)
        elif isinstance(event, CallOverdue):
            _take_overdue(work, event)
        elif isinstance(event, LoadRead):
            self._take_load(work, event, now_ms)
        elif isinstance(event, TopicsRead):
            self._take_topics(work, event, now_ms)
        elif isinstance(event, ReportConfirmed | EndConfirmed):
            work.lease = work.lease.confirmed(event, self._config.agent_lease_ms, now_ms)
        elif isinstance(event, Stop) and work.stopping_at_ms is None:
            work.stopping_at_ms = now_ms
            work.reporting = replace(work.reporting, is_draining=True, load=None)
            work.ask_load(now_ms)

    def _take_record(self, work: AgentContext, record: OwnershipRecord, now_ms: int) -> None:
        known = work.versions.get(record.bundle)
        if known is not None and not is_newer(record.version_id, known):
            return
        work.remember_version(record.bundle, record.version_id)
        after = apply_record(work.holdings.get(record.bundle), record, self._me, now_ms)
        is_unopened = after.is_closed and not after.is_owned  # give_up leaves others' alone
        if work.stopping_at_ms is not None and is_unopened:
            after = give_up(after, STOPPING)
        work.advance(after)
        if after.goal is Goal.MERGE:  # opening the merged bundle may wait for this one
            work.advance_blocked()
        elif record.bundle not in work.holdings:  # another has it: close bundles merged into it
            work.end_merge(record.bundle, record.version_id)

    def _take_load(self, work: AgentContext, read: LoadRead, now_ms: int) -> None:
        is_load_due, are_bundles_due = are_due(work.reporting, read, self._signals, now_ms)
        if is_load_due:
            work.reporting, message = report_load(
                work.reporting, read, self._identity, self._signals, now_ms
            )
            work.effects.append(Send(message=message))
        if are_bundles_due:
            work.reporting, parts = report_bundles(
                work.reporting, read, self._identity, now_ms, self._config.bundles_per_part
            )
            work.effects += [Send(message=part) for part in parts]

    def _take_topics(self, work: AgentContext, read: TopicsRead, now_ms: int) -> None:
        work.reporting, message = report_topics(
            work.reporting, read, self._identity, self._signals, now_ms
        )
        if message is not None:
            work.effects.append(Send(message=message))

    def _give_up_late(self, work: AgentContext, now_ms: int) -> None:
        if work.stopping_at_ms is None or work.is_stopped:
            return
        if now_ms - work.stopping_at_ms >= self._config.shutdown_timeout_ms:
            for name in sorted(work.holdings):
                work.advance(give_up(work.holdings[name], STOPPING))

    def _send_due_acks(self, work: AgentContext, now_ms: int) -> None:
        repeat_ms = self._config.ack_repeat_ms
        acks = []
        for name in work.pending():
            holding = retry(work.holdings[name], now_ms, repeat_ms)
            holding, ack = next_ack(holding, now_ms, repeat_ms)
            if ack is not None:
                acks.append(ack)
            work.advance(holding)
        for part in in_parts(acks, self._config.bundles_per_part):
            work.reporting, made = envelope(work.reporting, Topic.ACKS, self._identity, now_ms)
            work.effects.append(Send(message=Acks(envelope=made, acks=tuple(part))))

    def _report(self, work: AgentContext, now_ms: int) -> None:
        if now_ms - work.reporting.asked_at_ms >= self._signals.report_check_ms:
            work.ask_load(now_ms)
        if now_ms - work.reporting.sent_at_ms >= self._config.heartbeat_interval_ms:
            work.reporting, message = heartbeat(work.reporting, self._identity, now_ms)
            work.effects.append(Send(message=message))

    def _end_if_finished(self, work: AgentContext, now_ms: int) -> None:
        if work.stopping_at_ms is None or work.is_stopped:
            return
        max_ms = self._config.shutdown_timeout_ms + self._config.stop_grace_ms
        stopping_ms, reporting = now_ms - work.stopping_at_ms, work.reporting
        # a broker that reported load gets bundles until it reports that it is draining: Stop
        # cleared the last load, so that this report is due
        is_drain_unreported = (
            reporting.load is None
            and reporting.reported_at_ms != NEVER_MS
            and stopping_ms < self._config.shutdown_timeout_ms
        )
        is_finished = not is_drain_unreported and all(
            holding.is_finished for holding in work.holdings.values()
        )
        if is_finished or stopping_ms >= max_ms:
            work.is_stopped = True
            work.effects.append(Stopped(left=_not_moved(work.holdings)))

    def _wake_at_ms(self, state: AgentState, now_ms: int) -> int:
        reporting, config = state.reporting, self._config
        due = [
            reporting.sent_at_ms + config.heartbeat_interval_ms,
            reporting.asked_at_ms + self._signals.report_check_ms,
        ]
        due += [due_at_ms(state.holdings[name], config.ack_repeat_ms) for name in state.pending]
        if state.stopping_at_ms is not None:
            deadline_ms = state.stopping_at_ms + config.shutdown_timeout_ms
            due += [at for at in (deadline_ms, deadline_ms + config.stop_grace_ms) if at > now_ms]
        return max(now_ms + 1, min(due))


def _not_moved(holdings: Mapping[str, Holding]) -> tuple[str, ...]:
    """Return the bundles still open, or given up while their record is Owned.

    Those given up in Assigning were never opened, and are left out.
    """
    return tuple(
        name
        for name, holding in sorted(holdings.items())
        if not holding.is_closed or (holding.goal is Goal.GIVE_UP and holding.is_owned)
    )


def _take_result(work: AgentContext, done: CallDone) -> None:
    before = work.holdings.get(done.bundle)
    if before is None:
        return
    returned = finish_stuck(before, done)  # None unless it is the callback that was overdue
    if before.stuck is not None and returned is not None:
        work.take_back_call(before.stuck, returned, is_done=not done.failure)
        return
    after = finish(before, done)
    if after is not before:
        work.finish_call(before, after, is_done=not done.failure)


def _take_overdue(work: AgentContext, event: CallOverdue) -> None:
    before = work.holdings.get(event.bundle)
    after = before and overdue(before, event)
    if after is not None and after is not before:
        work.give_up_call(after)

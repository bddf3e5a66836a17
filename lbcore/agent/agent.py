"""The agent: a broker's side of the protocol, for any sharded service.

It says which callback runs next and which messages are sent when. The shell around it (a real
service's, or the simulated fleet's) does all I/O, and returns results as events.

The shell passes in, in order, each record of the ownership topic that names the broker, and later
every record of the same bundle. It runs only the callbacks that Calls ask for, sends each message
in order, and calls `step` again at `wake_at_ms`, or earlier with events. `now_ms` must never go
back: wall clock at the start plus a monotonic clock since.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from lbcore.agent.reporting import (
    NEVER_MS,
    Identity,
    LoadRead,
    TopicsRead,
    TopicsReported,
    in_parts,
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
    Stop,
    Stopped,
)
from lbcore.config.ownership import FENCING_LEASE, FENCING_TOKEN, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.machine import Step
from lbcore.model.resources import COUNT
from lbcore.ownership.changes import Instance
from lbcore.ownership.holding import (
    CallDone,
    CallOverdue,
    Goal,
    apply_record,
    due_at_ms,
    give_up,
    next_ack,
    retry,
)
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.resolve import is_newer
from lbcore.signals.usage import reported_load, resource_percent, should_report
from lbcore.wire.format import bundle_load_parts
from lbcore.wire.messages import (
    NOT_REPORTED,
    Acks,
    BrokerLoad,
    Envelope,
    Heartbeat,
    Topic,
    TopicLoad,
)

STOPPING = "the broker is stopping"
_UNUSED = np.zeros(COUNT)
_ABOUT_BROKER = tuple(
    one.name for one in fields(Identity) if one.name not in ("cluster", "broker", "incarnation")
)
"""Fields of `Identity` that `BrokerLoad` has as well: addresses and labels."""


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
            work.take_result(event)
        elif isinstance(event, CallOverdue):
            work.take_overdue(event)
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
        # assigned and not open yet, or another broker's, which `give_up` leaves as it is
        is_unopened = after.is_closed and not after.is_owned
        if work.stopping_at_ms is not None and is_unopened:
            after = give_up(after, STOPPING)
        work.advance(after)
        if after.goal is Goal.MERGE:  # callbacks of overlapping bundles may wait for it
            work.advance_blocked()
        elif record.bundle not in work.holdings:
            # another broker's: if two bundles of ours became it, they close
            work.end_merge(record.bundle, record.version_id)

    def _envelope(self, work: AgentContext, topic: Topic, now_ms: int) -> Envelope:
        """Return the next envelope of a topic, and count it."""
        seqs = work.reporting.seqs
        seq = seqs.get(topic.value, 0) + 1
        work.reporting = replace(work.reporting, seqs={**seqs, topic.value: seq})
        return Envelope(
            cluster=self._identity.cluster,
            broker=self._identity.broker,
            incarnation=self._identity.incarnation,
            seq=seq,
            reported_at_ms=now_ms,
        )

    def _take_load(self, work: AgentContext, read: LoadRead, now_ms: int) -> None:
        """Report the broker's load and its bundles, as far as they are due.

        Its load is due the first time, at the longest interval, or by the trigger. Its bundles are
        due at their own interval if they have one, else with the load.
        """
        last, bundles_ms = work.reporting, self._signals.bundle_report_interval_ms
        percent = resource_percent(read.usage, read.limit)
        load = reported_load(percent, read.traffic, len(read.bundles), self._signals)
        is_due = are_bundles_due = last.load is None or should_report(
            last.load, load, now_ms - last.reported_at_ms, self._signals
        )
        if last.load is not None and bundles_ms:
            are_bundles_due = now_ms - last.bundles_reported_at_ms >= bundles_ms
        if is_due:
            envelope = self._envelope(work, Topic.BROKER_LOAD, now_ms)
            work.send(
                self._broker_load(envelope, read, is_draining=last.is_draining),
                sent_at_ms=now_ms,
                reported_at_ms=now_ms,
                load=load,
                topics={name: last.topics[name] for name in read.bundles if name in last.topics},
            )
        if are_bundles_due:
            envelope = self._envelope(work, Topic.BUNDLE_LOAD, now_ms)
            parts = bundle_load_parts(
                envelope, read.bundles, read.stats, self._config.bundles_per_part
            )
            work.send(*parts, bundles_reported_at_ms=now_ms)

    def _broker_load(self, envelope: Envelope, read: LoadRead, *, is_draining: bool) -> BrokerLoad:
        return BrokerLoad(
            envelope=envelope,
            usage=read.usage,
            limit=read.limit,
            traffic=read.traffic,
            topic_count=read.topic_count,
            bundle_count=len(read.bundles),
            consumer_count=read.consumer_count,
            producer_count=read.producer_count,
            is_draining=is_draining,
            offered_msg_rate=(
                NOT_REPORTED if read.offered_msg_rate is None else read.offered_msg_rate
            ),
            **{name: getattr(self._identity, name) for name in _ABOUT_BROKER},
        )

    def _take_topics(self, work: AgentContext, read: TopicsRead, now_ms: int) -> None:
        """Report a bundle's topics: at once when they changed, else by the trigger."""
        topics = work.reporting.topics
        load = reported_load(_UNUSED, read.traffic.sum(axis=0), len(read.topics), self._signals)
        last = topics.get(read.bundle)
        if (
            last is not None
            and last.topics == read.topics
            and not should_report(last.load, load, now_ms - last.reported_at_ms, self._signals)
        ):
            return
        reported = TopicsReported(topics=read.topics, load=load, reported_at_ms=now_ms)
        message = TopicLoad(
            envelope=self._envelope(work, Topic.TOPIC_LOAD, now_ms),
            bundle=read.bundle,
            topics=read.topics,
            traffic=read.traffic,
        )
        work.send(message, topics={**topics, read.bundle: reported})

    def _give_up_late(self, work: AgentContext, now_ms: int) -> None:
        if work.stopping_at_ms is None or work.is_stopped:
            return
        if now_ms - work.stopping_at_ms >= self._config.shutdown_timeout_ms:
            for name in sorted(work.holdings):
                work.advance(give_up(work.holdings[name], STOPPING))

    def _send_due_acks(self, work: AgentContext, now_ms: int) -> None:
        repeat_ms = self._config.ack_repeat_ms
        acks = []
        for name in sorted(work.pending):
            holding = retry(work.holdings[name], now_ms, repeat_ms)
            holding, ack = next_ack(holding, now_ms, repeat_ms)
            if ack is not None:
                acks.append(ack)
            work.advance(holding)
        for part in in_parts(acks, self._config.bundles_per_part):
            work.send(Acks(envelope=self._envelope(work, Topic.ACKS, now_ms), acks=tuple(part)))

    def _report(self, work: AgentContext, now_ms: int) -> None:
        if now_ms - work.reporting.asked_at_ms >= self._signals.report_check_ms:
            work.ask_load(now_ms)
        if now_ms - work.reporting.sent_at_ms >= self._config.heartbeat_interval_ms:
            envelope = self._envelope(work, Topic.BROKER_LOAD, now_ms)
            work.send(Heartbeat(envelope=envelope), sent_at_ms=now_ms)

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
            # still open, or given up while owned; what was assigned and never opened is not left
            left = (
                name
                for name, holding in sorted(work.holdings.items())
                if not holding.is_closed or (holding.goal is Goal.GIVE_UP and holding.is_owned)
            )
            work.effects.append(Stopped(left=tuple(left)))

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

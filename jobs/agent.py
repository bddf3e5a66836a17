"""The agent as a library: a sharded service in Python runs it to be balanced.

The shell of `lbcore.agent.agent`: reads the ownership topic, runs the service's callbacks, sends
reports and acknowledgements. `docs/agent.md` shows a whole service. Other languages implement the
same Machine over the same topics.
"""

import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex

from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import Delivered, Delivery, Ends, KafkaAddress, Sender, Tail
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.adapters.processes.clocks import ForwardClock, wall_ms
from jobs.agent_host.service_calls import Callbacks, CallBounds, Permits, ServiceCalls, failure_of
from jobs.console import CommandError
from jobs.telemetry.agent_metrics import AgentMetrics
from jobs.telemetry.job_names import CHANNEL
from lbcore.agent.agent import AgentMachine as Machine
from lbcore.agent.host import RunningAgent
from lbcore.agent.load_validation import identity_fault
from lbcore.agent.reporting import Identity, LoadRead, TopicsRead
from lbcore.agent.state import (
    Effect,
    EndConfirmed,
    Event,
    ReadLoad,
    RecordRead,
    ReportConfirmed,
    Send,
    Stop,
    Stopped,
)
from lbcore.config.ownership import FENCING_LEASE, FENCING_TOKEN, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership.holding import Call
from lbcore.wire.format import format_message
from lbcore.wire.messages import Topic

logger = logging.getLogger(__name__)

_RECORDS_READ = "pulsar_sunit_state_chn_subscribe_ops_total"
_POLL_MS = 200
_IDLE_WAIT_S = 0.5
_FINAL_FLUSH_MS = 5_000
_ENDS_TIMEOUT_MS = 1_000
_MS_PER_S = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Settings of the agent, as in the job's sections `agent` and `signals`.

    fencing: as ownership.fencing; with a lease, agent.agent_lease_ms must suit the job's settings
    (`ballast config check` says so). threads: callbacks at once.
    """

    agent: AgentConfig = field(default_factory=AgentConfig)
    signals: SignalsConfig = field(default_factory=SignalsConfig)
    fencing: str = FENCING_TOKEN
    threads: int = 8


class Agent:
    """One start of one broker.

    permits: permits to serve; the callback attach gets the same object. left: bundles not moved
    away when the time to stop was over.

    `start` it, then `stop` it in order, or end the process. The identity's incarnation must be new
    with each start. It uses a thread of its own, one that reads ownership, one that checks Kafka,
    and the callbacks' threads.
    """

    def __init__(
        self,
        identity: Identity,
        address: KafkaAddress,
        callbacks: Callbacks,
        options: Options | None = None,
    ) -> None:
        """Connect to Kafka. Raises CommandError if it or the topic ownership is missing.

        Also if no report under this identity could be read.
        """
        chosen = options or Options()
        fault = identity_fault(identity)
        if fault:
            raise CommandError(
                "the agent did not start",
                why=f"under its identity no report could be read: {fault}",
                next_step="correct the broker's names, URLs and labels, then start it again",
            )
        machine = Machine(identity, chosen.agent, chosen.signals, chosen.fencing)
        self._agent = RunningAgent(machine)
        self.metrics = AgentMetrics(identity.cluster, identity.broker)
        self._callbacks = callbacks
        self._broker = identity.broker
        self._clock = ForwardClock()
        self.permits = Permits(self._clock)
        self._config = chosen.agent
        self._is_leased = chosen.fencing == FENCING_LEASE
        self._holds_lease = not self._is_leased
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._feed = OwnershipFeed(identity.cluster, recipients=(identity.broker,))
        client_id = f"agent-{identity.cluster}-{identity.broker}"
        self._tail = Tail(address, Topic.OWNERSHIP, client_id)
        try:
            self._sender = Sender(address, client_id)
        except CommandError:
            self._tail.close()
            raise
        self._calls = ServiceCalls(
            callbacks,
            self._inbox.put,
            self.metrics,
            CallBounds(threads=chosen.threads, timeout_ms=chosen.agent.callback_timeout_ms),
        )
        self._is_ending = threading.Event()
        self._is_stopped = threading.Event()
        self._failure: BaseException | None = None
        self.left: tuple[str, ...] = ()
        self._is_kafka_there = True
        self._watch = KafkaWatch(address, f"agent of {identity.broker}")
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True, name=name)
            for name, work in (("agent", self._work), ("ownership", self._follow))
        ]

    def start(self) -> None:
        """Report, follow records, open assigned bundles.

        Raises CommandError when the service's attach fails; while that hangs, the log says so.
        """
        timeout_ms = self._config.callback_timeout_ms
        text = "attach of %s hangs: it has not returned after %d ms, and nothing is reported before"
        warning = threading.Timer(
            timeout_ms / _MS_PER_S, logger.error, (text, self._broker, timeout_ms)
        )
        warning.daemon = True
        warning.start()
        try:
            self._callbacks.attach(self.permits)
        except (Exception, SystemExit) as error:
            raise CommandError(
                f"the agent of {self._broker} did not start",
                why=f"the service's attach failed: {failure_of(error)}",
                next_step="mend what it needs, then start it again",
            ) from error
        finally:
            warning.cancel()
        self._watch.start()
        for thread in self._threads:
            thread.start()

    def ask_to_stop(self) -> None:
        """Begin to stop: ask for a drain. Safe in a signal handler."""
        self._inbox.put(Stop())

    def wait(self, timeout_ms: int | None = None) -> bool:
        """Wait for the end that `ask_to_stop` began; False = not yet.

        Raises the error that ended the agent, if any.
        """
        ended = self._is_stopped.wait(None if timeout_ms is None else timeout_ms / 1000.0)
        if self._failure is not None:
            raise self._failure
        return ended

    def stop(self, timeout_ms: int | None = None) -> bool:
        """Stop in order, then disconnect; False = not all bundles were moved in time.

        Default timeout_ms: the settings' shutdown_timeout_ms + stop_grace_ms, plus a few seconds to
        disconnect.
        """
        self.ask_to_stop()
        try:
            return self.wait(timeout_ms) and not self.left
        finally:
            self.close()

    def close(self) -> None:
        """Withdraw all permits and disconnect at once.

        Open bundles stay open until the service's process ends.
        """
        self._end()
        for thread in self._threads:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(_FINAL_FLUSH_MS / 1000.0)
        self.permits.withdraw()  # the threads have ended: none are given any more
        self._calls.close()
        self._sender.close(_FINAL_FLUSH_MS if self._is_kafka_there else 0)
        self._tail.close()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            logger.exception("the agent of %s has ended", self._broker)
            self._failure = error
            self._end()
            self._is_stopped.set()

    def _end(self) -> None:
        self._watch.close()
        self._is_ending.set()
        self._inbox.put(None)
        self.permits.withdraw()

    def _follow(self) -> None:
        asked_ms = self._clock.now_ms()
        ends: Ends | None = None
        while not self._is_ending.is_set():
            self._read_records()
            now_ms = self._clock.now_ms()
            is_due = now_ms - asked_ms >= self._config.heartbeat_interval_ms
            if self._is_leased and ends is None and is_due:
                asked_ms, ends = now_ms, self._tail.ends(_ENDS_TIMEOUT_MS)
            if ends is not None and self._tail.has_read(ends):
                self._inbox.put(EndConfirmed(asked_ms=asked_ms))
                ends = None

    def _read_records(self) -> None:
        try:
            messages = self._tail.poll(_POLL_MS)
        except KafkaError as error:
            logger.warning("ownership can't be read now: %s", error)
            self._is_ending.wait(_IDLE_WAIT_S)
            return
        for addressed in self._feed.take(messages):
            if self._broker in addressed.brokers:
                self._inbox.put(addressed.event)
                if isinstance(addressed.event, RecordRead):
                    state = addressed.event.record.state.value
                    self.metrics.add(_RECORDS_READ, state, CHANNEL, "Total")

    def _work(self) -> None:
        events: Sequence[Event] = ()
        while not self._is_ending.is_set():
            effects = self._agent.step(events, self._clock.now_ms())
            # permits first: no message may announce an end while the permit still holds
            until_ms, usable = self._agent.until_ms, self._agent.usable()
            self.permits.give(usable, until_ms)
            left_ms = until_ms - self._clock.now_ms() if self._is_leased else None
            self.metrics.show_permits(len(usable), left_ms)
            self._log_lease(until_ms)
            for effect in effects:
                self._carry_out(effect)
            events = self._next_events()

    def _log_lease(self, until_ms: int) -> None:
        """Log when the lease runs out, and when it is back."""
        holds = self._clock.now_ms() <= until_ms
        if holds and not self._holds_lease:
            logger.info("%s may serve: Kafka confirms its reports", self._broker)
        elif self._holds_lease and not holds:
            logger.warning(
                "%s serves nothing: for longer than its lease Kafka has confirmed no report of it,"
                " or it could not read ownership; it goes on by itself one lease after both do",
                self._broker,
            )
        self._holds_lease = holds

    def _next_events(self) -> Sequence[Event]:
        """Return new events; wait for them until the Machine's wake-up time."""
        self._calls.check_overdue()
        wait_s = _IDLE_WAIT_S
        if self._agent.wake_at_ms is not None:
            due_s = (self._agent.wake_at_ms - self._clock.now_ms()) / _MS_PER_S
            wait_s = min(wait_s, max(0.0, due_s))
        found: list[Event] = []
        try:
            event = self._inbox.get(timeout=wait_s) if wait_s > 0.0 else self._inbox.get_nowait()
            while event is not None:
                found.append(event)
                event = self._inbox.get_nowait()
        except queue.Empty:
            pass
        return found

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            topic, key, value = format_message(effect.message)
            sent_ms = effect.message.envelope.reported_at_ms
            on_delivery = partial(self._on_delivery, topic, sent_ms)
            self._sender.send(topic, key.decode(), value, on_delivery=on_delivery)
        elif isinstance(effect, Call):
            self._calls.call(effect)
        elif isinstance(effect, ReadLoad):
            self._calls.read_load()
        elif isinstance(effect, Stopped):
            self._is_kafka_there = self._sender.flush(_FINAL_FLUSH_MS)
            self.left = effect.left
            self._is_stopped.set()

    def _on_delivery(self, topic: Topic, sent_ms: int, delivery: Delivery) -> None:
        """Report the delivery of a message; in the producer's thread."""
        is_delivered = isinstance(delivery, Delivered)
        self.metrics.count_message(topic.value, is_delivered=is_delivered, at_s=time.time())
        if is_delivered and topic is Topic.BROKER_LOAD:
            self._inbox.put(ReportConfirmed(sent_ms=sent_ms))


def new_incarnation() -> str:
    """Return a unique, readable name for one start of a broker, without order."""
    return f"{wall_ms()}-{os.getpid()}-{token_hex(4)}"


__all__ = (
    "Agent",
    "Callbacks",
    "Identity",
    "KafkaAddress",
    "LoadRead",
    "Options",
    "Permits",
    "TopicsRead",
    "new_incarnation",
)

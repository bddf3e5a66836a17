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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from traceback import format_exception

from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import Delivered, Delivery, Ends, KafkaAddress, Sender, Tail
from jobs.adapters.kafka.connection import KafkaWatch
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.adapters.processes.clocks import ForwardClock, wall_ms
from jobs.console import CommandError
from jobs.telemetry.agent_metrics import AgentMetrics
from jobs.telemetry.job_names import CHANNEL
from lbcore.agent.agent import AgentMachine as Machine
from lbcore.agent.host import RunningAgent
from lbcore.agent.load_validation import (
    Checked,
    check_load,
    check_topics,
    identity_fault,
    shown_type,
)
from lbcore.agent.reporting import NEVER_MS, Identity, LoadRead, TopicsRead
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
from lbcore.ownership.holding import Call, Callback, CallDone, CallOverdue
from lbcore.wire.format import format_message, plain_text
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


class Permits:
    """Bundles that may be used now; thread-safe.

    It compares clocks and has no timer: a frozen process finds out at its next use.
    """

    def __init__(self, clock: ForwardClock) -> None:
        """clock: the clock of the agent's Machine."""
        self._clock = clock
        self._given: tuple[Mapping[str, int], int] = ({}, NEVER_MS)
        self._is_withdrawn = False

    def token(self, bundle: str) -> int | None:
        """Return the bundle's fencing token for use now; None = don't serve it. O(1).

        Ask before every use, also right after opening, and pass the token to every store that is
        written: a process can be frozen between the answer and the use.
        """
        return self.tokens().get(bundle)

    def tokens(self) -> Mapping[str, int]:
        """Return bundle → token of all that may be used now."""
        tokens, until_ms = self._given
        is_over = self._is_withdrawn or self._clock.now_ms() > until_ms
        return {} if is_over else tokens

    def give(self, tokens: Mapping[str, int], until_ms: int) -> None:
        """Allow only these bundles, until then by the agent's clock; for the agent."""
        self._given = (tokens, until_ms)

    def withdraw(self) -> None:
        """Allow nothing any more, and ignore later `give`; for the agent."""
        self._is_withdrawn = True


def _no_merge(bundle: str, merged: str, token: int) -> None:
    message = f"this service can't merge bundles, {merged} is not made (token {token})"
    raise NotImplementedError(f"{message}: {bundle} stays as it is")


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """Functions that the agent calls; each fails by raising anything.

    open(bundle, token): serve the range as one bundle, whatever of it was open before. token is the
    fencing token: it grows with each owner, so a store can refuse an older one. close(bundle,
    token): serve nothing of the range. split(bundle, children, token): serve the range as these
    bundles. merge(bundle, merged, token): keep serving as before, and be ready to open the bundle
    and its upper neighbour as the merged one; a service without it refuses. Each may be called
    again after it succeeded.

    These four run in threads, one at a time for a bundle, `Options.threads` at once. One that has
    not returned after a minute has failed. load(): return the present load; topics():
    return the topics of bundles whose topics have changed. Both must be quick.
    attach(permits): called once, before anything else; permits says at each use whether a bundle
    may be served.
    """

    load: Callable[[], LoadRead]
    open: Callable[[str, int], None]
    close: Callable[[str, int], None]
    split: Callable[[str, Sequence[str], int], None]
    merge: Callable[[str, str, int], None] = _no_merge
    topics: Callable[[], Sequence[TopicsRead]] = lambda: ()
    attach: Callable[[Permits], None] = lambda _: None


_FAILURE_CHARS_MAX = 4_096


def failure_of(error: BaseException) -> str:
    """Return an exception as a sentence, even if its text can't be read."""
    try:
        text = str(error)[:_FAILURE_CHARS_MAX]
    except BaseException:  # noqa: BLE001 its __str__ raises, whatever that is
        text = "what it says can't be had"
    return f"{type(error).__name__}: {text}"


def log_failure(error: BaseException, what: str) -> None:
    """Log an exception with its stack, in characters that every log can hold."""
    try:
        stack = "".join(format_exception(error))
    except BaseException:  # noqa: BLE001 of a foreign class, whose text may raise again
        stack = ""
    fields = {
        name: text[-_FAILURE_CHARS_MAX:].encode("utf-8", "backslashreplace").decode()
        for name, text in (("error", failure_of(error)), ("stack", stack))
    }
    logger.error(what, extra={"fields": fields})


def _read_answers(callbacks: Callbacks) -> Iterator[Checked[LoadRead] | Checked[TopicsRead]]:
    yield check_load(callbacks.load())
    answer: object = callbacks.topics()
    try:
        topics = iter(answer)  # type: ignore[call-overload]  # that is what is tried
    except TypeError:
        fault = f"topics() must return a list of TopicsRead, got {shown_type(answer)}"
        yield Checked(read=None, fault=fault)
        return
    for read in topics:
        yield check_topics(read)


LOAD = "load"
_CALLBACKS = "ballast_agent_callbacks_total"
_GAP_MS_MAX = 2_000  # a longer gap between two checks was a pause of the process


@dataclass
class _CallbackTask:
    """A waiting or running callback; call: None = it reads the load.

    began_ms: by the clock of `check_overdue`.
    """

    name: str
    call: Call | None = None
    began_ms: int = 0
    is_overdue: bool = False
    began_s: float = field(default_factory=time.monotonic)


class ServiceCalls:
    """Callbacks of one service, run in threads that no callback can end or hold up.

    An exception is a callback's answer, SystemExit included. One that does not return keeps its
    thread, and another thread takes its place. The agent decides what follows.
    """

    def __init__(
        self,
        callbacks: Callbacks,
        put: Callable[[Event], None],
        metrics: AgentMetrics,
        options: Options,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the threads.

        put: gets the outcomes, in any thread. clock_s: for `check_overdue`; never goes back.
        """
        self._callbacks = callbacks
        self._put = put
        self._metrics = metrics
        self._timeout_ms = options.agent.callback_timeout_ms
        self._lock = threading.Lock()
        self._running: list[_CallbackTask] = []
        self._clock_s = clock_s
        self._checked_s = clock_s()
        self._counted_ms = 0
        self._is_reading_load = False
        self._last_fault = ""
        self._is_closed = False
        self._bundle_tasks: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._load_tasks: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._threads = options.threads
        for _ in range(options.threads):
            self._start_thread(self._bundle_tasks, "callback")
        self._start_thread(self._load_tasks, LOAD)

    def call(self, call: Call) -> None:
        """Run a callback when a thread is free."""
        self._bundle_tasks.put(_CallbackTask(name=call.callback.value, call=call))

    def read_load(self) -> None:
        """Start reading load and topics, unless that is under way."""
        with self._lock:
            if self._is_reading_load:
                return
            self._is_reading_load = True
        self._load_tasks.put(_CallbackTask(name=LOAD))

    def check_overdue(self) -> None:
        """Report overdue callbacks as failed; call it at least once a second. O(running).

        Of the time between two calls at most 2 s count, so a paused process fails no callback.
        """
        with self._lock:
            now_s = self._clock_s()
            self._counted_ms += min(int((now_s - self._checked_s) * 1_000.0), _GAP_MS_MAX)
            self._checked_s = now_s
            late = [
                task
                for task in self._running
                if not task.is_overdue and self._counted_ms - task.began_ms >= self._timeout_ms
            ]
            for task in late:
                task.is_overdue = True
        for task in late:
            self._give_up(task)

    def close(self) -> None:
        """Run nothing more; running callbacks go on and keep no process from ending."""
        self._is_closed = True
        for _ in range(self._threads):
            self._bundle_tasks.put(None)
        self._load_tasks.put(None)

    def _start_thread(self, tasks: "queue.SimpleQueue[_CallbackTask | None]", name: str) -> None:
        threading.Thread(target=self._work, args=(tasks,), daemon=True, name=name).start()

    def _work(self, tasks: "queue.SimpleQueue[_CallbackTask | None]") -> None:
        while (task := tasks.get()) is not None and not self._is_closed:
            with self._lock:
                task.began_ms, task.began_s = self._counted_ms, time.monotonic()
                self._running.append(task)
            if task.call is None:
                self._read_load(task)
            else:
                self._call(task, task.call)
            with self._lock:
                self._running.remove(task)
                if task.is_overdue:
                    self._show_overdue(task.name)
                    if task.call is not None:
                        return  # `_give_up` has started another thread

    def _give_up(self, task: _CallbackTask) -> None:
        call = task.call
        failure = f"it has not returned within {self._timeout_ms} ms"
        of_what = f" of {call.bundle}" if call else ""
        logger.error(
            "%s%s hangs: %s; nothing else of this hash range runs until it does",
            *(task.name, of_what, failure),
        )
        with self._lock:
            self._show_overdue(task.name)
        if call is None:
            self._metrics.add("ballast_agent_load_errors_total")
            return
        self._metrics.add(_CALLBACKS, call.callback.value, "overdue")
        self._start_thread(self._bundle_tasks, "callback")
        self._put(
            CallOverdue(
                callback=call.callback,
                bundle=call.bundle,
                version_id=call.version_id,
                failure=failure,
            )
        )

    def _show_overdue(self, name: str) -> None:
        late = sum(task.is_overdue and task.name == name for task in self._running)
        self._metrics.set("ballast_agent_hanging_callbacks", late, name)

    def _call(self, task: _CallbackTask, call: Call) -> None:
        failure = ""
        try:
            self._run(call)
        except BaseException as error:  # noqa: BLE001 SystemExit, too: it is not this thread's
            failure = failure_of(error)
            log_failure(error, f"{call.callback.value} of {call.bundle} failed")
        if task.is_overdue:
            took_s = time.monotonic() - task.began_s
            logger.warning("%s of %s has returned after %.0f s", task.name, call.bundle, took_s)
        else:
            self._metrics.add(_CALLBACKS, task.name, "failed" if failure else "done")
        self._put(
            CallDone(
                callback=call.callback,
                bundle=call.bundle,
                version_id=call.version_id,
                failure=failure,
            )
        )

    def _run(self, call: Call) -> None:
        if call.callback is Callback.OPEN:
            self._callbacks.open(call.bundle, call.version_id)
        elif call.callback is Callback.CLOSE:
            self._callbacks.close(call.bundle, call.version_id)
        elif call.callback is Callback.MERGE:
            self._callbacks.merge(call.bundle, call.children[0], call.version_id)
        else:
            self._callbacks.split(call.bundle, call.children, call.version_id)

    def _read_load(self, task: _CallbackTask) -> None:
        faults = []
        try:
            for checked in _read_answers(self._callbacks):
                if task.is_overdue:
                    break  # further topics may never end
                if checked.read is not None:
                    self._put(checked.read)
                faults.append(checked.fault)
        except BaseException as error:  # noqa: BLE001 SystemExit, too: it is not this thread's
            log_failure(error, "load can't be read")
            faults.append(failure_of(error))
        fault = next(filter(None, faults), "")
        if fault and fault != self._last_fault:
            logger.error("load can't be read: %s", plain_text(fault))
        self._last_fault = fault
        if fault:
            self._metrics.add("ballast_agent_load_errors_total")
        with self._lock:
            self._is_reading_load = False


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
        self._calls = ServiceCalls(callbacks, self._inbox.put, self.metrics, chosen)
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
        with suppress(queue.Empty):
            event = self._inbox.get(timeout=wait_s) if wait_s > 0.0 else self._inbox.get_nowait()
            while event is not None:
                found.append(event)
                event = self._inbox.get_nowait()
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

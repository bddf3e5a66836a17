"""Callbacks of a service, run in threads that no callback can end or hold up.

An exception is a callback's answer, SystemExit included. One that does not return keeps its thread,
and another thread takes its place. `agent` decides what follows.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from traceback import format_exception

from jobs.adapters.processes.clocks import ForwardClock
from jobs.telemetry.agent_metrics import AgentMetrics
from lbcore.agent.load_validation import Checked, check_load, check_topics, shown_type
from lbcore.agent.reporting import NEVER_MS, LoadRead, TopicsRead
from lbcore.agent.state import Event
from lbcore.ownership.holding import Call, Callback, CallDone, CallOverdue
from lbcore.wire.format import plain_text


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


logger = logging.getLogger(__name__)

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
    fields = {"error": _printable(failure_of(error)), "stack": _printable(stack)}
    logger.error(what, extra={"fields": fields})


def _printable(text: str) -> str:
    return text[-_FAILURE_CHARS_MAX:].encode("utf-8", "backslashreplace").decode()


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
    """A waiting or running callback. began_ms: by the clock of `check_overdue`."""

    name: str
    run: Callable[["_CallbackTask"], None]
    call: Call | None = None
    began_ms: int = 0
    is_overdue: bool = False
    began_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds:
    """Bounds of callbacks. threads: at once; timeout_ms: a longer one has failed.

    clock_s: for `ServiceCalls.check_overdue`; never goes back.
    """

    threads: int
    timeout_ms: int
    clock_s: Callable[[], float] = time.monotonic


class ServiceCalls:
    """The callbacks of one service; `put` gets their outcomes, in any thread."""

    def __init__(
        self,
        callbacks: Callbacks,
        put: Callable[[Event], None],
        metrics: AgentMetrics,
        bounds: CallBounds,
    ) -> None:
        """Start the threads."""
        self._callbacks = callbacks
        self._put = put
        self._metrics = metrics
        self._timeout_ms = bounds.timeout_ms
        self._lock = threading.Lock()
        self._running: list[_CallbackTask] = []
        self._clock_s = bounds.clock_s
        self._checked_s = bounds.clock_s()
        self._counted_ms = 0
        self._is_reading_load = False
        self._last_fault = ""
        self._is_closed = False
        self._bundle_tasks: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._load_tasks: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._threads = bounds.threads
        for _ in range(bounds.threads):
            self._start_thread(self._bundle_tasks, "callback")
        self._start_thread(self._load_tasks, LOAD)

    def call(self, call: Call) -> None:
        """Run a callback when a thread is free."""
        self._bundle_tasks.put(_CallbackTask(name=call.callback.value, run=self._call, call=call))

    def read_load(self) -> None:
        """Start reading load and topics, unless that is under way."""
        with self._lock:
            if self._is_reading_load:
                return
            self._is_reading_load = True
        self._load_tasks.put(_CallbackTask(name=LOAD, run=self._read_load))

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
            task.run(task)
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

    def _call(self, task: _CallbackTask) -> None:
        call = task.call
        assert call is not None  # noqa: S101 tasks of bundles have one
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

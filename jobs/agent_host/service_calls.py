"""Callbacks of a service, run in threads that no callback can end or hold up.

Decides which thread runs what, and when a callback has taken too long; `agent` decides what
follows. Whatever a callback raises is an answer, also what is meant to end a process. One that does
not return keeps its thread, for which another one steps in.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from jobs.agent_host.service_answers import failure_of, log_failure, read_load
from jobs.agent_host.service_callbacks import Callbacks
from jobs.telemetry.agent_metrics import AgentMetrics
from lbcore.agent.state import Event
from lbcore.ownership.holding import Call, Callback, CallDone, CallOverdue
from lbcore.wire.format import plain_text

logger = logging.getLogger(__name__)

LOAD = "load"
_CALLBACKS = "ballast_agent_callbacks_total"
_S = 1_000.0
_LOOK_MS_MAX = 2_000  # a longer gap between two looks was the process's own absence

Tell = Callable[[Event], None]


@dataclass
class _CallbackTask:
    """One callback that waits or runs, of a bundle.

    began_ms: by the clock of the looks.
    """

    name: str
    run: Callable[["_CallbackTask"], None]
    call: Call | None = None
    began_ms: int = 0
    is_overdue: bool = False
    began_s: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBounds:
    """threads: callbacks of bundles at once; timeout_ms: what runs longer has failed.

    clock_s: for `ServiceCalls.look`; never goes back.
    """

    threads: int
    timeout_ms: int
    clock_s: Callable[[], float] = time.monotonic


class ServiceCalls:
    """The callbacks of one service; `tell` takes what became of them, in any thread."""

    def __init__(
        self, callbacks: Callbacks, tell: Tell, metrics: AgentMetrics, bounds: CallBounds
    ) -> None:
        """Starts the threads."""
        self._callbacks = callbacks
        self._tell = tell
        self._metrics = metrics
        self._timeout_ms = bounds.timeout_ms
        self._lock = threading.Lock()
        self._running: list[_CallbackTask] = []
        self._clock_s = bounds.clock_s
        self._looked_s = bounds.clock_s()
        self._seen_ms = 0
        self._is_reading_load = False
        self._last_fault = ""
        self._is_closed = False
        self._of_bundles: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._of_load: queue.SimpleQueue[_CallbackTask | None] = queue.SimpleQueue()
        self._threads = bounds.threads
        for _ in range(bounds.threads):
            self._start_thread(self._of_bundles, "callback")
        self._start_thread(self._of_load, LOAD)

    def call(self, call: Call) -> None:
        """Have a callback run, when a thread is free."""
        self._of_bundles.put(_CallbackTask(name=call.callback.value, run=self._call, call=call))

    def read_load(self) -> None:
        """Have load and topics read, unless that is still under way."""
        with self._lock:
            if self._is_reading_load:
                return
            self._is_reading_load = True
        self._of_load.put(_CallbackTask(name=LOAD, run=self._read_load))

    def look(self) -> None:
        """Give up what has taken too long; called at least once a second. O(running).

        Time is what passes between two looks, 2 s at most: after a pause of the whole process the
        callbacks have theirs still.
        """
        with self._lock:
            now_s = self._clock_s()
            self._seen_ms += min(int((now_s - self._looked_s) * _S), _LOOK_MS_MAX)
            self._looked_s = now_s
            late = [
                task
                for task in self._running
                if not task.is_overdue and self._seen_ms - task.began_ms >= self._timeout_ms
            ]
            for task in late:
                task.is_overdue = True
        for task in late:
            self._give_up(task)

    def close(self) -> None:
        """Run nothing more. What runs is left to itself, and keeps no process from ending."""
        self._is_closed = True
        for _ in range(self._threads):
            self._of_bundles.put(None)
        self._of_load.put(None)

    def _start_thread(self, tasks: "queue.SimpleQueue[_CallbackTask | None]", name: str) -> None:
        threading.Thread(target=self._work, args=(tasks,), daemon=True, name=name).start()

    def _work(self, tasks: "queue.SimpleQueue[_CallbackTask | None]") -> None:
        while (task := tasks.get()) is not None and not self._is_closed:
            with self._lock:
                task.began_ms, task.began_s = self._seen_ms, time.monotonic()
                self._running.append(task)
            task.run(task)
            with self._lock:
                self._running.remove(task)
                if task.is_overdue:
                    self._show_overdue(task.name)
                    return  # another thread has stepped in

    def _give_up(self, task: _CallbackTask) -> None:
        failure = f"it has not returned within {self._timeout_ms} ms"
        of_what = f" of {task.call.bundle}" if task.call else ""
        logger.error(
            "%s%s hangs: %s; nothing else of this hash range runs until it does",
            *(task.name, of_what, failure),
        )
        with self._lock:
            self._show_overdue(task.name)
        call = task.call
        if call is None:
            self._metrics.add("ballast_agent_load_errors_total")
            return
        self._metrics.add(_CALLBACKS, call.callback.value, "overdue")
        self._start_thread(self._of_bundles, "callback")
        self._tell(
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
        self._tell(
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
        fault = read_load(self._callbacks, self._tell, lambda: task.is_overdue)
        if fault and fault != self._last_fault:
            logger.error("load can't be read: %s", plain_text(fault))
        self._last_fault = fault
        if fault:
            self._metrics.add("ballast_agent_load_errors_total")
        with self._lock:
            self._is_reading_load = False

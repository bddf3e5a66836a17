"""The fleet's one thread: records, requests and due times, one after the other.

Other threads hand it work through `call` and wait for the result.
"""

import queue
from collections.abc import Callable
from concurrent.futures import Future
from time import sleep
from typing import NoReturn, TypeVar

from jobs.adapters.processes.clocks import ForwardClock
from jobs.fleet.fleet import Fleet

T = TypeVar("T")
_PACE_S = 0.02
_LONGEST_WAIT_S = 0.5
_CALL_TIMEOUT_S = 30.0


class FleetLoop:
    """Runs a fleet."""

    def __init__(
        self, fleet: Fleet, clock: ForwardClock, next_due: Callable[[], int | None]
    ) -> None:
        """next_due: when the fleet's timetable wants something next, in the clock's ms."""
        self._fleet = fleet
        self._clock = clock
        self._next_due = next_due
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.latest_ms = 0

    def call(self, work: Callable[[Fleet, int], T]) -> T:
        """Have work(fleet, now_ms) done by the loop and return, or raise, what it does."""
        future: Future[T] = Future()

        def carry_out() -> None:
            try:
                future.set_result(work(self._fleet, self._clock.now_ms()))
            except Exception as error:  # noqa: BLE001 - the caller raises it in its own thread
                future.set_exception(error)

        self._inbox.put(carry_out)
        return future.result(timeout=_CALL_TIMEOUT_S)

    def fail(self, error: Exception) -> None:
        """Have `run` raise this: another thread can't go on."""

        def raise_it() -> None:
            raise error

        self._inbox.put(raise_it)

    def run(self) -> NoReturn:
        """Work for ever, at most 50 rounds a second: what is due together is done at once."""
        while True:
            self._wait()
            now_ms = self._clock.now_ms()
            due_ms = self._next_due()
            if due_ms is not None and due_ms <= now_ms:
                self.latest_ms = now_ms - due_ms
                self._fleet.run_due(now_ms)
            sleep(_PACE_S)

    def _wait(self) -> None:
        """Do what is in the inbox; with an empty one wait for more, or for the next due time."""
        due_ms = self._next_due()
        until_due_s = _LONGEST_WAIT_S if due_ms is None else (due_ms - self._clock.now_ms()) / 1000
        wait_s = min(max(until_due_s, 0.0), _LONGEST_WAIT_S)
        try:
            work = self._inbox.get(timeout=wait_s) if wait_s > 0.0 else self._inbox.get_nowait()
            while True:
                work()
                work = self._inbox.get_nowait()
        except queue.Empty:
            return

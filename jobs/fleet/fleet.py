"""All simulated brokers together: their records, due times and true state.

One thread, the loop's, calls every method.
"""

import queue
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from time import sleep
from typing import Any, NoReturn, TypeVar

from jobs.adapters.kafka.clients import Received
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.adapters.processes.clocks import ForwardClock
from jobs.fleet.broker import Due, FleetSurroundings, SimulatedBroker
from lbcore.agent.state import EndConfirmed, Event

ACTIONS = ("drain", "hang", "kill", "pause", "restart", "resume", "start")


class UnknownBrokerError(KeyError):
    """No broker of the fleet has this name."""


class Fleet:
    """The brokers by name."""

    def __init__(self, surroundings: FleetSurroundings) -> None:
        self.feed = OwnershipFeed(surroundings.settings.cluster)
        self._around = surroundings
        self._brokers: dict[str, SimulatedBroker] = {}

    def start(self, name: str, now_ms: int) -> None:
        """Start or restart a broker; a new name joins the fleet."""
        if name not in self._brokers:
            self._brokers[name] = SimulatedBroker(name, self._around)
        self._brokers[name].start(self.feed.current(name), now_ms)

    def kill(self, name: str, now_ms: int) -> dict[str, Any]:
        """Kill a broker; return the fields of `lbcore.sim.summary.Crash`."""
        broker = self._broker(name)
        served = broker.kill(now_ms)
        return {
            "broker": name,
            "killed_at_ms": now_ms,
            "last_report_ms": broker.last_delivered_ms,
            "bundles": served,
        }

    def act(self, action: str, name: str, now_ms: int) -> Mapping[str, Any] | None:
        """Carry out one of ACTIONS; return as `kill` does, else nothing."""
        if action == "kill":
            return self.kill(name, now_ms)
        if action in ("start", "restart"):
            self.start(name, now_ms)
        else:
            getattr(self._broker(name), action)(now_ms)
        return None

    def take_records(self, messages: Iterable[Received], now_ms: int) -> None:
        """Pass records of the ownership topic to the brokers they concern."""
        events: dict[str, list[Event]] = {}
        for news in self.feed.take(messages):
            for name in news.brokers:
                events.setdefault(name, []).append(news.event)
        for name in sorted(events):
            if name in self._brokers:
                self._brokers[name].take(events[name], now_ms)

    def run_due(self, now_ms: int) -> None:
        """Run due callbacks and wake-ups, all of a broker at once."""
        due: dict[str, list[tuple[int, Due]]] = {}
        for at_ms, item in self._around.timetable.due(now_ms):
            due.setdefault(item.broker, []).append((at_ms, item))
        for name in sorted(due):
            self._brokers[name].come_due(due[name], now_ms)

    def describe(self, now_ms: int, *, with_bundles: bool = False) -> dict[str, Any]:
        """Return each broker's life, true load (msg/s in + out) and bundles."""
        rows = []
        for broker in self._brokers.values():
            rate, hottest = broker.rates(now_ms) if broker.is_serving else (0.0, 0.0)
            tokens = broker.service.tokens if broker.is_serving else {}
            row: dict[str, Any] = {
                "broker": broker.name,
                "life": broker.life.value,
                "incarnation": broker.incarnation,
                "capacity": broker.capacity,
                "load": rate,
                "hottest_bundle": hottest,
                "bundle_count": len(tokens),
                "last_report_ms": broker.last_delivered_ms,
            }
            rows.append({**row, "bundles": dict(sorted(tokens.items()))} if with_bundles else row)
        return {
            "at_ms": now_ms,
            "virtual_ms": self._around.virtual_ms(now_ms),
            "brokers": rows,
            "bundles_open": sum(row["bundle_count"] for row in rows),
            "hottest_bundle": max((row["hottest_bundle"] for row in rows), default=0.0),
        }

    def confirm_end(self, asked_ms: int, now_ms: int) -> None:
        """Confirm that `take_records` got all of ownership before asked_ms."""
        for name in sorted(self._brokers):
            self._brokers[name].take([EndConfirmed(asked_ms=asked_ms)], now_ms)

    def truth(self, now_ms: int) -> dict[str, list[tuple[str, int]]]:
        """Return bundle → brokers that serve it now, with tokens; maybe several."""
        found: dict[str, list[tuple[str, int]]] = {}
        for broker in self._brokers.values():
            for bundle, token in broker.serves(now_ms).items():
                found.setdefault(bundle, []).append((broker.name, token))
        return dict(sorted(found.items()))

    def health(self) -> dict[str, Any]:
        """Return the counts for the supervisor."""
        sender = self._around.sender
        return {
            "serving": sum(broker.is_serving for broker in self._brokers.values()),
            "brokers": len(self._brokers),
            "records": len(self.feed.records),
            "records_rejected": self.feed.rejected,
            "delivered": sender.delivered,
            "not_delivered": sender.not_delivered,
        }

    def _broker(self, name: str) -> SimulatedBroker:
        if name not in self._brokers:
            raise UnknownBrokerError(name)
        return self._brokers[name]


T = TypeVar("T")
_PACE_S = 0.02
_LONGEST_WAIT_S = 0.5
_CALL_TIMEOUT_S = 30.0


class FleetLoop:
    """Runs a fleet."""

    def __init__(
        self, fleet: Fleet, clock: ForwardClock, next_due: Callable[[], int | None]
    ) -> None:
        """next_due: time of the timetable's next item, by the clock, ms."""
        self._fleet = fleet
        self._clock = clock
        self._next_due = next_due
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def call(self, work: Callable[[Fleet, int], T]) -> T:
        """Let the loop run work(fleet, now_ms); return or raise its result."""
        future: Future[T] = Future()

        def carry_out() -> None:
            try:
                future.set_result(work(self._fleet, self._clock.now_ms()))
            except Exception as error:  # noqa: BLE001 - the caller raises it in its own thread
                future.set_exception(error)

        self._inbox.put(carry_out)
        return future.result(timeout=_CALL_TIMEOUT_S)

    def fail(self, error: Exception) -> None:
        """Let `run` raise this error of another thread."""

        def raise_it() -> None:
            raise error

        self._inbox.put(raise_it)

    def run(self) -> NoReturn:
        """Run for ever, at most 50 rounds a second, each with all that is due."""
        while True:
            self._wait()
            now_ms = self._clock.now_ms()
            due_ms = self._next_due()
            if due_ms is not None and due_ms <= now_ms:
                self._fleet.run_due(now_ms)
            sleep(_PACE_S)

    def _wait(self) -> None:
        """Process the inbox; if empty, wait for more or for the next due time."""
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

"""All simulated brokers together: who gets which record, whose time has come, what is true.

Every method is called by one thread, the loop's.
"""

from collections.abc import Iterable
from typing import Any

from jobs.adapters.kafka.clients import Received
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.fleet.broker import Due, FleetSurroundings, SimulatedBroker
from lbcore.agent.lease import EndConfirmed
from lbcore.agent.state import Event


class UnknownBrokerError(KeyError):
    """No broker of the fleet has this name."""


class Fleet:
    """The brokers by name."""

    def __init__(self, surroundings: FleetSurroundings) -> None:
        self.feed = OwnershipFeed(surroundings.settings.cluster)
        self._around = surroundings
        self._brokers: dict[str, SimulatedBroker] = {}

    def start(self, name: str, now_ms: int) -> None:
        """Start a broker, or start it again; a name that is new joins the fleet."""
        if name not in self._brokers:
            number = len(self._brokers) + 1
            self._brokers[name] = SimulatedBroker(name, number, self._around)
        self._brokers[name].start(self.feed.current(name), now_ms)

    def kill(self, name: str, now_ms: int) -> dict[str, Any]:
        """Kill a broker; answers what `lbcore.sim.summary.Crash` wants to know."""
        broker = self._broker(name)
        served = broker.kill(now_ms)
        return {
            "broker": name,
            "killed_at_ms": now_ms,
            "last_report_ms": broker.last_delivered_ms,
            "bundles": served,
        }

    def pause(self, name: str, now_ms: int) -> None:
        """Freeze a broker."""
        self._broker(name).pause(now_ms)

    def hang(self, name: str, now_ms: int) -> None:
        """Let a broker's callbacks hang."""
        self._broker(name).hang(now_ms)

    def resume(self, name: str, now_ms: int) -> None:
        """Let a paused or hanging broker go on."""
        self._broker(name).resume(now_ms)

    def drain(self, name: str, now_ms: int) -> None:
        """Tell a broker to stop in order."""
        self._broker(name).drain(now_ms)

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
        """Callbacks that end and agents that wake up, all that is due of a broker at once."""
        due: dict[str, list[tuple[int, Due]]] = {}
        for at_ms, item in self._around.timetable.due(now_ms):
            due.setdefault(item.broker, []).append((at_ms, item))
        for name in sorted(due):
            self._brokers[name].come_due(due[name], now_ms)

    def describe(self, now_ms: int, *, with_bundles: bool = False) -> dict[str, Any]:
        """Each broker's life, true load (msg/s in + out) and bundles; see the control server."""
        rows = [self._row(broker, now_ms, with_bundles) for broker in self._brokers.values()]
        return {
            "at_ms": now_ms,
            "virtual_ms": self._around.virtual_ms(now_ms),
            "brokers": rows,
            "bundles_open": sum(row["bundle_count"] for row in rows),
            "hottest_bundle": max((row["hottest_bundle"] for row in rows), default=0.0),
        }

    def confirm_end(self, asked_ms: int, now_ms: int) -> None:
        """All that was committed to ownership before asked_ms has been given to `take_records`."""
        for name in sorted(self._brokers):
            self._brokers[name].take([EndConfirmed(asked_ms=asked_ms)], now_ms)

    def truth(self, now_ms: int) -> dict[str, list[tuple[str, int]]]:
        """Bundle → who serves it right now, under which token; more than one may."""
        found: dict[str, list[tuple[str, int]]] = {}
        for broker in self._brokers.values():
            for bundle, token in broker.serves(now_ms).items():
                found.setdefault(bundle, []).append((broker.name, token))
        return dict(sorted(found.items()))

    def health(self) -> dict[str, Any]:
        """Counts for the supervisor."""
        sender = self._around.sender
        return {
            "serving": sum(broker.is_serving for broker in self._brokers.values()),
            "brokers": len(self._brokers),
            "records": len(self.feed.records),
            "records_rejected": self.feed.rejected,
            "delivered": sender.delivered,
            "not_delivered": sender.not_delivered,
        }

    def _row(self, broker: SimulatedBroker, now_ms: int, with_bundles: bool) -> dict[str, Any]:  # noqa: FBT001 - private
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
        return {**row, "bundles": dict(sorted(tokens.items()))} if with_bundles else row

    def _broker(self, name: str) -> SimulatedBroker:
        if name not in self._brokers:
            raise UnknownBrokerError(name)
        return self._brokers[name]

"""The simulated brokers, each a hosted agent and a service in miniature.

A broker carries out its agent's effects at once (messages, reading load) or after a while
(callbacks); `lbcore.agent.host` steps the agent. Only name and labels survive a restart.
The fleet keeps the brokers' records, due times and true state. One thread at a time calls its
methods (`FleetLoop.call`).
"""

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from secrets import token_hex
from time import sleep
from typing import Any, Generic, NoReturn, TypeVar

from jobs import VERSION
from jobs.adapters.kafka.clients import Delivered, Delivery, Received, Sender
from jobs.adapters.kafka.ownership_feed import OwnershipFeed
from jobs.adapters.processes.clocks import ForwardClock
from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host
from lbcore.agent.reporting import Identity, TopicsRead
from lbcore.agent.state import EndConfirmed, Event, ReadLoad, ReportConfirmed, Send, Stop, Stopped
from lbcore.config.ownership import FENCING_TOKEN, AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.ownership.holding import Call, CallDone
from lbcore.sim.engine.node import ServedBundles, callback_ms
from lbcore.sim.load.load import FULL_RATE_MSG_PER_S, LoadModel, cpu_noise, uniform
from lbcore.wire.format import format_message
from lbcore.wire.messages import Topic

Item = TypeVar("Item")


class Timetable(Generic[Item]):
    """Items with a time in ms."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Item]] = []
        self._order = count()

    def add(self, due_ms: int, item: Item) -> None:
        """Schedule an item; O(log items)."""
        heapq.heappush(self._heap, (due_ms, next(self._order), item))

    def due(self, now_ms: int) -> list[tuple[int, Item]]:
        """Remove and return the due items with their times, in order."""
        found = []
        while self._heap and self._heap[0][0] <= now_ms:
            due_ms, _, item = heapq.heappop(self._heap)
            found.append((due_ms, item))
        return found


_NOISE_STEP_MS = 1_000
_FIRST_READS = 2


class ProcessLife(str, Enum):
    """State of a simulated broker; the control server answers the value."""

    ALIVE = "alive"
    DRAINING = "draining"
    HANGING = "hanging"
    PAUSED = "paused"
    KILLED = "killed"
    STOPPED = "stopped"


_RUNNING = frozenset({ProcessLife.ALIVE, ProcessLife.DRAINING, ProcessLife.HANGING})


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSettings:
    """Settings of simulated brokers.

    speed: virtual milliseconds of load per real one. callback_ms: shortest and longest duration of
    opening, closing or splitting. topics_per_read: bundles whose topics are read with each load, 0
    = none. capacities: broker → capacity label, default 1.0. fencing: the setting
    ownership.fencing.
    """

    cluster: str
    agent: AgentConfig
    signals: SignalsConfig
    seed: int = 1
    speed: float = 1.0
    callback_ms: tuple[int, int] = (50, 300)
    topics_per_read: int = 10
    capacities: Mapping[str, float]
    fencing: str = FENCING_TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """Item due for one start of a broker. call: callback that ends, None = wake-up."""

    broker: str
    start: int
    call: Call | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetContext:
    """Context shared by all brokers. note: logs an event. origin_ms: virtual time 0."""

    settings: FleetSettings
    model: LoadModel
    sender: Sender
    timetable: Timetable[Due]
    note: Callable[[Mapping[str, Any]], object]
    origin_ms: int

    def virtual_ms(self, now_ms: int) -> int:
        """The load model's time."""
        return max(0, int((now_ms - self.origin_ms) * self.settings.speed))


class SimulatedBroker:
    """A broker that may be started, killed, paused, hung or drained.

    One thread at a time may use it.
    """

    def __init__(self, name: str, context: FleetContext) -> None:
        """name: a valid host name, because URLs contain it."""
        self.name = name
        self.capacity = context.settings.capacities.get(name, 1.0)
        self.life = ProcessLife.KILLED
        self.start_number = 0
        self.incarnation = ""
        self.last_delivered_ms = 0
        self.service = ServedBundles()
        self._context = context
        self._host: Host | None = None
        self._reads = 0
        self._topics_due: deque[str] = deque()
        self._load_step = -1

    @property
    def is_serving(self) -> bool:
        """True if the broker's bundles are open, also those of a paused one."""
        return self.life in _RUNNING or self.life is ProcessLife.PAUSED

    def serves(self, now_ms: int) -> Mapping[str, int]:
        """Return bundle → token of open bundles; with leases, of permitted ones only."""
        if not self.is_serving or self._host is None:
            return {}
        if self._context.settings.fencing == FENCING_TOKEN:
            return self.service.tokens
        usable = self._host.agent.usable_at(now_ms)
        return {name: token for name, token in self.service.tokens.items() if name in usable}

    def start(self, records: Sequence[Event], now_ms: int) -> None:
        """Begin a new incarnation that serves nothing; a running one is killed first."""
        if self.is_serving:
            self.kill(now_ms)
        self.start_number += 1
        self.incarnation = f"{now_ms}-{token_hex(4)}"
        self.service = ServedBundles()
        self._topics_due.clear()
        self._reads = 0
        # a random first interval spreads the fleet's reports over the usual one
        settings = self._context.settings
        phase = uniform(settings.seed, f"phase {self.name} {self.start_number}")
        first_ms = 1 + int(phase * settings.signals.report_max_interval_ms)
        first = replace(settings.signals, report_check_ms=first_ms, report_max_interval_ms=0)
        self._host = Host(self._agent_under(first), self)
        self._become(ProcessLife.ALIVE, now_ms)
        self.take(records, now_ms)

    def kill(self, now_ms: int) -> tuple[str, ...]:
        """End it at once, without notice; return the bundles that it served."""
        served = tuple(sorted(self.service.tokens)) if self.is_serving else ()
        if self._host is not None:
            self._host.end()
        self._become(ProcessLife.KILLED, now_ms)
        return served

    def pause(self, now_ms: int) -> None:
        """Freeze it, like a stopped process or a very long garbage collection."""
        if self._host is not None and self.life in _RUNNING:
            self._host.freeze()
            self._become(ProcessLife.PAUSED, now_ms)

    def hang(self, now_ms: int) -> None:
        """Let no callback of its service return; it still sends heartbeats."""
        if self._host is not None and self.life is ProcessLife.ALIVE:
            self._host.hang()
            self._become(ProcessLife.HANGING, now_ms)

    def resume(self, now_ms: int) -> None:
        """End a pause or a hang, with all events that came meanwhile."""
        if self._host is None or self.life not in (ProcessLife.PAUSED, ProcessLife.HANGING):
            return
        is_stopping = self._host.agent.state.stopping_at_ms is not None
        self._become(ProcessLife.DRAINING if is_stopping else ProcessLife.ALIVE, now_ms)
        self._host.release(now_ms)
        self._end_first_interval(now_ms)

    def drain(self, now_ms: int) -> None:
        """Send it Stop: it asks to be drained first."""
        if self.life is ProcessLife.ALIVE:
            self._become(ProcessLife.DRAINING, now_ms)
            self.take([Stop()], now_ms)

    def take(self, events: Sequence[Event], now_ms: int) -> None:
        """Take events from outside."""
        if self._host is not None:
            self._host.take(events, now_ms)
            self._end_first_interval(now_ms)

    def come_due(self, due: Sequence[tuple[int, Due]], now_ms: int) -> None:
        """Process the timetable's items for this broker, with the times they were due."""
        if self._host is not None:
            current = [(at_ms, one.call) for at_ms, one in due if one.start == self.start_number]
            self._host.come_due(current, now_ms)
            self._end_first_interval(now_ms)

    def rates(self, now_ms: int) -> tuple[float, float]:
        """Return msg/s in + out of the broker, and of its hottest bundle."""
        field = self._context.model.at(self._context.virtual_ms(now_ms))
        rates = self.service.stats_at(field)[:, :2].sum(axis=1)
        return (float(rates.sum()), float(rates.max())) if len(rates) else (0.0, 0.0)

    def _become(self, life: ProcessLife, now_ms: int) -> None:
        self.life = life
        self._note(f"broker {life.value}", now_ms, bundles=len(self.service.tokens))

    def _note(self, event: str, now_ms: int, **more: Any) -> None:
        about = {"at_ms": now_ms, "event": event, "broker": self.name}
        self._context.note({**about, "incarnation": self.incarnation, **more})

    def _end_first_interval(self, now_ms: int) -> None:
        """Switch the agent to the usual settings after its second report."""
        if self._host is not None and self._reads == _FIRST_READS:
            self._reads += 1
            self._host.agent.machine = self._agent_under(self._context.settings.signals)
            self._host.take((), now_ms)

    def _agent_under(self, signals: SignalsConfig) -> AgentMachine:
        settings = self._context.settings
        identity = Identity(
            cluster=settings.cluster,
            broker=self.name,
            incarnation=self.incarnation,
            web_service_url=f"http://{self.name}:8080",
            pulsar_service_url=f"pulsar://{self.name}:6650",
            broker_version=VERSION,
            load_manager_class="ballast",
            capacity=self.capacity,
        )
        return AgentMachine(identity, settings.agent, signals, settings.fencing)

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        """Carry out what the agent asks for."""
        if isinstance(effect, ReadLoad):
            context, settings = self._context, self._context.settings
            self._reads += 1
            field = context.model.at(context.virtual_ms(now_ms))
            noise = cpu_noise(settings.seed, self.name, now_ms // _NOISE_STEP_MS)
            read = self.service.load_at(field, self.capacity, noise, FULL_RATE_MSG_PER_S)
            return [read, *self._read_topics(now_ms)]
        if isinstance(effect, Send):
            topic, key, value = format_message(effect.message)
            assert self._host is not None  # noqa: S101 it asks
            confirm = partial(self._on_delivery, self._host, effect.message.envelope.reported_at_ms)
            note = confirm if topic is Topic.BROKER_LOAD else lambda _: None
            self._context.sender.send(topic, key.decode(), value, on_delivery=note)
        else:
            self._become(ProcessLife.STOPPED, now_ms)
        return ()

    def call_ms(self, call: Call) -> int:
        """Return the duration of a call, the same in every run of a seed."""
        settings = self._context.settings
        return callback_ms(settings.seed, self.name, call, settings.callback_ms)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Schedule it for this start."""
        due = Due(broker=self.name, start=self.start_number, call=call)
        self._context.timetable.add(at_ms, due)

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """Open, close, split or merge in the simulated service."""
        change = self.service.carry_out(call)
        for bundle in change.closed:
            self._note("closed", now_ms, bundle=bundle, version=call.version_id)
        for bundle in change.opened:
            self._note("opened", now_ms, bundle=bundle, version=call.version_id)
        self._topics_due.extend(change.opened)
        return CallDone(callback=call.callback, bundle=call.bundle, version_id=call.version_id)

    def _on_delivery(self, host: Host, sent_ms: int, delivery: Delivery) -> None:
        """Report a delivery to its own start; in the producer's thread."""
        if isinstance(delivery, Delivered):
            self.last_delivered_ms = max(self.last_delivered_ms, delivery.timestamp_ms)
            host.put(ReportConfirmed(sent_ms=sent_ms))

    def _read_topics(self, now_ms: int) -> list[TopicsRead]:
        """Read the topics of a few bundles.

        Newly opened ones first; in turn when load changes.
        """
        virtual_ms, model = self._context.virtual_ms(now_ms), self._context.model
        if model.step_at(virtual_ms) != self._load_step:
            self._load_step = model.step_at(virtual_ms)
            self._topics_due = deque(sorted(self.service.tokens))
        found: list[TopicsRead] = []
        while self._topics_due and len(found) < self._context.settings.topics_per_read:
            bundle = self._topics_due.popleft()
            if bundle in self.service.tokens:
                topics, traffic = model.topics_of(bundle, virtual_ms)
                found.append(TopicsRead(bundle=bundle, topics=topics, traffic=traffic))
        return found


ACTIONS = ("drain", "hang", "kill", "pause", "restart", "resume", "start")


class UnknownBrokerError(KeyError):
    """No broker of the fleet has this name."""


class Fleet:
    """The brokers by name."""

    def __init__(self, context: FleetContext) -> None:
        self.feed = OwnershipFeed(context.settings.cluster)
        self.timetable = context.timetable
        self._context = context
        self._brokers: dict[str, SimulatedBroker] = {}

    def start(self, name: str, now_ms: int) -> None:
        """Start or restart a broker; a new name joins the fleet."""
        if name not in self._brokers:
            self._brokers[name] = SimulatedBroker(name, self._context)
        self._brokers[name].start(self.feed.current(name), now_ms)

    def act(self, action: str, name: str, now_ms: int) -> Mapping[str, Any]:
        """Carry out one of ACTIONS; return the fields of a `Crash` after a kill."""
        if action in ("start", "restart"):
            self.start(name, now_ms)
            return {}
        if name not in self._brokers:
            raise UnknownBrokerError(name)
        broker = self._brokers[name]
        served = getattr(broker, action)(now_ms)
        if action != "kill":
            return {}
        return {
            "broker": name,
            "killed_at_ms": now_ms,
            "last_report_ms": broker.last_delivered_ms,
            "bundles": served,
        }

    def take_records(self, messages: Iterable[Received], now_ms: int) -> None:
        """Pass records of the ownership topic to the brokers they concern."""
        events: dict[str, list[Event]] = {}
        for addressed in self.feed.take(messages):
            for name in addressed.brokers:
                events.setdefault(name, []).append(addressed.event)
        for name in sorted(events):
            if name in self._brokers:
                self._brokers[name].take(events[name], now_ms)

    def run_due(self, now_ms: int) -> None:
        """Run due callbacks and wake-ups, all of a broker at once."""
        due: dict[str, list[tuple[int, Due]]] = {}
        for at_ms, item in self.timetable.due(now_ms):
            due.setdefault(item.broker, []).append((at_ms, item))
        for name in sorted(due):
            self._brokers[name].come_due(due[name], now_ms)

    def describe(self, now_ms: int, *, with_bundles: bool = False) -> dict[str, Any]:
        """Return each broker's life, true load (msg/s in + out) and bundles."""
        rows: list[dict[str, Any]] = []
        for broker in self._brokers.values():
            rate, hottest = broker.rates(now_ms) if broker.is_serving else (0.0, 0.0)
            tokens = broker.service.tokens if broker.is_serving else {}
            rows.append(
                {
                    "broker": broker.name,
                    "life": broker.life.value,
                    "incarnation": broker.incarnation,
                    "capacity": broker.capacity,
                    "load": rate,
                    "hottest_bundle": hottest,
                    "bundle_count": len(tokens),
                    "last_report_ms": broker.last_delivered_ms,
                    **({"bundles": dict(sorted(tokens.items()))} if with_bundles else {}),
                }
            )
        return {
            "at_ms": now_ms,
            "virtual_ms": self._context.virtual_ms(now_ms),
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
        sender = self._context.sender
        return {
            "serving": sum(broker.is_serving for broker in self._brokers.values()),
            "brokers": len(self._brokers),
            "records": len(self.feed.records),
            "records_rejected": self.feed.rejected,
            "delivered": sender.delivered,
            "not_delivered": sender.not_delivered,
        }


_PACE_S = 0.02
_CALL_S = 30.0


class FleetLoop:
    """Runs a fleet, on which one thread at a time works."""

    def __init__(self, fleet: Fleet, clock: ForwardClock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def call(self, work: Callable[[Fleet, int], Item]) -> Item:
        """Return work(fleet, now_ms), carried out between two rounds.

        Raises TimeoutError after 30 s, when the fleet waits for Kafka.
        """
        if not self._lock.acquire(timeout=_CALL_S):
            raise TimeoutError("the fleet has not come to it")
        try:
            return work(self._fleet, self._clock.now_ms())
        finally:
            self._lock.release()

    def fail(self, error: Exception) -> None:
        """Let `run` raise this error of another thread."""
        self._error = error

    def run(self) -> NoReturn:
        """Run for ever, at most 50 rounds a second, each with all that is due."""
        while self._error is None:
            with self._lock:
                self._fleet.run_due(self._clock.now_ms())
            sleep(_PACE_S)
        raise self._error

"""One simulated broker: a hosted agent, a service in miniature, and its life.

Carries out the agent's effects at once (messages, reading load) or after a while (callbacks);
`lbcore.agent.host` steps the agent. Of a start only the name and the labels survive.
"""

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from secrets import token_hex
from typing import Any, Generic, TypeVar

from jobs import VERSION
from jobs.adapters.kafka.clients import Delivered, Delivery, Sender
from lbcore.agent.agent import AgentMachine
from lbcore.agent.host import Host
from lbcore.agent.reporting import Identity, TopicsRead
from lbcore.agent.state import Event, ReadLoad, ReportConfirmed, Send, Stop, Stopped
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

    def next_ms(self) -> int | None:
        """Return the time of the next item, None = none."""
        return self._heap[0][0] if self._heap else None


_NOISE_STEP_MS = 1_000
_FIRST_READS = 2


class ProcessLife(str, Enum):
    """State of a simulated broker; the value is the control server's word."""

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
    """Item due for a start of a broker. call: the callback that ends, None = wake-up."""

    broker: str
    start: int
    call: Call | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSurroundings:
    """State of all brokers. note: logs an event. origin_ms: the virtual time 0."""

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
    """A broker that may be started, killed, paused, hung, drained; for one thread."""

    def __init__(self, name: str, surroundings: FleetSurroundings) -> None:
        """name: a host name, because it stands in the URLs."""
        self.name = name
        self.life = ProcessLife.KILLED
        self.start_number = 0
        self.incarnation = ""
        self.last_delivered_ms = 0
        self.service = ServedBundles()
        self._around = surroundings
        self._host: Host | None = None
        self._reads = 0
        self._topics_due: deque[str] = deque()
        self._load_step = -1

    @property
    def is_serving(self) -> bool:
        """True if the broker's bundles are open, also those of a paused one."""
        return self.life in _RUNNING or self.life is ProcessLife.PAUSED

    def serves(self, now_ms: int) -> Mapping[str, int]:
        """Return bundle → token of what is open and permitted by the lease."""
        if not self.is_serving or self._host is None:
            return {}
        if self._around.settings.fencing == FENCING_TOKEN:
            return self.service.tokens
        usable = self._host.agent.usable_at(now_ms)
        return {name: token for name, token in self.service.tokens.items() if name in usable}

    @property
    def capacity(self) -> float:
        """Its capacity label."""
        return self._around.settings.capacities.get(self.name, 1.0)

    def start(self, records: Sequence[Event], now_ms: int) -> None:
        """Begin a new incarnation that serves nothing; a running one is killed first."""
        if self.is_serving:
            self.kill(now_ms)
        self.start_number += 1
        self.incarnation = f"{now_ms}-{token_hex(4)}"
        self.service = ServedBundles()
        self._topics_due.clear()
        self._reads = 0
        # a first interval of random length spreads the fleet's reports over the interval
        settings = self._around.settings
        phase = uniform(settings.seed, f"phase {self.name} {self.start_number}")
        first_ms = 1 + int(phase * settings.signals.report_max_interval_ms)
        first = replace(settings.signals, report_check_ms=first_ms, report_max_interval_ms=0)
        self._host = Host(self._agent_under(first), self)
        self._become(ProcessLife.ALIVE, now_ms)
        self.take(records, now_ms)

    def kill(self, now_ms: int) -> tuple[str, ...]:
        """End it at once, without a goodbye; return what it served."""
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
        field = self._around.model.at(self._around.virtual_ms(now_ms))
        rates = self.service.stats_at(field)[:, :2].sum(axis=1)
        return (float(rates.sum()), float(rates.max())) if len(rates) else (0.0, 0.0)

    def _become(self, life: ProcessLife, now_ms: int) -> None:
        self.life = life
        self._note(f"broker {life.value}", now_ms, bundles=len(self.service.tokens))

    def _note(self, event: str, now_ms: int, **more: Any) -> None:
        about = {"at_ms": now_ms, "event": event, "broker": self.name}
        self._around.note({**about, "incarnation": self.incarnation, **more})

    def _end_first_interval(self, now_ms: int) -> None:
        """Switch the agent to the usual settings after its second report."""
        if self._host is not None and self._reads == _FIRST_READS:
            self._reads += 1
            self._host.agent.machine = self._agent_under(self._around.settings.signals)
            self._host.take((), now_ms)

    def _agent_under(self, signals: SignalsConfig) -> AgentMachine:
        settings = self._around.settings
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
            around, settings = self._around, self._around.settings
            self._reads += 1
            field = around.model.at(around.virtual_ms(now_ms))
            noise = cpu_noise(settings.seed, self.name, now_ms // _NOISE_STEP_MS)
            read = self.service.load_at(field, self.capacity, noise, FULL_RATE_MSG_PER_S)
            return [read, *self._read_topics(now_ms)]
        if isinstance(effect, Send):
            topic, key, value = format_message(effect.message)
            assert self._host is not None  # noqa: S101 it asks
            confirm = partial(self._on_delivery, self._host, effect.message.envelope.reported_at_ms)
            note = confirm if topic is Topic.BROKER_LOAD else lambda _: None
            self._around.sender.send(topic, key.decode(), value, on_delivery=note)
        else:
            self._become(ProcessLife.STOPPED, now_ms)
        return ()

    def call_ms(self, call: Call) -> int:
        """Return the duration of a call, the same in every run of a seed."""
        settings = self._around.settings
        return callback_ms(settings.seed, self.name, call, settings.callback_ms)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Schedule it for this start."""
        due = Due(broker=self.name, start=self.start_number, call=call)
        self._around.timetable.add(at_ms, due)

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """Open, close or split."""
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
        virtual_ms, model = self._around.virtual_ms(now_ms), self._around.model
        if model.step_at(virtual_ms) != self._load_step:
            self._load_step = model.step_at(virtual_ms)
            self._topics_due = deque(sorted(self.service.tokens))
        found: list[TopicsRead] = []
        while self._topics_due and len(found) < self._around.settings.topics_per_read:
            bundle = self._topics_due.popleft()
            if bundle in self.service.tokens:
                topics, traffic = model.topics_of(bundle, virtual_ms)
                found.append(TopicsRead(bundle=bundle, topics=topics, traffic=traffic))
        return found

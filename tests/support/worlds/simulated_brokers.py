"""Simulated brokers of a world, and a fleet of them in virtual time."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from jobs.adapters.kafka.clients import Delivered, OnDelivery, Received, Sender
from jobs.fleet.fleet import Due, Fleet, FleetContext, FleetSettings, Timetable
from lbcore.agent.host import Host, RunningAgent
from lbcore.agent.reporting import TopicsRead
from lbcore.agent.state import Event, ReadLoad, RecordTombstone, Send, Stopped
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.bundles import Bundle, HashFunction
from lbcore.ownership.holding import Call, CallDone
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad
from lbcore.wire.messages import Message, Topic
from tests.support.values.ownership_records import served

if TYPE_CHECKING:
    from tests.support.worlds.world import World


Topics = Mapping[str, float]
"""Full name → msg/s in, and as much out, of 1,000 bytes each; hashed with crc32."""

_PER_MESSAGE = np.array([1.0, 1.0, 1_000.0, 1_000.0])


def topics_in(topics: Topics, bundle: str) -> tuple[str, ...]:
    """Those of the topics that lie in a bundle, sorted."""
    whole = Bundle.parse(bundle)
    return tuple(name for name in sorted(topics) if whole.includes_topic(name))


def rate_of(topics: Topics, bundle: str) -> float:
    """What those of a bundle carry together, in msg/s one way."""
    return sum(topics[name] for name in topics_in(topics, bundle))


def read_topics(topics: Topics, bundles: Iterable[str]) -> list[TopicsRead]:
    """What a broker's agent is told of each bundle that has any."""
    found = []
    for bundle in sorted(bundles) if topics else ():
        names = topics_in(topics, bundle)
        rates = np.array([topics[name] for name in names])
        if names:
            traffic = rates[:, np.newaxis] * _PER_MESSAGE
            found.append(TopicsRead(bundle=bundle, topics=names, traffic=traffic))
    return found


@dataclass
class Broker:
    """A simulated broker: its agent, and what goes on around it.

    machine_ahead_ms: how wrong its machine's clock is; ahead_ms: and was when the agent started,
    whose own clock only goes on from there.
    """

    name: str
    starts: int = 0
    host: Host | None = None
    is_paused: bool = False
    is_cut_off: bool = False
    is_hanging: bool = False
    inbox: list[OwnershipRecord | RecordTombstone] = field(default_factory=list)
    calls: list[tuple[int, Call]] = field(default_factory=list)
    unsent: list[Message] = field(default_factory=list)
    machine_ahead_ms: int = 0
    ahead_ms: int = 0

    @property
    def agent(self) -> RunningAgent | None:
        """Its agent, None = its process is gone."""
        return None if self.host is None else self.host.agent

    def served(self) -> dict[str, int]:
        """Bundle → fencing token of what is open there."""
        return {} if self.host is None else served(self.host.agent.state)


class BrokerShell:
    """What a broker's agent asks for, done by its world; see `lbcore.agent.host.Shell`."""

    def __init__(self, world: "World", broker: Broker) -> None:
        self._world, self._broker = world, broker

    def do(self, effect: Send | ReadLoad | Stopped, now_ms: int) -> Sequence[Event]:
        """Hand a message to the messenger, read load and topics, or note the end."""
        del now_ms
        world, broker = self._world, self._broker
        if isinstance(effect, ReadLoad):
            return [world.load(broker), *read_topics(world.topics, broker.served())]
        if isinstance(effect, Send):
            world.send(broker, effect.message)
        else:
            world.stopped(broker, effect)
        return ()

    def call_ms(self, call: Call) -> int:
        del call
        return self._world.call_ms(self._broker)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Keep a callback's end by the world's clock; nobody need wake an agent here."""
        if call is not None:
            self._broker.calls.append((at_ms - self._broker.ahead_ms, call))

    def finish(self, call: Call, now_ms: int) -> CallDone:
        del now_ms
        return self._world.finish(call)


@dataclass
class Faults:
    """How bad the messenger is: chances of losing and repeating a message, most delay.

    read: the least part of what is new that a batch reads of each partition; 1 = all of it.
    failing: the chance that a callback of the service fails. unread: that a broker never gets a
    record.
    """

    lost: float = 0.0
    repeated: float = 0.0
    delay_ms: int = 0
    read: float = 1.0
    failing: float = 0.0
    unread: float = 0.0


NS = "t/n"
START_MS = 1_000_000


class NotingSender:
    """Keeps what is sent, and says at once that it was delivered."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.sent: list[tuple[int, Topic, str, Mapping[str, Any]]] = []
        self.delivered = self.not_delivered = 0

    def send(self, topic: Topic, key: str, value: bytes, *, on_delivery: OnDelivery) -> None:
        self.sent.append((self.now_ms, topic, key, json.loads(value)))
        self.delivered += 1
        at_ms = self.now_ms
        on_delivery(Delivered(partition=0, offset=0, timestamp_ms=at_ms))


class VirtualFleet:
    """A fleet whose timetable is run by hand."""

    def __init__(self, **settings: Any) -> None:
        self.sender = NotingSender()
        self.events: list[Mapping[str, Any]] = []
        self.timetable: Timetable[Due] = Timetable()
        space = NamespaceLoad(name=NS, hash_function=HashFunction.CRC32, bundles=4)
        chosen = {
            "cluster": "c",
            "agent": AgentConfig(),
            "signals": SignalsConfig(report_max_interval_ms=9_999),
            "capacities": {},
            **settings,
        }
        context = FleetContext(
            settings=FleetSettings(**chosen),
            model=LoadModel([space], LoadProfile(shape=LoadShape.ZIPF, brokers=2)),
            sender=cast(Sender, self.sender),
            timetable=self.timetable,
            note=self.events.append,
            origin_ms=START_MS,
        )
        self.fleet = Fleet(context)
        self.now_ms = START_MS

    def run(self, for_ms: int, step_ms: int = 10) -> None:
        for _ in range(for_ms // step_ms):
            self.now_ms += step_ms
            self.sender.now_ms = self.now_ms
            self.fleet.run_due(self.now_ms)

    def write(self, *records: OwnershipRecord) -> None:
        messages = []
        for record in records:
            key, value = format_record(record)
            messages.append(
                Received(
                    partition=0, offset=0, timestamp_ms=self.now_ms, key=key.decode(), value=value
                )
            )
        self.fleet.take_records(messages, self.now_ms)

    def times(self, topic: Topic, broker: str, *with_fields: str) -> list[int]:
        """When the broker sent messages of the topic that have these fields."""
        return [
            at_ms - START_MS
            for at_ms, sent_to, key, fields in self.sender.sent
            if (sent_to, key) == (topic, f"c/{broker}") and all(f in fields for f in with_fields)
        ]

    def incarnation(self, broker: str) -> str:
        rows = self.fleet.describe(self.now_ms)["brokers"]
        return next(str(row["incarnation"]) for row in rows if row["broker"] == broker)

"""A fleet without Kafka or clock: messages are noted, time is what the test says."""

import json
from collections.abc import Mapping
from typing import Any, cast

from jobs.adapters.kafka.clients import Delivered, OnDelivery, Received, Sender
from jobs.fleet.broker import Due, FleetSettings, FleetSurroundings, Timetable
from jobs.fleet.fleet import Fleet
from lbcore.config.ownership import AgentConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.hashing import HashFunction
from lbcore.ownership.records import OwnershipRecord
from lbcore.ownership.wire_record import format_record
from lbcore.sim.load.load import LoadModel, LoadProfile, LoadShape, NamespaceLoad
from lbcore.wire.messages import Topic

NS = "t/n"
START_MS = 1_000_000


class NotingSender:
    """Keeps what is sent, and says at once that it was delivered."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.sent: list[tuple[int, Topic, str, Mapping[str, Any]]] = []
        self.delivered = self.not_delivered = 0

    def send(self, topic: Topic, key: str, value: bytes, *, on_delivery: OnDelivery) -> None:
        """Note one message with its time."""
        self.sent.append((self.now_ms, topic, key, json.loads(value)))
        self.delivered += 1
        at_ms = self.now_ms
        on_delivery(Delivered(topic=topic.value, partition=0, offset=0, timestamp_ms=at_ms))


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
        surroundings = FleetSurroundings(
            settings=FleetSettings(**chosen),
            model=LoadModel([space], LoadProfile(shape=LoadShape.ZIPF, brokers=2)),
            sender=cast(Sender, self.sender),
            timetable=self.timetable,
            note=self.events.append,
            origin_ms=START_MS,
        )
        self.fleet = Fleet(surroundings)
        self.now_ms = START_MS

    def run(self, for_ms: int, step_ms: int = 10) -> None:
        """Let time pass."""
        for _ in range(for_ms // step_ms):
            self.now_ms += step_ms
            self.sender.now_ms = self.now_ms
            self.fleet.run_due(self.now_ms)

    def write(self, *records: OwnershipRecord) -> None:
        """Have records come on the ownership topic."""
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
        """Which start it is."""
        rows = self.fleet.describe(self.now_ms)["brokers"]
        return next(str(row["incarnation"]) for row in rows if row["broker"] == broker)

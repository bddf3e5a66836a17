"""The log of a simulated cluster in place of Kafka, its faults, and virtual time.

Messages have a topic, partition, offset and time; some are lost, repeated or late. They stay
values, never JSON, so that thousands of cycles a minute fit on a core; the wire has tests of its
own.
"""

import heapq
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TypeAlias

from lbcore.scorer.broker_states import RawMessage, ScorerState
from lbcore.sim.load.load import RandomStream
from lbcore.wire.messages import (
    Acks,
    BrokerLoad,
    BundleLoad,
    Command,
    Heartbeat,
    Message,
    Position,
    Rejected,
    RejectReason,
    Tick,
    Topic,
    TopicLoad,
)

Action: TypeAlias = Callable[[], None]

START_MS = 1_700_000_039_000
"""Wall clock at a scenario's start: cycles come a second after events at round times."""


class Clock:
    """Virtual time, and scheduled actions by time, then in the order of scheduling."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self._numbers = count()
        self._coming: list[tuple[int, int, Action]] = []

    @property
    def scenario_ms(self) -> int:
        """Time since the scenario's start."""
        return self.now_ms - START_MS

    def at(self, at_ms: int, action: Action) -> None:
        """Schedule an action; a past time means now."""
        heapq.heappush(self._coming, (max(at_ms, self.now_ms), next(self._numbers), action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Schedule an action after a delay."""
        self.at(self.now_ms + delay_ms, action)

    def run_until(self, end_ms: int) -> None:
        """Run all actions up to a time, that moment included."""
        while self._coming and self._coming[0][0] <= end_ms:
            self.now_ms, _, action = heapq.heappop(self._coming)
            action()
        self.now_ms = end_ms


PARTITIONS = 4
_TOPICS: dict[type, Topic] = {
    Tick: Topic.BROKER_LOAD,
    Heartbeat: Topic.BROKER_LOAD,
    BrokerLoad: Topic.BROKER_LOAD,
    BundleLoad: Topic.BUNDLE_LOAD,
    TopicLoad: Topic.TOPIC_LOAD,
    Acks: Topic.ACKS,
    Command: Topic.COMMANDS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried(RawMessage):
    """A message in the log that was never bytes."""

    message: Message


@dataclass(slots=True)
class NetworkPath:
    """Faults of one broker's network path to the log.

    lost, repeated: probabilities. arrives_ms: arrival time of the newest late message; a broker's
    messages stay in order, as in Kafka.
    """

    lost: float = 0.0
    repeated: float = 0.0
    delay_ms: int = 0
    arrives_ms: int = 0
    are_acks_lost: bool = False
    is_cut: bool = False
    held: list[Message] = field(default_factory=list)


class Log:
    """All topics; read once, by the job."""

    def __init__(self, cluster: str, clock: Clock, rng: RandomStream) -> None:
        self._cluster = cluster
        self._clock = clock
        self._rng = rng
        self._offsets: dict[tuple[Topic, int], int] = defaultdict(int)
        self._unread: list[RawMessage] = []
        self.paths: dict[str, NetworkPath] = defaultdict(NetworkPath)

    def send(self, broker: str, message: Message) -> None:
        """Hand a broker's message to the network."""
        path = self.paths[broker]
        if path.is_cut:
            path.held.append(message)
            return
        are_lost = isinstance(message, Acks) and path.are_acks_lost
        if are_lost or self._rng.happens(path.lost):
            return
        for _ in range(2 if self._rng.happens(path.repeated) else 1):
            delay_ms = self._rng.between(0, path.delay_ms) if path.delay_ms else 0
            path.arrives_ms = max(path.arrives_ms, self._clock.now_ms + delay_ms)
            if path.arrives_ms > self._clock.now_ms:
                self._clock.at(path.arrives_ms, partial(self.append, message, broker))
            else:
                self.append(message, broker)

    def mend(self, broker: str) -> None:
        """Reconnect the broker to the log, and append the messages that it held."""
        path = self.paths[broker]
        path.is_cut = False
        for message in path.held:
            self.append(message, broker)
        path.held = []

    def append(self, message: Message, broker: str = "") -> None:
        """Append a message to its partition now."""
        topic = _TOPICS[type(message)]
        name = message.bundle if isinstance(message, TopicLoad) else broker
        key = f"{self._cluster}/{name}".encode() if name else self._cluster.encode()
        partition = 0 if topic is Topic.COMMANDS else zlib.crc32(key) % PARTITIONS
        self._put(topic, partition, key, message)

    def tick(self) -> None:
        """Append the driver's tick to every partition of broker-load."""
        message = Tick(cluster=self._cluster)
        for partition in range(PARTITIONS):
            self._put(Topic.BROKER_LOAD, partition, b"", message)

    def read_rows(self) -> list[RawMessage]:
        """Return the rows that have not been read yet."""
        unread, self._unread = self._unread, []
        return unread

    def parse(self, raw: RawMessage) -> Message | Rejected:
        """The value that the log carries."""
        if isinstance(raw, Carried):
            return raw.message
        detail = "the message is no value of the simulator"
        return Rejected(reason=RejectReason.NOT_JSON, detail=detail, raw=raw.value or b"")

    def _put(self, topic: Topic, partition: int, key: bytes, message: Message) -> None:
        offset = self._offsets[topic, partition]
        self._offsets[topic, partition] = offset + 1
        position = Position(
            topic=topic.value,
            partition=partition,
            offset=offset,
            timestamp_ms=self._clock.now_ms,
        )
        self._unread.append(Carried(position=position, key=key, value=None, message=message))


def with_values_of(before: ScorerState, state: ScorerState) -> ScorerState:
    """Restore the pending messages of an unpacked state; packing loses them."""
    carried = {
        name: one.pending
        for name, one in before.items()
        if one.pending is not None
        and any(isinstance(part, Carried) for part in one.pending.parts.values())
    }
    return {
        name: replace(one, pending=carried[name]) if name in carried else one
        for name, one in state.items()
    }

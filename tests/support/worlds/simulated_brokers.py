"""Brokers in virtual time, and how bad the messenger between them and the job is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lbcore.agent.host import Host, RunningAgent
from lbcore.agent.state import Event, ReadLoad, RecordForgotten, Send, Stopped
from lbcore.ownership.holding import Call, CallDone
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import Message
from tests.support.worlds.topic_reads import read_topics

if TYPE_CHECKING:
    from tests.support.worlds.world import World


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
    inbox: list[OwnershipRecord | RecordForgotten] = field(default_factory=list)
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
        return {} if self.host is None else self.host.agent.served()


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
        """By the world's dice."""
        del call
        return self._world.call_ms(self._broker)

    def schedule(self, at_ms: int, call: Call | None) -> None:
        """Keep a callback's end by the world's clock; nobody need wake an agent here."""
        if call is not None:
            self._broker.calls.append((at_ms - self._broker.ahead_ms, call))

    def finish(self, call: Call, now_ms: int) -> CallDone:
        """By the world's dice."""
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

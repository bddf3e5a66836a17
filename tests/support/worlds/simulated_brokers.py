"""Brokers in virtual time, and how bad the messenger between them and the job is."""

from dataclasses import dataclass, field

from lbcore.agent.agent import AgentMachine
from lbcore.agent.state import AgentState, RecordForgotten
from lbcore.ownership.holding import Call
from lbcore.ownership.records import OwnershipRecord
from lbcore.wire.messages import Message


@dataclass
class Broker:
    """A simulated broker: its agent, and what goes on around it.

    machine_ahead_ms: how wrong its machine's clock is; ahead_ms: and was when the agent started,
    whose own clock only goes on from there.
    """

    name: str
    starts: int = 0
    agent: AgentMachine | None = None
    state: AgentState | None = None
    is_paused: bool = False
    is_cut_off: bool = False
    is_hanging: bool = False
    inbox: list[OwnershipRecord | RecordForgotten] = field(default_factory=list)
    calls: list[tuple[int, Call]] = field(default_factory=list)
    unsent: list[Message] = field(default_factory=list)
    machine_ahead_ms: int = 0
    ahead_ms: int = 0


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

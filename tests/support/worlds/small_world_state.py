"""What a small world is made of: records, agents with their services, messages; what must hold.

See tests/support/worlds/small_world.py for what happens in it. Messages live in sets, processes
hold a real agent and a service that keeps the callbacks' contract to the letter.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from lbcore.agent.agent import AgentMachine
from lbcore.agent.reporting import Identity
from lbcore.agent.state import AgentState, Send
from lbcore.config.ownership import AgentConfig, OwnershipConfig
from lbcore.config.signals import SignalsConfig
from lbcore.model.bundles import Bundle
from lbcore.ownership.changes import (
    Answer,
    Instance,
    Origin,
    Transition,
    destination_of,
    source_of,
)
from lbcore.ownership.holding import Call, Callback
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.wire.messages import Ack, Acks
from tests.support.values.ownership_records import violations

CLUSTER = "local"
BROKERS = ("a", "b")
WHOLE = "t/n/0x00000000_0xffffffff"
LEFT = "t/n/0x00000000_0x80000000"
RIGHT = "t/n/0x80000000_0xffffffff"
NOW_MS = 0
FOR_EVER_MS = 10**9
ORIGIN = Origin(now_ms=NOW_MS, cause=Cause.ADMIN)
CONFIG = OwnershipConfig()
ROUNDS_MAX = 40


class BrokenWorldError(AssertionError):
    """Something that must always hold does not."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A broker's running process: its agent, and what its service really does.

    open: what is really served, and under which token. calls: callbacks that run.
    """

    incarnation: str
    state: AgentState
    open: Mapping[str, int] = field(default_factory=dict)
    calls: tuple[Call, ...] = ()

    def called(self, calls: Sequence[Call]) -> "Process":
        """The process after its agent asked for callbacks; raises when two would run at once."""
        outstanding = (*self.calls, *calls)
        for one, other in combinations(outstanding, 2):
            if overlap(one.range, other.range):
                raise BrokenWorldError(f"{one} and {other} run at once")
        return replace(self, calls=outstanding)

    def did(self, call: Call, failure: str) -> "Process":
        """The process after a callback has run, by the callbacks' contract."""
        left = tuple(other for other in self.calls if other != call)
        if call.callback is Callback.MERGE:
            return replace(self, calls=left)
        rest = {b: t for b, t in self.open.items() if not overlap(b, call.bundle)}
        if call.callback is Callback.OPEN:
            now_open = rest if failure else {**rest, call.bundle: call.version_id}
        elif failure:
            now_open = self.open
        elif call.callback is Callback.CLOSE:
            now_open = rest
        else:
            now_open = {**rest, **dict.fromkeys(call.children, max(self.open.values()))}
        return replace(self, open=now_open, calls=left)


@dataclass(frozen=True, kw_only=True)
class World:
    """Everything there is. known: the incarnations the balancer knows; dead: those it gave up.

    is_unsafe: a bundle was taken from a broker that lived; from then on only tokens keep order.
    is_deleting: the namespace is on its way out. lives: how often it was made again.
    granted: the highest token under which each bundle was ever opened, or began to be.
    """

    records: Mapping[str, OwnershipRecord]
    written: tuple[OwnershipRecord, ...]
    acks: frozenset[tuple[Instance, Ack]]
    processes: Mapping[str, Process]
    known: Mapping[str, str]
    dead: frozenset[str] = frozenset()
    is_unsafe: bool = False
    granted: Mapping[str, int] = field(default_factory=dict)
    crashes: int = 0
    deaths: int = 0
    failures: int = 0
    is_deleting: bool = False
    lives: int = 0
    path: tuple[int, ...] = field(default=(), compare=False)

    def key(self) -> Any:
        """What distinguishes worlds: equal keys have equal futures."""
        agents = tuple(
            (
                name,
                process.incarnation,
                tuple(sorted(process.state.versions.items())),
                tuple(process.state.holdings[bundle] for bundle in sorted(process.state.holdings)),
                tuple(sorted(process.open.items())),
                process.calls,
            )
            for name, process in sorted(self.processes.items())
        )
        records = tuple((record.bundle, record.version_id) for record in self.written)
        budget = (self.crashes, self.deaths, self.failures, self.lives)
        flags = (self.is_unsafe, self.is_deleting)
        known = (tuple(sorted(self.known.items())), self.dead, tuple(sorted(self.granted.items())))
        shape = tuple(
            (r.bundle, r.version_id, r.state, source_of(r), destination_of(r))
            for _, r in sorted(self.records.items())
        )
        return records, shape, self.acks, agents, known, budget, flags


def check(world: World) -> None:
    """Raises BrokenWorldError unless every invariant of the records and of the tokens holds."""
    found = violations(world.records)
    if found:
        raise BrokenWorldError(f"{found[0].sentence} (path {world.path})")
    found_open = list(served(world))
    for one, other in combinations(found_open, 2):
        if one[0] == other[0] or not overlap(one[1], other[1]):
            continue
        if one[2] == other[2]:
            raise BrokenWorldError(f"{one} and {other} have one token (path {world.path})")
        if not world.is_unsafe:
            raise BrokenWorldError(f"{one} and {other} serve a hash both (path {world.path})")
    for name, process in world.processes.items():
        believed = agent(name, process.incarnation).served(process.state)
        if dict(process.open) != believed:
            message = f"{name} believes to serve {believed}, serves {process.open}"
            raise BrokenWorldError(f"{message} (path {world.path})")
    for broker, bundle, token in found_open:
        highest = max(t for name, t in world.granted.items() if overlap(name, bundle))
        if _is_owner_at_rest(world, broker, bundle) and token < highest:
            message = f"{broker} owns {bundle} under {token}, fenced off by {highest}"
            raise BrokenWorldError(f"{message} (path {world.path})")


def _is_owner_at_rest(world: World, broker: str, bundle: str) -> bool:
    """Whether the record says Owned, and the owner has read that and has nothing more to do."""
    record, process = world.records.get(bundle), world.processes[broker]
    return (
        record is not None
        and record.state is State.OWNED
        and destination_of(record) == Instance(broker=broker, incarnation=process.incarnation)
        and process.state.versions.get(bundle) == record.version_id
        and process.state.holdings[bundle].running is None
    )


def write(world: World, answer: Answer, *, is_new_life: bool = False) -> World:
    """The world with a transition's records; versions rise by one, or above all in a new life."""
    assert isinstance(answer, Transition), answer
    for change in answer.changes:
        expected = 1 if change.before is None else change.before.version_id + 1
        is_first = change.before is None and change.after.version_id >= expected
        is_born = is_new_life or (change.before and change.before.state is State.DELETED)
        is_above = is_born and change.after.version_id >= expected
        if change.after.version_id != expected and not is_first and not is_above:
            raise BrokenWorldError(f"gap before {change.after} (path {world.path})")
    made = {change.after.bundle: change.after for change in answer.changes}
    return replace(
        world,
        records={**world.records, **made},
        written=(*world.written, *made.values()),
    )


def tick(world: World, name: str) -> World:
    """A long time passes for an agent; its state is then dated back, for worlds stay comparable."""
    before = world.processes[name].state
    world = step(world, name, now_ms=FOR_EVER_MS)
    process = world.processes[name]
    holdings = {
        bundle: replace(holding, since_ms=NOW_MS, said=min(holding.said, 1))
        for bundle, holding in process.state.holdings.items()
    }
    state = replace(process.state, holdings=holdings, reporting=before.reporting)
    return replace(world, processes={**world.processes, name: replace(process, state=state)})


def step(world: World, name: str, *events_of_agent: Any, now_ms: int = NOW_MS) -> World:
    process = world.processes[name]
    me = Instance(broker=name, incarnation=process.incarnation)
    stepped = agent(name, process.incarnation).step(process.state, events_of_agent, now_ms)
    assert stepped.state is not None
    said = {
        (me, replace(ack, reason=""))
        for effect in stepped.effects
        if isinstance(effect, Send) and isinstance(effect.message, Acks)
        for ack in effect.message.acks
    }
    calls = [effect for effect in stepped.effects if isinstance(effect, Call)]
    opened = {c.bundle: c.version_id for c in calls if c.callback is Callback.OPEN}
    highest = {bundle: max(token, world.granted.get(bundle, 0)) for bundle, token in opened.items()}
    return replace(
        world,
        processes={**world.processes, name: replace(process, state=stepped.state).called(calls)},
        acks=world.acks | said,
        granted={**world.granted, **highest},
    )


@lru_cache
def agent(name: str, incarnation: str) -> AgentMachine:
    identity = Identity(cluster=CLUSTER, broker=name, incarnation=incarnation)
    return AgentMachine(identity, AgentConfig(), SignalsConfig())


def process_of(name: str, number: int) -> Process:
    incarnation = f"{name}{number}"
    state = agent(name, incarnation).step(None, [], NOW_MS).state
    assert state is not None
    return Process(incarnation=incarnation, state=state)


def served(world: World) -> Iterator[tuple[str, str, int]]:
    """(broker, bundle, token) of what is open, or may be because opening has begun."""
    for name, process in sorted(world.processes.items()):
        opening = {c.bundle: c.version_id for c in process.calls if c.callback is Callback.OPEN}
        kept = {b: t for b, t in process.open.items() if not any(overlap(b, o) for o in opening)}
        yield from ((name, bundle, token) for bundle, token in sorted({**kept, **opening}.items()))


@lru_cache
def overlap(one: str, other: str) -> bool:
    return Bundle.parse(one).range.overlaps(Bundle.parse(other).range)

"""A small world: the balancer's protocol and real agents, with every message at anybody's mercy.

Messages live in sets: an ack that was sent, and a record that was written, may be delivered now,
later, again, or never, and in any order (a record older than one already read is ignored by the
agent, which is what a compacted topic makes of it). So lost, late, duplicated and reordered need no
events of their own. Time is an event, too: "timeout" is what happens when it was long enough.

`events` lists what can happen next, `apply` makes it happen and checks what must hold, `settle`
plays the rest fairly and checks that nothing stays stuck. A path of event numbers replays a run:
`python -m tests.small_world SCENARIO 3,0,5` prints it step by step.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations
from typing import Any

from lbcore.config.ownership import AgentConfig, OwnershipConfig
from lbcore.config.signals import SignalsConfig
from lbcore.machines.agent import Agent
from lbcore.machines.agent_reporting import Identity
from lbcore.machines.agent_state import AgentState, RecordRead, Send
from lbcore.model.bundles import Bundle
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    Action,
    Answer,
    Instance,
    Intent,
    IntentReason,
    Origin,
    Surroundings,
    Transition,
    destination_of,
    holder_of,
    source_of,
)
from lbcore.ownership.holding import Call, Callback, CallDone, Goal, goal_of
from lbcore.ownership.invariants import violations
from lbcore.ownership.records import Cause, OwnershipRecord, State
from lbcore.ownership.repair import Presence, Watch, repair
from lbcore.wire.messages import Ack, Acks

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

Event = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What may happen at all. start: the bundles there are, each Owned by the first broker.

    crashes, deaths (a live broker taken for dead), failures (of callbacks): how many at most.
    version_max: requests stop there.
    """

    start: tuple[str, ...] = (WHOLE,)
    requests: frozenset[str] = frozenset({"assign", "transfer", "unload"})
    has_timeouts: bool = False
    crashes: int = 0
    deaths: int = 0
    failures: int = 0
    version_max: int = 9


SCENARIOS = {
    "moves": Scenario(failures=1),
    "timeouts": Scenario(has_timeouts=True),
    "crashes": Scenario(crashes=2),
    "deaths": Scenario(deaths=2),
    "splits": Scenario(requests=frozenset({"split", "transfer"}), failures=1, has_timeouts=True),
    "split-crashes": Scenario(requests=frozenset({"split", "transfer"}), crashes=1, deaths=1),
    "two-bundles": Scenario(start=(LEFT, RIGHT), requests=frozenset({"transfer"}), crashes=1),
    "everything": Scenario(
        requests=frozenset({"assign", "transfer", "unload", "split"}),
        has_timeouts=True,
        crashes=1,
        deaths=1,
        failures=1,
    ),
    "storm": Scenario(
        requests=frozenset({"assign", "transfer", "unload", "split"}),
        has_timeouts=True,
        crashes=4,
        deaths=4,
        failures=4,
        version_max=60,
    ),
}


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
            if _overlap(one.bundle, other.bundle):
                raise BrokenWorldError(f"{one} and {other} run at once")
        return replace(self, calls=outstanding)

    def did(self, call: Call, failure: str) -> "Process":
        """The process after a callback has run, by the callbacks' contract."""
        left = tuple(other for other in self.calls if other != call)
        rest = {b: t for b, t in self.open.items() if not _overlap(b, call.bundle)}
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
        budget = (self.crashes, self.deaths, self.failures, self.is_unsafe)
        known = (tuple(sorted(self.known.items())), self.dead, tuple(sorted(self.granted.items())))
        shape = tuple(
            (r.bundle, r.version_id, r.state, source_of(r), destination_of(r))
            for _, r in sorted(self.records.items())
        )
        return records, shape, self.acks, agents, known, budget


def start(scenario: Scenario) -> World:
    """The scenario's bundles Owned by the first broker, everything read and opened."""
    processes = {name: _process(name, 1) for name in BROKERS}
    world = World(
        records={},
        written=(),
        acks=frozenset(),
        processes=processes,
        known={name: process.incarnation for name, process in processes.items()},
    )
    for bundle in scenario.start:
        world = _write(world, protocol.create(CLUSTER, bundle, ORIGIN))
    for bundle in scenario.start:
        owner = Instance(broker=BROKERS[0], incarnation=world.known[BROKERS[0]])
        world = _write(world, protocol.assign(world.records[bundle], owner, ORIGIN))
    return replace(settle(world), acks=frozenset(), path=())


def events(world: World, scenario: Scenario) -> list[Event]:
    """What can happen next, in a fixed order; what would change nothing is left out."""
    found: list[Event] = []
    for bundle, record in sorted(world.records.items()):
        found += _requests(world, record, scenario)
        found += [("ack", sender, ack) for sender, ack in _pending(world, bundle)]
        found += _repairs(world, record, has_timeouts=scenario.has_timeouts)
    for name, process in sorted(world.processes.items()):
        found += [("read", name, record) for record in _readable(world, name)]
        for call in process.calls:
            found.append(("done", name, call, ""))
            if world.failures < scenario.failures:
                found.append(("done", name, call, "it failed"))
        if world.crashes < scenario.crashes:
            found.append(("crash", name))
        if world.known[name] != process.incarnation:
            found.append(("learn", name))
        if name in world.dead:
            found.append(("return", name))
        elif world.deaths < scenario.deaths and not world.dead:
            found.append(("die", name))
    return found


def apply(world: World, event: Event) -> World:
    """The world after an event; raises BrokenWorldError when something does not hold any more."""
    after = _EFFECTS[event[0]](world, *event[1:])
    check(after)
    return after


def check(world: World) -> None:
    """Raises BrokenWorldError unless every invariant of the records and of the tokens holds."""
    found = violations(world.records)
    if found:
        raise BrokenWorldError(f"{found[0].sentence} (path {world.path})")
    served = list(_served(world))
    for one, other in combinations(served, 2):
        if one[0] == other[0] or not _overlap(one[1], other[1]):
            continue
        if one[2] == other[2]:
            raise BrokenWorldError(f"{one} and {other} have one token (path {world.path})")
        if not world.is_unsafe:
            raise BrokenWorldError(f"{one} and {other} serve a hash both (path {world.path})")
    for name, process in world.processes.items():
        believed = _agent(name, process.incarnation).served(process.state)
        if dict(process.open) != believed:
            message = f"{name} believes to serve {believed}, serves {process.open}"
            raise BrokenWorldError(f"{message} (path {world.path})")
    for broker, bundle, token in served:
        highest = max(t for name, t in world.granted.items() if _overlap(name, bundle))
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


def settle(world: World) -> World:
    """The world after a fair end: everything is delivered, nothing fails, time goes on.

    Raises BrokenWorldError unless each live bundle is then Owned, and open at its owner and nowhere
    else.
    """
    world = replace(world, dead=frozenset())
    for _ in range(ROUNDS_MAX):
        after = _round(world)
        if after.key() == world.key():
            after = _long_wait(after)
        if after.key() == world.key():
            break
        world = after
    expected = {
        (record.destination, name)
        for name, record in world.records.items()
        if record.state is not State.DELETED
    }
    found = {(broker, bundle) for broker, bundle, _ in _served(world)}
    if found != expected or any(r.state not in _AT_REST for r in world.records.values()):
        states = {name: record.state.value for name, record in world.records.items()}
        message = f"stuck: served {sorted(found)}, records {states} (path {world.path})"
        raise BrokenWorldError(message)
    return world


_AT_REST = (State.OWNED, State.DELETED)


def _round(world: World) -> World:
    for name in BROKERS:
        world = _learn(world, name)
        for bundle in sorted(world.records):
            world = _read(world, name, world.records[bundle])
        for call in world.processes[name].calls:
            world = _done(world, name, call, "")
    for bundle in sorted(world.records):
        for sender, ack in _pending(world, bundle):
            world = _acknowledge(world, sender, ack)
        for event in _repairs(world, world.records[bundle], has_timeouts=False)[:1]:
            world = _EFFECTS[event[0]](world, *event[1:])
    check(world)
    return world


def _long_wait(world: World) -> World:
    for name in BROKERS:
        world = _tick(world, name)
    for bundle, record in sorted(world.records.items()):
        if record.state is State.FREE:
            world = _request(world, "assign", bundle, BROKERS[0])
        for event in _repairs(world, record, has_timeouts=True)[:1]:
            world = _EFFECTS[event[0]](world, *event[1:])
    check(world)
    return world


def _readable(world: World, name: str) -> Iterator[OwnershipRecord]:
    """The records that would change what a broker does.

    One of no concern to it only adds to what it ignores later, so leaving it out loses nothing.
    """
    process = world.processes[name]
    me = Instance(broker=name, incarnation=process.incarnation)
    for record in world.written:
        is_newer = record.version_id > process.state.versions.get(record.bundle, 0)
        concerns = record.bundle in process.state.holdings or goal_of(record, me) is not Goal.DROP
        if is_newer and concerns:
            yield record


def _requests(world: World, record: OwnershipRecord, scenario: Scenario) -> Iterator[Event]:
    if record.version_id >= scenario.version_max:
        return
    bundle = record.bundle
    for broker in BROKERS:
        if record.state is State.FREE and broker not in world.dead:
            yield ("request", "assign", bundle, broker)
        is_move = record.state is State.OWNED and broker not in {record.destination, *world.dead}
        if is_move and "transfer" in scenario.requests:
            yield ("request", "transfer", bundle, broker)
    if record.state is State.OWNED and "unload" in scenario.requests:
        yield ("request", "unload", bundle, "")
    if record.state is State.OWNED and bundle == WHOLE and "split" in scenario.requests:
        yield ("request", "split", bundle, "")


def _repairs(world: World, record: OwnershipRecord, *, has_timeouts: bool) -> list[Event]:
    intents = [repair(record, _watch(world, record, 0), CONFIG)]
    if has_timeouts:
        intents.append(repair(record, _watch(world, record, FOR_EVER_MS), CONFIG))
    found: list[Event] = []
    for intent in intents:
        if intent is not None:
            found += _carry_out_events(world, record, intent)
    return list(dict.fromkeys(found))


def _carry_out_events(world: World, record: OwnershipRecord, intent: Intent) -> list[Event]:
    if intent.action is Action.CANCEL:
        return [("repair", record.bundle, intent, "")]
    others = [name for name in BROKERS if name not in world.dead]
    if intent.action is Action.REDIRECT:
        others = [name for name in others if name != record.source]
    return [("repair", record.bundle, intent, name) for name in others]


def _watch(world: World, record: OwnershipRecord, waited_ms: int) -> Watch:
    return Watch(
        source=_presence(world, source_of(record)),
        destination=_presence(world, destination_of(record)),
        waiting_ms=waited_ms,
        silent_ms=waited_ms,
    )


def _presence(world: World, instance: Instance) -> Presence:
    if not instance.broker:
        return Presence.ALIVE
    if instance.broker in world.dead:
        return Presence.DEAD
    is_known = world.known[instance.broker] == instance.incarnation
    return Presence.ALIVE if is_known else Presence.RESTARTED


def _request(world: World, kind: str, bundle: str, broker: str) -> World:
    record = world.records[bundle]
    destination = Instance(broker=broker, incarnation=world.known.get(broker, ""))
    if kind == "assign":
        return _write(world, protocol.assign(record, destination, ORIGIN))
    if kind == "transfer":
        return _write(world, protocol.transfer(record, destination, ORIGIN))
    if kind == "unload":
        return _write(world, protocol.unload(record, ORIGIN))
    return _write(world, protocol.split(record, {LEFT: "", RIGHT: ""}, ORIGIN))


def _read(world: World, name: str, record: OwnershipRecord) -> World:
    return _step(world, name, RecordRead(record=record))


def _done(world: World, name: str, call: Call, failure: str) -> World:
    processes = {**world.processes, name: world.processes[name].did(call, failure)}
    failures = world.failures + bool(failure)
    done = CallDone(
        callback=call.callback,
        bundle=call.bundle,
        version_id=call.version_id,
        failure=failure,
    )
    return _step(replace(world, processes=processes, failures=failures), name, done)


def _acknowledge(world: World, sender: Instance, ack: Ack) -> World:
    answer = _answer(world, sender, ack)
    if isinstance(answer, Transition):
        return _write(world, answer)
    assert isinstance(answer, Intent)
    others = [name for name in BROKERS if name != sender.broker and name not in world.dead]
    return _carry_out(world, ack.bundle, answer, [*others, sender.broker][0])


def _carry_out(world: World, bundle: str, intent: Intent, name: str) -> World:
    record = world.records[bundle]
    destination = Instance(broker=name, incarnation=world.known.get(name, ""))
    if intent.action is Action.REASSIGN:
        holder = holder_of(record)
        process = world.processes[holder.broker]
        is_alive = process.incarnation == holder.incarnation
        is_source = record.state in (State.RELEASING, State.SPLITTING)
        if is_alive and is_source and holder.broker not in world.dead:
            raise BrokenWorldError(f"{bundle} is taken from a live source (path {world.path})")
        if is_alive and intent.reason is not IntentReason.CANNOT_SERVE:
            world = replace(world, is_unsafe=True)
    return _write(world, protocol.carry_out(record, intent, destination, ORIGIN))


def _crash(world: World, name: str) -> World:
    number = int(world.processes[name].incarnation[1:]) + 1
    processes = {**world.processes, name: _process(name, number)}
    return replace(world, processes=processes, crashes=world.crashes + 1)


def _learn(world: World, name: str) -> World:
    known = {**world.known, name: world.processes[name].incarnation}
    return replace(world, known=known)


def _die(world: World, name: str) -> World:
    return replace(world, dead=world.dead | {name}, deaths=world.deaths + 1)


def _return(world: World, name: str) -> World:
    return replace(world, dead=world.dead - {name})


_EFFECTS = {
    "request": _request,
    "read": _read,
    "done": _done,
    "ack": _acknowledge,
    "repair": _carry_out,
    "crash": _crash,
    "learn": _learn,
    "die": _die,
    "return": _return,
}


def _pending(world: World, bundle: str) -> list[tuple[Instance, Ack]]:
    """The acks that would change the bundle's record now."""
    mine = [(sender, ack) for sender, ack in world.acks if ack.bundle == bundle]
    mine.sort(
        key=lambda said: (said[0].broker, said[0].incarnation, said[1].version_id, said[1].outcome)
    )
    return [(sender, ack) for sender, ack in mine if _changes(_answer(world, sender, ack))]


def _changes(answer: Answer) -> bool:
    is_wait = isinstance(answer, Intent) and answer.action is Action.WAIT
    return isinstance(answer, Transition | Intent) and not is_wait


def _answer(world: World, sender: Instance, ack: Ack) -> Answer:
    surroundings = Surroundings(incarnations=world.known)
    return acknowledge(world.records.get(ack.bundle), ack, sender, ORIGIN, surroundings)


def _write(world: World, answer: Answer) -> World:
    assert isinstance(answer, Transition), answer
    for change in answer.changes:
        expected = 1 if change.before is None else change.before.version_id + 1
        is_first = change.before is None and change.after.version_id >= expected
        if change.after.version_id != expected and not is_first:
            raise BrokenWorldError(f"gap before {change.after} (path {world.path})")
    made = {change.after.bundle: change.after for change in answer.changes}
    return replace(
        world,
        records={**world.records, **made},
        written=(*world.written, *made.values()),
    )


def _tick(world: World, name: str) -> World:
    """A long time passes for an agent; its state is then dated back, for worlds stay comparable."""
    before = world.processes[name].state
    world = _step(world, name, now_ms=FOR_EVER_MS)
    process = world.processes[name]
    holdings = {
        bundle: replace(holding, since_ms=NOW_MS, said=min(holding.said, 1))
        for bundle, holding in process.state.holdings.items()
    }
    state = replace(process.state, holdings=holdings, reporting=before.reporting)
    return replace(world, processes={**world.processes, name: replace(process, state=state)})


def _step(world: World, name: str, *events_of_agent: Any, now_ms: int = NOW_MS) -> World:
    process = world.processes[name]
    me = Instance(broker=name, incarnation=process.incarnation)
    step = _agent(name, process.incarnation).step(process.state, events_of_agent, now_ms)
    assert step.state is not None
    said = {
        (me, replace(ack, reason=""))
        for effect in step.effects
        if isinstance(effect, Send) and isinstance(effect.message, Acks)
        for ack in effect.message.acks
    }
    calls = [effect for effect in step.effects if isinstance(effect, Call)]
    opened = {c.bundle: c.version_id for c in calls if c.callback is Callback.OPEN}
    highest = {bundle: max(token, world.granted.get(bundle, 0)) for bundle, token in opened.items()}
    return replace(
        world,
        processes={**world.processes, name: replace(process, state=step.state).called(calls)},
        acks=world.acks | said,
        granted={**world.granted, **highest},
    )


@lru_cache
def _agent(name: str, incarnation: str) -> Agent:
    identity = Identity(cluster=CLUSTER, broker=name, incarnation=incarnation)
    return Agent(identity, AgentConfig(), SignalsConfig())


def _process(name: str, number: int) -> Process:
    incarnation = f"{name}{number}"
    state = _agent(name, incarnation).step(None, [], NOW_MS).state
    assert state is not None
    return Process(incarnation=incarnation, state=state)


def _served(world: World) -> Iterator[tuple[str, str, int]]:
    """(broker, bundle, token) of what is open, or may be because opening has begun."""
    for name, process in sorted(world.processes.items()):
        opening = {c.bundle: c.version_id for c in process.calls if c.callback is Callback.OPEN}
        kept = {b: t for b, t in process.open.items() if not any(_overlap(b, o) for o in opening)}
        yield from ((name, bundle, token) for bundle, token in sorted({**kept, **opening}.items()))


@lru_cache
def _overlap(one: str, other: str) -> bool:
    return Bundle.parse(one).range.overlaps(Bundle.parse(other).range)


def replay(scenario: Scenario, path: Sequence[int]) -> Iterator[tuple[Event, World]]:
    """Each event of a path with the world after it."""
    world = start(scenario)
    for number in path:
        found = events(world, scenario)
        event = found[number % len(found)]
        world = replace(apply(replace(world, path=(*world.path, number)), event))
        yield event, world


if __name__ == "__main__":
    for happened, after in replay(SCENARIOS[sys.argv[1]], [int(n) for n in sys.argv[2].split(",")]):
        records = [
            f"{r.bundle[4:]} {r.state.value} v{r.version_id}" for r in after.records.values()
        ]
        sys.stdout.write(f"{happened}\n    {records} served {list(_served(after))}\n")

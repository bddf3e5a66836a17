"""A small world: the balancer's protocol and real agents, with every message at anybody's mercy.

Messages live in sets: an ack that was sent, and a record that was written, may be delivered now,
later, again, or never, and in any order (a record older than one already read is ignored by the
agent, which is what a compacted topic makes of it). So lost, late, duplicated and reordered need no
events of their own. Time is an event, too: "timeout" is what happens when it was long enough.

`events` lists what can happen next, `apply` makes it happen and checks what must hold, `settle`
plays the rest fairly and checks that nothing stays stuck. A path of event numbers replays a run:
`python -m tests.support.worlds.small_world SCENARIO 3,0,5` prints it step by step.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import are_partners
from lbcore.ownership.changes import (
    Action,
    Answer,
    Instance,
    Intent,
    Transition,
    destination_of,
    source_of,
)
from lbcore.ownership.holding import Goal, goal_of
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.repair import FlightWatch, repair
from lbcore.wire.messages import Ack
from tests.support.worlds.small_effects import (
    EFFECTS,
    answer_to,
    done,
    drive,
    learn,
    partner,
    presence,
    read,
    request,
    take_ack,
)
from tests.support.worlds.small_scenarios import SCENARIOS, Scenario
from tests.support.worlds.small_world_state import (
    BROKERS,
    CLUSTER,
    CONFIG,
    FOR_EVER_MS,
    LEFT,
    ORIGIN,
    RIGHT,
    ROUNDS_MAX,
    WHOLE,
    BrokenWorldError,
    World,
    check,
    process_of,
    served,
    tick,
    write,
)

Event = tuple[Any, ...]


def start(scenario: Scenario) -> World:
    """The scenario's bundles Owned by the first broker, everything read and opened."""
    processes = {name: process_of(name, 1) for name in BROKERS}
    world = World(
        records={},
        written=(),
        acks=frozenset(),
        processes=processes,
        known={name: process.incarnation for name, process in processes.items()},
    )
    for bundle in scenario.start:
        world = write(world, protocol.create(CLUSTER, bundle, ORIGIN))
    for bundle in scenario.start:
        owner = Instance(broker=BROKERS[0], incarnation=world.known[BROKERS[0]])
        world = write(world, protocol.assign(world.records[bundle], owner, ORIGIN))
    return replace(settle(world), acks=frozenset(), path=())


def events(world: World, scenario: Scenario) -> list[Event]:
    """What can happen next, in a fixed order; what would change nothing is left out."""
    found: list[Event] = []
    for bundle, record in sorted(world.records.items()):
        if not world.is_deleting:
            found += _requests(world, record, scenario)
        found += [("ack", sender, ack) for sender, ack in _pending(world, bundle)]
        found += _repairs(world, record, has_timeouts=scenario.has_timeouts)
    found += _namespace_events(world, scenario)
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
    after = EFFECTS[event[0]](world, *event[1:])
    check(after)
    return after


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
    found = {(broker, bundle) for broker, bundle, _ in served(world)}
    if found != expected or any(r.state not in _AT_REST for r in world.records.values()):
        states = {name: record.state.value for name, record in world.records.items()}
        message = f"stuck: served {sorted(found)}, records {states} (path {world.path})"
        raise BrokenWorldError(message)
    return world


_AT_REST = (State.OWNED, State.DELETED)


def _round(world: World) -> World:
    for name in BROKERS:
        world = learn(world, name)
        for bundle in sorted(world.records):
            world = read(world, name, world.records[bundle])
        for call in world.processes[name].calls:
            world = done(world, name, call, "")
    for bundle in sorted(world.records):
        for sender, ack in _pending(world, bundle):
            world = take_ack(world, sender, ack)
        for event in _repairs(world, world.records[bundle], has_timeouts=False)[:1]:
            world = EFFECTS[event[0]](world, *event[1:])
    if world.is_deleting:
        world = drive(world)
    check(world)
    return world


def _long_wait(world: World) -> World:
    for name in BROKERS:
        world = tick(world, name)
    for bundle, record in sorted(world.records.items()):
        if record.state is State.FREE and not world.is_deleting:
            world = request(world, "assign", bundle, BROKERS[0])
        for event in _repairs(world, record, has_timeouts=True)[:1]:
            world = EFFECTS[event[0]](world, *event[1:])
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
        can_override = record.state is not State.DELETED and broker not in world.dead
        if can_override and "override" in scenario.requests:
            yield ("request", "override", bundle, broker)
    if record.state is State.OWNED and "unload" in scenario.requests:
        yield ("request", "unload", bundle, "")
    if record.state is State.OWNED and bundle == WHOLE and "split" in scenario.requests:
        yield ("request", "split", bundle, "")
    other = world.records.get(RIGHT)
    is_pair = bundle == LEFT and other is not None and record.state is other.state is State.OWNED
    if is_pair and destination_of(record) == destination_of(other) and "merge" in scenario.requests:
        yield ("request", "merge", bundle, "")


def _namespace_events(world: World, scenario: Scenario) -> Iterator[Event]:
    """Delete the namespace, go on with that, or make it again."""
    is_gone = all(record.state is State.DELETED for record in world.records.values())
    if world.is_deleting and drive(world).key() != world.key():
        yield ("drive",)
    if is_gone and not world.is_deleting:
        yield from (("recreate", (WHOLE,)), ("recreate", (LEFT, RIGHT)))
    may_delete = "delete" in scenario.requests and world.lives < scenario.lives
    if may_delete and not is_gone and not world.is_deleting:
        yield ("delete",)


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


def _watch(world: World, record: OwnershipRecord, waited_ms: int) -> FlightWatch:
    other = partner(world, record)
    return FlightWatch(
        is_partner_gone=record.state is State.MERGING
        and (other is None or not are_partners(record, other)),
        source=presence(world, source_of(record)),
        destination=presence(world, destination_of(record)),
        waiting_ms=waited_ms,
        silent_ms=waited_ms,
    )


def _pending(world: World, bundle: str) -> list[tuple[Instance, Ack]]:
    """The acks that would change the bundle's record now."""
    mine = [(sender, ack) for sender, ack in world.acks if ack.bundle == bundle]
    mine.sort(
        key=lambda said: (said[0].broker, said[0].incarnation, said[1].version_id, said[1].outcome)
    )
    return [(sender, ack) for sender, ack in mine if _changes(answer_to(world, sender, ack))]


def _changes(answer: Answer) -> bool:
    is_wait = isinstance(answer, Intent) and answer.action is Action.WAIT
    return isinstance(answer, Transition | Intent) and not is_wait


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
        sys.stdout.write(f"{happened}\n    {records} served {list(served(after))}\n")

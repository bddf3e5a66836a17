"""What each event of a small world does to it.

See tests/support/worlds/small_world.py for when it may happen.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from lbcore.agent.state import RecordRead
from lbcore.ownership import protocol
from lbcore.ownership.acknowledge import acknowledge
from lbcore.ownership.changes import (
    Action,
    Answer,
    Instance,
    Intent,
    IntentReason,
    Surroundings,
    Transition,
    holder_of,
    partner_of,
)
from lbcore.ownership.holding import Call, CallDone
from lbcore.ownership.records import OwnershipRecord, State
from lbcore.ownership.repair import Presence
from lbcore.ownership.states import LEAVING
from lbcore.wire.messages import Ack
from tests.support.worlds.small_world_state import (
    BROKERS,
    CLUSTER,
    LEFT,
    ORIGIN,
    RIGHT,
    BrokenWorldError,
    World,
    process_of,
    step,
    write,
)


def presence(world: World, instance: Instance) -> Presence:
    if not instance.broker:
        return Presence.ALIVE
    if instance.broker in world.dead:
        return Presence.DEAD
    is_known = world.known[instance.broker] == instance.incarnation
    return Presence.ALIVE if is_known else Presence.RESTARTED


def answer_to(world: World, sender: Instance, ack: Ack) -> Answer:
    record = world.records.get(ack.bundle)
    children = record.children if record else {}
    surroundings = Surroundings(
        incarnations=world.known,
        kept={name: world.records[name] for name in children if name in world.records},
        partner=partner(world, record) if record else None,
    )
    return acknowledge(record, ack, sender, ORIGIN, surroundings)


def partner(world: World, record: OwnershipRecord) -> OwnershipRecord | None:
    """The bundle that this one is to be merged with."""
    if record.state is not State.MERGING:
        return None
    return world.records.get(partner_of(record.bundle, *record.children))


def request(world: World, kind: str, bundle: str, broker: str) -> World:
    record = world.records[bundle]
    destination = Instance(broker=broker, incarnation=world.known.get(broker, ""))
    if kind == "assign":
        return write(world, protocol.assign(record, destination, ORIGIN))
    if kind == "transfer":
        return write(world, protocol.transfer(record, destination, ORIGIN))
    if kind == "override":
        return _override(world, record, destination)
    if kind == "unload":
        return write(world, protocol.unload(record, ORIGIN))
    if kind == "merge":
        return write(world, protocol.merge(record, world.records[RIGHT], ORIGIN))
    return write(world, protocol.split(record, {LEFT: "", RIGHT: ""}, ORIGIN))


def _override(world: World, record: OwnershipRecord, destination: Instance) -> World:
    """As the balancer: by force, also under a live owner's feet."""
    if record.state is State.FREE:
        return write(world, protocol.assign(record, destination, ORIGIN))
    world = replace(world, is_unsafe=world.is_unsafe or _lives(world, holder_of(record)))
    return write(world, protocol.reassign(record, destination, ORIGIN))


def _delete(world: World) -> World:
    """Somebody asks for the namespace's end; `drive` carries it out."""
    return replace(world, is_deleting=True)


def drive(world: World) -> World:
    """As the balancer in each batch: release what is owned, delete all at once when all is closed.

    What a broker that is taken for dead has open counts as closed; if it lives, tokens keep order.
    """
    for _, record in sorted(world.records.items()):
        if record.state is State.OWNED:
            world = write(world, protocol.unload(record, ORIGIN))
    live = [r for _, r in sorted(world.records.items()) if r.state is not State.DELETED]
    holders = [holder_of(record) for record in live]
    if any(presence(world, holder) is Presence.ALIVE and holder.broker for holder in holders):
        return world
    is_unsafe = world.is_unsafe or any(_lives(world, holder) for holder in holders)
    for record in live:
        world = write(world, protocol.delete(record, ORIGIN))
    return replace(world, is_deleting=False, is_unsafe=is_unsafe)


def _recreate(world: World, bundles: tuple[str, ...]) -> World:
    floor = max(record.version_id for record in world.records.values())
    for bundle in bundles:
        previous = world.records.get(bundle)
        made = protocol.create(CLUSTER, bundle, ORIGIN, previous=previous, version_floor=floor)
        world = write(world, made, is_new_life=True)
    return replace(world, lives=world.lives + 1)


def _lives(world: World, instance: Instance) -> bool:
    process = world.processes.get(instance.broker)
    return process is not None and process.incarnation == instance.incarnation


def read(world: World, name: str, record: OwnershipRecord) -> World:
    return step(world, name, RecordRead(record=record))


def done(world: World, name: str, call: Call, failure: str) -> World:
    processes = {**world.processes, name: world.processes[name].did(call, failure)}
    failures = world.failures + bool(failure)
    done = CallDone(
        callback=call.callback,
        bundle=call.bundle,
        version_id=call.version_id,
        failure=failure,
    )
    return step(replace(world, processes=processes, failures=failures), name, done)


def take_ack(world: World, sender: Instance, ack: Ack) -> World:
    answer = answer_to(world, sender, ack)
    if isinstance(answer, Transition):
        return write(world, answer)
    assert isinstance(answer, Intent)
    others = [name for name in BROKERS if name != sender.broker and name not in world.dead]
    return carry_out(world, ack.bundle, answer, [*others, sender.broker][0])


def carry_out(world: World, bundle: str, intent: Intent, name: str) -> World:
    record = world.records[bundle]
    destination = Instance(broker=name, incarnation=world.known.get(name, ""))
    if intent.action is Action.REASSIGN:
        holder = holder_of(record)
        process = world.processes[holder.broker]
        is_alive = process.incarnation == holder.incarnation
        is_source = record.state in LEAVING
        if is_alive and is_source and holder.broker not in world.dead:
            raise BrokenWorldError(f"{bundle} is taken from a live source (path {world.path})")
        if is_alive and intent.reason is not IntentReason.CANNOT_SERVE:
            world = replace(world, is_unsafe=True)
    return write(world, protocol.carry_out(record, intent, destination, ORIGIN))


def _crash(world: World, name: str) -> World:
    number = int(world.processes[name].incarnation[1:]) + 1
    processes = {**world.processes, name: process_of(name, number)}
    return replace(world, processes=processes, crashes=world.crashes + 1)


def learn(world: World, name: str) -> World:
    known = {**world.known, name: world.processes[name].incarnation}
    return replace(world, known=known)


def _die(world: World, name: str) -> World:
    return replace(world, dead=world.dead | {name}, deaths=world.deaths + 1)


def _return(world: World, name: str) -> World:
    return replace(world, dead=world.dead - {name})


EFFECTS: Mapping[str, Callable[..., World]] = {
    "request": request,
    "read": read,
    "done": done,
    "ack": take_ack,
    "repair": carry_out,
    "crash": _crash,
    "learn": learn,
    "die": _die,
    "return": _return,
    "delete": _delete,
    "drive": drive,
    "recreate": _recreate,
}

"""Random stories of a cluster, by seed: faults one after the other, then peace.

A story is what a chaos run would do to a real cluster. After `heal` everything must come to rest
within `healing_ms`: the time to find out who is dead, the time to find out what is stuck, and a few
batches.
"""

import random
from collections.abc import Callable, Mapping

from lbcore.config.tree import Config
from lbcore.ownership.records import State
from tests.checked_world import CheckedWorld
from tests.world import Faults, World, gapless, is_settled

BATCHES = 8
NAMESPACES = {"t/crc": "crc32", "t/murmur": "murmur3_32"}


def healing_ms(config: Config) -> int:
    """The longest time from the end of all faults to rest."""
    ownership = config.ownership
    waits_ms = ownership.broker_timeout_ms + ownership.in_flight_timeout_ms
    return waits_ms + BATCHES * config.pipeline.trigger_ms


def begun(world: World, bundles: int) -> None:
    """Create the namespaces and wait until everything is served."""
    world.run(2_000)
    for name, function in NAMESPACES.items():
        world.command("create_namespace", namespace=name, bundles=bundles, hash=function)
    world.run(world.config.pipeline.settle_ms * 5 + 5_000)
    assert is_settled(world)


def heal(world: World) -> None:
    """End every fault and all balancing; messages and moves under way still arrive."""
    world.command("set_config", values={"shedding.is_balancing": False, "splitting.enabled": False})
    world.faults = Faults()
    world.is_job_away = world.are_ticks_away = False
    for name, broker in world.brokers.items():
        if broker.agent is None:
            world.start(name)
        world.pause(name, is_paused=False)
        world.cut_off(name, is_cut_off=False)


def tell(seed: int, steps: int, *, restarts_often: bool = False) -> CheckedWorld:
    """A whole story; raises AssertionError with its seed when something is wrong at its end."""
    chooser = random.Random(seed)
    world = CheckedWorld(Config(), chooser.randint(1, 4), seed=seed, restarts_often=restarts_often)
    begun(world, chooser.randint(1, 4))
    for _ in range(steps):
        ACTIONS[chooser.choice(sorted(ACTIONS))](world, chooser)
        world.run(chooser.choice((500, 1_000, 4_000, 9_000, 20_000)))
    heal(world)
    world.run(healing_ms(world.config))
    assert gapless(world), seed
    assert is_settled(world), (seed, unsettled(world))
    return world


def unsettled(world: World) -> list[Mapping[str, object]]:
    """What is not served by its owner alone."""
    served = world.served()
    return [
        {**row, "served": served.get(str(row["bundle"]), {})}
        for row in world.newest()
        if row["state"] != State.OWNED.value
        or list(served.get(str(row["bundle"]), {})) != [row["destination"]]
    ]


def _one(world: World, chooser: random.Random) -> str:
    return chooser.choice(sorted(world.brokers))


def _kill(world: World, chooser: random.Random) -> None:
    world.kill(_one(world, chooser))


def _restart(world: World, chooser: random.Random) -> None:
    world.start(_one(world, chooser))


def _kill_all(world: World, chooser: random.Random) -> None:
    del chooser
    for name in sorted(world.brokers):
        world.kill(name)


def _restart_one_by_one(world: World, chooser: random.Random) -> None:
    for name in sorted(world.brokers):
        world.start(name)
        world.run(chooser.choice((500, 2_000, 20_000)))


def _pause(world: World, chooser: random.Random) -> None:
    world.pause(_one(world, chooser), is_paused=chooser.random() < 0.6)


def _cut_off(world: World, chooser: random.Random) -> None:
    world.cut_off(_one(world, chooser), is_cut_off=chooser.random() < 0.6)


def _ticks(world: World, chooser: random.Random) -> None:
    world.are_ticks_away = chooser.random() < 0.5


def _job_away(world: World, chooser: random.Random) -> None:
    world.is_job_away = True
    world.run(chooser.choice((3_000, 30_000, 600_000)), step_ms=1_000)
    world.is_job_away = False


def _job_restarts(world: World, chooser: random.Random) -> None:
    del chooser
    world.restart_job()


def _job_rebuilds(world: World, chooser: random.Random) -> None:
    del chooser
    world.rebuild_job()


def _messenger(world: World, chooser: random.Random) -> None:
    world.faults = Faults(
        lost=chooser.choice((0.0, 0.1, 0.5)),
        repeated=chooser.choice((0.0, 0.3)),
        delay_ms=chooser.choice((0, 1_000, 20_000)),
        read=chooser.choice((1.0, 0.2)),
        failing=chooser.choice((0.0, 0.3)),
    )


def _unload(world: World, chooser: random.Random) -> None:
    for row in world.newest():
        destination = chooser.choice(("", *sorted(world.brokers)))
        if chooser.random() < 0.5:
            world.command("unload_bundle", bundle=row["bundle"], destination=destination)


def _load(world: World, chooser: random.Random) -> None:
    world.rates = {str(row["bundle"]): chooser.choice((1.0, 4e3)) for row in world.newest()}


ACTIONS: Mapping[str, Callable[[World, random.Random], None]] = {
    "cut_off": _cut_off,
    "job_away": _job_away,
    "job_rebuilds": _job_rebuilds,
    "job_restarts": _job_restarts,
    "kill": _kill,
    "kill_all": _kill_all,
    "load": _load,
    "messenger": _messenger,
    "pause": _pause,
    "restart": _restart,
    "restart_one_by_one": _restart_one_by_one,
    "ticks": _ticks,
    "unload": _unload,
}

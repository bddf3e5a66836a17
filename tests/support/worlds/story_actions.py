"""What can happen to a cluster in a story: faults, clock steps, the job's absences, commands.

Every action is `(world, chooser)`; what it does comes from the chooser alone. Commands of every
kind are drawn, sensible or not: those that aren't possible must be refused and change nothing.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

from lbcore.wire.kinds.bundle_commands import HOT, LARGEST
from tests.support.worlds.simulated_brokers import Faults
from tests.support.worlds.world import World

Action = Callable[[World, random.Random], None]

NAMESPACES = ("t/crc", "t/murmur")
OTHER_NAMESPACES = ("t/other",)
STRATEGIES = (
    {"shedding.strategy": "avg", "placement.strategy": "avg"},
    {
        "shedding.strategy": "threshold",
        "placement.strategy": "least_long_term_message_rate",
    },
    {"shedding.strategy": "transfer", "placement.strategy": "least_resource_usage_with_weight"},
    {"shedding.strategy": "uniform", "placement.strategy": "round_robin"},
)
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {"cluster.approval": "ask"},
    *STRATEGIES,
    {"ownership.assign": "on_demand"},
    {"ownership.assign": "eager"},
    {"shedding.is_balancing": False},
    {"splitting.auto_unload_split_bundles": False},
    {"no.such_setting": 1},
)


def _broker(world: World, chooser: random.Random) -> str:
    return chooser.choice(sorted(world.brokers))


def _bundle(world: World, chooser: random.Random) -> str:
    names = [str(row["bundle"]) for row in world.newest()]
    return chooser.choice([*names, "t/crc/0x00000000_0x00000007"])


def _plan(world: World) -> str:
    """The plan that was proposed last, or one that there is not."""
    known = world.state.rules.proposals if world.state is not None else {}
    return max(known, key=lambda name: (known[name].since_ms, name), default="none")


def _namespace(chooser: random.Random) -> str:
    return chooser.choice((*NAMESPACES, *OTHER_NAMESPACES))


def _maybe_broker(world: World, chooser: random.Random) -> str:
    return chooser.choice(("", "nobody:1", *sorted(world.brokers)))


def _split(world: World, chooser: random.Random) -> dict[str, Any]:
    common = {"unload": chooser.random() < 0.5, "force": chooser.random() < 0.8}
    which = chooser.choice(("", "", LARGEST, HOT))
    if which:
        return {"namespace": _namespace(chooser), "which": which, **common}
    if chooser.random() < 0.3:
        positions = sorted(chooser.randrange(1 << 32) for _ in range(3))
        return {"bundle": _bundle(world, chooser), "positions": positions, **common}
    algorithm = chooser.choice(
        ("", "range_equally_divide", "topic_count_equally_divide", "no_such_algorithm")
    )
    return {"bundle": _bundle(world, chooser), "algorithm": algorithm, **common}


DRAWN: Mapping[str, Callable[[World, random.Random], dict[str, Any]]] = {
    "create_namespace": lambda _, c: {"namespace": _namespace(c), "bundles": c.randint(1, 4)},
    "delete_namespace": lambda _, c: {"namespace": _namespace(c)},
    "unload_bundle": lambda w, c: {"bundle": _bundle(w, c), "destination": _maybe_broker(w, c)},
    "unload_namespace": lambda w, c: {
        "namespace": _namespace(c),
        "destination": _maybe_broker(w, c),
    },
    "assign_bundle": lambda w, c: {"bundle": _bundle(w, c), "destination": _maybe_broker(w, c)},
    "override_bundle": lambda w, c: {"bundle": _bundle(w, c), "destination": _broker(w, c)},
    "split_bundle": _split,
    "merge_bundle": lambda w, c: {"bundle": _bundle(w, c)},
    "drain_broker": lambda w, c: {
        "broker": _broker(w, c),
        "max_in_flight": c.randint(0, 2),
        "deadline_ms": c.choice((0, 5_000)),
    },
    "cancel_drain": lambda w, c: {"broker": _broker(w, c)},
    "forget_broker": lambda w, c: {"broker": _broker(w, c)},
    "pin_bundle": lambda w, c: {
        "bundle": _bundle(w, c),
        "broker": _broker(w, c),
        "ttl_ms": c.choice((0, 10_000)),
    },
    "unpin_bundle": lambda w, c: {"bundle": _bundle(w, c)},
    "pause": lambda _, c: {"namespace": c.choice(("", _namespace(c)))},
    "resume": lambda _, c: {"namespace": c.choice(("", _namespace(c)))},
    "release_brake": lambda _, __: {},
    "propose_plan": lambda w, c: {"moves": {_bundle(w, c): _broker(w, c)}},
    "approve_plan": lambda w, _: {"plan": _plan(w)},
    "reject_plan": lambda w, _: {"plan": _plan(w)},
    "set_config": lambda _, c: {"values": dict(c.choice(SETTINGS))},
    "reset_config": lambda _, __: {"keys": []},
    "set_isolation_policy": lambda w, c: {
        "policy": "policy",
        "namespaces": [_namespace(c)],
        "primary": [_broker(w, c)],
        "secondary": c.choice(([], [".*"])),
    },
    "delete_isolation_policy": lambda _, __: {"policy": "policy"},
    "set_anti_affinity_group": lambda _, c: {"namespace": _namespace(c), "group": "group"},
    "delete_anti_affinity_group": lambda _, c: {"namespace": _namespace(c)},
    "exclude_namespace": lambda _, c: {"namespace": _namespace(c)},
    "include_namespace": lambda _, c: {"namespace": _namespace(c)},
}
"""Arguments by kind of command; kinds of the catalogue touch no ownership and are left out."""


def _commands(world: World, chooser: random.Random) -> None:
    for _ in range(chooser.randint(1, 4)):
        kind = chooser.choice(sorted(DRAWN))
        world.command(kind, **DRAWN[kind](world, chooser))


def _unload(world: World, chooser: random.Random) -> None:
    for row in world.newest():
        destination = chooser.choice(("", *sorted(world.brokers)))
        if chooser.random() < 0.5:
            world.command("unload_bundle", bundle=row["bundle"], destination=destination)


def _recreate(world: World, chooser: random.Random) -> None:
    name = _namespace(chooser)
    world.command("delete_namespace", namespace=name)
    world.run(chooser.choice((500, 4_000, 20_000)))
    world.command("create_namespace", namespace=name, bundles=chooser.randint(1, 3))


def _kill(world: World, chooser: random.Random) -> None:
    world.kill(_broker(world, chooser))


def _restart(world: World, chooser: random.Random) -> None:
    world.start(_broker(world, chooser))


def _kill_all(world: World, chooser: random.Random) -> None:
    del chooser
    for name in sorted(world.brokers):
        world.kill(name)


def _restart_one_by_one(world: World, chooser: random.Random) -> None:
    for name in sorted(world.brokers):
        world.start(name)
        world.run(chooser.choice((500, 2_000, 20_000)))


def _pause(world: World, chooser: random.Random) -> None:
    world.pause(_broker(world, chooser), is_paused=chooser.random() < 0.6)


def _cut_off(world: World, chooser: random.Random) -> None:
    world.cut_off(_broker(world, chooser), is_cut_off=chooser.random() < 0.6)


def _ticks(world: World, chooser: random.Random) -> None:
    world.job.are_ticks_away = chooser.random() < 0.5


def _clocks(world: World, chooser: random.Random) -> None:
    step_ms = chooser.choice((-600_000, -5_000, 5_000, 600_000))
    if chooser.random() < 0.5:
        world.driver_ahead_ms += step_ms
    else:
        world.log_ahead_ms += step_ms


def _job_away(world: World, chooser: random.Random) -> None:
    world.job.is_away = True
    world.run(chooser.choice((3_000, 30_000, 600_000)), step_ms=1_000)
    world.job.is_away = False


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


def _load(world: World, chooser: random.Random) -> None:
    world.rates = {str(row["bundle"]): chooser.choice((1.0, 4e3, 4e4)) for row in world.newest()}


ACTIONS: Mapping[str, Action] = {
    "clocks": _clocks,
    "commands": _commands,
    "cut_off": _cut_off,
    "job_away": _job_away,
    "job_rebuilds": _job_rebuilds,
    "job_restarts": _job_restarts,
    "kill": _kill,
    "kill_all": _kill_all,
    "load": _load,
    "messenger": _messenger,
    "more_commands": _commands,
    "pause": _pause,
    "recreate": _recreate,
    "restart": _restart,
    "restart_one_by_one": _restart_one_by_one,
    "ticks": _ticks,
    "unload": _unload,
}

"""Commands of every kind there is, their arguments drawn by what is declared of them.

A kind that is added is drawn by itself: an argument is drawn by its name where the name says what
it is, and by its type otherwise.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields
from typing import Any

from lbcore.config.tree import SETTINGS
from lbcore.wire.commands import KINDS
from tests.fuzz import hostile
from tests.support.worlds.world import World

Draw = Callable[[World, random.Random], Any]

HOSTILE = 0.1
LEFT_OUT = 0.5
RARE = {"boundaries": 0.95}
FITTING = 0.7
OFTEN = (*["create_namespace"] * 6, *["delete_namespace"] * 3, "split_bundle", "unload_bundle")
"""Kinds that are drawn more often than the others: what they make and end, all others need."""


def draw(world: World, chooser: random.Random) -> tuple[str, dict[str, Any]]:
    """A kind and arguments: mostly possible ones, some that aren't, some that are no arguments."""
    kind = chooser.choice((*sorted(KINDS), *OFTEN))
    arguments = {}
    for declared in fields(KINDS[kind]):
        left_out = RARE.get(declared.name, LEFT_OUT)
        if declared.default is not MISSING and chooser.random() < left_out:
            continue
        arguments[declared.name] = _argument(world, chooser, kind, declared)
    if chooser.random() < HOSTILE / 5:
        arguments[chooser.choice(hostile.STRANGE)] = chooser.choice(hostile.VALUES)
    return kind, arguments


def _argument(world: World, chooser: random.Random, kind: str, declared: "Field[Any]") -> Any:
    fitting = _fitting(world, kind, declared.name)
    if fitting and chooser.random() < FITTING:
        return chooser.choice(fitting)
    if chooser.random() < HOSTILE:
        return chooser.choice(hostile.VALUES)
    drawer = _BY_NAME.get(declared.name) or _by_type(declared)
    return drawer(world, chooser)


def _fitting(world: World, kind: str, name: str) -> list[str]:
    """What there is for a command that takes something back or changes it."""
    if world.state is None:
        return []
    rules, records = world.state.rules, world.state.catalog.by_type
    found: Mapping[tuple[str, str], Iterable[str]] = {
        ("cancel_drain", "broker"): rules.drains,
        ("resume", "namespace"): rules.paused,
        ("unpin_bundle", "bundle"): rules.pins,
        ("delete_isolation_policy", "policy"): rules.isolation,
        ("delete_anti_affinity_group", "namespace"): rules.anti_affinity,
        ("include_namespace", "namespace"): rules.excluded,
        ("delete_record", "name"): [*records["tenant"], *records["topic"]],
        ("update_record", "name"): [*records["tenant"], *records["topic"]],
        ("forget_broker", "broker"): world.state.liveness.dead,
    }
    return sorted(found.get((kind, name), ()))


def _by_type(declared: "Field[Any]") -> Draw:
    kind = str(declared.type)
    if "bool" in kind:
        return lambda _, chooser: chooser.random() < 0.5
    if "int" in kind and "tuple" not in kind:
        return lambda _, chooser: chooser.choice((0, 1, 2, 5, 60_000))
    if "float" in kind:
        return lambda _, chooser: chooser.choice((0.0, 1.0, 50.0, 100.0))
    if "tuple" in kind:
        return lambda _, chooser: chooser.sample(hostile.STRANGE, chooser.randint(0, 2))
    return lambda _, chooser: chooser.choice(("", "x", *hostile.STRANGE))


def _namespace(world: World, chooser: random.Random) -> str:
    known = sorted(world.state.namespaces) if world.state else []
    return chooser.choice([*known, *known, *hostile.NAMESPACES, *hostile.NESTED * 4])


def _bundle(world: World, chooser: random.Random) -> str:
    known = list(world.current)
    if known and chooser.random() < 0.9:
        return chooser.choice(sorted(known))
    return f"{_namespace(world, chooser)}/0x00000000_0x{chooser.choice(('ffffffff', '00000007'))}"


def _broker(world: World, chooser: random.Random) -> str:
    alive = [name for name, broker in sorted(world.brokers.items()) if broker.agent is not None]
    return chooser.choice((*alive, *alive, *alive, *sorted(world.brokers), "nobody:1"))


def _topic(world: World, chooser: random.Random) -> str:
    local = chooser.choice(("t", "t-partition-1", "a/b", "%2f", "ä", "x" * 200))
    return f"persistent://{_namespace(world, chooser)}/{local}"


def _settings(_: World, chooser: random.Random) -> Mapping[str, Any]:
    """Changes of settings: values of all kinds, also such as don't suit each other."""
    names = chooser.sample(_DYNAMIC, chooser.randint(1, 2))
    return {name: _value(chooser, name) for name in names}


def _value(chooser: random.Random, name: str) -> Any:
    entry = SETTINGS[name]
    if chooser.random() < HOSTILE:
        return chooser.choice(hostile.VALUES)
    if entry.setting.choices:
        return chooser.choice(entry.setting.choices)
    if isinstance(entry.default, bool):
        return chooser.random() < 0.5
    limits = [one for one in (entry.setting.minimum, entry.setting.maximum) if one is not None]
    return chooser.choice([entry.default, *limits])


_DYNAMIC = sorted(key for key, entry in SETTINGS.items() if entry.setting.dynamic)
_BY_NAME: Mapping[str, Draw] = {
    "namespace": _namespace,
    "namespaces": lambda w, c: [_namespace(w, c) for _ in range(c.randint(0, 2))],
    "bundle": _bundle,
    "bundles": lambda _, c: c.choice((0, 1, 2, 4)),
    "boundaries": lambda _, c: c.choice(
        (["0x00000000", "0x40000000", "0xffffffff"], ["0x00000000"], [])
    ),
    "hash": lambda _, c: c.choice(("crc32", "murmur3_32")),
    "broker": _broker,
    "destination": _broker,
    "primary": lambda w, c: [c.choice((_broker(w, c), ".*", "(a+)+$", "["))],
    "secondary": lambda w, c: [c.choice((_broker(w, c), ".*", "[^"))],
    "policy": lambda _, c: c.choice(("p", "q", *hostile.STRANGE[1:4])),
    "group": lambda _, c: c.choice(("g", "h")),
    "tenant": lambda _, c: c.choice(hostile.TENANTS),
    "topic": _topic,
    "partitions": lambda _, c: c.choice((0, 1, 3, 50)),
    "positions": lambda _, c: sorted(c.randrange(1 << 32) for _ in range(c.randint(0, 3))),
    "parts": lambda _, c: c.choice((0, 2, 3)),
    "which": lambda _, c: c.choice(("LARGEST", "HOT")),
    "algorithm": lambda _, c: c.choice(("", "range_equally_divide", "no_such")),
    "values": _settings,
    "keys": lambda _, c: c.choice(([], [c.choice(_DYNAMIC)])),
    "ttl_ms": lambda _, c: c.choice((0, 10_000)),
    "deadline_ms": lambda _, c: c.choice((0, 5_000)),
    "max_in_flight": lambda _, c: c.randint(0, 2),
}

"""Random stories of a cluster, by seed: one thing happens after the other, then there is peace.

A story is what a chaos run would do to a real cluster. After `heal` everything must come to rest
within `healing_ms`: the time to find out who is dead, the time to find out what is stuck, and a few
batches. `python -m tests.support.worlds.stories SEED STEPS` tells a story again, with what happens
and when.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

from lbcore.config.tree import Config
from lbcore.model.bundles import Bundle
from lbcore.model.names import FULL_LOWER, FULL_UPPER
from lbcore.ownership.records import State
from tests.support.worlds.checked_world import RebuiltWorld, check_tables
from tests.support.worlds.simulated_brokers import Faults
from tests.support.worlds.story_actions import ACTIONS, NAMESPACES, OTHER_NAMESPACES
from tests.support.worlds.world import World, gapless

BATCHES = 8
AGAIN_ONE_IN = 7
REST_MS = 15_000
HASHES = ("crc32", "murmur3_32")


def healing_ms(config: Config) -> int:
    """The longest time from the end of all faults to rest."""
    ownership = config.ownership
    waits_ms = ownership.broker_timeout_ms + ownership.in_flight_timeout_ms
    return waits_ms + BATCHES * config.pipeline.trigger_ms


def begun(world: World, bundles: int) -> None:
    """Create the namespaces and wait until everything is served."""
    world.run(2_000)
    for name, function in zip(NAMESPACES, HASHES, strict=True):
        world.command("create_namespace", namespace=name, bundles=bundles, hash=function)
    world.run(world.config.pipeline.settle_ms * 5 + 5_000)
    assert not unsettled(world), unsettled(world)


def heal(world: World) -> None:
    """End every fault, every wish of operators and all balancing; what is under way goes on.

    The clocks agree again, on the later time: commands must not be too old when they are read.
    """
    world.driver_ahead_ms = world.log_ahead_ms = max(world.driver_ahead_ms, world.log_ahead_ms)
    world.faults = Faults()
    world.job.is_away = world.job.are_ticks_away = False
    for name, broker in world.brokers.items():
        if broker.agent is None:
            world.start(name)
        world.pause(name, is_paused=False)
        world.cut_off(name, is_cut_off=False)
        world.command("cancel_drain", broker=name)
    for namespace in ("", *NAMESPACES, *OTHER_NAMESPACES):
        world.command("resume", namespace=namespace)
    world.command("release_brake")
    world.command("delete_isolation_policy", policy="policy")
    world.command("reset_config", keys=[])
    world.command("set_config", values={"shedding.is_balancing": False, "splitting.enabled": False})


def tell(seed: int, steps: int, *, restarts_often: bool = False, aloud: bool = False) -> World:
    """A whole story; prints its seed when something is wrong in it, and raises what is wrong.

    restarts_often: the job comes back from its packed state after every batch. aloud: print what
    happens.
    """
    with _named(seed, steps):
        chooser = random.Random(seed)
        world = RebuiltWorld(
            Config(),
            chooser.randint(1, 4),
            seed=seed,
            restarts_often=restarts_often,
            again_one_in=AGAIN_ONE_IN,
        )
        world.topics = {
            f"persistent://{name}/topic-{number}": 1.0 + number
            for name in NAMESPACES
            for number in range(chooser.choice((0, 8)))
        }
        begun(world, chooser.randint(1, 4))
        for _ in range(steps):
            name = chooser.choice(sorted(ACTIONS))
            if aloud:
                sys.stdout.write(f"{world.now_ms} {name}\n")
            ACTIONS[name](world, chooser)
            world.run(chooser.choice((500, 1_000, 4_000, 9_000, 20_000)))
        heal(world)
        was_load_lost = is_load_lost(world)
        world.run(healing_ms(world.config))
        if was_load_lost or is_load_lost(world):
            world.run(world.config.signals.report_max_interval_ms)
        assert gapless(world)
        assert not unsettled(world), unsettled(world)
        rebuilt_at_rest(world)
        return world


def rebuilt_at_rest(world: World) -> None:
    """The job comes back from its tables, as it was, and leaves alone what is at rest."""
    check_tables(world)
    count = len(world.events)
    world.rebuild_job()
    world.run(REST_MS)
    assert world.events[count:] == []
    assert not unsettled(world), unsettled(world)


def is_load_lost(world: World) -> bool:
    """Whether a broker's load is unknown: lost on its way or with the job's state.

    Until then it is given no bundle that nobody has had, and none of its own is moved to its pin.
    """
    known = {} if world.state is None else world.state.brokers
    return any(not entry.reported_ms for entry in known.values())


@contextmanager
def _named(seed: int, steps: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        command = f"python -m tests.support.worlds.stories {seed} {steps}"
        sys.stderr.write(f"story {seed} of {steps} steps went wrong; to tell it again: {command}\n")
        raise


def unsettled(world: World) -> list[Mapping[str, object]]:
    """What is not as it must be at rest.

    A live bundle that isn't open at its owner alone, something open that isn't live, and namespaces
    whose live bundles don't cover the hash space.
    """
    served = world.served()
    live = {str(r["bundle"]): r for r in world.newest() if r["state"] != State.DELETED.value}
    found: list[Mapping[str, object]] = [
        {**row, "served": served.get(name, {})}
        for name, row in live.items()
        if row["state"] != State.OWNED.value or list(served.get(name, {})) != [row["destination"]]
    ]
    found += [{"bundle": name, "open": served[name]} for name in served if name not in live]
    ranges: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for name in sorted(live):
        bundle = Bundle.parse(name)
        ranges[bundle.namespace].append((bundle.range.lower, bundle.range.upper))
    found += [
        {"namespace": namespace, "covers": ends}
        for namespace, ends in ranges.items()
        if (ends[0][0], ends[-1][1]) != (FULL_LOWER, FULL_UPPER)
        or any(left[1] != right[0] for left, right in pairwise(ends))
    ]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--restarts-often", action="store_true")
    args = parser.parse_args()
    world = tell(args.seed, args.steps, restarts_often=args.restarts_often, aloud=True)
    sys.stdout.write(f"{len(world.events)} events, all at rest\n")


if __name__ == "__main__":
    main()

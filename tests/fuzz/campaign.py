"""The fuzz: any of everything that can happen, step by step, then peace, and all must be well.

`python -m tests.fuzz.campaign SEED [STEPS]` tells one world's steps aloud. A step is one thing that
happens and the half second after it. What is drawn comes from the seed alone.
"""

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from lbcore.config.load import parse_config
from lbcore.model.bundles import Bundle
from lbcore.wire.format import format_message
from lbcore.wire.messages import AuditEntry, Command, Topic
from tests.fuzz import hostile
from tests.fuzz.drawn_commands import draw
from tests.fuzz.fuzzed_world import CRASHES, FuzzedWorld
from tests.support.worlds.checked_world import check_tables
from tests.support.worlds.simulated_brokers import Faults
from tests.support.worlds.stories import begun, healing_ms, unsettled
from tests.support.worlds.story_actions import ACTIONS, Action
from tests.support.worlds.world import CLUSTER, KAFKA_BROKERS, gapless

STEP_MS = 500
SLOW = 2
"""Waits of batches last so many times as long while their time waits for the clocks."""
REST_STEPS = 400
LEFT_OUT = frozenset({"commands", "more_commands", "recreate", "restart_one_by_one", "job_away"})
"""Actions of stories that take long, or that are drawn here in another way."""

CLOCK_STEPS_MS = (-3_600_000, -40_000, 5_000, 40_000, 3_600_000)
AWAY_MS = (3_000, 30_000, 120_000)


def _command(world: FuzzedWorld, chooser: random.Random) -> None:
    for _ in range(chooser.choice((1, 1, 1, 3, 10))):
        kind, arguments = draw(world, chooser)
        world.command_count += chooser.choice((0, 1, 1, 1, 1, 1, 1, 1))
        command = Command(
            cluster=CLUSTER,
            command_id=f"command-{world.command_count}",
            kind=kind,
            arguments={},
            timeout_ms=chooser.choice((0, 0, 1_000, 30_000)),
            principal=chooser.choice(("", "admin", "ä")),
        )
        topic, key, value = format_message(command)
        asked = json.dumps({**json.loads(value), "arguments": arguments}, ensure_ascii=False)
        world.append_raw(topic.value, key, asked.encode("utf-8", "surrogatepass"))


def _mutant(world: FuzzedWorld, chooser: random.Random) -> None:
    """A message that was sent before, changed."""
    places = [place for place in sorted(world.log) if world.log[place]]
    for _ in range(chooser.choice((1, 1, 3))):
        topic, partition = chooser.choice(places)
        found = chooser.choice(world.log[topic, partition][-50:])
        if found.value:
            world.append_raw(topic, found.key, hostile.mutated(chooser, found.value))


def _garbage(world: FuzzedWorld, chooser: random.Random) -> None:
    """Bytes that are no message, under a key that may be one."""
    key = chooser.choice((None, b"", b"local", b"local/broker-0:8080", b"\xff", b"other/x"))
    world.append_raw(chooser.choice(list(Topic)[:-1]).value, key, chooser.choice(hostile.BYTES))


def _again(world: FuzzedWorld, chooser: random.Random) -> None:
    """An old message once more."""
    places = [place for place in sorted(world.log) if world.log[place]]
    topic, partition = chooser.choice(places)
    found = chooser.choice(world.log[topic, partition])
    world.append_raw(topic, found.key, found.value)


def _audit(world: FuzzedWorld, chooser: random.Random) -> None:
    entry = AuditEntry(
        cluster=CLUSTER, principal="x", address="", action="delete_namespace", is_allowed=False
    )
    topic, key, value = format_message(entry)
    changes = {name: chooser.choice(hostile.STRANGE) for name in ("principal", "action")}
    said = json.dumps({**json.loads(value), **changes}, ensure_ascii=False)
    world.append_raw(topic.value, key, said.encode("utf-8", "surrogatepass"))


def _crash(world: FuzzedWorld, chooser: random.Random) -> None:
    world.crash = chooser.choice(CRASHES)


def _backup(world: FuzzedWorld, _: random.Random) -> None:
    world.back_up()


def _restore(world: FuzzedWorld, chooser: random.Random) -> None:
    if world.backups and world.state is not None:
        world.restore(chooser.choice(world.backups))


def _second_job(world: FuzzedWorld, chooser: random.Random) -> None:
    if world.state is not None and not world.job.is_away:
        world.take_over(chooser.choice((0, 1_000, 10_000, 60_000)))


def _away(world: FuzzedWorld, chooser: random.Random) -> None:
    world.job.is_away = True
    world.run(chooser.choice(AWAY_MS), step_ms=3_000)
    world.job.is_away = False


def _clock(world: FuzzedWorld, chooser: random.Random) -> None:
    """A clock jumps, for two seconds or from then on: the driver's, Kafka's or a machine's."""
    ahead_ms = chooser.choice(CLOCK_STEPS_MS)
    turn = chooser.choice((_turn_driver, _turn_kafka, _turn_leader, _turn_machine))
    turn_back = turn(world, chooser, ahead_ms)
    if chooser.random() < 0.7:
        world.run(2_000)
        turn_back()


def _turn_driver(world: FuzzedWorld, _: random.Random, ahead_ms: int) -> Callable[[], None]:
    before, world.driver_ahead_ms = world.driver_ahead_ms, world.driver_ahead_ms + ahead_ms
    return lambda: setattr(world, "driver_ahead_ms", before)


def _turn_kafka(world: FuzzedWorld, _: random.Random, ahead_ms: int) -> Callable[[], None]:
    before, world.log_ahead_ms = world.log_ahead_ms, world.log_ahead_ms + ahead_ms
    return lambda: setattr(world, "log_ahead_ms", before)


def _turn_leader(world: FuzzedWorld, chooser: random.Random, ahead_ms: int) -> Callable[[], None]:
    leader, leaders = chooser.randrange(KAFKA_BROKERS), world.leaders_ahead_ms
    before, leaders[leader] = leaders[leader], leaders[leader] + ahead_ms
    return lambda: leaders.__setitem__(leader, before)


def _turn_machine(world: FuzzedWorld, chooser: random.Random, ahead_ms: int) -> Callable[[], None]:
    """A broker starts on a machine whose clock is wrong; its agent's goes on from there."""
    broker = world.brokers[chooser.choice(sorted(world.brokers))]
    before, broker.machine_ahead_ms = broker.machine_ahead_ms, broker.machine_ahead_ms + ahead_ms
    world.start(broker.name)
    return lambda: setattr(broker, "machine_ahead_ms", before)


def _peace(world: FuzzedWorld, chooser: random.Random) -> None:
    """Nobody does anything for a while; faults of the messenger end."""
    world.faults = Faults()
    world.run(chooser.choice((2_000, 5_000)))


def _revive(world: FuzzedWorld, _: random.Random) -> None:
    """Whoever is dead, frozen or cut off is back."""
    for name, broker in sorted(world.brokers.items()):
        if broker.agent is None:
            world.start(name)
        world.pause(name, is_paused=False)
        world.cut_off(name, is_cut_off=False)


def _nothing(world: FuzzedWorld, chooser: random.Random) -> None:
    del world, chooser


EVERYTHING: Mapping[str, Action] = {
    **{name: action for name, action in ACTIONS.items() if name not in LEFT_OUT},
    "again": _again,
    "audit": _audit,
    "away": _away,
    "backup": _backup,
    "clock": _clock,
    "command": _command,
    "command 2": _command,
    "command 3": _command,
    "command 4": _command,
    "crash": _crash,
    "crash 2": _crash,
    "garbage": _garbage,
    "mutant": _mutant,
    "mutant 2": _mutant,
    "nothing": _nothing,
    "peace": _peace,
    "revive": _revive,
    "restore": _restore,
    "revive 2": _revive,
    "second job": _second_job,
}


def campaign(seed: int, steps: int, *, aloud: bool = False) -> FuzzedWorld:
    """A world's fuzz; prints the seed when something is wrong in it, and raises what is wrong."""
    with _named(seed, steps):
        chooser = random.Random(seed)
        config = parse_config({"pipeline": {"scorer_groups": chooser.choice((1, 2, 5))}})
        world = FuzzedWorld(config, chooser.randint(1, 4), seed=seed)
        begun(world, chooser.randint(1, 4))
        for number in range(steps):
            name = chooser.choice(sorted(EVERYTHING))
            if aloud:
                sys.stdout.write(f"{number} {world.now_ms} {name}\n")
            EVERYTHING[name](world, chooser)
            world.run(STEP_MS)
            if number % REST_STEPS == REST_STEPS - 1:
                come_to_rest(world)
        come_to_rest(world)
        return world


def come_to_rest(world: FuzzedWorld) -> None:
    """End every fault and every wish of operators: everything must be served, and nothing more."""
    set_clocks_right(world)
    world.faults, world.crash = Faults(), ""
    world.job.is_away = world.job.are_ticks_away = False
    _revive(world, world.random)
    world.run(5_000)
    asked = _take_back_rules(world)
    waits_ms = healing_ms(world.config) + world.config.signals.report_max_interval_ms
    world.run(waits_ms * (SLOW if is_slow(world) else 1))
    ends = {row["command_id"]: row for row in world.other_rows["commands"]}
    for name in asked:
        assert ends[name]["status"] in ("done", "refused"), ends[name]
        assert "timeout" not in ends[name]["reason"], ends[name]
    assert gapless(world)
    assert not unsettled(world), unsettled(world)
    served = {Bundle.parse(name).namespace for name in world.served()}
    assert served == set(world.hashes), served ^ set(world.hashes)
    check_tables(world)


def is_slow(world: FuzzedWorld) -> bool:
    """Whether batches go by a time that is ahead of all clocks, and so at half speed."""
    assert world.state is not None
    return world.state.times.decided_ms > world.now_ms + world.config.ownership.clock_step_max_ms


def set_clocks_right(world: FuzzedWorld) -> None:
    """Every clock shows the time; what a wrong one has stamped stands in the log as it is."""
    world.driver_ahead_ms = world.log_ahead_ms = 0
    world.leaders_ahead_ms = [0] * KAFKA_BROKERS
    for broker in world.brokers.values():
        broker.machine_ahead_ms = 0


def _take_back_rules(world: FuzzedWorld) -> list[str]:
    """Ask for the end of every wish of operators; the commands' ids."""
    assert world.state is not None
    rules = world.state.rules
    settings = {"shedding.is_balancing": False, "splitting.enabled": False}
    asked = [
        world.command("reset_config", keys=[]),
        world.command("set_config", values=settings),
        world.command("release_brake"),
    ]
    for kind, argument, names in (
        ("resume", "namespace", rules.paused),
        ("cancel_drain", "broker", rules.drains),
        ("delete_isolation_policy", "policy", rules.isolation),
        ("delete_anti_affinity_group", "namespace", rules.anti_affinity),
        ("unpin_bundle", "bundle", rules.pins),
    ):
        asked += [world.command(kind, **{argument: name}) for name in sorted(names)]
    return asked


@contextmanager
def _named(seed: int, steps: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        command = f"python -m tests.fuzz.campaign {seed} {steps}"
        sys.stderr.write(f"fuzz {seed} went wrong; to see it again: {command}\n")
        raise


def main() -> None:
    """Tell one world's fuzz aloud."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int, nargs="?", default=REST_STEPS)
    args = parser.parse_args()
    world = campaign(args.seed, args.steps, aloud=True)
    sys.stdout.write(f"{len(world.events)} events, {world.batches} batches, all well\n")


if __name__ == "__main__":
    main()

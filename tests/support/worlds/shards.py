"""Runs a scenario's cluster as shards: groups of its namespaces, each with a job of its own.

Decides which namespace lies in which shard: in turn, as the scenario lists them. The shards have
the same brokers, on each of which every shard has an agent; time, load and service are one, so that
a sharded run compares with the same scenario unsharded. Source: ours.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from lbcore.balancer.state.effects import SHARED, Effect
from lbcore.balancer.state.other_shards import shard_loads
from lbcore.config.tree import Config
from lbcore.sim.engine.clock import START_MS, Action
from lbcore.sim.engine.engine import Engine, Run, World
from lbcore.sim.engine.events import plan_happenings
from lbcore.sim.scenario.model import Scenario
from lbcore.wire.messages import ShardLoad


def run_shards(scenario: Scenario, config: Config, names: Sequence[str]) -> list[Run]:
    """A run of each shard. True load is sampled by the first one, moves are recorded by each."""
    world = World.of(scenario)
    engines = [
        Engine(_part(scenario, at, len(names)), config, name, world)
        for at, name in enumerate(names)
    ]
    for engine in engines:
        for name, node in engine.nodes.items():
            node.beside = tuple(one.nodes[name] for one in engines if one is not engine)
        engine.when_committed = _teller(engine, engines)
        plan_happenings(engine)
        engine.set_going()
    world.clock.run_until(START_MS + scenario.run_ms)
    return [engine.so_far() for engine in engines]


def _teller(shard: Engine, engines: Sequence[Engine]) -> Callable[[Sequence[Effect]], None]:
    """Brings what a shard tells into the logs of the others, a commit later."""

    def put(engine: Engine, message: ShardLoad) -> Action:
        return lambda: engine.log.append(message)

    def tell(effects: Sequence[Effect]) -> None:
        others = {one.cluster: one for one in engines if one is not shard}
        rows = [row for effect in effects if effect.kind == SHARED for row in effect.rows]
        for message in (one for row in rows for one in shard_loads(row, list(others))):
            then = put(others[message.cluster], message)
            shard.clock.after(shard.scenario.commit_ms, then)

    return tell


def _part(scenario: Scenario, shard: int, shards: int) -> Scenario:
    """The scenario with a shard's namespaces alone; its load stays that of all."""
    spaces = scenario.namespaces[shard::shards]
    names = {space.name for space in spaces}
    owners = tuple(spec for spec in scenario.owners if spec.namespace in names)
    return replace(scenario, namespaces=spaces, owners=owners)

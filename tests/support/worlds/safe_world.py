"""A world whose job can't be ended by what raises in a batch, as the streaming job can't be."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.book import FAILED
from lbcore.balancer.effects import REPORT, Effect, pack_effect
from lbcore.balancer.report import FAULTS
from lbcore.balancer.waiting import status_of
from lbcore.config.tree import Config
from lbcore.machine import Step, step_safely
from lbcore.scorer.broker_states import RawMessage
from lbcore.scorer.group_update import GroupUpdate, PositionedMessage, pack_update
from lbcore.wire.messages import AuditEntry, Command, Position
from tests.support.worlds.world import CLUSTER, World, copied, is_settled
from tests.unit.wire.test_commands import NS

Effects = Sequence[Effect]
FIRST = f"{NS}/0x00000000_0x80000000"
NEIGHBOUR: dict[str, Any] = {"namespace": "acme/neighbour", "bundles": 2}
AUDIT = AuditEntry(cluster=CLUSTER, principal="p", address="a", action="x", is_allowed=True)


class PlantedError(Exception):
    """A bug of ours, planted."""


def raising(*_: object) -> NoReturn:
    raise PlantedError


class SafeWorld(World):
    """A world whose job runs its Machines as the streaming job does."""

    def step_scorer(self, group: int, messages: Sequence[RawMessage]) -> Step[Any, Any]:
        machine = self.job.scorers[group]

        def encoded(step: Step[Any, Any]) -> object:
            return machine.pack(step.state), [pack_update(one) for one in step.effects]

        return step_safely(machine, self.job.scored.get(group), messages, self.batch_ms, encoded)[0]

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        return safely(self, self.state, updates)

    def told(self) -> list[Mapping[str, Any]]:
        return [fault for report in self.reports for fault in report.get(FAULTS, ())]


def safely(
    world: World, state: BalancerState | None, updates: Sequence[GroupUpdate]
) -> Step[BalancerState, Effect]:
    def encoded(step: Step[BalancerState, Effect]) -> object:
        assert step.state is not None
        return world.job.balancer.pack(step.state), [pack_effect(one) for one in step.effects]

    return step_safely(world.job.balancer, state, updates, world.batch_ms, encoded)[0]


@copied
def running() -> SafeWorld:
    world = SafeWorld(Config(), 3, seed=5)
    world.run(3_000)
    world.command("create_namespace", namespace=NS, bundles=2)
    world.run(20_000)
    assert is_settled(world)
    return world


def update_of(commands: Sequence[tuple[str, Mapping[str, Any]]], at_ms: int) -> GroupUpdate:
    """The update that brings these commands, with the number of each in its id and its place."""
    world = running()
    messages = []
    for number, (kind, arguments) in enumerate(commands):
        command = Command(
            cluster=CLUSTER, command_id=f"{kind}-{number}", kind=kind, arguments=arguments
        )
        at = Position(topic="commands", partition=0, offset=number, timestamp_ms=at_ms)
        messages.append(PositionedMessage(position=at, message=command))
    empty = world.job.scorers[0].step(None, [], at_ms).effects[0]
    return replace(empty, messages=tuple(messages))


def without(update: GroupUpdate, number: int) -> GroupUpdate:
    placed = tuple(one for one in update.messages if one.position.offset != number)
    return replace(update, messages=placed)


def everything(world: World, state: BalancerState | None) -> dict[str, bytes]:
    """The state packed anew, but for what is remembered of commands and of faults."""
    assert state is not None
    others = {name: kept for name, kept in state.commands.items() if status_of(kept) != FAILED}
    times = replace(state.times, faults_ms={})
    fresh = world.job.balancer.unpack(world.job.balancer.pack(state))
    return dict(world.job.balancer.pack(replace(fresh, commands=others, times=times, packed={})))


def rows(effects: Effects, kind: str) -> list[Mapping[str, Any]]:
    return [row for effect in effects if effect.kind == kind for row in effect.rows]


def report(step: Step[BalancerState, Effect]) -> Mapping[str, Any]:
    return rows(step.effects, REPORT)[0]


def written(step: Step[BalancerState, Effect]) -> list[bytes]:
    return [pack_effect(one) for one in step.effects if one.kind != REPORT]

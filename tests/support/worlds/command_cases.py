"""A cluster in virtual time that is about to carry out a command, of each kind there is."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lbcore.balancer.batch_context import BalancerState
from lbcore.balancer.effects import Effect
from lbcore.config.tree import Config, changed
from lbcore.machine import Step
from lbcore.scorer.group_update import GroupUpdate
from lbcore.wire.arguments import CommandSpec
from lbcore.wire.commands import KINDS
from lbcore.wire.kinds.mirror_commands import MIRROR_COMMANDS
from tests.support.worlds.world import World

NS = "acme/orders"
BUNDLES = [f"{NS}/{low}" for low in ("0x00000000_0x10000000", "0x10000000_0x20000000")]
TOPIC = f"persistent://{NS}/parted"
BROKERS = [f"broker-{number}:8080" for number in range(9)]
GONE = BROKERS[8]
MIRRORED = frozenset(one.spec.kind for one in MIRROR_COMMANDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of the balancer: what came in, what it said, and its packed states."""

    updates: Sequence[GroupUpdate]
    now_ms: int
    effects: Sequence[Effect]
    before: Mapping[str, bytes] | None
    after: Mapping[str, bytes]

    def rows(self, kind: str) -> list[Mapping[str, Any]]:
        return [dict(row) for one in self.effects if one.kind == kind for row in one.rows]


class RecordedWorld(World):
    """A World that keeps its batches."""

    batches: list[Batch]

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        before = None if self.state is None else self.job.balancer.pack(self.state)
        step = super().step_balancer(updates)
        assert step.state is not None
        batch = Batch(
            updates=updates,
            now_ms=self.batch_ms,
            effects=step.effects,
            before=before,
            after=self.job.balancer.pack(step.state),
        )
        self.batches = [*getattr(self, "batches", []), batch]
        return step


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """How a command of a kind is made possible, and what is said with it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    first: Sequence[tuple[str, Mapping[str, Any]]] = ()
    killed: Sequence[str] = ()
    is_mirrored: bool = False


_ISOLATED = {"policy": "p", "namespaces": ["t/i"], "primary": ["nobody"]}
_NOT_BY_SAMPLES: Mapping[str, Case] = {
    "assign_bundle": Case(
        first=[
            ("set_isolation_policy", _ISOLATED),
            ("create_namespace", {"namespace": "t/i", "bundles": 1}),
        ],
        arguments={"bundle": "t/i/0x00000000_0xffffffff", "destination": BROKERS[1]},
    ),
    "forget_broker": Case(killed=[GONE], arguments={"broker": GONE}),
    "release_brake": Case(killed=BROKERS[4:8]),
    "observe_ownership": Case(
        is_mirrored=True,
        arguments={"brokers": BROKERS, "namespaces": {"t/m": [0, 0xFFFFFFFF]}, "owners": {}},
    ),
}
"""Kinds that more than samples make possible."""


def _case(declared: CommandSpec) -> Case:
    """The kind's own sample, after the samples of what it says goes before."""
    return Case(
        first=[(kind, KINDS[kind].spec.sample) for kind in declared.after],
        arguments=declared.sample,
        is_mirrored=declared.kind in MIRRORED,
    )


CASES: Mapping[str, Case] = {
    kind: _NOT_BY_SAMPLES.get(kind) or _case(one.spec) for kind, one in KINDS.items()
}


@lru_cache(maxsize=2)
def _settled(is_mirrored: bool) -> RecordedWorld:  # noqa: FBT001 (lru_cache's key)
    settings = {"cluster.authority": "external"} if is_mirrored else {}
    world = RecordedWorld(changed(Config(), settings), len(BROKERS), seed=7)
    world.run(3_000)
    if not is_mirrored:
        world.command("create_namespace", namespace=NS, bundles=16)
        world.run(15_000)
    return world


def prepared(case: Case) -> RecordedWorld:
    """The cluster in which the case's command can be carried out."""
    world = deepcopy(_settled(case.is_mirrored))
    for kind, arguments in case.first:
        world.command(kind, **arguments)
        world.run(1_000 if kind == "drain_broker" else 8_000)
    for broker in case.killed:
        world.kill(broker)
    if case.killed:
        world.run(25_000)
    return world


def is_carried_out(world: RecordedWorld, command_id: str) -> bool:
    """Whether the command's first answer is that it is done, or that it will be."""
    found = [row for row in world.other_rows["commands"] if row["command_id"] == command_id]
    return bool(found) and found[0]["status"] in ("accepted", "done")

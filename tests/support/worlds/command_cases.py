"""A cluster in virtual time that is about to carry out a command, of each kind there is."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from lbcore.balancer.state.balancer_state import BalancerState
from lbcore.balancer.state.effects import Effect
from lbcore.config.tree import Config, changed
from lbcore.machine import Step
from lbcore.scorer.group_update import GroupUpdate
from tests.support.worlds.world import World

NS = "t/n"
BUNDLES = [f"{NS}/{low}" for low in ("0x00000000_0x10000000", "0x10000000_0x20000000")]
TOPIC = "persistent://t/n/parted"
BROKERS = [f"broker-{number}:8080" for number in range(9)]
GONE, DRAINED = BROKERS[8], BROKERS[7]
SETTING = "shedding.cool_down_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One micro-batch of the balancer: what came in, what it said, and its packed states."""

    updates: Sequence[GroupUpdate]
    now_ms: int
    effects: Sequence[Effect]
    before: Mapping[str, bytes] | None
    after: Mapping[str, bytes]

    def rows(self, kind: str) -> list[Mapping[str, Any]]:
        """Its rows for one table."""
        return [dict(row) for one in self.effects if one.kind == kind for row in one.rows]


class RecordedWorld(World):
    """A World that keeps its batches."""

    batches: list[Batch]

    def step_balancer(self, updates: Sequence[GroupUpdate]) -> Step[BalancerState, Effect]:
        before = None if self.state is None else self.balancer.pack(self.state)
        step = super().step_balancer(updates)
        assert step.state is not None
        batch = Batch(
            updates=updates,
            now_ms=self.batch_ms,
            effects=step.effects,
            before=before,
            after=self.balancer.pack(step.state),
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


_ISOLATION = {"policy": "p", "namespaces": ["t/i"], "primary": ["broker-1.*"]}
_DRAIN = {"broker": DRAINED, "max_in_flight": 1}
_PROPOSED = {"moves": {BUNDLES[0]: BROKERS[3]}, "plan": "p"}
_OWNED = {"brokers": BROKERS, "namespaces": {"t/m": [0, 0xFFFFFFFF]}, "owners": {}}
_POLICIES = {
    "isolation": {
        "theirs": {
            "namespaces": ["t/i"],
            "primary": ["broker-1.*"],
            "secondary": [],
            "min_limit": 0,
            "usage_threshold_percent": 100,
        }
    },
    "anti_affinity": {"t/a": "g"},
}

CASES: Mapping[str, Case] = {
    "create_namespace": Case(arguments={"namespace": "t/new", "bundles": 2}),
    "delete_namespace": Case(
        first=[("create_namespace", {"namespace": "t/old", "bundles": 2})],
        arguments={"namespace": "t/old"},
    ),
    "unload_bundle": Case(arguments={"bundle": BUNDLES[0]}),
    "unload_namespace": Case(arguments={"namespace": NS}),
    "assign_bundle": Case(
        first=[
            ("set_isolation_policy", {**_ISOLATION, "primary": ["nobody"]}),
            ("create_namespace", {"namespace": "t/i", "bundles": 1}),
        ],
        arguments={"bundle": "t/i/0x00000000_0xffffffff", "destination": BROKERS[1]},
    ),
    "override_bundle": Case(arguments={"bundle": BUNDLES[0], "destination": BROKERS[1]}),
    "split_bundle": Case(arguments={"bundle": BUNDLES[0]}),
    "drain_broker": Case(arguments=_DRAIN),
    "cancel_drain": Case(first=[("drain_broker", _DRAIN)], arguments={"broker": DRAINED}),
    "forget_broker": Case(killed=[GONE], arguments={"broker": GONE}),
    "pin_bundle": Case(arguments={"bundle": BUNDLES[1], "broker": BROKERS[2], "reason": "why"}),
    "unpin_bundle": Case(
        first=[("pin_bundle", {"bundle": BUNDLES[1], "broker": BROKERS[2]})],
        arguments={"bundle": BUNDLES[1]},
    ),
    "pause": Case(arguments={"namespace": NS, "reason": "works"}),
    "resume": Case(first=[("pause", {"reason": "works"})]),
    "release_brake": Case(killed=BROKERS[4:8]),
    "propose_plan": Case(arguments=_PROPOSED),
    "approve_plan": Case(first=[("propose_plan", _PROPOSED)], arguments={"plan": "p"}),
    "reject_plan": Case(first=[("propose_plan", _PROPOSED)], arguments={"plan": "p"}),
    "set_config": Case(arguments={"values": {SETTING: 5_000}}),
    "reset_config": Case(
        first=[("set_config", {"values": {SETTING: 5_000}})], arguments={"keys": [SETTING]}
    ),
    "set_isolation_policy": Case(arguments=_ISOLATION),
    "delete_isolation_policy": Case(
        first=[("set_isolation_policy", _ISOLATION)], arguments={"policy": "p"}
    ),
    "set_anti_affinity_group": Case(arguments={"namespace": NS, "group": "g"}),
    "delete_anti_affinity_group": Case(
        first=[("set_anti_affinity_group", {"namespace": NS, "group": "g"})],
        arguments={"namespace": NS},
    ),
    "exclude_namespace": Case(arguments={"namespace": NS}),
    "include_namespace": Case(
        first=[("exclude_namespace", {"namespace": NS})], arguments={"namespace": NS}
    ),
    "create_tenant": Case(arguments={"tenant": "new", "admin_roles": ["ops"]}),
    "update_tenant": Case(
        first=[("create_tenant", {"tenant": "new"})],
        arguments={"tenant": "new", "admin_roles": ["ops"]},
    ),
    "delete_tenant": Case(
        first=[("create_tenant", {"tenant": "new"})], arguments={"tenant": "new"}
    ),
    "create_topic": Case(arguments={"topic": TOPIC, "partitions": 2}),
    "update_topic": Case(
        first=[("create_topic", {"topic": TOPIC, "partitions": 2})],
        arguments={"topic": TOPIC, "partitions": 4},
    ),
    "delete_topic": Case(
        first=[("create_topic", {"topic": TOPIC, "partitions": 2})], arguments={"topic": TOPIC}
    ),
    "observe_ownership": Case(is_mirrored=True, arguments=_OWNED),
    "observe_policies": Case(is_mirrored=True, arguments=_POLICIES),
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

"""Commands about balancing (pauses, plans, settings, policies) and about brokers.

`balancer.commands` carries them out. Policies follow Pulsar 4.0.8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lbcore.model.times import DAY_MS, HOUR_MS
from lbcore.wire import arguments as read
from lbcore.wire.arguments import CommandArguments, CommandSpec, CommandVerb, argument

_LOOK_AT_PLANS = "`ballast plan list` says which plans wait, and what became of the others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(CommandArguments):
    """Stop shedding and splitting; failover goes on."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="pause",
        is_for_operators=True,
        verb=CommandVerb(words="pause", example="--reason 'broker-3 gets new disks'"),
        sample={"namespace": "acme/orders", "reason": "works"},
    )
    namespace: str = argument(read.namespace, "only this one; '' = the whole cluster", "")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume(CommandArguments):
    """End a pause."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="resume",
        is_for_operators=True,
        verb=CommandVerb(words="resume", example=""),
        sample={"namespace": "acme/orders"},
        after=("pause",),
    )
    namespace: str = argument(read.namespace, "only this one; '' = the whole cluster", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBrake(CommandArguments):
    """Go on balancing after many brokers have vanished at once."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="release_brake",
        is_for_operators=True,
        verb=CommandVerb(words="resume --release-brake", example=""),
        sample={},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposePlan(CommandArguments):
    """Propose moves of bundles, to be carried out once somebody approves them."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="propose_plan",
        is_for_operators=True,
        verb=CommandVerb(
            words="plan propose",
            example="acme/a/0x00000000_0x40000000=broker-2:8080 --why 'its own disk'",
        ),
        sample={
            "moves": {"acme/orders/0x00000000_0x10000000": "broker-3:8080"},
            "why": "its own disk",
            "plan": "p-1",
        },
        afterwards="`ballast plan approve {plan}` carries it out",
    )
    moves: Mapping[str, str] = argument(read.moves, "tenant/namespace/range -> broker")
    why: str = argument(read.text, "what they are for", "")
    plan: str = argument(read.plan_name, "its name; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovePlan(CommandArguments):
    """Carry out a plan that waits, as far as it still suits and helps."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="approve_plan",
        is_for_operators=True,
        verb=CommandVerb(words="plan approve", example="t6jnqc"),
        sample={"plan": "p-1"},
        after=("propose_plan",),
        when_refused=_LOOK_AT_PLANS,
    )
    plan: str = argument(read.plan_name, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectPlan(CommandArguments):
    """Let a plan that waits go, or stop one that is being carried out."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="reject_plan",
        is_for_operators=True,
        verb=CommandVerb(words="plan reject", example="t6jnqc --reason 'after the sale'"),
        sample={"plan": "p-1", "reason": "not today"},
        after=("propose_plan",),
        when_refused=_LOOK_AT_PLANS,
    )
    plan: str = argument(read.plan_name, "its name")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfig(CommandArguments):
    """Change settings while running, all of them at once or none."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="set_config",
        verb=CommandVerb(words="config set", example="shedding.strategy=uniform"),
        sample={"values": {"shedding.cool_down_ms": 5000}},
    )
    values: Mapping[str, Any] = argument(read.settings, "section.name or Pulsar's key -> value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConfig(CommandArguments):
    """Take changed settings back to what the files say."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="reset_config",
        verb=CommandVerb(words="config reset", example="shedding.strategy"),
        sample={"keys": ["shedding.cool_down_ms"]},
        after=("set_config",),
    )
    keys: tuple[str, ...] = argument(read.texts, "section.name or Pulsar's keys; [] = all")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIsolationPolicy(CommandArguments):
    """Keep namespaces on some brokers (regular expressions, as in Pulsar)."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="set_isolation_policy",
        is_refused_when_external=True,
        verb=CommandVerb(
            words="policy set-isolation",
            example="payments --namespaces 'acme/pay-.*' --primary 'broker-[12]'"
            " --secondary broker-3",
        ),
        sample={
            "policy": "p",
            "namespaces": ["acme/apart.*"],
            "primary": ["broker-1.*"],
            "secondary": ["broker-2.*"],
            "min_limit": 2,
            "usage_threshold_percent": 80.0,
        },
    )
    policy: str = argument(read.nonempty, "name of the policy")
    namespaces: tuple[str, ...] = argument(read.texts, "namespaces it is for")
    primary: tuple[str, ...] = argument(read.texts, "brokers that take them")
    secondary: tuple[str, ...] = argument(read.texts, "brokers that take them in need", ())
    min_limit: int = argument(
        read.whole(0, 1_000_000), "fewest active primaries before secondaries help", 1
    )
    usage_threshold_percent: float = argument(
        read.percent, "a primary above it does not count as active", 100.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteIsolationPolicy(CommandArguments):
    """Remove an isolation policy."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="delete_isolation_policy",
        is_refused_when_external=True,
        verb=CommandVerb(words="policy delete-isolation", example="payments"),
        sample={"policy": "p"},
        after=("set_isolation_policy",),
    )
    policy: str = argument(read.nonempty, "name of the policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAntiAffinityGroup(CommandArguments):
    """Spread a namespace and the others of its group over brokers and failure domains."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="set_anti_affinity_group",
        is_refused_when_external=True,
        verb=CommandVerb(words="policy set-group", example="acme/orders replicas"),
        sample={"namespace": "acme/orders", "group": "g"},
    )
    namespace: str = argument(read.namespace, "tenant/namespace")
    group: str = argument(read.nonempty, "name of the group")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAntiAffinityGroup(CommandArguments):
    """Take a namespace out of its group."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="delete_anti_affinity_group",
        is_refused_when_external=True,
        verb=CommandVerb(words="policy delete-group", example="acme/orders"),
        sample={"namespace": "acme/orders"},
        after=("set_anti_affinity_group",),
    )
    namespace: str = argument(read.namespace, "tenant/namespace")


BALANCING_COMMANDS: tuple[type[CommandArguments], ...] = (
    Pause,
    Resume,
    ReleaseBrake,
    ProposePlan,
    ApprovePlan,
    RejectPlan,
    SetConfig,
    ResetConfig,
    SetIsolationPolicy,
    DeleteIsolationPolicy,
    SetAntiAffinityGroup,
    DeleteAntiAffinityGroup,
)


_YEAR_MS = 365 * DAY_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBroker(CommandArguments):
    """Move everything away from a broker."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="drain_broker",
        is_for_operators=True,
        verb=CommandVerb(
            words="broker drain",
            example="broker-3 --max-in-flight 20 --deadline 30m",
            timeout_ms=HOUR_MS,
        ),
        sample={"broker": "broker-7:8080", "max_in_flight": 1, "deadline_ms": 60000},
    )
    broker: str = argument(read.broker, "broker to empty")
    max_in_flight: int = argument(
        read.whole(0, 1_000_000), "bundles that move at once; 0 = as configured", 0
    )
    deadline_ms: int = argument(
        read.whole(0, _YEAR_MS), "time after which it is given up; 0 = never", 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDrain(CommandArguments):
    """Let a broker that is being drained take bundles again."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="cancel_drain",
        is_for_operators=True,
        verb=CommandVerb(words="broker cancel-drain", example="broker-3"),
        sample={"broker": "broker-7:8080"},
        after=("drain_broker",),
        afterwards="what has left it stays where it is; `ballast plan undo --drain {broker}`"
        " proposes to move it back",
    )
    broker: str = argument(read.broker, "broker that is drained")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBroker(CommandArguments):
    """Remove a broker that is gone for good from the list."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="forget_broker",
        verb=CommandVerb(words="broker forget", example="broker-3"),
        sample={"broker": "broker-8:8080"},
    )
    broker: str = argument(read.broker, "broker that is silent")


BROKER_COMMANDS: tuple[type[CommandArguments], ...] = (
    DrainBroker,
    CancelDrain,
    ForgetBroker,
)

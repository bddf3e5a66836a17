"""The commands and their arguments: one frozen dataclass a kind, and the table of kinds.

Decides whether arguments suit their kind; not whether the command is possible now (the balancer
does, which answers the requester in the table `commands`). Verbs and the admin service make the
dataclasses and write them with `format_arguments`. Source: ours; the kinds follow Pulsar's admin
interface (4.0.8).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lbcore.model.hashing import HashFunction
from lbcore.wire import arguments as read
from lbcore.wire.arguments import argument, read_arguments, written_arguments
from lbcore.wire.catalogue_commands import CATALOGUE_KINDS, CatalogueArguments
from lbcore.wire.fields import FieldRefusal, shown
from lbcore.wire.messages import RejectReason
from lbcore.wire.mirror_commands import MIRROR_KINDS, MirrorArguments
from lbcore.wire.nearest import nearest

LARGEST = "LARGEST"
HOT = "HOT"

MAX_BUNDLES = 1 << 20
MAX_CHILDREN = 1_024
YEAR_MS = 365 * 86_400_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedArguments:
    """Arguments that don't suit their kind: a reason, and a sentence for the one who asked."""

    reason: RejectReason
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace:
    """Make a namespace, divided evenly or at the boundaries given."""

    namespace: str = argument(read.namespace, "tenant/namespace")
    bundles: int = argument(
        read.whole(0, MAX_BUNDLES), "number of bundles of equal width; 0 = as configured", 0
    )
    boundaries: tuple[int, ...] = argument(
        read.boundaries, "0x00000000 to 0xffffffff with all between them, instead of bundles", ()
    )
    hash: HashFunction = argument(  # noqa: RUF009 the call makes a field
        read.hash_function, "how its topics are hashed, for ever", HashFunction.CRC32
    )
    split_algorithm: str = argument(read.text, "where its bundles are cut; '' = as configured", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteNamespace:
    """Delete a namespace with all its bundles."""

    namespace: str = argument(read.namespace, "tenant/namespace")
    only_empty: bool = argument(
        read.flag, "refuse it while the namespace has topics", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadBundle:
    """Take a bundle from its owner."""

    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadNamespace:
    """Take all bundles of a namespace from their owners."""

    namespace: str = argument(read.namespace, "tenant/namespace")
    destination: str = argument(read.broker, "broker that gets them; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignBundle:
    """Give a bundle without an owner to a broker now."""

    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideBundle:
    """Write a bundle's owner by force, whatever state it is in."""

    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBundle:
    """Split one bundle: the named one, or the LARGEST or HOT one of a namespace."""

    bundle: str = argument(read.bundle, "tenant/namespace/range", "")
    namespace: str = argument(read.namespace, "tenant/namespace, with `which`", "")
    which: str = argument(
        read.one_of(LARGEST, HOT), "LARGEST: most topics; HOT: highest throughput", ""
    )
    algorithm: str = argument(read.text, "where it is cut; '' = as configured", "")
    positions: tuple[int, ...] = argument(
        read.positions, "hash values to cut at, for specified_positions_divide", ()
    )
    parts: int = argument(
        read.whole(0, MAX_CHILDREN), "number of children; 0 = as the algorithm says", 0
    )
    unload: bool = argument(read.flag, "place the children anew at once", default=False)
    force: bool = argument(read.flag, "also when children have no known topic", default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainBroker:
    """Move everything away from a broker."""

    broker: str = argument(read.broker, "broker to empty")
    max_in_flight: int = argument(
        read.whole(0, 1_000_000), "bundles that move at once; 0 = as configured", 0
    )
    deadline_ms: int = argument(
        read.whole(0, YEAR_MS), "time after which it is given up; 0 = never", 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDrain:
    """Let a broker that is being drained take bundles again."""

    broker: str = argument(read.broker, "broker that is drained")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetBroker:
    """Remove a broker that is gone for good from the list."""

    broker: str = argument(read.broker, "broker that is silent")


@dataclass(frozen=True, slots=True, kw_only=True)
class PinBundle:
    """Keep a bundle on a broker: only a crash or a drain of that broker moves it."""

    bundle: str = argument(read.bundle, "tenant/namespace/range")
    broker: str = argument(read.broker, "broker that it shall stay on")
    ttl_ms: int = argument(read.whole(0, 10 * YEAR_MS), "how long; 0 = until unpinned", 0)
    owner: str = argument(read.text, "who wants it", "")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinBundle:
    """Let a pinned bundle move again."""

    bundle: str = argument(read.bundle, "tenant/namespace/range")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Stop shedding and splitting; failover goes on."""

    namespace: str = argument(read.namespace, "only this one; '' = the whole cluster", "")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """End a pause."""

    namespace: str = argument(read.namespace, "only this one; '' = the whole cluster", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseBrake:
    """Go on balancing after many brokers have vanished at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposePlan:
    """Propose moves of bundles, to be carried out once somebody approves them."""

    moves: Mapping[str, str] = argument(read.moves, "tenant/namespace/range -> broker")
    why: str = argument(read.text, "what they are for", "")
    plan: str = argument(read.plan_name, "its name; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovePlan:
    """Carry out a plan that waits, as far as it still suits and helps."""

    plan: str = argument(read.plan_name, "its name")


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectPlan:
    """Let a plan that waits go, or stop one that is being carried out."""

    plan: str = argument(read.plan_name, "its name")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetConfig:
    """Change settings while running, all of them at once or none."""

    values: Mapping[str, Any] = argument(read.settings, "section.name or Pulsar's key -> value")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetConfig:
    """Take changed settings back to what the files say."""

    keys: tuple[str, ...] = argument(read.texts, "section.name or Pulsar's keys; [] = all")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetIsolationPolicy:
    """Keep namespaces on some brokers (regular expressions, as in Pulsar)."""

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
class DeleteIsolationPolicy:
    """Remove an isolation policy."""

    policy: str = argument(read.nonempty, "name of the policy")


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAntiAffinityGroup:
    """Spread a namespace and the others of its group over brokers and failure domains."""

    namespace: str = argument(read.namespace, "tenant/namespace")
    group: str = argument(read.nonempty, "name of the group")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteAntiAffinityGroup:
    """Take a namespace out of its group."""

    namespace: str = argument(read.namespace, "tenant/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeNamespace:
    """Never shed a namespace's bundles."""

    namespace: str = argument(read.namespace, "tenant/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeNamespace:
    """Shed a namespace's bundles again."""

    namespace: str = argument(read.namespace, "tenant/namespace")


CommandArguments: TypeAlias = (
    CreateNamespace
    | DeleteNamespace
    | UnloadBundle
    | UnloadNamespace
    | AssignBundle
    | OverrideBundle
    | SplitBundle
    | DrainBroker
    | CancelDrain
    | ForgetBroker
    | PinBundle
    | UnpinBundle
    | Pause
    | Resume
    | ReleaseBrake
    | ProposePlan
    | ApprovePlan
    | RejectPlan
    | SetConfig
    | ResetConfig
    | SetIsolationPolicy
    | DeleteIsolationPolicy
    | SetAntiAffinityGroup
    | DeleteAntiAffinityGroup
    | ExcludeNamespace
    | IncludeNamespace
    | CatalogueArguments
    | MirrorArguments
)

KINDS: Mapping[str, type[CommandArguments]] = {
    "create_namespace": CreateNamespace,
    "delete_namespace": DeleteNamespace,
    "unload_bundle": UnloadBundle,
    "unload_namespace": UnloadNamespace,
    "assign_bundle": AssignBundle,
    "override_bundle": OverrideBundle,
    "split_bundle": SplitBundle,
    "drain_broker": DrainBroker,
    "cancel_drain": CancelDrain,
    "forget_broker": ForgetBroker,
    "pin_bundle": PinBundle,
    "unpin_bundle": UnpinBundle,
    "pause": Pause,
    "resume": Resume,
    "release_brake": ReleaseBrake,
    "propose_plan": ProposePlan,
    "approve_plan": ApprovePlan,
    "reject_plan": RejectPlan,
    "set_config": SetConfig,
    "reset_config": ResetConfig,
    "set_isolation_policy": SetIsolationPolicy,
    "delete_isolation_policy": DeleteIsolationPolicy,
    "set_anti_affinity_group": SetAntiAffinityGroup,
    "delete_anti_affinity_group": DeleteAntiAffinityGroup,
    "exclude_namespace": ExcludeNamespace,
    "include_namespace": IncludeNamespace,
    **CATALOGUE_KINDS,
    **MIRROR_KINDS,
}
_KIND_OF = {declaring: kind for kind, declaring in KINDS.items()}


def parse_arguments(kind: str, given: Mapping[str, Any]) -> CommandArguments | RefusedArguments:
    """The kind's dataclass, or why the arguments don't suit it; never raises on JSON values.

    An argument that isn't known is refused: a misspelt destination must not be ignored.
    """
    declaring = KINDS.get(kind)
    if declaring is None:
        near = nearest(kind, tuple(KINDS))
        advice = f"did you mean {near}?" if near else f"there are {', '.join(KINDS)}"
        detail = f"there is no command {shown(kind)}; {advice}"
        return RefusedArguments(reason=RejectReason.UNKNOWN_KIND, detail=detail)
    try:
        arguments: CommandArguments = read_arguments(declaring, given)
        _CHECKS.get(kind, _fits)(arguments)
    except FieldRefusal as refusal:
        return RefusedArguments(reason=refusal.reason, detail=refusal.detail)
    return arguments


def format_arguments(arguments: CommandArguments) -> tuple[str, dict[str, Any]]:
    """Kind and arguments of the command, as `Command` carries them."""
    return _KIND_OF[type(arguments)], written_arguments(arguments)


def _fits(_: Any) -> None:
    return None


def _check_create(arguments: CreateNamespace) -> None:
    if arguments.bundles and arguments.boundaries:
        detail = "bundles and boundaries exclude each other: give one of them"
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)


def _check_split(arguments: SplitBundle) -> None:
    of_namespace = bool(arguments.namespace and arguments.which)
    if bool(arguments.bundle) == of_namespace or (
        arguments.bundle and (arguments.namespace or arguments.which)
    ):
        detail = "name either a bundle, or a namespace and which of its bundles (LARGEST, HOT)"
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)
    if arguments.positions and arguments.parts:
        detail = "positions and parts exclude each other: give one of them"
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)
    if arguments.parts == 1:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, "parts must be at least 2: one is no split")


_CHECKS: Mapping[str, Callable[[Any], None]] = {
    "create_namespace": _check_create,
    "split_bundle": _check_split,
}

"""Commands about single bundles.

`balancer.commands` carries them out. Names follow Pulsar 4.0.8.
"""

from dataclasses import dataclass
from typing import ClassVar

from lbcore.model.times import DAY_MS
from lbcore.wire import arguments as read
from lbcore.wire.arguments import CommandArguments, CommandSpec, CommandVerb, argument
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.messages import RejectReason

LARGEST = "LARGEST"
HOT = "HOT"

MAX_CHILDREN = 1_024
_TEN_YEARS_MS = 3_650 * DAY_MS
_QUARTER = "acme/orders/0x40000000_0x80000000"
_FIRST = "acme/orders/0x00000000_0x10000000"
_SECOND = "acme/orders/0x10000000_0x20000000"


def _check_split(arguments: "SplitBundle") -> None:
    of_namespace = bool(arguments.namespace and arguments.which)
    if bool(arguments.bundle) == of_namespace or (
        arguments.bundle and (arguments.namespace or arguments.which)
    ):
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE,
            "name either a bundle, or a namespace and which of its bundles (LARGEST, HOT)",
        )
    if arguments.positions and arguments.parts:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE, "positions and parts exclude each other: give one of them"
        )
    if arguments.parts == 1:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, "parts must be at least 2: one is no split")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadBundle(CommandArguments):
    """Take a bundle from its owner."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="unload_bundle",
        is_for_operators=True,
        verb=CommandVerb(
            words="bundle unload",
            example=f"{_QUARTER} --destination broker-2",
        ),
        sample={"bundle": _FIRST, "destination": "broker-1:8080"},
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignBundle(CommandArguments):
    """Give a bundle without an owner to a broker now."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="assign_bundle",
        is_for_operators=True,
        is_refused_when_external=True,
        verb=CommandVerb(words="bundle assign", example=_QUARTER),
        sample={"bundle": _FIRST, "destination": "broker-1:8080"},
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverrideBundle(CommandArguments):
    """Write a bundle's owner by force, whatever state it is in."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="override_bundle",
        is_refused_when_external=True,
        verb=CommandVerb(words="bundle override", example=f"{_QUARTER} broker-2"),
        sample={"bundle": _FIRST, "destination": "broker-1:8080"},
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")
    destination: str = argument(read.broker, "broker that gets it")


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitBundle(CommandArguments):
    """Split one bundle: the named one, or the LARGEST or HOT one of a namespace."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="split_bundle",
        is_for_operators=True,
        verb=CommandVerb(
            words="bundle split",
            example="--namespace acme/orders --which LARGEST --unload",
            optional=("bundle",),
            timeout_ms=120000,
        ),
        sample={
            "bundle": _FIRST,
            "algorithm": "specified_positions_divide",
            "positions": [16, 32],
            "unload": True,
            "force": True,
        },
        check=_check_split,
    )
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
class MergeBundle(CommandArguments):
    """Merge a bundle with its upper neighbour, or with the neighbour that is named."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="merge_bundle",
        is_for_operators=True,
        verb=CommandVerb(
            words="bundle merge", example=_QUARTER, optional=("neighbour",), timeout_ms=120000
        ),
        sample={"bundle": "acme/orders/0x00000000_0x00000010"},
        after=("split_bundle",),
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")
    neighbour: str = argument(
        read.bundle, "the adjacent bundle; '' = the one above it in the hash space", ""
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PinBundle(CommandArguments):
    """Keep a bundle on a broker: only a crash, a drain or an override moves it."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="pin_bundle",
        is_for_operators=True,
        verb=CommandVerb(
            words="bundle pin",
            example=f"{_QUARTER} broker-2 --ttl 2h --reason 'index is being rebuilt'",
        ),
        sample={
            "bundle": _SECOND,
            "broker": "broker-2:8080",
            "ttl_ms": 3600000,
            "owner": "ops",
            "reason": "test",
        },
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")
    broker: str = argument(read.broker, "broker that it shall stay on")
    ttl_ms: int = argument(read.whole(0, _TEN_YEARS_MS), "how long; 0 = until unpinned", 0)
    owner: str = argument(read.text, "who wants it", "")
    reason: str = argument(read.text, "why", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpinBundle(CommandArguments):
    """Let a pinned bundle move again."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="unpin_bundle",
        is_for_operators=True,
        verb=CommandVerb(words="bundle unpin", example=_QUARTER),
        sample={"bundle": _SECOND},
        after=("pin_bundle",),
    )
    bundle: str = argument(read.bundle, "tenant/namespace/range")


BUNDLE_COMMANDS: tuple[type[CommandArguments], ...] = (
    UnloadBundle,
    AssignBundle,
    OverrideBundle,
    SplitBundle,
    MergeBundle,
    PinBundle,
    UnpinBundle,
)

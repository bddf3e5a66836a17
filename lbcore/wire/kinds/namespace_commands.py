"""Commands about namespaces, each with all that is declared of it.

Decides whether arguments suit their kind; what becomes of one is `balancer.commands.namespaces`'s
to say. Names follow Pulsar 4.0.8.
"""

from dataclasses import dataclass
from typing import ClassVar

from lbcore.model.hashing import HashFunction
from lbcore.wire import arguments as read
from lbcore.wire.arguments import argument
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.command_about import CommandAbout, CommandArguments, CommandVerb
from lbcore.wire.messages import RejectReason

MAX_BUNDLES = 1 << 20


def _check_create(arguments: "CreateNamespace") -> None:
    if arguments.bundles and arguments.boundaries:
        detail = "bundles and boundaries exclude each other: give one of them"
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace(CommandArguments):
    """Make a namespace, divided evenly or at the boundaries given."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="create_namespace",
        is_of_authority=True,
        verb=CommandVerb(
            words="namespace create", example="acme/orders --bundles 16 --hash murmur3_32"
        ),
        sample={
            "namespace": "acme/new",
            "boundaries": [0, 16, 4294967295],
            "hash": "murmur3_32",
            "split_algorithm": "range_equally_divide",
        },
        check=_check_create,
    )
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
class DeleteNamespace(CommandArguments):
    """Delete a namespace with all its bundles."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="delete_namespace",
        is_of_authority=True,
        verb=CommandVerb(words="namespace delete", example="acme/orders --timeout 5m"),
        sample={"namespace": "acme/new"},
        after=("create_namespace",),
    )
    namespace: str = argument(read.namespace, "tenant/namespace")
    only_empty: bool = argument(
        read.flag, "refuse it while the namespace has topics", default=False
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnloadNamespace(CommandArguments):
    """Take all bundles of a namespace from their owners."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="unload_namespace",
        is_operating=True,
        verb=CommandVerb(words="namespace unload", example="acme/orders --destination broker-2"),
        sample={"namespace": "acme/orders", "destination": "broker-1:8080"},
    )
    namespace: str = argument(read.namespace, "tenant/namespace")
    destination: str = argument(read.broker, "broker that gets them; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeNamespace(CommandArguments):
    """Never shed a namespace's bundles."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="exclude_namespace",
        is_operating=True,
        verb=CommandVerb(words="namespace exclude", example="acme/orders"),
        sample={"namespace": "acme/orders"},
    )
    namespace: str = argument(read.namespace, "tenant/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeNamespace(CommandArguments):
    """Shed a namespace's bundles again."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="include_namespace",
        is_operating=True,
        verb=CommandVerb(words="namespace include", example="acme/orders"),
        sample={"namespace": "acme/orders"},
        after=("exclude_namespace",),
    )
    namespace: str = argument(read.namespace, "tenant/namespace")


NAMESPACE_COMMANDS: tuple[type[CommandArguments], ...] = (
    CreateNamespace,
    DeleteNamespace,
    UnloadNamespace,
    ExcludeNamespace,
    IncludeNamespace,
)

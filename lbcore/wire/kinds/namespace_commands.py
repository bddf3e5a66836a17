"""Commands about namespaces, and about records of tenants and topics.

`balancer.commands` carries them out. A record has a type, a name and a value: of a tenant the
fields of Pulsar's TenantInfo (4.0.8), of a topic its number of partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any, ClassVar

from lbcore.model.bundles import HashFunction
from lbcore.model.names import InvalidNameError, is_namespace, parse_topic
from lbcore.wire import arguments as read
from lbcore.wire.arguments import CommandArguments, CommandSpec, CommandVerb, argument
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.messages import RejectReason

MAX_BUNDLES = 1 << 20


def _check_create(arguments: "CreateNamespace") -> None:
    if arguments.bundles and arguments.boundaries:
        raise FieldRefusal(
            RejectReason.OUT_OF_RANGE, "bundles and boundaries exclude each other: give one of them"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateNamespace(CommandArguments):
    """Make a namespace, divided evenly or at the boundaries given."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="create_namespace",
        is_refused_when_external=True,
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

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="delete_namespace",
        is_refused_when_external=True,
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

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="unload_namespace",
        is_for_operators=True,
        verb=CommandVerb(words="namespace unload", example="acme/orders --destination broker-2"),
        sample={"namespace": "acme/orders", "destination": "broker-1:8080"},
    )
    namespace: str = argument(read.namespace, "tenant/namespace")
    destination: str = argument(read.broker, "broker that gets them; '' = chosen", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeNamespace(CommandArguments):
    """Never shed a namespace's bundles."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="exclude_namespace",
        is_for_operators=True,
        verb=CommandVerb(words="namespace exclude", example="acme/orders"),
        sample={"namespace": "acme/orders"},
    )
    namespace: str = argument(read.namespace, "tenant/namespace")


@dataclass(frozen=True, slots=True, kw_only=True)
class IncludeNamespace(CommandArguments):
    """Shed a namespace's bundles again."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="include_namespace",
        is_for_operators=True,
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


TENANT, TOPIC = "tenant", "topic"
RECORD_TYPES = (TENANT, TOPIC)
ADMIN_ROLES, ALLOWED_CLUSTERS = "admin_roles", "allowed_clusters"
MAX_PARTITIONS = 1 << 20
_TYPE_DOC = "tenant or topic"
_NAME_DOC = "a tenant's name, or a topic's full name, without -partition-N if it has partitions"
_VALUE_DOC = "of a tenant admin_roles and allowed_clusters, of a topic its number of partitions"


def read_value(record_type: str, value: Any) -> Any:
    """Return the completed value of a record of this type. Raises FieldRefusal.

    None = empty.
    """
    if record_type == TOPIC:
        return read.whole(0, MAX_PARTITIONS)({"value": 0 if value is None else value}, "value")
    if not isinstance(value, Mapping | None) or set(value or ()) - {ADMIN_ROLES, ALLOWED_CLUSTERS}:
        raise FieldRefusal(
            RejectReason.WRONG_TYPE,
            f"value must be an object of {ADMIN_ROLES} and {ALLOWED_CLUSTERS}",
        )
    given = {ADMIN_ROLES: [], ALLOWED_CLUSTERS: [], **(value or {})}
    return {name: list(read.texts(given, name)) for name in given}


def _check(arguments: Any) -> None:
    """Raises FieldRefusal for a name or a value that a record of this type can't have."""
    name = arguments.name
    if arguments.record_type == TENANT:
        if "/" in name or not is_namespace(f"{name}/-"):
            raise FieldRefusal(
                RejectReason.OUT_OF_RANGE,
                f"name must be of letters, digits and -=:._ only, got {name!r}",
            )
    else:
        try:
            is_full = parse_topic(name).full == name
        except InvalidNameError as error:
            raise FieldRefusal(RejectReason.OUT_OF_RANGE, str(error)) from None
        if not is_full:
            raise FieldRefusal(
                RejectReason.OUT_OF_RANGE, f"name must be a topic's full name, got {name!r}"
            )
    read_value(arguments.record_type, getattr(arguments, "value", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRecord(CommandArguments):
    """Make a tenant, or a topic known before a broker reports it."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="create_record",
        sample={"record_type": TOPIC, "name": "persistent://acme/orders/paid", "value": 4},
        check=_check,
    )
    record_type: str = argument(read.one_of(*RECORD_TYPES), _TYPE_DOC)
    name: str = argument(read.nonempty, _NAME_DOC)
    value: Any = argument(  # noqa: RUF009 the call makes a field
        getitem, _VALUE_DOC, None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRecord(CreateRecord):
    """Replace what is kept of a tenant, or give a partitioned topic more partitions."""

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="update_record",
        sample={"record_type": TOPIC, "name": "persistent://acme/orders/paid", "value": 8},
        after=("create_record",),
        check=_check,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteRecord(CommandArguments):
    """Delete a tenant without namespaces, or forget a topic.

    A broker may go on reporting the topic.
    """

    spec: ClassVar[CommandSpec] = CommandSpec(
        kind="delete_record",
        sample={"record_type": TOPIC, "name": "persistent://acme/orders/paid"},
        after=("create_record",),
        check=_check,
    )
    record_type: str = argument(read.one_of(*RECORD_TYPES), _TYPE_DOC)
    name: str = argument(read.nonempty, _NAME_DOC)


RECORD_COMMANDS: tuple[type[CommandArguments], ...] = (CreateRecord, UpdateRecord, DeleteRecord)

"""Commands about records: the balancer's list of tenants and topics.

The record store knows a type, a name and a value. The value of a tenant has the fields of Pulsar's
TenantInfo (4.0.8), the value of a topic is its number of partitions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import getitem
from typing import Any, ClassVar

from lbcore.model.names import InvalidNameError, is_namespace, parse_topic
from lbcore.wire import arguments as read
from lbcore.wire.arguments import argument
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.command_about import CommandAbout, CommandArguments
from lbcore.wire.messages import RejectReason

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
        detail = f"value must be an object of {ADMIN_ROLES} and {ALLOWED_CLUSTERS}"
        raise FieldRefusal(RejectReason.WRONG_TYPE, detail)
    given = {ADMIN_ROLES: [], ALLOWED_CLUSTERS: [], **(value or {})}
    return {name: list(read.texts(given, name)) for name in given}


def _check(arguments: Any) -> None:
    """Raises FieldRefusal for a name or a value that a record of this type can't have."""
    name = arguments.name
    if arguments.record_type == TENANT:
        if "/" in name or not is_namespace(f"{name}/-"):
            detail = f"name must be of letters, digits and -=:._ only, got {name!r}"
            raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)
    else:
        try:
            is_full = parse_topic(name).full == name
        except InvalidNameError as error:
            raise FieldRefusal(RejectReason.OUT_OF_RANGE, str(error)) from None
        if not is_full:
            detail = f"name must be a topic's full name, got {name!r}"
            raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)
    read_value(arguments.record_type, getattr(arguments, "value", None))


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateRecord(CommandArguments):
    """Make a tenant, or a topic known before a broker reports it."""

    about: ClassVar[CommandAbout] = CommandAbout(
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

    about: ClassVar[CommandAbout] = CommandAbout(
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

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="delete_record",
        sample={"record_type": TOPIC, "name": "persistent://acme/orders/paid"},
        after=("create_record",),
        check=_check,
    )
    record_type: str = argument(read.one_of(*RECORD_TYPES), _TYPE_DOC)
    name: str = argument(read.nonempty, _NAME_DOC)


RECORD_COMMANDS: tuple[type[CommandArguments], ...] = (CreateRecord, UpdateRecord, DeleteRecord)

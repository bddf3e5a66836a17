"""The commands about tenants and topics, which the balancer only keeps a list of.

Decides how their arguments are declared; `wire.commands` has all kinds in one table. Source: ours;
names and fields follow Pulsar's admin interface (4.0.8), TenantInfo and PersistentTopics.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lbcore.model.names import InvalidNameError, is_namespace, parse_topic
from lbcore.wire import arguments as read
from lbcore.wire.arguments import argument
from lbcore.wire.fields import FieldRefusal
from lbcore.wire.kinds.command_about import CommandAbout, CommandArguments, CommandVerb
from lbcore.wire.messages import RejectReason

MAX_PARTITIONS = 1 << 20


def _tenant(given: Mapping[str, Any], name: str) -> str:
    """A tenant's name: of letters, digits and -=:._ only."""
    found = read.nonempty(given, name)
    if not is_namespace(f"{found}/-") or "/" in found:
        detail = f"{name} must be of letters, digits and -=:._ only, got {found!r}"
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, detail)
    return found


def _topic(given: Mapping[str, Any], name: str) -> str:
    """A topic's full name."""
    try:
        return parse_topic(read.nonempty(given, name)).full
    except InvalidNameError as error:
        raise FieldRefusal(RejectReason.OUT_OF_RANGE, str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTenant(CommandArguments):
    """Make a tenant."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="create_tenant",
        verb=CommandVerb(words="tenant create", example="acme --admin-roles ops"),
        sample={"tenant": "newco", "admin_roles": ["ops"], "allowed_clusters": ["c1"]},
    )
    tenant: str = argument(_tenant, "name")
    admin_roles: tuple[str, ...] = argument(read.texts, "who administers it", ())
    allowed_clusters: tuple[str, ...] = argument(read.texts, "where it may have namespaces", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTenant(CommandArguments):
    """Replace what is kept of a tenant."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="update_tenant",
        verb=CommandVerb(words="tenant update", example="acme --admin-roles ops dev"),
        sample={"tenant": "newco", "admin_roles": ["ops"], "allowed_clusters": ["c1"]},
        after=("create_tenant",),
    )
    tenant: str = argument(_tenant, "name")
    admin_roles: tuple[str, ...] = argument(read.texts, "who administers it", ())
    allowed_clusters: tuple[str, ...] = argument(read.texts, "where it may have namespaces", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTenant(CommandArguments):
    """Delete a tenant that has no namespace."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="delete_tenant",
        verb=CommandVerb(words="tenant delete", example="acme"),
        sample={"tenant": "newco"},
        after=("create_tenant",),
    )
    tenant: str = argument(_tenant, "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateTopic(CommandArguments):
    """Make a topic known before a broker reports it."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="create_topic",
        verb=CommandVerb(
            words="topic create", example="persistent://acme/orders/paid --partitions 8"
        ),
        sample={"topic": "persistent://acme/orders/paid", "partitions": 4},
    )
    topic: str = argument(_topic, "full name, of a partitioned topic without -partition-N")
    partitions: int = argument(
        read.whole(0, MAX_PARTITIONS), "number of partitions; 0 = not partitioned", 0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTopic(CommandArguments):
    """Give a partitioned topic more partitions."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="update_topic",
        verb=CommandVerb(words="topic update", example="persistent://acme/orders/paid 16"),
        sample={"topic": "persistent://acme/orders/paid", "partitions": 8},
        after=("create_topic",),
    )
    topic: str = argument(_topic, "full name of a partitioned topic")
    partitions: int = argument(read.whole(1, MAX_PARTITIONS), "number of partitions")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteTopic(CommandArguments):
    """Forget a topic; one that a broker goes on reporting exists all the same."""

    about: ClassVar[CommandAbout] = CommandAbout(
        kind="delete_topic",
        verb=CommandVerb(words="topic delete", example="persistent://acme/orders/paid"),
        sample={"topic": "persistent://acme/orders/paid"},
        after=("create_topic",),
    )
    topic: str = argument(_topic, "full name")


CATALOGUE_COMMANDS: tuple[type[CommandArguments], ...] = (
    CreateTenant,
    UpdateTenant,
    DeleteTenant,
    CreateTopic,
    UpdateTopic,
    DeleteTopic,
)

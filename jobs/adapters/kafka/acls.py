"""Least-privilege Kafka ACLs of each process, for clusters with an authorizer.

Decides which rights a role needs; Kafka decides whether a process has them. The operations and
resource types are Kafka's (kafka-acls.sh).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lbcore.wire.messages import Topic

TOPIC = "topic"
TRANSACTION = "transactional-id"

_REPORTS = (Topic.BROKER_LOAD, Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD, Topic.ACKS)
_REQUESTS = (Topic.COMMANDS, Topic.AUDIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One resource and the operations on it that are allowed."""

    resource: str
    name: str
    operations: tuple[str, ...]


def rights_of(role: str, topic_prefix: str) -> list[Right]:
    """The rights of a role: job, agent, service or operator. Raises KeyError for another."""
    return [replace(right, name=_prefixed(right, topic_prefix)) for right in ROLES[role]]


def kafka_acls_commands(rights: Sequence[Right], principal: str, bootstrap: str) -> list[str]:
    """The commands for Kafka's own tool that give a principal these rights."""
    lines = []
    for right in rights:
        operations = " ".join(f"--operation {name}" for name in right.operations)
        lines.append(
            f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {principal} "
            f"{operations} --{right.resource} {right.name}"
        )
    return lines


def _prefixed(right: Right, topic_prefix: str) -> str:
    if right.resource == TRANSACTION:
        return f"ballast-{topic_prefix}{right.name}"
    return f"{topic_prefix}{right.name}"


def _reads(*topics: Topic) -> list[Right]:
    operations = ("Read", "Describe")
    return [Right(resource=TOPIC, name=topic.value, operations=operations) for topic in topics]


def _writes(*topics: Topic) -> list[Right]:
    operations = ("Write", "Describe")
    return [Right(resource=TOPIC, name=topic.value, operations=operations) for topic in topics]


ROLES = {
    # the job reads everything, ticks on broker-load and alone writes ownership
    "job": (
        *_reads(*_REPORTS, *_REQUESTS),
        *_writes(Topic.BROKER_LOAD, Topic.OWNERSHIP),
        Right(resource=TRANSACTION, name=Topic.OWNERSHIP.value, operations=("Write", "Describe")),
    ),
    "agent": (*_writes(*_REPORTS), *_reads(Topic.OWNERSHIP)),
    "service": (*_writes(*_REQUESTS),),
    "operator": (*_writes(Topic.COMMANDS),),
}

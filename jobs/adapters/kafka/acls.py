"""What each process may do in Kafka, and no more: the ACLs of a cluster with an authorizer.

Decides which rights a role needs; Kafka decides whether a process has them. Source: ours; the
operations and resource types are Kafka's (kafka-acls.sh).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.adapters.kafka.settings import GROUP_PREFIX
from lbcore.wire.messages import Topic

TOPIC = "topic"
GROUP = "group"
TRANSACTION = "transactional-id"

_REPORTS = (Topic.BROKER_LOAD, Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD, Topic.ACKS)
_REQUESTS = (Topic.COMMANDS, Topic.AUDIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One resource and what may be done with it. is_prefix: name is how its name begins."""

    resource: str
    name: str
    operations: tuple[str, ...]
    is_prefix: bool = False


def rights_of(role: str, topic_prefix: str) -> list[Right]:
    """The rights of a role: job, agent, service or operator. Raises KeyError for another."""
    return [
        right
        if right.resource == GROUP
        else Right(
            resource=right.resource,
            name=_prefixed(right, topic_prefix),
            operations=right.operations,
            is_prefix=right.is_prefix,
        )
        for right in ROLES[role]
    ]


def kafka_acls_commands(rights: Sequence[Right], principal: str, bootstrap: str) -> list[str]:
    """The commands for Kafka's own tool that give a principal these rights."""
    lines = []
    for right in rights:
        pattern = " --resource-pattern-type prefixed" if right.is_prefix else ""
        operations = " ".join(f"--operation {name}" for name in right.operations)
        lines.append(
            f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {principal} "
            f"{operations} --{right.resource} {right.name}{pattern}"
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
        Right(resource=GROUP, name=GROUP_PREFIX, operations=("Read",), is_prefix=True),
        Right(resource=TRANSACTION, name=Topic.OWNERSHIP.value, operations=("Write", "Describe")),
    ),
    "agent": (*_writes(*_REPORTS), *_reads(Topic.OWNERSHIP)),
    "service": (*_writes(*_REQUESTS),),
    "operator": (*_writes(Topic.COMMANDS),),
}

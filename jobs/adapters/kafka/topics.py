"""The topics of the wire: created when missing, compared otherwise.

Decides what each topic needs (partitions, copies, retention, compaction, LogAppendTime) and what
counts as a difference. Never changes the number of partitions of a topic that exists: keys would
move to other partitions and their order would be lost. The keys are Kafka's.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from kafka import TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.console import CommandError
from lbcore.config.tree import Config
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
    """Return the rights of a role: job, agent, service or operator. Raises KeyError."""
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


T = TypeVar("T")

_OVERHEAD_BYTES = 65_536
"""A batch's own bytes, its keys and headers, above the longest value."""

_SEGMENTS_PER_RETENTION = 6
_SEGMENT_MS_MIN = 60_000
_COMPACTION_SEGMENT_MS = 3_600_000


class TopicStatus(str, Enum):
    """Result for one topic."""

    FINE = "fine"
    MADE = "made"
    WOULD_MAKE = "would_make"
    DIFFERS = "differs"
    REPAIRED = "repaired"
    WOULD_REPAIR = "would_repair"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """Required settings of a topic.

    configs: Kafka's keys and values, as text.
    """

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDifference:
    """One difference of a topic.

    key: partitions, replication_factor, or Kafka's.
    """

    key: str
    wanted: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReport:
    """Findings and actions for one topic.

    detail: why it failed, or "".
    """

    name: str
    status: TopicStatus
    differences: tuple[TopicDifference, ...] = ()
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """True if the topic is, or would be, as required."""
        return self.status not in (TopicStatus.DIFFERS, TopicStatus.FAILED)


def wanted_topics(config: Config) -> tuple[TopicSpec, ...]:
    """Every topic of the wire as the configuration wants it, in the wire's order."""
    return tuple(_wanted(config, topic) for topic in Topic)


def ensure_topics(
    address: KafkaAddress,
    specs: Sequence[TopicSpec],
    *,
    repair: bool = False,
    dry_run: bool = False,
    timeout_ms: int = 30_000,
) -> tuple[TopicReport, ...]:
    """Make missing topics and report on the others, one report a spec in their order.

    repair: set configuration keys that differ. dry_run: change nothing, say what would be done.
    Raises CommandError when Kafka can't be reached or doesn't answer within timeout_ms.
    """
    with _admin(address, timeout_ms) as admin:
        there = set(_asked(admin.list_topics, address))
        missing = [spec for spec in specs if spec.name not in there]
        made = {} if dry_run else _make(admin, missing, address)
        present = [spec for spec in specs if spec.name in there or made.get(spec.name) == ""]
        found = _differences(admin, present, address)
        reports = [_report(spec, made, found) for spec in specs]
        if repair:
            reports = [_repair(admin, report, address, dry_run=dry_run) for report in reports]
    return tuple(reports)


def _wanted(config: Config, topic: Topic) -> TopicSpec:
    topics = config.topics
    partitions = dict.fromkeys(_REPORTS, topics.report_partitions)
    partitions[Topic.OWNERSHIP] = topics.ownership_partitions
    return TopicSpec(
        name=f"{config.pipeline.topic_prefix}{topic.value}",
        partitions=partitions.get(topic, 1),  # commands of a cluster have one key anyway
        replication_factor=topics.replication_factor,
        configs={
            "message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": str(topics.min_insync_replicas),
            "max.message.bytes": str(config.wire.max_message_bytes + _OVERHEAD_BYTES),
            **_kept(config, topic),
        },
    )


def _kept(config: Config, topic: Topic) -> Mapping[str, str]:
    """Return the configs for retention of messages and their removal after it."""
    topics = config.topics
    if topic is Topic.OWNERSHIP:
        return {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(topics.tombstone_retention_ms),
            "segment.ms": str(_COMPACTION_SEGMENT_MS),
        }
    retention_ms = topics.report_retention_ms if topic in _REPORTS else topics.request_retention_ms
    segment_ms = max(_SEGMENT_MS_MIN, retention_ms // _SEGMENTS_PER_RETENTION)
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "segment.ms": str(segment_ms),
    }


def _report(
    spec: TopicSpec,
    made: Mapping[str, str],
    found: Mapping[str, tuple[TopicDifference, ...]],
) -> TopicReport:
    """Report.

    made: why each topic that was missing could not be made, "" = it was. found: of the others. A
    topic that was just made is looked at too: the broker may have rules of its own.
    """
    if spec.name in found:
        fine = TopicStatus.MADE if spec.name in made else TopicStatus.FINE
        status = TopicStatus.DIFFERS if found[spec.name] else fine
        return TopicReport(name=spec.name, status=status, differences=found[spec.name])
    if spec.name in made:
        return TopicReport(name=spec.name, status=TopicStatus.FAILED, detail=made[spec.name])
    return TopicReport(name=spec.name, status=TopicStatus.WOULD_MAKE)


def _make(
    admin: KafkaAdminClient, specs: Sequence[TopicSpec], address: KafkaAddress
) -> Mapping[str, str]:
    """Topic → "" when it is there now, else why it could not be made."""
    if not specs:
        return {}
    wanted = {
        spec.name: {
            "num_partitions": spec.partitions,
            "replication_factor": spec.replication_factor,
            "configs": dict(spec.configs),
        }
        for spec in specs
    }
    answer = _asked(lambda: admin.create_topics(wanted, raise_errors=False), address)
    made = {topic["name"]: _why_not_made(topic) for topic in answer["topics"]}
    there = [name for name, reason in made.items() if not reason]
    _asked(lambda: admin.wait_for_topics(there), address)
    return made


def _why_not_made(topic: Mapping[str, Any]) -> str:
    error = errors.for_code(topic["error_code"])
    if error in (errors.NoError, errors.TopicAlreadyExistsError):  # somebody else was quicker
        return ""
    said = topic.get("error_message") or ""
    return f"{error.__name__}: {said}" if said else error.__name__


def _differences(
    admin: KafkaAdminClient, specs: Sequence[TopicSpec], address: KafkaAddress
) -> Mapping[str, tuple[TopicDifference, ...]]:
    if not specs:
        return {}
    names = [spec.name for spec in specs]
    shapes = {
        topic["name"]: topic for topic in _asked(lambda: admin.describe_topics(names), address)
    }
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    answer = _asked(lambda: admin.describe_configs(resources, config_filter="all"), address)
    configs = answer.get("topic", {})
    return {
        spec.name: (
            *_shape_differences(spec, shapes[spec.name]),
            *_config_differences(spec, configs.get(spec.name, {})),
        )
        for spec in specs
    }


def _shape_differences(spec: TopicSpec, found: Mapping[str, Any]) -> Iterator[TopicDifference]:
    _check_code(found["error_code"], spec.name)
    partitions = found["partitions"]
    copies = {len(partition["replica_nodes"]) for partition in partitions}
    pairs = (
        ("partitions", str(spec.partitions), str(len(partitions))),
        (
            "replication_factor",
            str(spec.replication_factor),
            ", ".join(str(count) for count in sorted(copies)),
        ),
    )
    for key, wanted, there in pairs:
        if wanted != there:
            yield TopicDifference(key=key, wanted=wanted, found=there)


def _config_differences(
    spec: TopicSpec, found: Mapping[str, Mapping[str, Any]]
) -> Iterator[TopicDifference]:
    if not found:  # kafka-python leaves the error out and answers with nothing
        _check_code(errors.TopicAuthorizationFailedError.errno, spec.name)
    for key, wanted in sorted(spec.configs.items()):
        there = str(found.get(key, {}).get("value"))
        if there != wanted:
            yield TopicDifference(key=key, wanted=wanted, found=there)


def _repair(
    admin: KafkaAdminClient, report: TopicReport, address: KafkaAddress, *, dry_run: bool
) -> TopicReport:
    """Set the differing keys; partitions and copies stay and still differ."""
    keys = {item.key: item.wanted for item in report.differences if "." in item.key}
    if report.status is not TopicStatus.DIFFERS or not keys:
        return report
    left = tuple(item for item in report.differences if item.key not in keys)
    if not dry_run:
        resource = ConfigResource(ConfigResourceType.TOPIC, report.name, configs=keys)
        answer = _asked(lambda: admin.alter_configs([resource]), address)
        said = answer["topic"][report.name]
        if said != "OK":
            return replace(report, status=TopicStatus.FAILED, detail=str(said))
    done = TopicStatus.WOULD_REPAIR if dry_run else TopicStatus.REPAIRED
    return replace(
        report, status=TopicStatus.DIFFERS if left else done, differences=left or report.differences
    )


@contextmanager
def _admin(address: KafkaAddress, timeout_ms: int) -> Iterator[KafkaAdminClient]:
    options = {
        **address.client_options("topics"),
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
    }
    admin = _asked(lambda: KafkaAdminClient(**options), address)
    try:
        yield admin
    finally:
        admin.close()


def _check_code(code: int, topic: str) -> None:
    error = errors.for_code(code)
    if error is not errors.NoError:
        raise CommandError(
            f"the topic {topic} can't be looked at",
            why=f"Kafka answered {error.__name__}",
            next_step="give this user the rights Describe and DescribeConfigs, or try again",
        )


def _asked(question: Callable[[], T], address: KafkaAddress) -> T:
    """The answer of Kafka, or a CommandError that says what to look at."""
    try:
        return question()
    except errors.KafkaError as cause:
        raise CommandError(
            f"Kafka at {address.bootstrap} could not be asked",
            why=str(cause),
            next_step="check that it runs, the address, and the settings of section kafka",
        ) from None


def newest_record_ms(address: KafkaAddress, timeout_ms: int) -> int | None:
    """The LogAppendTime of the newest report, ms since 1970; None when there is none.

    Raises CommandError when Kafka can't be asked.
    """
    topic = address.topic_name(Topic.BROKER_LOAD)
    with _admin(address, timeout_ms) as admin:
        (found,) = _asked(lambda: admin.describe_topics([topic]), address)
        _check_code(found["error_code"], topic)
        wanted = {
            TopicPartition(topic, partition["partition_index"]): OffsetSpec.MAX_TIMESTAMP
            for partition in found["partitions"]
        }
        newest = _asked(lambda: admin.list_partition_offsets(wanted), address)
    return max((one.timestamp for one in newest.values() if one.timestamp >= 0), default=None)

"""Ballast's Kafka topics: created when missing, compared otherwise.

Partitions, replicas, retention, compaction, LogAppendTime, under Kafka's keys. Never changes the
number of partitions of an existing topic: keys would move to other partitions and lose their order.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from kafka import TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, OffsetSpec

from jobs.adapters.kafka.clients import KafkaAddress, open_client
from jobs.console import CommandError
from lbcore.config.tree import Config
from lbcore.wire.messages import Topic

TOPIC = "topic"
TRANSACTION = "transactional-id"

_REPORTS = (Topic.BROKER_LOAD, Topic.BUNDLE_LOAD, Topic.TOPIC_LOAD, Topic.ACKS)
_REQUESTS = (Topic.COMMANDS, Topic.AUDIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Right:
    """One resource and the allowed operations on it."""

    resource: str
    name: str
    operations: tuple[str, ...]


ROLES: Mapping[str, Mapping[str, Sequence[Topic]]] = {
    # the job alone writes ownership, reads all other topics and ticks on broker-load
    "job": {"Read": (*_REPORTS, *_REQUESTS), "Write": (Topic.BROKER_LOAD, Topic.OWNERSHIP)},
    "agent": {"Write": _REPORTS, "Read": (Topic.OWNERSHIP,)},
    "service": {"Write": _REQUESTS},
    "operator": {"Write": (Topic.COMMANDS,)},
}
"""Role → operation → the topics on which it may do that."""


def rights_of(role: str, topic_prefix: str) -> list[Right]:
    """Return the rights of a role: job, agent, service or operator. Raises KeyError."""
    rights = [
        Right(
            resource=TOPIC, name=f"{topic_prefix}{topic.value}", operations=(operation, "Describe")
        )
        for operation, topics in ROLES[role].items()
        for topic in topics
    ]
    if role == "job":  # it writes ownership in transactions
        name = f"ballast-{topic_prefix}{Topic.OWNERSHIP.value}"
        rights.append(Right(resource=TRANSACTION, name=name, operations=("Write", "Describe")))
    return rights


def kafka_acls_commands(rights: Sequence[Right], principal: str, bootstrap: str) -> list[str]:
    """Return the commands of Kafka's own tool that give a principal these rights."""
    return [
        f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal {principal} "
        + "".join(f"--operation {name} " for name in right.operations)
        + f"--{right.resource} {right.name}"
        for right in rights
    ]


_OVERHEAD_BYTES = 65_536
"""Bytes of a batch besides its longest value: batch header, keys, record headers."""

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
    """Return all topics of Ballast as configured."""
    topics = config.topics
    partitions = dict.fromkeys(_REPORTS, topics.report_partitions)
    partitions[Topic.OWNERSHIP] = topics.ownership_partitions
    return tuple(
        TopicSpec(
            name=f"{config.pipeline.topic_prefix}{topic.value}",
            partitions=partitions.get(topic, 1),  # commands of a cluster have one key anyway
            replication_factor=topics.replication_factor,
            configs={
                "message.timestamp.type": "LogAppendTime",
                "min.insync.replicas": str(topics.min_insync_replicas),
                "max.message.bytes": str(config.wire.max_message_bytes + _OVERHEAD_BYTES),
                **_retention_configs(config, topic),
            },
        )
        for topic in Topic
    )


def ensure_topics(
    address: KafkaAddress,
    specs: Sequence[TopicSpec],
    *,
    repair: bool = False,
    dry_run: bool = False,
    timeout_ms: int = 30_000,
) -> tuple[TopicReport, ...]:
    """Make missing topics; return a report for each spec, in their order.

    repair: set configuration keys that differ. dry_run: change nothing, report what would be done.
    Raises CommandError when Kafka doesn't answer within timeout_ms.
    """
    with _admin(address, timeout_ms) as admin:
        existing = set(admin.list_topics())
        missing = [spec for spec in specs if spec.name not in existing]
        made = {} if dry_run else _make(admin, missing)
        present = [spec for spec in specs if spec.name in existing or made.get(spec.name) == ""]
        found = _differences(admin, present)
        reports = [_report(spec, made, found) for spec in specs]
        if repair:
            reports = [_repair(admin, report, dry_run=dry_run) for report in reports]
    return tuple(reports)


def _retention_configs(config: Config, topic: Topic) -> Mapping[str, str]:
    """Return the configs for retention and cleanup of messages."""
    topics = config.topics
    if topic is Topic.OWNERSHIP:
        return {
            "cleanup.policy": "compact",
            "delete.retention.ms": str(topics.tombstone_retention_ms),
            "segment.ms": str(_COMPACTION_SEGMENT_MS),
        }
    retention_ms = topics.report_retention_ms if topic in _REPORTS else topics.request_retention_ms
    return {
        "cleanup.policy": "delete",
        "retention.ms": str(retention_ms),
        "segment.ms": str(max(_SEGMENT_MS_MIN, retention_ms // _SEGMENTS_PER_RETENTION)),
    }


def _report(
    spec: TopicSpec,
    made: Mapping[str, str],
    found: Mapping[str, tuple[TopicDifference, ...]],
) -> TopicReport:
    """Return the report of one topic.

    made: missing topic → error of making it, "" = made. found: of existing topics. A new topic is
    compared too, because the broker may have rules of its own.
    """
    if spec.name in found:
        fine = TopicStatus.MADE if spec.name in made else TopicStatus.FINE
        status = TopicStatus.DIFFERS if found[spec.name] else fine
        return TopicReport(name=spec.name, status=status, differences=found[spec.name])
    if spec.name in made:
        return TopicReport(name=spec.name, status=TopicStatus.FAILED, detail=made[spec.name])
    return TopicReport(name=spec.name, status=TopicStatus.WOULD_MAKE)


def _make(admin: KafkaAdminClient, specs: Sequence[TopicSpec]) -> dict[str, str]:
    """Make the missing topics: topic → "" or the error."""
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
    made = {}
    for topic in admin.create_topics(wanted, raise_errors=False)["topics"]:
        error, message = errors.for_code(topic["error_code"]), topic.get("error_message") or ""
        # another process may have been quicker
        is_there = error in (errors.NoError, errors.TopicAlreadyExistsError)
        made[topic["name"]] = "" if is_there else ": ".join(filter(None, (error.__name__, message)))
    admin.wait_for_topics([name for name, reason in made.items() if not reason])
    return made


def _differences(
    admin: KafkaAdminClient, specs: Sequence[TopicSpec]
) -> dict[str, tuple[TopicDifference, ...]]:
    if not specs:
        return {}
    names = [spec.name for spec in specs]
    shapes = {topic["name"]: topic for topic in admin.describe_topics(names)}
    resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in names]
    configs = admin.describe_configs(resources, config_filter="all").get("topic", {})
    return {
        spec.name: _differences_of(spec, shapes[spec.name], configs.get(spec.name, {}))
        for spec in specs
    }


def _differences_of(
    spec: TopicSpec, shape: Mapping[str, Any], configs: Mapping[str, Mapping[str, Any]]
) -> tuple[TopicDifference, ...]:
    _check_code(shape["error_code"], spec.name)
    if not configs:  # kafka-python leaves the error out and answers with nothing
        _check_code(errors.TopicAuthorizationFailedError.errno, spec.name)
    copies = {len(partition["replica_nodes"]) for partition in shape["partitions"]}
    wanted = {
        "partitions": str(spec.partitions),
        "replication_factor": str(spec.replication_factor),
        **dict(sorted(spec.configs.items())),
    }
    found = {
        **{key: str(one.get("value")) for key, one in configs.items()},
        "partitions": str(len(shape["partitions"])),
        "replication_factor": ", ".join(map(str, sorted(copies))),
    }
    return tuple(
        TopicDifference(key=key, wanted=value, found=found.get(key, "None"))
        for key, value in wanted.items()
        if found.get(key, "None") != value
    )


def _repair(admin: KafkaAdminClient, report: TopicReport, *, dry_run: bool) -> TopicReport:
    """Set the differing keys; differences in partitions and replicas stay.

    Of a topic that is repaired, the differences are those that were.
    """
    keys = {item.key: item.wanted for item in report.differences if "." in item.key}
    if report.status is not TopicStatus.DIFFERS or not keys:
        return report
    left = tuple(item for item in report.differences if item.key not in keys)
    if not dry_run:
        resource = ConfigResource(ConfigResourceType.TOPIC, report.name, configs=keys)
        answer = admin.alter_configs([resource])["topic"][report.name]
        if answer != "OK":
            return replace(report, status=TopicStatus.FAILED, detail=str(answer))
    done = TopicStatus.WOULD_REPAIR if dry_run else TopicStatus.REPAIRED
    return replace(
        report, status=TopicStatus.DIFFERS if left else done, differences=left or report.differences
    )


@contextmanager
def _admin(address: KafkaAddress, timeout_ms: int) -> Iterator[KafkaAdminClient]:
    """Return a client whose errors become a CommandError with the next step."""
    options = {
        **address.client_options("topics"),
        "request_timeout_ms": timeout_ms,
        "bootstrap_timeout_ms": timeout_ms,
    }
    try:
        with closing(open_client(KafkaAdminClient, **options)) as admin:
            yield admin
    except errors.KafkaError as cause:
        raise CommandError(
            f"Kafka at {address.bootstrap} could not be asked",
            why=str(cause),
            next_step="check that it runs, the address, and the settings of section kafka",
        ) from None


def _check_code(code: int, topic: str) -> None:
    error = errors.for_code(code)
    if error is not errors.NoError:
        raise CommandError(
            f"the topic {topic} can't be looked at",
            why=f"Kafka answered {error.__name__}",
            next_step="give this user the rights Describe and DescribeConfigs, or try again",
        )


def newest_record_ms(address: KafkaAddress, timeout_ms: int) -> int | None:
    """Return broker-load's newest LogAppendTime, ms since 1970; None = empty.

    Raises CommandError when Kafka doesn't answer.
    """
    topic = address.topic_name(Topic.BROKER_LOAD)
    with _admin(address, timeout_ms) as admin:
        (found,) = admin.describe_topics([topic])
        _check_code(found["error_code"], topic)
        wanted = {
            TopicPartition(topic, partition["partition_index"]): OffsetSpec.MAX_TIMESTAMP
            for partition in found["partitions"]
        }
        newest = admin.list_partition_offsets(wanted)
    return max((one.timestamp for one in newest.values() if one.timestamp >= 0), default=None)

"""Identity of a Kafka: cluster id, topic ids, bounds of the input topics.

A topic that was deleted and created anew has the old name and another id. Offsets stored for the
old one are then void. Topic ids are Kafka's (KIP-516).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.console import CommandError

Ends = dict[str, dict[str, int]]
"""Topic → partition, as text → next offset to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaPlace:
    """A Kafka cluster as found at a start.

    topics: name → id, of all topics asked for. bounds: input topic → partition → (earliest offset
    that Kafka has, offset after the last).
    """

    cluster_id: str
    topics: Mapping[str, str]
    bounds: Mapping[str, Mapping[int, tuple[int, int]]]

    def ends_after(self, last_commit: Mapping[str, Any] | None) -> Ends:
        """Return the start offsets: after the last committed batch, or the earliest.

        last_commit: its metadata, with `offsets` and the `topics` that they belong to.
        """
        said = last_commit or {}
        offsets, ids = said.get("offsets", {}), said.get("topics", {})
        found: Ends = {}
        for topic, partitions in sorted(self.bounds.items()):
            is_same = ids.get(topic, self.topics[topic]) == self.topics[topic]
            ends = offsets.get(topic, {}) if is_same else {}
            found[topic] = {
                str(partition): _within(ends.get(str(partition), 0), *bounds)
                for partition, bounds in sorted(partitions.items())
            }
        return found

    def ends_beyond(self, skipped: str, last_commit: Mapping[str, Any] | None) -> Ends:
        """The same, but after all that is in one topic by now."""
        ends = {str(partition): latest for partition, (_, latest) in self.bounds[skipped].items()}
        return {**self.ends_after(last_commit), skipped: ends}


def _within(end: int, earliest: int, latest: int) -> int:
    return end if earliest <= end <= latest else earliest


def find_kafka(address: KafkaAddress, inputs: Sequence[str], others: Sequence[str]) -> KafkaPlace:
    """Ask Kafka. inputs, others: names of topics, with their prefix.

    Raises CommandError when Kafka doesn't answer or a topic is missing.
    """
    options = address.client_options("balance_cluster-place")
    try:
        cluster_id, topics = _describe(options, [*inputs, *others])
        return KafkaPlace(
            cluster_id=cluster_id, topics=topics, bounds=_bounds(options, sorted(inputs))
        )
    except KafkaError as error:
        raise CommandError(
            f"Kafka at {address.bootstrap} can't be asked for its topics",
            why=f"{type(error).__name__}: {error}",
            next_step="check that it is up and that this address and these credentials are right",
        ) from error


def _describe(options: Mapping[str, Any], names: Sequence[str]) -> tuple[str, dict[str, str]]:
    admin = KafkaAdminClient(**options)
    try:
        found = {topic["name"]: topic for topic in admin.describe_topics(list(names))}
        cluster_id = str(admin.describe_cluster()["cluster_id"])
    finally:
        admin.close()
    for name in names:
        if name not in found or found[name]["error_code"]:
            raise CommandError(
                f"topic {name} is missing",
                why="the topics of the wire have not been made in this Kafka, or were deleted",
                next_step="run `ballast topics ensure` and start the job again",
            )
    return cluster_id, {name: str(found[name]["topic_id"]) for name in sorted(names)}


def _bounds(
    options: Mapping[str, Any], names: Sequence[str]
) -> dict[str, dict[int, tuple[int, int]]]:
    consumer = KafkaConsumer(**options)
    try:
        found = {}
        for name in names:
            partitions = sorted(consumer.partitions_for_topic(name) or ())
            places = [TopicPartition(name, partition) for partition in partitions]
            earliest, latest = consumer.beginning_offsets(places), consumer.end_offsets(places)
            found[name] = {place.partition: (earliest[place], latest[place]) for place in places}
        return found
    finally:
        consumer.close()

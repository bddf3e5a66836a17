"""Fetches of a partition's log as stored on the broker: batches stay compressed.

kafka-python's consumer inflates each batch whole, so this speaks Kafka's protocol one layer below,
by the same connections. Transactions are read uncommitted: nobody on the input topics uses them,
and an open transaction could block a reader of committed messages.
"""

import contextlib
import json
import ssl
import tempfile
import time
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafka import TopicPartition
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    for_code,
)
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.consumer import FetchRequest

from jobs.adapters.kafka.clients import KafkaAddress, SecretToken
from jobs.console import CommandError

RESPONSE_BYTES = 16 * 1024 * 1024
PARTITION_BYTES = 1024 * 1024
"""Bounds of one answer; a larger first batch still comes whole."""

_FRAME_BYTES = 256 * 1024 * 1024
_REQUEST_MS = 10_000
_METADATA_AGE_MS = 30_000
_VERSION_MAX = 12  # the last that names topics, not their ids
_RETRY_S = 0.2
_TOKEN = "sasl_oauth_token_provider"  # noqa: S105 an option's name
_PEM_FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")

Offsets = Mapping[TopicPartition, int]


class OffsetsLostError(CommandError):
    """Kafka has deleted messages that were not read yet."""

    def __init__(self, topic_partition: TopicPartition, wanted: int, why: str) -> None:
        super().__init__(
            f"messages of {topic_partition.topic} were lost before they were read",
            why=f"partition {topic_partition.partition}, offset {wanted}: {why}",
            next_step="`ballast state rebuild`, then start the job again: it reads on where Kafka "
            "still has something. Raise topics.report_retention_ms if the job was away for long",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedLog:
    """A part of a partition's log from the requested offset.

    log: whole batches, maybe with a part of one at the end. begin: first offset of the partition;
    end: the offset after its last.
    """

    log: bytes
    begin: int
    end: int


def connection_text(address: KafkaAddress) -> str:
    """Return the address as text for another machine, with certificates."""
    options = address.client_options("balance_cluster-source")
    for name in _PEM_FILES:
        path = options.get(name)
        try:
            if path:
                options[name] = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            raise CommandError(
                f"{path} could not be read",
                why=str(error),
                next_step="name a readable PEM file in kafka.ca_file, certificate_file or key_file",
            ) from error
    if _TOKEN in options:
        options[_TOKEN] = options[_TOKEN].variables
    return json.dumps(options)


class RawFetcher:
    """Connections to Kafka for fetches of raw batches; one thread at a time."""

    def __init__(self, connection: str, topics: tuple[str, ...]) -> None:
        """Connect. connection: from `connection_text`. Raises KafkaError."""
        options = _with_context(json.loads(connection))
        options |= {
            "receive_message_max_bytes": _FRAME_BYTES,
            "metadata_max_age_ms": _METADATA_AGE_MS,
        }
        self._topics = topics
        self._net = NetworkSelector(**options)
        self._net.start()
        self._manager = KafkaConnectionManager(self._net, **options)
        try:
            self._manager.bootstrap(options["bootstrap_timeout_ms"])
            self._wait(self._manager.cluster.set_topics(list(topics)))
        except BaseException:
            self.close()
            raise

    def partitions(self) -> list[TopicPartition]:
        """Return the known partitions of all topics, sorted."""
        cluster = self._manager.cluster
        found = [
            TopicPartition(topic, number)
            for topic in self._topics
            for number in sorted(cluster.partitions_for_topic(topic) or ())
        ]
        if not found:
            self._wait(cluster.request_update())
        return found

    def fetch(self, offsets: Offsets) -> dict[TopicPartition, FetchedLog]:
        """Fetch once from these offsets; partitions whose leader moves are left out.

        Raises KafkaError, and OffsetsLostError if Kafka doesn't have the offset.
        """
        found: dict[TopicPartition, FetchedLog] = {}
        for node, topics in self._by_leader(offsets).items():
            for topic_partition, answer in self._request(node, topics):
                error = for_code(answer.error_code)
                if error is OffsetOutOfRangeError:
                    raise OffsetsLostError(
                        topic_partition, offsets[topic_partition], "Kafka has no such offset now"
                    )
                if error is TopicAuthorizationFailedError:
                    raise error(topic_partition.topic)
                if answer.error_code:
                    self._manager.cluster.request_update()
                    continue
                found[topic_partition] = FetchedLog(
                    log=bytes(answer.records or b""),
                    begin=answer.log_start_offset,
                    end=answer.high_watermark,
                )
        return found

    def read(
        self, topic_partition: TopicPartition, start: int, end: int, wait_s: float
    ) -> Generator[bytes, int, None]:
        """Yield parts of a partition's log from start until the caller stops.

        The caller sends the next wanted offset after each part. Waits while Kafka is away.
        """
        position, until_s = start, time.monotonic() + wait_s
        while position < end:
            try:
                part = self.fetch({topic_partition: position}).get(topic_partition)
            except KafkaError:
                if time.monotonic() > until_s:
                    raise
                part = None
            if part is None or not part.log:
                if part is not None and part.end <= position:
                    raise OffsetsLostError(
                        topic_partition, position, f"its log ends at {part.end} now"
                    )
                if time.monotonic() > until_s:
                    raise KafkaTimeoutError(
                        f"{topic_partition.topic}-{topic_partition.partition}@{position}"
                    )
                time.sleep(_RETRY_S)
                continue
            wanted = yield part.log
            if wanted > position:
                position, until_s = wanted, time.monotonic() + wait_s
            elif time.monotonic() > until_s:
                raise OffsetsLostError(
                    topic_partition, position, "Kafka's answer has no whole batch there"
                )

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(Exception):  # of a client that never connected
            self._manager.close()
        with contextlib.suppress(Exception):
            self._net.close()

    def _by_leader(self, offsets: Offsets) -> dict[int, dict[str, list[Any]]]:
        """Return leader → topic → the partitions to fetch from it."""
        found: dict[int, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
        cluster = self._manager.cluster
        for topic_partition, offset in offsets.items():
            leader = cluster.leader_for_partition(topic_partition)
            if leader is None or leader < 0:
                cluster.request_update()
                continue
            found[leader][topic_partition.topic].append(
                FetchRequest.FetchTopic.FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=-1,
                    fetch_offset=offset,
                    last_fetched_epoch=-1,
                    partition_max_bytes=PARTITION_BYTES,
                )
            )
        if not found:
            raise KafkaConnectionError("no leader is known")
        return found

    def _request(
        self, node: int, topics: Mapping[str, list[Any]]
    ) -> Iterator[tuple[TopicPartition, Any]]:
        request = FetchRequest(
            max_wait_ms=1,
            min_bytes=1,
            max_bytes=RESPONSE_BYTES,
            isolation_level=0,
            session_id=0,
            session_epoch=-1,
            topics=[
                FetchRequest.FetchTopic(topic=topic, partitions=parts)
                for topic, parts in topics.items()
            ],
            forgotten_topics_data=[],
            rack_id="",
            min_version=5,
            max_version=_VERSION_MAX,
        )
        answer = self._wait(self._manager.send(request, node_id=node))
        if answer.error_code:
            raise for_code(answer.error_code)
        for topic in answer.responses:
            for part in topic.partitions:
                yield TopicPartition(topic.topic, part.partition_index), part

    def _wait(self, future: Any) -> Any:
        return self._net.run(self._manager.wait_for, future, _REQUEST_MS)


def _with_context(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with a TLS context and a token provider in place of texts."""
    if _TOKEN in options:
        options[_TOKEN] = SecretToken(options[_TOKEN])
    texts = {name: options.pop(name, None) for name in _PEM_FILES}
    if not options.get("security_protocol", "").endswith("SSL"):
        return options
    context = ssl.create_default_context(cadata=texts["ssl_cafile"])
    if texts["ssl_certfile"]:
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder, "pair.pem")  # in a folder that nobody else may look into
            pair.write_text(f"{texts['ssl_keyfile'] or ''}\n{texts['ssl_certfile']}")
            context.load_cert_chain(pair)
    return {**options, "ssl_context": context}

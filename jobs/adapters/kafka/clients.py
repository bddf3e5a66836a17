"""Thin Kafka clients: a sender that reports each delivery, and a topic's tail.

Sent with acks=all, in order, with a deadline for each message; read with read_committed, from the
beginning, without a group. Used by the fleet, agents, the driver's ticks and `run_local`. Over
kafka-python 3.
"""

import logging
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any, TypeAlias

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.net import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider

from jobs.adapters.processes.settings import read_secret
from jobs.console import CommandError
from lbcore.wire.messages import Topic

logging.getLogger("kafka").setLevel(logging.ERROR)  # retries are not worth a line

_NEW_TOPIC_S = 5.0  # until every broker knows a new topic
_RETRY_S = 0.2
_CLOSE_S = 2.0
_REFUSAL = re.compile(r"Authentication failed[^()]*|certificate verify failed[^()]*")
_CUT = "socket disconnected"
_CUT_AT_LOGIN = "Kafka closed the connection at every login: the user or the password may be wrong"


PASSWORD = "BALLAST_KAFKA_PASSWORD"  # noqa: S105 a variable's name, not a secret


@dataclass(frozen=True)
class SecretToken(AbstractTokenProvider):  # type: ignore[misc]  # it has no types
    """The token of SASL OAUTHBEARER; its file is read again at each login.

    variables: environment variables of the password, so that another machine can make the same
    token.
    """

    variables: Mapping[str, str] = field(repr=False)

    def token(self) -> str:
        """Return the present token; raises CommandError for an unreadable file."""
        return read_secret(PASSWORD, self.variables).strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaAddress:
    """Address of Kafka, and its clients' security settings.

    topic_prefix: put before every topic's name. security: kafka-python's own keys
    (security_protocol, sasl_*, ssl_*).
    """

    bootstrap: str
    topic_prefix: str = ""
    security: Mapping[str, Any] = field(default_factory=dict)

    def topic_name(self, topic: Topic) -> str:
        """Return the topic's name in Kafka."""
        return f"{self.topic_prefix}{topic.value}"

    def client_options(self, client_id: str) -> dict[str, Any]:
        """Return the options of every kafka-python client."""
        return {
            "bootstrap_servers": self.bootstrap,
            "client_id": client_id,
            "reconnect_backoff_max_ms": 1_000,  # a restarted broker is found again at once
            "bootstrap_timeout_ms": 15_000,
            **self.security,
        }

    def producer_options(self, client_id: str) -> dict[str, Any]:
        """Return the options of a non-transactional producer.

        Delivery is at least once, in order. Not idempotent: after a time-out in flight kafka-python
        3.0.12 drops its producer id, never asks for another, and sends nothing more. Readers
        detect duplicates by seq, version or command id.
        """
        return {
            "acks": "all",
            "enable_idempotence": False,
            "max_in_flight_requests_per_connection": 1,
            **self.client_options(client_id),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """All in-sync replicas have the message."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotDelivered:
    """The message may be lost: refused, or not acknowledged before its deadline."""

    topic: str
    reason: str


Delivery = Delivered | NotDelivered
OnDelivery = Callable[[Delivery], None]


class Sender:
    """A producer that reports for each message whether Kafka has it.

    Thread-safe. `on_delivery` is called in the producer's own thread: it must be quick and not
    raise.
    """

    def __init__(
        self, address: KafkaAddress, client_id: str, *, delivery_timeout_ms: int = 30_000
    ) -> None:
        """Connect. delivery_timeout_ms: bound of the retries of each message."""
        self._address = address
        self._lock = threading.Lock()
        self.delivered = 0
        self.not_delivered = 0
        self._producer = _connected(
            address,
            lambda: KafkaProducer(
                linger_ms=5,
                batch_size=65_536,
                max_block_ms=5_000,
                request_timeout_ms=min(10_000, delivery_timeout_ms - 5),
                delivery_timeout_ms=delivery_timeout_ms,
                max_request_size=16_777_216,
                allow_auto_create_topics=False,
                metrics_enabled=False,
                **address.producer_options(client_id),
            ),
        )

    def send(
        self,
        topic: Topic,
        key: str,
        value: bytes | None,
        *,
        partition: int | None = None,
        on_delivery: OnDelivery = lambda _: None,
    ) -> None:
        """Send one message.

        `on_delivery` is called exactly once, maybe before this returns. value None deletes the key
        of a compacted topic. Blocks for 5 s at most, while the buffer is full or Kafka has not
        answered yet.
        """
        name = self._address.topic_name(topic)

        def succeed(found: Any) -> None:
            with self._lock:
                self.delivered += 1
            on_delivery(
                Delivered(
                    partition=found.partition, offset=found.offset, timestamp_ms=found.timestamp
                )
            )

        def fail(error: Exception) -> None:
            with self._lock:
                self.not_delivered += 1
            on_delivery(NotDelivered(topic=name, reason=_reason(error)))

        try:
            future = self._producer.send(name, value, key.encode(), partition=partition)
        except (KafkaError, ValueError) as error:  # ValueError: the topic has just been deleted
            fail(error)
            return
        future.add_callback(succeed)
        future.add_errback(fail)

    def flush(self, timeout_ms: int) -> bool:
        """Wait until all messages are delivered or given up; False = some are pending."""
        try:
            self._producer.flush(timeout=timeout_ms / 1000.0)
        except KafkaTimeoutError:
            return False
        return True

    def close(self, timeout_ms: int = 5_000) -> None:
        """Send the rest within the time, then disconnect; the remainder is lost."""
        close_producer(self._producer, timeout_ms / 1000.0)


def close_producer(producer: KafkaProducer, timeout_s: float) -> None:
    """Send the rest within the time, then disconnect; the remainder is lost.

    When the time is over, `close` of kafka-python 3.0.12 raises, and its thread goes on for ever.
    """
    try:
        producer.close(timeout=timeout_s)
    except KafkaTimeoutError:  # Kafka is away
        thread = producer._sender  # noqa: SLF001 (nothing public ends it)
        thread.force_close()
        thread.join(_CLOSE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One message of a tailed topic; value None deletes the key."""

    partition: int
    offset: int
    timestamp_ms: int
    key: str
    value: bytes | None


Ends: TypeAlias = Mapping[Any, int]
"""Partition → the offset after its last committed message."""


class Tail:
    """Consumer of a whole topic, from the beginning; committed messages only.

    One thread at a time. It waits while Kafka is away.
    """

    def __init__(self, address: KafkaAddress, topic: Topic, client_id: str) -> None:
        """Connect; raises CommandError if Kafka or the topic is missing."""
        self._topic = address.topic_name(topic)
        self._consumer = _connected(
            address,
            lambda: open_client(
                KafkaConsumer,
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                max_poll_records=20_000,
                fetch_max_wait_ms=100,
                allow_auto_create_topics=False,
                metrics_enabled=False,
                **address.client_options(client_id),
            ),
        )
        try:
            self._partitions: tuple[TopicPartition, ...] = _connected(address, self._assign)
        except BaseException:
            self._consumer.close()
            raise

    def _assign(self) -> tuple[TopicPartition, ...]:
        found = self._consumer.partitions_for_topic(self._topic)
        deadline_s = monotonic() + _NEW_TOPIC_S
        while not found and monotonic() < deadline_s:
            sleep(_RETRY_S)
            found = self._consumer.partitions_for_topic(self._topic)
        if not found:
            raise CommandError(
                f"the topic {self._topic} is not in Kafka",
                why="it was never made, or the topic prefix is another one",
                next_step="run `ballast topics ensure`, then start this again",
            )
        partitions = tuple(TopicPartition(self._topic, number) for number in sorted(found))
        self._consumer.assign(partitions)
        self._consumer.seek_to_beginning(*partitions)
        return partitions

    def poll(self, timeout_ms: int) -> list[Received]:
        """Return the records since the last call, ordered by (partition, offset)."""
        batches = self._consumer.poll(timeout_ms=timeout_ms)
        return [
            Received(
                partition=record.partition,
                offset=record.offset,
                timestamp_ms=record.timestamp,
                key=(record.key or b"").decode("utf-8", "replace"),
                value=record.value,
            )
            for partition in sorted(batches)
            for record in batches[partition]
        ]

    def read_to_end(self, timeout_ms: int) -> bool:
        """Return True if everything committed before this call has been polled.

        Asks Kafka for the end offsets, so don't call it after each poll. False if Kafka doesn't
        answer.
        """
        ends = self.ends(timeout_ms)
        return ends is not None and self.has_read(ends)

    def ends(self, timeout_ms: int) -> Ends | None:
        """Return each partition's current end offset; None if Kafka doesn't answer."""
        try:
            return dict(self._consumer.end_offsets(list(self._partitions), timeout_ms=timeout_ms))
        except KafkaError:
            return None

    def has_read(self, ends: Ends) -> bool:
        """Return True if everything before these offsets was polled; no request."""
        try:
            return all(
                (self._consumer.position(partition, timeout_ms=0) or 0) >= end
                for partition, end in ends.items()
            )
        except KafkaError:
            return False

    def close(self) -> None:
        """Disconnect."""
        self._consumer.close()


def open_client(make: Callable[..., Any], **options: Any) -> Any:
    """Return a kafka-python client made by `make`; close it if it can't connect.

    Consumers and admin clients of 3.0.12 start a thread before they connect, and would leave it.
    """
    made: list[KafkaNetClient] = []

    def connect(**settings: Any) -> KafkaNetClient:
        made.append(KafkaNetClient(**settings))
        return made[0]

    try:
        return make(kafka_client=connect, **options)
    except BaseException:
        for client in made:
            client.close()
        raise


class _Refusals(logging.Handler):
    """Reasons of refused connections, from the client's log.

    The client retries and only reports a timeout. Kafka answers a wrong password and hangs up at
    once; a slow client sees only that it hung up.
    """

    def __init__(self, *, logs_in: bool) -> None:
        super().__init__(logging.WARNING)
        self._logs_in = logs_in
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message about a password or a certificate."""
        found = _REFUSAL.search(record.getMessage())
        if found:
            self.last = found.group()
        elif self._logs_in and _CUT in record.getMessage():
            self.last = self.last or _CUT_AT_LOGIN


def _connected(address: KafkaAddress, make: Callable[[], Any]) -> Any:
    refusals = _Refusals(logs_in="sasl_mechanism" in address.security)
    logging.getLogger("kafka").addHandler(refusals)
    try:
        return make()
    except KafkaError as error:
        raise CommandError(
            f"Kafka at {address.bootstrap} can't be reached",
            why=refusals.last or _reason(error),
            next_step="start it (`ballast run-local` does), or correct the bootstrap address or"
            " credentials",
        ) from error
    finally:
        logging.getLogger("kafka").removeHandler(refusals)


def _reason(error: BaseException) -> str:
    text = str(error)
    return text if text.startswith(type(error).__name__) else f"{type(error).__name__}: {text}"

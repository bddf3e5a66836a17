"""Sends what brokers must know: a batch's records and tombstones in one Kafka transaction.

Decides nothing. The transactional id is the writer's place: once a newer job has initialised it,
an older job's records are refused. Readers use read_committed. Source: ours; Kafka transactions.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from kafka import KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError

from jobs.adapters.table_writer import FencedError

_SEND_TIMEOUT_S = 60

Keyed: TypeAlias = "tuple[bytes, bytes | None]"
"""Key and value of a message; no value is a tombstone."""


class OwnershipPublisher:
    """A transactional producer for one `ownership` topic."""

    def __init__(self, topic: str, **connection: Any) -> None:
        self._topic = topic
        self._producer = KafkaProducer(
            acks="all", transactional_id=f"ballast-{topic}", linger_ms=2, **connection
        )
        self._producer.init_transactions()

    def publish(self, messages: Sequence[Keyed]) -> None:
        """Send all messages, in order, or none. Raises FencedError, KafkaError."""
        try:
            self._producer.begin_transaction()
            sent = [
                self._producer.send(self._topic, key=key, value=value) for key, value in messages
            ]
            self._producer.commit_transaction()
            for future in sent:
                future.get(timeout=_SEND_TIMEOUT_S)
        except ProducerFencedError as error:
            message = (
                f"Kafka refused records for {self._topic}: a newer balance_cluster job has taken "
                "over; stop one of the two (this one ends)"
            )
            raise FencedError(message) from error

    def close(self) -> None:
        """Let go of the connection."""
        try:
            self._producer.close(timeout=5)
        except KafkaError:
            return

"""Producers of the job: a batch's records in one Kafka transaction, and ticks.

All jobs of a topic share one transactional id: once another job has initialised it, this one's
records are refused. The tables say which job is the newest. An older job that was slow to start may
take the id last; the newer one then takes it back. Readers use read_committed.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any, TypeAlias

from kafka import KafkaProducer
from kafka.errors import KafkaError, ProducerFencedError

from jobs.adapters.delta.table_writer import FencedError
from jobs.adapters.kafka.clients import close_producer
from lbcore.wire.format import format_message
from lbcore.wire.messages import Tick

_SEND_TIMEOUT_S = 60
_ATTEMPTS = 3
_CHECK_S = 1.0
_BATCH_BYTES = 131_072
"""45,000 records of 480 bytes take 1.3 s, with the default of 16,384 bytes 2.8."""

Keyed: TypeAlias = "tuple[bytes, bytes | None]"
"""Key and value of a message; no value is a tombstone."""


class OwnershipPublisher:
    """A transactional producer for one `ownership` topic.

    is_ours: True while the tables are this job's. is_lost: True when topics are deleted, so that
    waiting is useless.
    """

    def __init__(
        self,
        topic: str,
        is_ours: Callable[[], bool],
        is_lost: Callable[[], bool],
        **connection: Any,
    ) -> None:
        self._topic = topic
        self._is_ours = is_ours
        self._is_lost = is_lost
        self._connection = connection
        self._producer = self._claim_producer()

    def publish(self, messages: Sequence[Keyed]) -> None:
        """Send all messages, in order, or none. Raises FencedError, KafkaError."""
        for _ in range(_ATTEMPTS):
            if self._send_unless_lost(messages):
                return
            if not self._is_ours():
                break
            self.close()
            self._producer = self._claim_producer()
        raise FencedError(f"Kafka refused records for {self._topic}")

    def _claim_producer(self) -> KafkaProducer:
        producer = KafkaProducer(
            acks="all",
            transactional_id=f"ballast-{self._topic}",
            linger_ms=2,
            batch_size=_BATCH_BYTES,
            **self._connection,
        )
        producer.init_transactions()
        return producer

    def _send_unless_lost(self, messages: Sequence[Keyed]) -> bool:
        """Call `_try_send`; give up once topics are lost, as a commit would wait for ever."""
        sent: Future[bool] = Future()

        def send() -> None:
            try:
                sent.set_result(self._try_send(messages))
            except Exception as error:  # noqa: BLE001 whatever it is, it is the caller's
                sent.set_exception(error)

        threading.Thread(target=send, daemon=True).start()
        while not wait([sent], timeout=_CHECK_S).done:
            if self._is_lost():
                raise KafkaError(f"{self._topic} is lost: its records wait no longer")
        return sent.result()

    def _try_send(self, messages: Sequence[Keyed]) -> bool:
        """Send the messages in one transaction; return True if Kafka took them.

        False if another producer has fenced this one.
        """
        topic, producer = self._topic, self._producer
        try:
            producer.begin_transaction()
            sent = [producer.send(topic, key=key, value=value) for key, value in messages]
            producer.commit_transaction()
            for future in sent:
                future.get(timeout=_SEND_TIMEOUT_S)
        except KafkaError as error:
            # kafka-python raises this itself or, once its sender knows it, reports it as the
            # producer's state
            if isinstance(error, ProducerFencedError) or ProducerFencedError.__name__ in str(error):
                return False
            raise
        return True

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(KafkaError):
            close_producer(self._producer, 5)


class Ticker:
    """Sends a tick per cluster to each partition of a topic, for Kafka's clock.

    A tick that can't be sent is skipped: time without ticks counts for no broker.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        topic: str,
        clusters: Sequence[str],
        interval_ms: int,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._clusters = clusters
        self._interval_s = interval_ms / 1000
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ticks", daemon=True)

    def start(self) -> None:
        """Begin ticking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop ticking and disconnect."""
        self._stopped.set()
        self._thread.join(timeout=5)
        with contextlib.suppress(KafkaError):  # ticks that can't be sent hold nobody up
            close_producer(self._producer, 2)

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._interval_s):
            number += 1
            # a topic that is made anew meanwhile is a ValueError of kafka-python: the ticks go on
            with contextlib.suppress(Exception):
                for partition in sorted(self._producer.partitions_for(self._topic)):
                    for cluster in self._clusters:
                        _, key, value = format_message(Tick(cluster=cluster, number=number))
                        self._producer.send(self._topic, key=key, value=value, partition=partition)

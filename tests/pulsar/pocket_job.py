"""The job's Machines on the real Kafka, in a thread of the test: without Spark and without tables.

What Spark and Delta do is tested on their own stack; here a day with a real Pulsar cluster must fit
into minutes on a crowded machine. `Stack` with the whole job can take its place.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from jobs.adapters.kafka.clients import KafkaAddress, Sender
from lbcore.config.tree import Config
from lbcore.ownership.records import OwnershipRecord, format_record
from lbcore.wire.messages import Topic
from tests.support.processes.kafka_cluster import PARTITIONS
from tests.support.worlds.world import World

_INPUTS = [topic for topic in Topic if topic is not Topic.OWNERSHIP]
_POLL_MS = 200


class PocketJob(World):
    """A world without brokers of its own: what it reads and writes is Kafka's.

    is_away: nothing is read, decided or written; later it goes on where it was, as a job would.
    """

    def __init__(self, config: Config, address: KafkaAddress) -> None:
        super().__init__(config, brokers=0)
        self._address = address
        self._sender = Sender(address, "pocket-job")
        self._consumer = KafkaConsumer(
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            metrics_enabled=False,
            **address.client_options("pocket-job"),
        )
        places = [
            TopicPartition(address.topic_name(topic), number)
            for topic in _INPUTS
            for number in range(PARTITIONS)
        ]
        self._consumer.assign(places)
        self._consumer.seek_to_beginning(*places)
        self._end = threading.Event()
        self.is_away = False
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True, name="pocket-job")
        self.rows_lock = threading.Lock()

    def start(self, name: str = "") -> None:
        """Begin the batches, or (as a world) a broker."""
        if name:
            super().start(name)
        else:
            self._thread.start()

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._consumer.close()
        self._sender.close()

    def owners(self) -> dict[str, str]:
        """Bundle → broker, of the records that say Owned."""
        rows = self.rows("bundle_ownership")
        return {row["bundle"]: row["destination"] for row in rows if row["state"] == "Owned"}

    def rows(self, table: str) -> list[Mapping[str, Any]]:
        """All rows of a table, as the job would have written them."""
        kept = {"ownership_events": self.events, "decisions": self.decisions}
        with self.rows_lock:
            if table == "bundle_ownership":
                return list(self.current.values())
            return list(kept.get(table, self.other_rows[table]))

    def _work(self) -> None:
        try:
            while not self._end.wait(self.config.pipeline.trigger_ms / 1_000):
                if self.is_away:
                    continue
                self._read()
                with self.rows_lock:
                    self.step_job()
        except Exception as error:  # noqa: BLE001 whatever it is, the test that waits says it
            self.failure = error

    def _read(self) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        for batch in self._consumer.poll(timeout_ms=_POLL_MS).values():
            for message in batch:
                topic = message.topic.removeprefix(self._address.topic_prefix)
                place = (topic, message.partition)
                self.put(place, message.key, message.value, message.timestamp)

    def _announce(self, record: OwnershipRecord) -> None:
        key, value = format_record(record)
        self._sender.send(Topic.OWNERSHIP, key.decode(), value)

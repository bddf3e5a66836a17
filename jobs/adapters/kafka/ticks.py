"""The driver's ticks to broker-load, which advance Kafka's clock for liveness."""

import contextlib
import threading
from collections.abc import Sequence

from kafka import KafkaProducer
from kafka.errors import KafkaError

from lbcore.wire.format import format_message
from lbcore.wire.messages import Tick


class Ticker:
    """Sends a tick per cluster to each partition of one topic, until stopped.

    A tick that can't be sent is left out: a gap in the ticks counts for nobody.
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
        self.failed = 0

    def start(self) -> None:
        """Begin ticking."""
        self._thread.start()

    def stop(self) -> None:
        """End ticking and let go of the producer."""
        self._stopped.set()
        self._thread.join(timeout=5)
        with contextlib.suppress(KafkaError):  # ticks that can't be sent hold nobody up
            self._producer.close(timeout=2)

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._interval_s):
            number += 1
            try:
                for partition in sorted(self._producer.partitions_for(self._topic)):
                    for cluster in self._clusters:
                        _, key, value = format_message(Tick(cluster=cluster, number=number))
                        self._producer.send(self._topic, key=key, value=value, partition=partition)
            except KafkaError:
                self.failed += 1

"""Rest: the end of a batch is held back while nothing comes that can't wait.

Decides nothing: how long a batch may wait, and what can't, is `lbcore.balancer.rest`'s to say.
Spark's trigger is fixed, so a batch that is written waits here before it ends; what it did is
durable, and a job that is killed meanwhile repeats it to the same effects. Source: ours.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from threading import Event
from time import monotonic
from typing import Any

import orjson
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from jobs.adapters.kafka.clients import KafkaAddress
from jobs.adapters.kafka.place import Ends
from lbcore.balancer.rest import HEARD, SAID_BY, Heard
from lbcore.config.tree import Config
from lbcore.wire.messages import Message, Rejected
from lbcore.wire.parse import parse
from lbcore.wire.rules import ParseRules

_POLL_S = 0.2
_LEAST_S = 0.05
_STEP_MS = 500
_LATELY = 4_000
"""Messages a partition: what a thousand brokers say in twenty seconds."""


class Rest:
    """Waits, and listens meanwhile. One thread at a time."""

    def __init__(self, address: KafkaAddress, config: Config, told_to_end: Event) -> None:
        """Connects when it first waits. told_to_end: ends a rest, too."""
        self._names = {address.topic_name(topic): topic for topic in HEARD}
        self._rules = ParseRules(
            clusters=frozenset(config.pipeline.clusters), limits=config.wire, loads=orjson.loads
        )
        self._heard = Heard()
        self._told_to_end = told_to_end
        self._consumer: Any = None
        self._connect = partial(
            KafkaConsumer,
            group_id=None,
            enable_auto_commit=False,
            fetch_max_wait_ms=_STEP_MS,
            allow_auto_create_topics=False,
            metrics_enabled=False,
            **address.client_options("rest"),
        )

    def wait(self, until_s: float, ends: Ends) -> float:
        """Wait until then, by `time.monotonic`, or until something comes that can't wait.

        ends: what the batch has read, topic → partition → offset. Returns the seconds waited. It is
        over at once where Kafka can't be listened to, so that nothing is heard late.
        """
        began_s = monotonic()
        if until_s - began_s < _LEAST_S:
            return 0.0
        try:
            self._listen_from(ends, until_s)
            while (left_s := self._left_s(until_s)) > 0:
                if self._heard.has_news(self._polled(min(left_s, _POLL_S))):
                    break
        except KafkaError:
            self.close()
        return monotonic() - began_s

    def close(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _left_s(self, until_s: float) -> float:
        return 0.0 if self._told_to_end.is_set() else until_s - monotonic()

    def _listen_from(self, ends: Ends, until_s: float) -> None:
        places = {
            TopicPartition(topic, int(partition)): end
            for topic in self._names
            for partition, end in ends.get(topic, {}).items()
        }
        if self._consumer is None:
            self._consumer = self._connect()
            said = {
                place: end for place, end in places.items() if self._names[place.topic] in SAID_BY
            }
            self._learn(said, until_s)
        if self._consumer.assignment() != places.keys():
            self._consumer.assign(list(places))
        for place, end in places.items():
            self._consumer.seek(place, end)

    def _learn(self, places: Mapping[TopicPartition, int], until_s: float) -> None:
        """Hear what brokers said lately: batches have read it, so it is no news when said again."""
        self._consumer.assign(list(places))
        for place, first in self._consumer.beginning_offsets(list(places)).items():
            self._consumer.seek(place, max(first, places[place] - _LATELY))
        while (left_s := self._left_s(until_s)) > 0 and any(
            self._consumer.position(place) < end for place, end in places.items()
        ):
            self._heard.has_news(self._polled(min(left_s, _POLL_S), places))

    def _polled(
        self, wait_s: float, before: Mapping[TopicPartition, int] | None = None
    ) -> Iterator[Message | Rejected]:
        for place, records in self._consumer.poll(timeout_ms=round(1000 * wait_s)).items():
            for record in records:
                if before is None or record.offset < before[place]:
                    yield parse(self._names[place.topic], record.key, record.value, self._rules)

"""Traffic for a real Pulsar: producers and consumers that count every message they are sure of.

Decides how much each topic carries, by its number; a demonstration and the tests need it. Which
messages were acknowledged and which arrived is kept by topic and number, so a lost one is named.
Needs the package pulsar-client.
"""

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pulsar

_TICK_S = 0.1
_TRIES = 3
_QUIET = logging.getLogger("ballast.pulsar-client")
_QUIET.setLevel(logging.CRITICAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one topic carries: messages a second of so many bytes."""

    topic: str
    rate_per_s: float
    size: int = 1_000


@dataclass(slots=True)
class Tally:
    """What is known of one topic's messages, by their numbers."""

    sent: int = 0
    acknowledged: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)


class Traffic:
    """Producers and consumers of some topics, from `start` to `stop`."""

    def __init__(self, url: str, loads: Sequence[Load]) -> None:
        """Makes nothing yet. url: the http address of a web service, for lookups.

        sends, arrivals: the second of `time.monotonic` at which a message was sent, and the ms that
        its acknowledgement, or its way to the consumer, took.
        """
        self._loads = {load.topic: load for load in loads}
        self._tallies = {load.topic: Tally() for load in loads}
        self._client = pulsar.Client(url, operation_timeout_seconds=60, logger=_QUIET)
        self._producers: dict[str, Any] = {}
        self._consumers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._end = threading.Event()
        self.sends: list[tuple[float, float]] = []
        self.arrivals: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._produce, daemon=True, name="traffic")

    def start(self) -> None:
        """Connect every topic, a few tries each, then produce."""
        for topic in self._loads:
            self._consumers[topic] = self._tried(self._subscribe, topic)
            self._producers[topic] = self._tried(self._producer, topic)
        self._thread.start()

    def stop(self, drain_s: float = 30.0) -> None:
        """Stop producing, wait until all that was acknowledged has arrived, disconnect; once."""
        if self._end.is_set():
            return
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline_s = time.monotonic() + drain_s
        while time.monotonic() < deadline_s and (self._under_way() or self.lost()):
            time.sleep(_TICK_S)
        self._client.close()

    def set_rate(self, topic: str, rate_per_s: float) -> None:
        self._loads[topic] = Load(topic=topic, rate_per_s=rate_per_s, size=self._loads[topic].size)

    def lost(self) -> Counter[str]:
        """Topic → how many messages were acknowledged and have not arrived."""
        with self._lock:
            missing = {t: len(one.acknowledged - one.received) for t, one in self._tallies.items()}
        return Counter({topic: count for topic, count in missing.items() if count})

    def errors(self) -> list[str]:
        """What producers were told instead of an acknowledgement."""
        with self._lock:
            return [f"{t}: {why}" for t, one in self._tallies.items() for why in one.errors]

    def acknowledged(self) -> int:
        with self._lock:
            return sum(len(one.acknowledged) for one in self._tallies.values())

    def rates(self) -> dict[str, float]:
        """Topic → messages a second that it is to carry now."""
        return {topic: load.rate_per_s for topic, load in self._loads.items()}

    def p99_ms(self) -> float:
        """The 99th percentile of the time to an acknowledgement; -1.0 without a send."""
        with self._lock:
            taken = sorted(took_ms for _, took_ms in self.sends)
        return taken[int(0.99 * (len(taken) - 1))] if taken else -1.0

    def _tried(self, make: Any, topic: str) -> Any:
        for _ in range(_TRIES - 1):
            with contextlib.suppress(pulsar.PulsarException):  # a fresh namespace, a busy machine
                return make(topic)
        return make(topic)

    def _subscribe(self, topic: str) -> Any:
        return self._client.subscribe(
            topic,
            "demo",
            initial_position=pulsar.InitialPosition.Earliest,
            message_listener=lambda consumer, message: self._arrived(topic, consumer, message),
        )

    def _producer(self, topic: str) -> Any:
        return self._client.create_producer(
            topic, block_if_queue_full=True, send_timeout_millis=60_000, batching_enabled=False
        )

    def _arrived(self, topic: str, consumer: Any, message: Any) -> None:
        told, now_s = message.properties(), time.monotonic()
        began_s = float(told["began_s"])
        consumer.acknowledge(message)
        with self._lock:
            self._tallies[topic].received.add(int(told["number"]))
            self.arrivals.append((began_s, (now_s - began_s) * 1_000))

    def _produce(self) -> None:
        owed = dict.fromkeys(self._loads, 0.0)
        last_s = time.monotonic()
        while not self._end.wait(_TICK_S):
            now_s = time.monotonic()
            for topic, load in list(self._loads.items()):
                owed[topic] += load.rate_per_s * min(now_s - last_s, 1.0)
                while owed[topic] >= 1.0 and not self._end.is_set():
                    owed[topic] -= 1.0
                    self._send(topic, load.size)
            last_s = now_s

    def _send(self, topic: str, size: int) -> None:
        tally = self._tallies[topic]
        tally.sent += 1
        number, began_s = tally.sent, time.monotonic()

        def done(result: Any, _: Any) -> None:
            with self._lock:
                if result == pulsar.Result.Ok:
                    tally.acknowledged.add(number)
                    self.sends.append((began_s, (time.monotonic() - began_s) * 1_000))
                else:
                    tally.errors.append(str(result))

        try:
            told = {"number": str(number), "began_s": repr(began_s)}
            self._producers[topic].send_async(b"x" * size, done, properties=told)
        except pulsar.PulsarException as error:
            with self._lock:
                tally.errors.append(str(error))

    def _under_way(self) -> bool:
        with self._lock:
            return any(
                one.sent > len(one.acknowledged) + len(one.errors) for one in self._tallies.values()
            )
